//! Tables of rules with objects.

use serde_json::{Value, json};

use super::program::Program;
use super::{check, check_within, convert, warnings};
use crate::custom::schema::Schema;

/// The schema of an object with the field `f`.
fn with(field: Value) -> Schema {
    Schema::read(&json!({ "type": "object", "properties": { "f": field, "other": { "type": "string" } } }))
}

/// A schema with rules.
fn ruled(mut schema: Value, rules: Value) -> Value {
    schema["x-kubernetes-validations"] = rules;
    schema
}

fn texts(schema: &Schema, old: Option<&Value>, new: &Value) -> Vec<String> {
    check(new, old, schema).iter().map(ToString::to_string).collect()
}

/// The errors of a new field `f`.
fn field_errors(field: Value, rules: Value, value: Value) -> Vec<String> {
    texts(&with(ruled(field, rules)), None, &json!({ "f": value }))
}

/// The errors of a change of the field `f`.
fn change_errors(field: Value, rules: Value, old: Value, new: Value) -> Vec<String> {
    texts(&with(ruled(field, rules)), Some(&json!({ "f": old })), &json!({ "f": new }))
}

fn object() -> Value {
    json!({ "type": "object", "properties": {
        "a": { "type": "integer" }, "b": { "type": "integer", "nullable": true },
        "list": { "type": "array", "items": { "type": "integer" } },
        "map": { "type": "object", "additionalProperties": { "type": "string" } },
        "x.y": { "type": "string" }, "dash-ed": { "type": "string" }, "namespace": { "type": "string" },
        "a__b": { "type": "string" }, "p/q": { "type": "string" },
    } })
}

const NONE: [&str; 0] = [];

#[test]
fn rules_are_evaluated_with_the_types_of_the_schema() {
    let list = || json!({ "type": "array", "items": { "type": "integer" } });
    let either = || json!({ "x-kubernetes-int-or-string": true });
    let typed = |format: &str| json!({ "type": "string", "format": format });
    let table = [
        (object(), "has(self.a)", json!({ "a": 0 }), true),
        (object(), "has(self.a)", json!({}), false),
        // A field that is null is absent.
        (object(), "has(self.b)", json!({ "b": null }), false),
        (object(), "!has(self.a) || self.a > 1", json!({}), true),
        (object(), "self.?a.orValue(7) == 7", json!({}), true),
        (object(), "self.list.all(x, x > 1)", json!({ "list": [2, 3] }), true),
        (object(), "self.list.all(x, x > 1)", json!({ "list": [2, 1] }), false),
        (object(), "self.list.exists(x, x == 2)", json!({ "list": [1, 2] }), true),
        (object(), "self.list.exists_one(x, x == 2)", json!({ "list": [2, 2] }), false),
        (object(), "self.list.map(x, x * 2) == [2, 4]", json!({ "list": [1, 2] }), true),
        (object(), "self.list.filter(x, x > 1).size() == 1", json!({ "list": [1, 2] }), true),
        (
            object(),
            "self.map.all(k, k.startsWith('k') && self.map[k] != '')",
            json!({ "map": { "k": "v" } }),
            true,
        ),
        (object(), "self.map['x.y'] == 'v' && 'x.y' in self.map", json!({ "map": { "x.y": "v" } }), true),
        (object(), "self.x__dot__y == 'v'", json!({ "x.y": "v" }), true),
        (object(), "self.dash__dash__ed == 'v'", json!({ "dash-ed": "v" }), true),
        (object(), "self.__namespace__ == 'v'", json!({ "namespace": "v" }), true),
        (object(), "self.a__underscores__b == 'v'", json!({ "a__b": "v" }), true),
        (object(), "self.p__slash__q == 'v'", json!({ "p/q": "v" }), true),
        (list(), "size(self) == 2 && self[1] == 5", json!([4, 5]), true),
        (json!({ "type": "number" }), "type(self) == double && self == 1.0", json!(1), true),
        (json!({ "type": "integer" }), "type(self) == int && self == 2", json!(2.0), true),
        (either(), "type(self) == int ? self > 1 : self.endsWith('%')", json!(2), true),
        (either(), "type(self) == int ? self > 1 : self.endsWith('%')", json!("2%"), true),
        (either(), "type(self) == int ? self > 1 : self.endsWith('%')", json!("2"), false),
        (json!({ "type": "string" }), "quantity(self).isLessThan(quantity('1Gi'))", json!("1G"), true),
        (json!({ "type": "string", "nullable": true }), "false", Value::Null, true),
        (typed("byte"), "size(self) == 2", json!("aGk="), true),
    ];
    for (field, rule, value, expected) in table {
        let errors = field_errors(field, json!([{ "rule": rule, "message": "wrong" }]), value.clone());
        let is_satisfied = errors.is_empty();
        assert_eq!(is_satisfied, expected, "{rule} of {value}: {errors:?}");
        assert!(errors.iter().all(|error| error.ends_with(": wrong")), "{rule} of {value}: {errors:?}");
    }
}

#[test]
fn functions_of_kubernetes_are_evaluated() {
    let table = [
        "'Abc'.lowerAscii() == 'abc' && 'Abc'.upperAscii() == 'ABC'",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'aa'.replace('a', 'b') == 'bb' && ' a '.trim() == 'a'",
        "'abcd'.substring(1, 3) == 'bc' && 'abcd'.charAt(1) == 'b'",
        "'abab'.indexOf('b') == 1 && 'abab'.lastIndexOf('b') == 3",
        "'%s-%d'.format(['a', 1]) == 'a-1'",
        "[1, 2, 2].isSorted() && ![2, 1].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0",
        "[1, 3, 2].max() == 3 && ['b', 'a'].min() == 'a'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
        "sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('x') == ''",
        "'1 a 2'.findAll('[0-9]') == ['1', '2'] && '1 a 2'.findAll('[0-9]', 1) == ['1']",
        "self.matches('^x$')",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('200M') == quantity('0.2G')",
        "quantity('50k').add(20).sub(quantity('20')).compareTo(quantity('50000')) == 0",
        "quantity('50k').isInteger() && quantity('50k').asInteger() == 50000 && sign(quantity('-1')) == -1",
        "isQuantity('1.3Gi') && !isQuantity('Three')",
        "optional.of(1).orValue(2) == 1 && !optional.none().hasValue()",
        "'a' in {'a': 1} && {'a': 1}.?b.orValue(5) == 5",
        "!format.dns1123Label().validate('a-b').hasValue() && format.dns1123Label().validate('a.b').hasValue()",
        "format.named('labelValue').hasValue() && !format.named('none').hasValue()",
        "format.named('uuid').value().validate('x').value() == ['does not match the UUID format']",
        "!format.qualifiedName().validate('a.b/c').hasValue() && format.datetime().validate('x').hasValue()",
        "[1, 2].first().value() == 1 && [1, 2].last() == optional.of(2) && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of('a')].unwrapOpt() == ['a']",
    ];
    for rule in table {
        assert_eq!(
            field_errors(json!({ "type": "string" }), json!([{ "rule": rule }]), json!("x")),
            NONE,
            "{rule}"
        );
    }
}

#[test]
fn rules_about_changes_need_a_correlated_old_value() {
    let rules = || json!([{ "rule": "self == oldSelf", "message": "immutable" }]);
    let string = || json!({ "type": "string" });
    assert_eq!(field_errors(string(), rules(), json!("a")), NONE);
    assert_eq!(change_errors(string(), rules(), json!("a"), json!("a")), NONE);
    assert_eq!(
        change_errors(string(), rules(), json!("a"), json!("b")),
        ["f: Invalid value: \"b\": immutable"]
    );
    // The items of a map have an identity, those of other lists have none.
    let items = |value: Value| json!([{ "k": "other", "v": 9 }, { "k": "i", "v": value }]);
    let list = |kind: &str| {
        let item = json!({ "type": "object", "properties": {
            "k": { "type": "string" }, "v": ruled(json!({ "type": "integer" }), rules()) } });
        json!({ "type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"], "items": item })
    };
    let change = |kind: &str| {
        let new = json!({ "f": items(json!(2)) });
        texts(&with(list(kind)), Some(&json!({ "f": [{ "k": "i", "v": 1 }] })), &new)
    };
    assert_eq!(change("map"), ["f[1].v: Invalid value: 2: immutable"]);
    assert_eq!(change("atomic"), NONE);
    // With an optional old value, the rule applies to new ones, too.
    let rules =
        || json!([{ "rule": "!oldSelf.hasValue() || oldSelf.value() <= self", "optionalOldSelf": true }]);
    let integer = || json!({ "type": "integer" });
    assert_eq!(field_errors(integer(), rules(), json!(1)), NONE);
    assert_eq!(change_errors(integer(), rules(), json!(1), json!(2)), NONE);
    assert_eq!(
        change_errors(integer(), rules(), json!(2), json!(1)),
        ["f: Invalid value: 1: failed rule: !oldSelf.hasValue() || oldSelf.value() <= self"]
    );
}

#[test]
fn messages_reasons_and_fields() {
    let rule = |more: Value| {
        let mut rule = json!({ "rule": "self.a > 5", "message": "a is small" });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([rule])
    };
    let table = [
        (json!({}), "f: Invalid value: a is small"),
        (json!({ "message": "" }), "f: Invalid value: failed rule: self.a > 5"),
        (json!({ "messageExpression": "'a is ' + string(self.a)" }), "f: Invalid value: a is 1"),
        // A message that cannot be made is replaced.
        (json!({ "messageExpression": "self.map['none']" }), "f: Invalid value: a is small"),
        (json!({ "messageExpression": "'two\\nlines'" }), "f: Invalid value: a is small"),
        (json!({ "messageExpression": "' '" }), "f: Invalid value: a is small"),
        (json!({ "reason": "FieldValueRequired" }), "f: Required value: a is small"),
        (json!({ "reason": "FieldValueForbidden" }), "f: Forbidden: a is small"),
        (json!({ "reason": "FieldValueDuplicate" }), "f: Duplicate value"),
        (json!({ "fieldPath": ".a" }), "f.a: Invalid value: a is small"),
        (json!({ "fieldPath": "['x.y']" }), "f.x.y: Invalid value: a is small"),
        (json!({ "fieldPath": ".map.k" }), "f.map[k]: Invalid value: a is small"),
    ];
    for (more, expected) in table {
        assert_eq!(field_errors(object(), rule(more.clone()), json!({ "a": 1 })), [expected], "{more}");
    }
    let duplicate = json!([{ "rule": "false", "reason": "FieldValueDuplicate" }]);
    assert_eq!(
        field_errors(json!({ "type": "string" }), duplicate, json!("v")),
        ["f: Duplicate value: \"v\""]
    );
}

#[test]
fn rules_apply_to_all_parts() {
    let rules = || json!([{ "rule": "self.size() > 1", "message": "short" }]);
    let string = || ruled(json!({ "type": "string" }), rules());
    let map = with(json!({ "type": "object", "additionalProperties": string() }));
    assert_eq!(texts(&map, None, &json!({ "f": { "k": "v" } })), ["f[k]: Invalid value: \"v\": short"]);
    let list = with(json!({ "type": "array", "items": string() }));
    assert_eq!(texts(&list, None, &json!({ "f": ["ab", "c"] })), ["f[1]: Invalid value: \"c\": short"]);
    let nested = with(json!({ "type": "string", "allOf": [{ "x-kubernetes-validations": rules() }] }));
    assert_eq!(texts(&nested, None, &json!({ "f": "c" })), ["f: Invalid value: \"c\": short"]);
    let root = json!({ "type": "object", "properties": { "f": { "type": "string" } } });
    let rule = "self.metadata.name == self.f && self.kind == 'Thing' && self.apiVersion == 'e/v1'";
    let root = Schema::read(&ruled(root, json!([{ "rule": rule, "message": "other" }])));
    let object =
        |f: &str| json!({ "apiVersion": "e/v1", "kind": "Thing", "metadata": { "name": "n" }, "f": f });
    assert_eq!(texts(&root, None, &object("n")), NONE);
    assert_eq!(texts(&root, None, &object("m")), ["<nil>: Invalid value: other"]);
    let embedded = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true });
    let rules = json!([{ "rule": "self.metadata.name == 'n' && self.kind == 'Thing'" }]);
    assert_eq!(field_errors(embedded, rules, object("")), NONE);
}

#[test]
fn lists_are_compared_by_their_type_and_unknown_fields_by_value() {
    let rules = || json!([{ "rule": "self == oldSelf" }]);
    let list = |kind: &str| json!({ "type": "array", "x-kubernetes-list-type": kind, "items": { "type": "string" } });
    let failed = ["f: Invalid value: failed rule: self == oldSelf"];
    assert_eq!(change_errors(list("set"), rules(), json!(["a", "b"]), json!(["b", "a"])), NONE);
    assert_eq!(change_errors(list("set"), rules(), json!(["a", "b"]), json!(["b", "c"])), failed);
    assert_eq!(change_errors(list("atomic"), rules(), json!(["a", "b"]), json!(["b", "a"])), failed);
    let map = || {
        json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer" } } } })
    };
    let (one, two) = (json!({ "k": "1", "v": 1 }), json!({ "k": "2", "v": 2 }));
    assert_eq!(change_errors(map(), rules(), json!([one, two]), json!([two, one])), NONE);
    let changed = json!({ "k": "1", "v": 7 });
    assert_eq!(change_errors(map(), rules(), json!([one, two]), json!([two, changed])), failed);
    let free = || json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    assert_eq!(change_errors(free(), rules(), json!({ "a": [1] }), json!({ "a": [1] })), NONE);
    assert_eq!(change_errors(free(), rules(), json!({ "a": [1] }), json!({ "a": [2] })), failed);
}

#[test]
fn what_was_invalid_before_may_remain() {
    let item = ruled(
        json!({ "type": "object", "properties": { "n": { "type": "integer" } } }),
        json!([{ "rule": "self.n > 5", "message": "small" }]),
    );
    let schema = |list: &str| {
        Schema::read(&json!({ "type": "object", "properties": {
            "f": ruled(object(), json!([{ "rule": "self.a > 5", "message": "small" }])),
            "list": { "type": "array", "x-kubernetes-list-type": list, "items": item },
            "other": { "type": "string" },
        } }))
    };
    let object = |a: u8, other: &str| json!({ "f": { "a": a }, "other": other });
    let small = ["f: Invalid value: small"];
    assert_eq!(texts(&schema("atomic"), None, &object(1, "")), small);
    assert_eq!(texts(&schema("atomic"), Some(&object(1, "")), &object(1, "new")), NONE);
    assert_eq!(texts(&schema("atomic"), Some(&object(1, "")), &object(2, "")), small);
    // Items without an identity are as the list around them.
    let list = |second: u8| json!({ "list": [{ "n": 1 }, { "n": second }] });
    assert_eq!(texts(&schema("atomic"), Some(&list(9)), &list(9)), NONE);
    assert_eq!(texts(&schema("atomic"), Some(&list(9)), &list(8)), ["list[0]: Invalid value: small"]);
    // A rule about the change itself has no exception.
    let rules = json!([{ "rule": "self > oldSelf", "message": "must grow" }]);
    let grows = |old, new| change_errors(json!({ "type": "integer" }), rules.clone(), json!(old), json!(new));
    assert_eq!(grows(1, 2), NONE);
    assert_eq!(grows(1, 1), ["f: Invalid value: 1: must grow"]);
}

#[test]
fn errors_of_an_evaluation_are_errors_of_the_object() {
    let table = [
        ("self.map['none'] == ''", "no such key: none"),
        ("self.missing == 1", "no such key: missing"),
        ("self.list[3] == 1", "index out of bounds: 3"),
        ("1 / self.a == 1", "division by zero"),
        ("self.a.size() > 1", "no such overload"),
        ("self.list.max() > 1", "max called on empty list"),
        ("self.?a.orValue(1)", "cel expression must evaluate to a bool"),
    ];
    let value = json!({ "a": 0, "map": {}, "list": [] });
    for (rule, expected) in table {
        let errors = field_errors(object(), json!([{ "rule": rule, "message": "m" }]), value.clone());
        assert_eq!(
            errors,
            [format!("f: Invalid value: \"object\": {expected} evaluating rule: m")],
            "{rule}"
        );
    }
    // A known result is not affected by an error of the other operand.
    assert_eq!(field_errors(object(), json!([{ "rule": "self.missing == 1 || self.a == 0" }]), value), NONE);
}

#[test]
fn loops_have_a_budget() {
    let numbers: Vec<u32> = (0..100).collect();
    let object = json!({ "f": numbers });
    let list = || json!({ "type": "array", "items": { "type": "integer" } });
    for rule in [
        "self.all(a, self.all(b, a + b >= 0))",
        "self.map(a, self.map(b, 1)).size() > 0",
        "self.exists_one(a, self.filter(b, true).size() == a)",
        "self.all(a, a in self)",
    ] {
        let schema = with(ruled(list(), json!([{ "rule": rule }, { "rule": "false" }])));
        let errors = |left| -> Vec<String> {
            check_within(&object, None, &schema, left).iter().map(ToString::to_string).collect()
        };
        let expected = format!(
            "f: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation \
             rules will be run due to call cost exceeds limit for rule: {rule}"
        );
        assert_eq!(errors(300), [expected], "{rule}");
        assert!(!errors(1_000_000)[0].contains("cost"), "{rule}");
    }
}

#[test]
fn rules_that_are_not_evaluated_are_warnings_and_refuse_no_object() {
    let table = [
        ("self.size() > 1 && has(self.f)", None),
        ("[1].map(x, x + 1).exists(y, y > 1 && type(y) == int) && sets.contains([1], [1])", None),
        ("self >", Some("it is not valid CEL: ")),
        ("1 == undefined", Some("the name undefined does not exist there")),
        ("[1].all(x, x > 0) && x > 0", Some("the name x does not exist there")),
        ("self > timestamp('2020-01-01T00:00:00Z')", Some("the function timestamp does not exist there")),
        ("ip.isCanonical(self)", Some("the function isCanonical does not exist there")),
        ("[1].all(i, v, v > 0)", Some("the function all does not exist there")),
        ("type(self) == google.protobuf.Any", Some("the name google does not exist there")),
    ];
    for (rule, expected) in table {
        let field = ruled(json!({ "type": "string" }), json!([{ "rule": rule }]));
        let found = warnings(&with(field));
        let Some(expected) = expected else {
            assert_eq!(found, NONE, "{rule}");
            continue;
        };
        let start = format!(
            "properties[f].x-kubernetes-validations[0].rule: claimcheck's API server does not evaluate {rule:?}: {expected}"
        );
        assert!(found.len() == 1 && found[0].starts_with(&start), "{found:?}");
        let errors = field_errors(json!({ "type": "string" }), json!([{ "rule": rule }]), json!("x"));
        assert_eq!(errors, NONE, "{rule}");
    }
    let message = json!([{ "rule": "true", "messageExpression": "'none' + other" }]);
    let found = warnings(&with(ruled(json!({ "type": "string" }), message)));
    assert!(found.len() == 1 && found[0].contains("[0].messageExpression: "), "{found:?}");
}

#[test]
fn names_are_escaped_as_upstream() {
    let table = [
        ("plain_1", Some("plain_1")),
        ("a__b", Some("a__underscores__b")),
        ("a___b", Some("a__underscores___b")),
        ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
        ("in", Some("__in__")),
        ("1a", None),
        ("a b", None),
        ("", None),
    ];
    for (name, expected) in table {
        assert_eq!(convert::escape(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn programs_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
    shared::<Schema>();
}
