//! Events: one storage, two shapes. Core events are stored; `events.k8s.io` is a view that renames fields.
//!
//! Mirrors pkg/apis/events/v1/conversion.go.

use serde_json::{Map, Value};

use super::decode::{DecodeError, Decoded, decode};
use super::{BASE, Field, Resource, Storage, default_to};
use crate::admission::event;

/// Field of a core event, field of an `events.k8s.io` event.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields with `omitempty` in events/v1 types.go and without it in core/v1 types.go.
const OMITTED: [&str; 2] = ["reportingController", "reportingInstance"];

pub(super) fn rows() -> Vec<Resource> {
    let core = Resource {
        validate: event::validate_core,
        validate_update: event::validate_core_update,
        fields: &[
            Field { name: "involvedObject.kind", pointers: &["/involvedObject/kind"], unset: "" },
            Field { name: "involvedObject.namespace", pointers: &["/involvedObject/namespace"], unset: "" },
            Field { name: "involvedObject.name", pointers: &["/involvedObject/name"], unset: "" },
            Field { name: "involvedObject.uid", pointers: &["/involvedObject/uid"], unset: "" },
            Field { name: "involvedObject.apiVersion", pointers: &["/involvedObject/apiVersion"], unset: "" },
            Field {
                name: "involvedObject.resourceVersion",
                pointers: &["/involvedObject/resourceVersion"],
                unset: "",
            },
            Field { name: "involvedObject.fieldPath", pointers: &["/involvedObject/fieldPath"], unset: "" },
            Field { name: "reason", pointers: &["/reason"], unset: "" },
            Field { name: "reportingComponent", pointers: &["/reportingComponent"], unset: "" },
            Field { name: "source", pointers: &["/source/component", "/reportingComponent"], unset: "" },
            Field { name: "type", pointers: &["/type"], unset: "" },
        ],
        empty: r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#,
        ..base()
    };
    let view = Resource {
        group: "events.k8s.io",
        decode: decode_view,
        validate_first: event::validate_first,
        validate: event::validate,
        validate_update: event::validate_update,
        fields: &[
            Field { name: "regarding.kind", pointers: &["/involvedObject/kind"], unset: "" },
            Field { name: "regarding.namespace", pointers: &["/involvedObject/namespace"], unset: "" },
            Field { name: "regarding.name", pointers: &["/involvedObject/name"], unset: "" },
            Field { name: "regarding.uid", pointers: &["/involvedObject/uid"], unset: "" },
            Field { name: "reason", pointers: &["/reason"], unset: "" },
            Field { name: "reportingController", pointers: &["/reportingComponent"], unset: "" },
            Field { name: "type", pointers: &["/type"], unset: "" },
        ],
        view: Some(rename_to_view),
        empty: r#","eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null"#,
        ..base()
    };
    vec![core, view]
}

/// The common fields of both shapes.
fn base() -> Resource {
    Resource {
        storage: Storage::Events,
        kind: "Event",
        created_by_update: true,
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        namespaced: true,
        default: complete,
        ..BASE
    }
}

/// Go writes these fields even when they are not set: those of `Event` in core/v1 types.go without `omitempty`, and
/// its structs.
fn complete(event: &mut Value) {
    for field in ["involvedObject", "source"] {
        default_to(event, field, Value::Object(Map::new()));
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        default_to(event, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        default_to(event, field, "");
    }
}

fn decode_view(resource: &Resource, value: Value) -> Result<Decoded, DecodeError> {
    let decoded = decode(resource, value)?;
    Ok(Decoded { value: rename_to_core(decoded.value), faults: decoded.faults })
}

fn rename_to_view(event: Value) -> Value {
    let name = |name: &str| RENAMED.iter().find(|(core, _)| *core == name).map(|(_, view)| *view);
    let mut event = rename(event, name);
    if let Value::Object(fields) = &mut event {
        // Go omits these when they are empty; those of core events it writes.
        for field in OMITTED {
            if fields.get(field).is_some_and(|value| value == "") {
                fields.shift_remove(field);
            }
        }
    }
    event
}

fn rename_to_core(event: Value) -> Value {
    rename(event, |name| RENAMED.iter().find(|(_, view)| *view == name).map(|(core, _)| *core))
}

fn rename(event: Value, new_name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let rename = |(name, value): (String, Value)| (new_name(&name).map_or(name, str::to_owned), value);
    Value::Object(fields.into_iter().map(rename).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_view_loses_nothing() {
        let core = json!({
            "involvedObject": { "kind": "Pod" }, "message": "m", "reason": "r", "count": 2,
            "source": { "component": "c" }, "reportingComponent": "c",
        });
        let view = rename_to_view(core.clone());
        assert_eq!(view["regarding"]["kind"], "Pod");
        assert_eq!(view["note"], "m");
        assert_eq!(rename_to_core(view), core);
    }

    #[test]
    fn each_shape_has_the_fields_that_go_writes() {
        let mut core = json!({ "metadata": { "name": "e" }, "reason": "r" });
        complete(&mut core);
        let expected = json!({
            "metadata": { "name": "e" }, "reason": "r", "involvedObject": {}, "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": "",
        });
        assert_eq!(core, expected);
        let expected = json!({
            "metadata": { "name": "e" }, "reason": "r", "regarding": {}, "deprecatedSource": {},
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null, "eventTime": null,
        });
        assert_eq!(rename_to_view(core), expected);
        let mut given = json!({ "source": { "component": "c" }, "eventTime": "2020-01-01T00:00:00.000001Z" });
        complete(&mut given);
        assert_eq!(given["source"]["component"], "c");
        assert_eq!(given["eventTime"], "2020-01-01T00:00:00.000001Z");
    }
}
