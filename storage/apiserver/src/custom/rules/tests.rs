//! Tables of rules with objects.

use serde_json::{Value, json};

use super::checker::{self, shape::Shape};
use super::program::{Program, Purpose};
use super::{check, check_within, convert, validate};
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
fn of_field(field: Value, rules: Value, value: Value) -> Vec<String> {
    texts(&with(ruled(field, rules)), None, &json!({ "f": value }))
}

/// The errors of a change of the field `f`.
fn of_change(field: Value, rules: Value, old: Value, new: Value) -> Vec<String> {
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
        (
            typed("date-time"),
            "self > timestamp('2020-01-01T00:00:00Z')",
            json!("2026-01-01T00:00:00+01:00"),
            true,
        ),
        (
            typed("date-time"),
            "self > timestamp('2020-01-01T00:00:00Z')",
            json!("2019-01-01T00:00:00Z"),
            false,
        ),
        (typed("date"), "self.getDate() == 31", json!("2026-01-31"), true),
        (typed("duration"), "self <= duration('1h')", json!("90m"), false),
        (typed("duration"), "self == duration('1h')", json!("60m"), true),
        (typed("byte"), "size(self) == 2", json!("aGk="), true),
        (typed("uri"), "url(self).getHost() == 'a.b'", json!("https://a.b/c"), true),
    ];
    for (field, rule, value, expected) in table {
        let errors = of_field(field, json!([{ "rule": rule, "message": "wrong" }]), value.clone());
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
        "isIP('::1') && !isIP('10.0.0.256') && !isIP('::ffff:1.2.3.4')",
        "ip.isCanonical('10.0.0.1') && !ip.isCanonical('2001:DB8::1') && string(ip('::1')) == '::1'",
        "ip('10.0.0.1').family() == 4 && ip('10.0.0.1').isGlobalUnicast() && ip('::1').isLoopback()",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('ff02::1').isLinkLocalMulticast() && ip('::').isUnspecified()",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')",
        "optional.of(1).orValue(2) == 1 && !optional.none().hasValue()",
        "'a' in {'a': 1} && {'a': 1}.?b.orValue(5) == 5",
        "timestamp('2026-01-02T03:04:05.5Z') + duration('1h') > timestamp('2026-01-02T04:04:05Z')",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')",
        "timestamp('2026-01-02T00:00:00Z') == timestamp('2026-01-02T01:00:00+01:00') && timestamp(60).getMinutes() == 1",
        "timestamp('2026-03-01T23:00:00Z').getMonth() == 2 && timestamp('2026-03-01T23:00:00Z').getDate('+02:00') == 2",
        "timestamp('2026-01-04T00:00:00Z').getDayOfWeek() == 0 && timestamp('2026-01-04T00:00:00Z').getFullYear() == 2026",
        "string(timestamp('2026-01-02T01:00:00+01:00')) == '2026-01-02T00:00:00Z' && int(timestamp(7)) == 7",
        "duration('90m').getHours() == 1 && duration('1.5s').getMilliseconds() == 1500 && -dyn(duration('1s')) < duration('0')",
        "string(duration('1h1.5s')) == '3601.5s' && duration('1m') - duration('1s') == duration('59s')",
        "isURL('https://a.b:80/c?d=e') && !isURL('../relative') && url('https://a.b:80/c').getPort() == '80'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getHost() == '[::1]:80'",
        "url('https://a/b%20c#f').getEscapedPath() == '/b%20c' && url('https://a').getScheme() == 'https'",
        "url('https://a/?k=v&k=w&l=x%20y').getQuery() == {'k': ['v', 'w'], 'l': ['x y']}",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.0'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && string(cidr('fd00::1/64').masked()) == 'fd00::/64'",
        "cidr('10.1.2.3/8').prefixLength() == 8 && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
        "!format.dns1123Label().validate('a-b').hasValue() && format.dns1123Label().validate('a.b').hasValue()",
        "format.named('labelValue').hasValue() && !format.named('none').hasValue()",
        "format.named('uuid').value().validate('x').value() == ['does not match the UUID format']",
        "!format.qualifiedName().validate('a.b/c').hasValue() && format.datetime().validate('x').hasValue()",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-alpha.1').compareTo(semver('1.0.0-alpha.beta')) == -1",
        "isSemver('1.2.3-rc.1+b') && !isSemver('v1.2') && isSemver('v01.2', true) && semver('v1.2', true).minor() == 2",
        "['a', 'b'].all(i, v, i < 2 && v != '') && {'a': 1, 'b': 2}.exists(k, v, k == 'b' && v == 2)",
        "[5, 6].existsOne(i, v, i == 1 && v == 6) && ![5, 6].exists_one(i, v, i < 2)",
        "[5, 6].transformList(i, v, i * v) == [0, 6] && [5, 6].transformList(i, v, v > 5, v) == [6]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'a': 2, 'b': 4}",
        "[1, 2].transformMap(i, v, i > 0, v + 1) == {1: 3}",
        "{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, {v: k}) == {'x': 'a', 'y': 'b'}",
        "['a', 'b'].transformMapEntry(i, v, i > 0, {v: i, v + v: 5}) == {'b': 1, 'bb': 5}",
        "[1, 2].first().value() == 1 && [1, 2].last() == optional.of(2) && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of('a')].unwrapOpt() == ['a']",
        "[[1, 2], [3]].all(i, l, l.all(j, v, v == [[1, 2], [3]][i][j] && [v].all(v, v > 0)))",
    ];
    let shape = Shape::of(&Schema::read(&json!({ "type": "string" })), false).unwrap();
    for rule in table {
        assert_eq!(checker::check(rule, Purpose::Rule, &shape, false).err(), None, "{rule}");
        assert_eq!(
            of_field(json!({ "type": "string" }), json!([{ "rule": rule }]), json!("x")),
            NONE,
            "{rule}"
        );
    }
}

#[test]
fn rules_about_changes_need_a_correlated_old_value() {
    let rules = || json!([{ "rule": "self == oldSelf", "message": "immutable" }]);
    let string = || json!({ "type": "string" });
    assert_eq!(of_field(string(), rules(), json!("a")), NONE);
    assert_eq!(of_change(string(), rules(), json!("a"), json!("a")), NONE);
    assert_eq!(of_change(string(), rules(), json!("a"), json!("b")), ["f: Invalid value: \"b\": immutable"]);
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
    assert_eq!(of_field(integer(), rules(), json!(1)), NONE);
    assert_eq!(of_change(integer(), rules(), json!(1), json!(2)), NONE);
    assert_eq!(
        of_change(integer(), rules(), json!(2), json!(1)),
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
        assert_eq!(of_field(object(), rule(more.clone()), json!({ "a": 1 })), [expected], "{more}");
    }
    let duplicate = json!([{ "rule": "false", "reason": "FieldValueDuplicate" }]);
    assert_eq!(of_field(json!({ "type": "string" }), duplicate, json!("v")), ["f: Duplicate value: \"v\""]);
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
    assert_eq!(of_field(embedded, rules, object("")), NONE);
}

#[test]
fn lists_are_compared_by_their_type_and_unknown_fields_by_value() {
    let rules = || json!([{ "rule": "self == oldSelf" }]);
    let list = |kind: &str| json!({ "type": "array", "x-kubernetes-list-type": kind, "items": { "type": "string" } });
    let failed = ["f: Invalid value: failed rule: self == oldSelf"];
    assert_eq!(of_change(list("set"), rules(), json!(["a", "b"]), json!(["b", "a"])), NONE);
    assert_eq!(of_change(list("set"), rules(), json!(["a", "b"]), json!(["b", "c"])), failed);
    assert_eq!(of_change(list("atomic"), rules(), json!(["a", "b"]), json!(["b", "a"])), failed);
    let map = || {
        json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer" } } } })
    };
    let (one, two) = (json!({ "k": "1", "v": 1 }), json!({ "k": "2", "v": 2 }));
    assert_eq!(of_change(map(), rules(), json!([one, two]), json!([two, one])), NONE);
    let changed = json!({ "k": "1", "v": 7 });
    assert_eq!(of_change(map(), rules(), json!([one, two]), json!([two, changed])), failed);
    let free = || json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    assert_eq!(of_change(free(), rules(), json!({ "a": [1] }), json!({ "a": [1] })), NONE);
    assert_eq!(of_change(free(), rules(), json!({ "a": [1] }), json!({ "a": [2] })), failed);
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
    let grows = |old, new| of_change(json!({ "type": "integer" }), rules.clone(), json!(old), json!(new));
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
        ("[1, 2].transformMapEntry(i, v, {1: v}).size() > 1", "insert failed: key 1 already exists"),
        ("self.?a.orValue(1)", "cel expression must evaluate to a bool"),
    ];
    let value = json!({ "a": 0, "map": {}, "list": [] });
    for (rule, expected) in table {
        let errors = of_field(object(), json!([{ "rule": rule, "message": "m" }]), value.clone());
        assert_eq!(
            errors,
            [format!("f: Invalid value: \"object\": {expected} evaluating rule: m")],
            "{rule}"
        );
    }
    // A known result is not affected by an error of the other operand.
    assert_eq!(of_field(object(), json!([{ "rule": "self.missing == 1 || self.a == 0" }]), value), NONE);
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

/// The errors of a definition with the rule.
fn declared(field: Value, rule: Value) -> Vec<String> {
    let document = json!({ "type": "object", "properties": { "f": ruled(field, json!([rule])) } });
    validate(&Schema::read(&document), &document, "s").iter().map(ToString::to_string).collect()
}

#[test]
fn wrong_rules_are_refused() {
    let at = "s.properties[f].x-kubernetes-validations[0]";
    let whole = |rule: &str| {
        format!(
            "{at}.rule: Invalid value: {{\"Rule\":\"{rule}\",\"Message\":\"\",\"MessageExpression\":\"\",\
             \"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}: "
        )
    };
    let undeclared = "compilation failed: ERROR: <input>:1:6: undeclared reference to 'foo' (in container '')\n \
                      | 1 == foo\n | .....^";
    let table = [
        (json!({ "rule": "self.a > 1" }), None),
        (
            json!({ "rule": "self.a >" }),
            Some(format!("{}compilation failed: ERROR: <input>:1:", whole("self.a \\u003e"))),
        ),
        (json!({ "rule": "1 == foo" }), Some(format!("{}{undeclared}", whole("1 == foo")))),
        (
            json!({ "rule": "self.a + 1 - 1" }),
            Some(format!("{}cel expression must", whole("self.a + 1 - 1"))),
        ),
        (json!({ "rule": " " }), Some(format!("{at}.rule: Required value: rule is not specified"))),
        (
            json!({ "rule": "true ||\nfalse" }),
            Some(format!(
                "{at}.message: Required value: message must be specified if rule contains line breaks"
            )),
        ),
        (
            json!({ "rule": "true", "message": "a\nb" }),
            Some(format!("{at}.message: Invalid value: \"a\\nb\": must not contain line breaks")),
        ),
        (
            json!({ "rule": "true", "reason": "Because" }),
            Some(format!(
                "{at}.reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\""
            )),
        ),
        (
            json!({ "rule": "true", "fieldPath": ".none" }),
            Some(format!("{at}.fieldPath: Invalid value: \".none\": must be a valid path")),
        ),
        (
            json!({ "rule": "true", "optionalOldSelf": true }),
            Some(format!(
                "{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
            )),
        ),
    ];
    for (rule, expected) in table {
        let errors = declared(object(), rule.clone());
        match expected {
            None => assert_eq!(errors, NONE, "{rule}"),
            Some(expected) => {
                assert!(
                    errors.len() == 1 && errors[0].starts_with(&expected),
                    "{rule}: {errors:#?}\n{expected}"
                );
            }
        }
    }
    let message = declared(object(), json!({ "rule": "true", "messageExpression": "1" }));
    assert!(message[0].ends_with(": messageExpression must evaluate to a string"), "{message:?}");
    let item = ruled(json!({ "type": "string", "maxLength": 3 }), json!([{ "rule": "self == oldSelf" }]));
    assert_eq!(
        declared(json!({ "type": "array", "maxItems": 3, "items": item }), json!({ "rule": "true" })),
        [
            "s.properties[f].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf \
             cannot be used on the uncorrelatable portion of the schema within s.properties[f]"
        ]
    );
}

#[test]
fn rules_with_what_only_upstream_evaluates_are_rejected() {
    let table = [
        ("type(self) == google.protobuf.Any", "the type google.protobuf.Any"),
        ("type(ip(self)) == net.IP", "the type net.IP"),
        ("google.protobuf.Int64Value{value: 1} == 1", "the type google.protobuf.Int64Value"),
        (".self == self", "names with a dot before them"),
    ];
    for (rule, expected) in table {
        let errors = declared(json!({ "type": "string" }), json!({ "rule": rule }));
        let remedy = "write the rule without it, or use a stock kube-apiserver";
        let end = format!("this API server does not evaluate {expected}: {remedy}");
        assert!(errors.len() == 1 && errors[0].ends_with(&end), "{errors:?}");
        assert!(
            errors[0].starts_with("s.properties[f].x-kubernetes-validations[0].rule: Invalid value"),
            "{errors:?}"
        );
    }
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
