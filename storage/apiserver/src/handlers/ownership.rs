//! Field ownership of written objects: between the handlers and `fields`.
//!
//! Ownership costs a writer time and every watcher bytes, and matters only for server-side apply. So it is
//! tracked from the first write with a `fieldManager`, which includes every apply and all requests of kubectl;
//! writes of controllers to other objects are exempt. Upstream has the same rule for objects without managed
//! fields (skipnonapplied.go), except that it also begins with creations, and otherwise only with applies.

use http::header::USER_AGENT;
use serde_json::Value;

use super::Call;
use crate::fields::{Manager, Operation, Owners, WriteContext};
use crate::resources::Storage;
use crate::schema::{self, Shape};
use crate::time;

/// Maximum length of a manager's name.
const NAME_LIMIT: usize = 128;

impl Call<'_> {
    /// The schema of the call's objects.
    pub fn shape(&self) -> Option<&'static Shape> {
        let resource = self.path.resource;
        match resource.custom {
            Some(kind) => Some(kind.shape),
            None => schema::kind_shape(resource.group, resource.kind),
        }
    }

    /// A stored object in the shape of the kind.
    fn viewed(&self, value: &Value) -> Value {
        match &self.path.resource.view {
            None => value.clone(),
            Some(view) => view(value.clone()),
        }
    }

    /// An empty object of the kind.
    pub(super) fn empty(&self) -> Value {
        let text = format!("{{\"metadata\":{{}}{}}}", self.path.resource.empty);
        serde_json::from_str(&text).expect("a test reads what is empty of every kind")
    }

    /// The write, with the request's manager, or else the program of the user agent.
    pub(super) fn write_context(&self, operation: Operation, shape: &'static Shape) -> WriteContext<'static> {
        let agent = self.head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let program = agent.unwrap_or_default().split('/').next().unwrap_or_default();
        let name = self.query.get("fieldManager").unwrap_or(program);
        let subresource = self.path.subresource.clone().unwrap_or_default();
        // What a path cannot write, its callers do not own.
        let reset: &[&[&str]] = match subresource.as_str() {
            "" if self.path.resource.has_status() => &[&["status"]],
            // A scale writes one field of the spec.
            "" | "scale" => &[],
            _ => &[&["spec"]],
        };
        WriteContext {
            shape,
            // `ScaleHandler.ToParent` in apimachinery's managedfields sets no time.
            time: if subresource == "scale" { String::new() } else { time::now() },
            manager: Manager { operation, name: name.chars().take(NAME_LIMIT).collect(), subresource },
            api_version: self.path.resource.api_version(),
            reset,
        }
    }
}

/// Makes the caller the owner of the fields that it changes from `old` to `new`. `managedFields` of `new` is
/// from the request, which may also edit or remove the owners.
pub fn update(call: &Call<'_>, old: &Value, new: &mut Value) {
    let held = &old["metadata"]["managedFields"];
    let Value::Object(metadata) = &mut new["metadata"] else { return };
    let sent = metadata.shift_remove("managedFields").unwrap_or_default();
    let on_subresource = call.path.subresource.is_some();
    if !on_subresource && is_reset(&sent) {
        return;
    }
    let sent = if on_subresource { Value::Null } else { sent };
    if held.is_null() && sent.is_null() && (call.query.get("fieldManager").is_none() || new == old) {
        return;
    }
    let Some(shape) = call.shape() else { return };
    let write_context = call.write_context(Operation::Update, shape);
    let owners = Owners::read(&sent).filter(|owners| !owners.is_empty());
    let owners = owners.or_else(|| Owners::read(held)).filter(|owners| !owners.is_empty());
    let mut before = call.viewed(old);
    let owners = owners.unwrap_or_else(|| write_context.before_tracking(&call.empty(), &before));
    if let Value::Object(metadata) = &mut before["metadata"] {
        metadata.shift_remove("managedFields");
    }
    let owners = write_context.update(owners, &before, &call.viewed(new));
    if !owners.is_empty() {
        new["metadata"]["managedFields"] = owners.write();
    }
}

/// The `managedFields` of a new object, which is complete except for the changes of admission; null if
/// ownership is not tracked yet.
///
/// `given` is the spec in the request: what admission adds to a pod is not its writer's.
pub fn create(call: &Call<'_>, given: &Value, new: &Value) -> Value {
    let Some(shape) = call.shape().filter(|_| call.query.get("fieldManager").is_some()) else {
        return Value::Null;
    };
    let write_context = call.write_context(Operation::Update, shape);
    let mut new = call.viewed(new);
    if call.path.resource.storage == Storage::Pods {
        without_admitted(given, &mut new["spec"]);
    }
    let owners = write_context.update(Owners::default(), &call.empty(), &new);
    if owners.is_empty() { Value::Null } else { owners.write() }
}

/// Removes what the admission of service accounts and of tolerations adds to the spec of a pod.
fn without_admitted(given: &Value, spec: &mut Value) {
    let Value::Object(spec) = spec else { return };
    let is_set = |field: &str| given[field].as_str().is_some_and(|text| !text.is_empty());
    if !is_set("serviceAccountName") && !is_set("serviceAccount") {
        spec.shift_remove("serviceAccountName");
        spec.shift_remove("serviceAccount");
    }
    if given["tolerations"].as_array().is_none_or(Vec::is_empty) {
        spec.shift_remove("tolerations");
    }
}

/// Upstream treats both an empty list and one empty entry as the request to remove all owners.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// Whether a write changes nothing, or only the times of managers, which alone are no change.
pub fn same(old: &Value, new: &Value) -> bool {
    let entries = |object: &Value| Owners::read(&object["metadata"]["managedFields"]);
    if old == new {
        return true;
    }
    if old["metadata"]["managedFields"].is_null() || new["metadata"]["managedFields"].is_null() {
        return false;
    }
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (mut was, mut is) = (fields(old), fields(new));
    let (mut old_metadata, mut new_metadata) = (fields(&old["metadata"]), fields(&new["metadata"]));
    old_metadata.shift_remove("managedFields");
    new_metadata.shift_remove("managedFields");
    was.shift_remove("metadata");
    is.shift_remove("metadata");
    let timeless = |owners: Option<Owners>| owners.map(Owners::without_times);
    was == is && old_metadata == new_metadata && timeless(entries(old)) == timeless(entries(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_admission_adds_has_no_owner() {
        let spec = || json!({ "serviceAccountName": "a", "serviceAccount": "a", "tolerations": [{}], "nodeName": "n" });
        for (given, expected) in [
            (json!({ "nodeName": "n" }), json!({ "nodeName": "n" })),
            (json!({ "serviceAccountName": "", "tolerations": [] }), json!({ "nodeName": "n" })),
            (
                json!({ "serviceAccount": "a" }),
                json!({ "serviceAccountName": "a", "serviceAccount": "a", "nodeName": "n" }),
            ),
            (json!({ "tolerations": [{}] }), json!({ "tolerations": [{}], "nodeName": "n" })),
        ] {
            let mut owned = spec();
            without_admitted(&given, &mut owned);
            assert_eq!(owned, expected, "{given}");
        }
    }
}
