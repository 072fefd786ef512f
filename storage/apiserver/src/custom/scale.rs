//! The subresource `scale`: an object as a `Scale` of autoscaling/v1. Custom kinds declare where the numbers are.
//!
//! Mirrors scaleFromCustomResource in pkg/registry/customresource/etcd.go, and ValidateScaleSpec in validator.go; for
//! built-in kinds `ScaleREST` in pkg/registry/apps.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::resources::{Resource, selector_text};
use crate::status::FieldError;

/// The fields of an object that a `Scale` shows, as JSON pointers.
#[derive(Debug, PartialEq)]
pub struct Scale {
    spec: String,
    status: String,
    selector: Option<String>,
}

static BUILT_IN: LazyLock<Scale> = LazyLock::new(|| Scale {
    spec: "/spec/replicas".to_owned(),
    status: "/status/replicas".to_owned(),
    selector: Some("/spec/selector".to_owned()),
});

impl Scale {
    /// The fields of a kind that has the subresource.
    pub fn for_resource(resource: &Resource) -> Option<&Self> {
        match resource.custom {
            Some(kind) => kind.scale.as_ref(),
            None => resource.subresource("scale").map(|_| &*BUILT_IN),
        }
    }

    /// The fields that a definition declares, in `subresources.scale`.
    pub fn read(scale: &Value) -> Option<Self> {
        let pointer = |name: &str| {
            let path = scale[name].as_str().filter(|path| !path.is_empty())?;
            Some(path.replace('.', "/"))
        };
        let (spec, status) = (pointer("specReplicasPath")?, pointer("statusReplicasPath")?);
        Some(Self { spec, status, selector: pointer("labelSelectorPath") })
    }

    /// The `Scale` of an object; `None` if it does not have the number of replicas.
    pub fn of(&self, object: &Value) -> Option<Value> {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        let mut status = json!({ "replicas": number(&self.status).unwrap_or_default() });
        let selector = self.selector.as_deref().and_then(|pointer| object.pointer(pointer));
        let selector = match selector {
            // Only those of built-in kinds are objects.
            Some(selector @ Value::Object(_)) => selector_text(selector),
            selector => selector.and_then(Value::as_str).unwrap_or_default().to_owned(),
        };
        if !selector.is_empty() {
            status["selector"] = selector.into();
        }
        // Go omits the zero.
        let spec = match number(&self.spec)? {
            0 => json!({}),
            replicas => json!({ "replicas": replicas }),
        };
        let mut metadata = json!({});
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(name) {
                metadata[name] = value.clone();
            }
        }
        Some(json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }))
    }

    /// Sets the number of replicas.
    pub fn set(&self, object: &mut Value, replicas: i64) {
        let mut place = object;
        for name in self.spec.split('/').filter(|name| !name.is_empty()) {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[name];
        }
        *place = replicas.into();
    }

    /// The path of the number of replicas, as in errors.
    pub fn path(&self) -> String {
        self.spec.replace('/', ".")
    }

    /// The errors of an object.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let checks = [&self.spec, &self.status].into_iter().filter_map(|pointer| {
            let value = object.pointer(pointer)?;
            let path = pointer.replace('/', ".");
            let problem = match value.as_i64() {
                None => {
                    let (text, kind) = in_go(value);
                    let problem =
                        format!("{path} accessor error: {text} is of the type {kind}, expected int64");
                    return Some(FieldError::invalid(path, &json!(0), problem));
                }
                Some(..0) => "should be a non-negative integer".to_owned(),
                Some(number) if number > i64::from(i32::MAX) => {
                    format!("should be less than or equal to {}", i32::MAX)
                }
                Some(_) => return None,
            };
            Some(FieldError::invalid(path, value, problem))
        });
        checks.collect()
    }
}

/// A value that is no integer, and the name of its type, as Go prints them. Upstream: `NestedInt64` in
/// `apimachinery/pkg/apis/meta/v1/unstructured/helpers.go`.
fn in_go(value: &Value) -> (String, &'static str) {
    match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(value) => (value.to_string(), "bool"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_as_scales() {
        let declared = json!({
            "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s",
        });
        let scale = Scale::read(&declared).unwrap();
        let mut object = json!({ "metadata": { "name": "a" }, "spec": { "n": 2 }, "status": { "s": "x=y" } });
        let shown = scale.of(&object).unwrap();
        assert_eq!((&shown["spec"], &shown["status"]["replicas"]), (&json!({ "replicas": 2 }), &json!(0)));
        assert_eq!(
            (&shown["metadata"], &shown["status"]["selector"]),
            (&json!({ "name": "a" }), &json!("x=y"))
        );
        scale.set(&mut object, -1);
        let errors: Vec<String> = scale.validate(&object).iter().map(ToString::to_string).collect();
        assert_eq!(errors, [".spec.n: Invalid value: -1: should be a non-negative integer"]);
        assert_eq!(scale.of(&json!({ "spec": {} })), None);
        assert_eq!(Scale::read(&Value::Null), None);
    }
}
