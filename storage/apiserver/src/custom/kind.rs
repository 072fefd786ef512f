//! What the objects of a custom kind may contain.

#[cfg(test)]
use serde_json::json;
use serde_json::{Map, Value};

use super::scale::Scale;
use super::schema::Schema;
use super::{default, prune, rules, validate};
use crate::schema::Shape;
use crate::status::FieldError;

/// One version of a kind that a definition brings.
#[derive(Debug)]
pub struct Kind {
    /// The kind.
    pub kind: String,
    /// Group and version.
    pub api_version: String,
    /// The kind of lists.
    pub list_kind: String,
    /// Its schema.
    pub schema: Schema,
    /// The schema, for server-side apply.
    pub shape: &'static Shape,
    /// The schema, as it was declared.
    pub document: Value,
    /// Whether the status is written through its own path.
    pub has_status: bool,
    /// The paths of its subresource `scale`, if it has one.
    pub scale: Option<Scale>,
    /// The warning about a deprecated version.
    pub deprecation: Option<String>,
    /// Whether another schema may have applied when an object was written: that of another version, or an earlier one.
    pub has_other_schemas: bool,
    /// The version that objects are stored in, if only a webhook could convert them to this one.
    pub unconverted_from: Option<String>,
}

impl Kind {
    /// A stored object as it is read in this version: without the fields that its schema does not have, and with its
    /// defaults. `None` if it is read as it is stored.
    ///
    /// Mirrors schemaCoercingDecoder and unstructuredDefaulter in pkg/apiserver/customresource_handler.go.
    pub fn as_read(&self, stored: &Value) -> Option<Value> {
        if !self.has_other_schemas {
            return None;
        }
        let fields = stored.as_object()?.iter().filter(|(name, _)| *name != "metadata");
        let mut rest = Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect());
        prune::prune(&mut rest, &self.schema);
        default::set_defaults(&mut rest, &self.schema);
        // Last, since a schema has no fields of it.
        let rest = rest.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
        let metadata = ("metadata".to_owned(), stored["metadata"].clone());
        let rest = rest.map(|(name, value)| (name.clone(), value.clone()));
        let read = Value::Object(std::iter::once(metadata).chain(rest).collect());
        (read != *stored).then_some(read)
    }

    /// The errors of a new object.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_values(object, None);
        errors.extend(self.check_rules(&errors, None, object));
        errors
    }

    fn validate_values(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let bare = old.map(without_metadata);
        let mut errors = validate::validate(&without_metadata(object), bare.as_ref(), &self.schema);
        let scale = |object: &Value| self.scale.iter().flat_map(|scale| scale.validate(object)).collect();
        let (found, before): (Vec<_>, Vec<_>) = (scale(object), old.map(scale).unwrap_or_default());
        errors.extend(found.into_iter().filter(|error| !before.contains(error)));
        errors
    }

    /// The errors of the CEL rules for an object that has `errors` already.
    fn check_rules(&self, errors: &[FieldError], old: Option<&Value>, new: &Value) -> Vec<FieldError> {
        if !self.schema.has_rules {
            return Vec::new();
        }
        if errors.iter().any(FieldError::blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the \
                          existing errors to complete validation";
            return vec![FieldError::invalid(rules::NO_FIELD, &Value::Null, detail)];
        }
        let old = old.map(|old| self.identified(old));
        rules::check(&self.identified(new), old.as_ref(), &self.schema)
    }

    /// The object with its kind, and of its metadata only names.
    fn identified(&self, object: &Value) -> Value {
        let mut object = without_metadata(object);
        object["apiVersion"] = self.api_version.as_str().into();
        object["kind"] = self.kind.as_str().into();
        object
    }

    /// The errors of a change through the path of `subresource`.
    pub fn validate_update(&self, subresource: Option<&str>, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut found = match (subresource, self.schema.properties.get("status")) {
            (Some("status"), Some(schema)) => match new.get("status") {
                Some(status) => validate::validate_part(status, old.get("status"), schema, "status"),
                None => Vec::new(),
            },
            (Some("status"), None) => Vec::new(),
            _ => self.validate_values(new, Some(old)),
        };
        found.extend(self.check_rules(&found, Some(old), new));
        found
    }

    /// Whether a change raises the generation: it concerns more than metadata, and the status if that has a path
    /// of its own.
    pub fn changes_generation(&self, old: &Value, new: &Value) -> bool {
        let rest = |object: &Value| {
            let mut fields = object.as_object().cloned().unwrap_or_default();
            fields.shift_remove("metadata");
            if self.has_status {
                fields.shift_remove("status");
            }
            fields
        };
        rest(old) != rest(new)
    }
}

/// The object with empty metadata, which no schema describes further than names.
fn without_metadata(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
    let mut rest: Map<String, Value> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    let names = ["name", "generateName"].into_iter();
    let names = names.filter_map(|name| Some((name, object["metadata"].get(name)?.clone())));
    rest.insert("metadata".to_owned(), names.collect());
    Value::Object(rest)
}

/// A schema that accepts everything, for tests of other parts.
#[cfg(test)]
pub fn open(has_status: bool) -> Kind {
    Kind {
        kind: "Thing".to_owned(),
        api_version: "example.com/v1".to_owned(),
        unconverted_from: None,
        list_kind: "ThingList".to_owned(),
        schema: Schema::read(&json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })),
        shape: &Shape::Deduced,
        document: json!({}),
        has_status,
        scale: None,
        deprecation: None,
        has_other_schemas: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_counts_changes_of_all_but_metadata_and_status() {
        let object = |spec: u8, status: u8, label: u8| json!({ "metadata": { "labels": { "l": label } }, "spec": spec, "status": status, "more": 1 });
        let table = [
            (object(1, 1, 1), object(2, 1, 1), true, true),
            (object(1, 1, 1), object(1, 2, 1), false, true),
            (object(1, 1, 1), object(1, 1, 2), false, false),
        ];
        for (old, new, with_status, without) in table {
            assert_eq!(open(true).changes_generation(&old, &new), with_status, "{new}");
            assert_eq!(open(false).changes_generation(&old, &new), without, "{new}");
        }
    }

    #[test]
    fn what_another_schema_left_is_pruned_and_defaulted_when_it_is_read() {
        let schema = Schema::read(&json!({ "type": "object", "properties": { "spec": {
            "type": "object", "properties": { "a": { "type": "string" }, "n": { "type": "integer", "default": 1 } },
        } } }));
        let stored = json!({ "metadata": { "name": "x" }, "spec": { "a": "b", "old": 1 }, "more": 2 });
        let kind = Kind { schema, ..open(true) };
        assert_eq!(kind.as_read(&stored), None, "it was written with this schema");
        let kind = Kind { has_other_schemas: true, ..kind };
        let read = json!({ "metadata": { "name": "x" }, "spec": { "a": "b", "n": 1 } });
        assert_eq!(kind.as_read(&stored), Some(read.clone()));
        assert_eq!(kind.as_read(&read), None);
    }

    #[test]
    fn what_was_invalid_before_may_remain() {
        let schema = json!({ "type": "object", "required": ["must"], "properties": {
            "n": { "type": "integer", "maximum": 5 }, "other": { "type": "string" }, "must": { "type": "string" },
            "text": { "type": "string", "maxLength": 2 },
            "items": { "type": "array", "items": { "type": "string", "maxLength": 2 } },
            "status": { "type": "object", "properties": { "n": { "type": "integer" } } },
        } });
        let kind = Kind { schema: Schema::read(&schema), ..open(true) };
        let check = |subresource, old: Value, new: Value| -> Vec<String> {
            kind.validate_update(subresource, &old, &new).iter().map(ToString::to_string).collect()
        };
        let object = |n: u8| json!({ "n": n, "must": "" });
        let high = "n: Invalid value: 7: n in body should be less than or equal to 5";
        assert_eq!(check(None, object(9), json!({ "n": 9, "must": "", "other": "x" })), Vec::<String>::new());
        assert_eq!(check(None, object(9), object(7)), [high]);
        assert_eq!(check(None, json!({}), json!({ "n": 1 })), ["must: Required value"]);
        let long = |text: &str, items: [&str; 2]| json!({ "must": "", "text": text, "items": items });
        let (max, item) = (
            "text: Too long: may not be more than 2 bytes",
            "items[0]: Too long: may not be more than 2 bytes",
        );
        assert_eq!(
            check(None, long("abc", ["", ""]), long("abcd", ["", ""])),
            [max],
            "the error is the same"
        );
        assert_eq!(check(None, long("abc", ["abc", ""]), long("abc", ["abc", ""])), Vec::<String>::new());
        assert_eq!(
            check(None, long("", ["abc", ""]), long("", ["abc", "x"])),
            [item],
            "items have no identity"
        );
        assert_eq!(check(Some("status"), json!({}), json!({ "status": {} })), Vec::<String>::new());
        let wrong = "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"";
        assert_eq!(check(Some("status"), json!({}), json!({ "status": { "n": "x" } })), [wrong]);
    }

    #[test]
    fn rules_are_checked_unless_the_object_is_invalid_otherwise() {
        let rules = json!([{ "rule": "self.n > 1 && self.kind == 'Thing'", "message": "small" }]);
        let schema = json!({ "type": "object", "required": ["must"], "x-kubernetes-validations": rules,
            "properties": { "n": { "type": "integer" }, "must": { "type": "string" } } });
        let kind = Kind { schema: Schema::read(&schema), ..open(true) };
        let texts =
            |errors: Vec<FieldError>| -> Vec<String> { errors.iter().map(ToString::to_string).collect() };
        let object = |n: u8| json!({ "n": n, "must": "" });
        assert_eq!(texts(kind.validate(&object(2))), Vec::<String>::new());
        assert_eq!(texts(kind.validate(&object(1))), ["<nil>: Invalid value: small"]);
        assert_eq!(
            texts(kind.validate_update(None, &object(2), &object(1))),
            ["<nil>: Invalid value: small"]
        );
        assert_eq!(texts(kind.validate_update(None, &object(1), &object(1))), Vec::<String>::new());
        let errors = texts(kind.validate(&json!({ "n": 1 })));
        assert_eq!(errors[0], "must: Required value");
        assert!(
            errors[1].starts_with("<nil>: Invalid value: null: some validation rules were not"),
            "{errors:?}"
        );
        assert_eq!(errors.len(), 2);
    }
}
