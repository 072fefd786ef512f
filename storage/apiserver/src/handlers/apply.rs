//! Server-side apply: merges the body into the object in the path, or creates it.
//!
//! Mirrors apiserver pkg/endpoints/handlers/patch.go (applyPatcher) and apimachinery
//! pkg/util/managedfields; the rules are in `fields`.

use http::StatusCode;
use serde_json::{Value, json};

use super::update::{Change, WriteOutcome, write};
use super::{Call, create, metadata};
use crate::fields::{self, Changes, Conflict, Operation, Owners};
use crate::response::Answer;
use crate::schema::Shape;
use crate::status::{Result, Status};
use crate::store::Object;

/// The media type of bodies to apply, which are YAML or, as that includes it, JSON.
pub const MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// The annotation of client-side apply with its last applied configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that may take over the fields of client-side apply.
const KUBECTL: &str = "kubectl";

/// Applies the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let (applied, warnings) = call.applied_body()?;
    check_identity(call, &applied)?;
    let shape = call.shape().ok_or_else(|| Status::internal("this kind has no schema"))?;
    let faults = fields::check(&applied, shape);
    if !faults.is_empty() {
        return Err(misfit(call, &applied, &faults));
    }
    loop {
        let exists = call.store().get(call.path.resource.storage, &call.key()?).is_some();
        let written = if exists || call.path.subresource.is_some() {
            Some((StatusCode::OK, write(call, |old| change(call, shape, &applied, &warnings, old))?))
        } else {
            create_from(call, shape, &applied, &warnings)?.map(|written| (StatusCode::CREATED, written))
        };
        // None: another client has created it meanwhile.
        if let Some((code, written)) = written {
            return Ok(written.answer(call, code));
        }
    }
}

/// Rejects a body of another object, or with fields that only the server sets.
fn check_identity(call: &Call<'_>, applied: &Value) -> Result<()> {
    let resource = call.path.resource;
    let text = |field: &str| applied[field].as_str().unwrap_or_default();
    if text("apiVersion") != resource.api_version() || text("kind") != resource.kind {
        let (version, kind) = (text("apiVersion"), text("kind"));
        return Err(Status::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    if !applied["metadata"]["managedFields"].is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let (given, name) = (applied["metadata"]["name"].as_str().unwrap_or_default(), call.name()?);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    create::check_namespace(call, &mut applied.clone())
}

/// The error of an object that does not fit its schema, named as in the body (`structuredMergeManager.Apply`).
fn misfit(call: &Call<'_>, applied: &Value, faults: &[String]) -> Status {
    let resource = call.path.resource;
    let given = |field: &str| applied["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (given("namespace"), given("name"));
    let faults = match faults {
        [fault] => fault.clone(),
        faults => format!("errors:\n  {}", faults.join("\n  ")),
    };
    Status::unclassified(format!(
        "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {faults}",
        resource.group, resource.version, resource.kind
    ))
}

/// The result of applying the body to `old`.
fn change(
    call: &Call<'_>,
    shape: &'static Shape,
    applied: &Value,
    warnings: &[String],
    old: &Object,
) -> Result<Change> {
    let mut live = call.path.resource.present(&old.value);
    if let Value::Object(metadata) = &mut live["metadata"] {
        metadata.shift_remove("managedFields");
    }
    let write_context = call.write_context(Operation::Apply, shape);
    let owners = Owners::read(&old.value["metadata"]["managedFields"]).unwrap_or_default();
    let is_untouched = owners.is_empty();
    let owners = match is_untouched {
        true => write_context.before_tracking(&call.empty(), &live),
        false => owners,
    };
    // Without metadata, an applier removes all of it that it has applied, together with the name (`prune` in
    // structured-merge-diff merge/update.go).
    let held = owners.get(&write_context.manager).map(|holding| holding.fields.write());
    if applied["metadata"].is_null() && held.is_some_and(|fields| fields["f:metadata"].is_object()) {
        return Err(Status::undeterminable_name(call.name()?));
    }
    let forced = matches!(call.query.get("force"), Some("true" | "1"))
        // Vendors' manifests contain the definitions that exist here from the start.
        || (is_untouched && create::is_preinstalled(call, call.name()?));
    let outcome = write_context.apply(owners.clone(), &live, applied, forced).or_else(|conflicts| {
        // What client-side apply wrote is kubectl's own.
        let mut own = fields::Set::default();
        if write_context.manager.name == KUBECTL {
            own = last_applied(&live, shape);
        }
        let own = own.paths();
        let conflicts: Vec<Conflict> =
            conflicts.into_iter().filter(|conflict| !own.contains(&conflict.field)).collect();
        match conflicts.is_empty() {
            true => write_context.apply(owners.clone(), &live, applied, true),
            false => Err(conflicts),
        }
    });
    let (new, owners) = outcome.map_err(|conflicts| refuse(&conflicts))?;
    call.warnings.add(warnings.iter().cloned());
    let mut new = call.decode(new)?;
    if write_context.manager.name == KUBECTL
        && let Some(annotations) = new.pointer_mut("/metadata/annotations")
    {
        update_last_applied(annotations, applied);
    }
    if !owners.is_empty() {
        new["metadata"]["managedFields"] = owners.write();
    }
    Ok(Change::Applied(new))
}

/// Client-side apply continues with what kubectl has applied to an object that it had created (lastappliedupdater.go). An
/// object without the annotation gets none.
fn update_last_applied(annotations: &mut Value, applied: &Value) {
    let Value::Object(annotations) = annotations else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(given)) = applied.pointer_mut("/metadata/annotations") {
        given.shift_remove(LAST_APPLIED);
    }
    applied.sort_all_objects();
    annotations.insert(LAST_APPLIED.to_owned(), format!("{applied}\n").into());
    let length = |(name, value): (&String, &Value)| name.len() + value.as_str().unwrap_or_default().len();
    if annotations.iter().map(length).sum::<usize>() > metadata::ANNOTATIONS_LIMIT {
        annotations.shift_remove(LAST_APPLIED);
    }
}

/// The fields of the last client-side apply, without those that have another value now
/// (`allowedConflictsFromLastApplied`). An atomic list in which defaults were set has another value.
fn last_applied(live: &Value, shape: &Shape) -> fields::Set {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default();
    let Ok(applied) = serde_json::from_str::<Value>(text) else { return fields::Set::default() };
    let changes = Changes::between(&applied, live, shape);
    fields::set_of(&applied, shape).difference(&changes.gained().union(&changes.removed))
}

fn create_from(
    call: &Call<'_>,
    shape: &'static Shape,
    applied: &Value,
    warnings: &[String],
) -> Result<Option<WriteOutcome>> {
    let write_context = call.write_context(Operation::Apply, shape);
    let (object, owners) = write_context
        .apply(Owners::default(), &json!({}), applied, false)
        .map_err(|conflicts| refuse(&conflicts))?;
    call.warnings.add(warnings.iter().cloned());
    let mut object = call.decode(object)?;
    object["metadata"]["name"] = call.name()?.into();
    create::check_namespace(call, &mut object)?;
    create::apply(call, object, owners.write())
}

fn refuse(conflicts: &[Conflict]) -> Status {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|Conflict { manager, field }| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": field,
            })
        })
        .collect();
    if let [Conflict { manager, field }] = conflicts {
        let message = format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
        return Status::apply_conflict(message, causes);
    }
    let mut managers: Vec<&str> = conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
    managers.sort_unstable();
    managers.dedup();
    let lists = managers.into_iter().flat_map(|manager| {
        let fields = conflicts.iter().filter(move |conflict| conflict.manager == manager);
        std::iter::once(format!("conflicts with {manager}:"))
            .chain(fields.map(|conflict| format!("- {}", conflict.field)))
    });
    let lists: Vec<String> = lists.collect();
    let message = format!("Apply failed with {} conflicts: {}", conflicts.len(), lists.join("\n"));
    Status::apply_conflict(message, causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_client_side_apply_has_set_is_kubectls_unless_it_has_another_value_now() {
        let shape = crate::schema::kind_shape("", "Pod").unwrap();
        let spec =
            |volumes: Value| json!({ "nodeName": "n", "volumes": [{ "name": "v", "downwardAPI": volumes }] });
        let field =
            |version: &str| json!({ "fieldRef": { "apiVersion": version, "fieldPath": "metadata.name" } });
        let item = |version: &str| json!({ "items": [field(version)] });
        let own = |live: Value| {
            let applied = json!({ "spec": spec(item("v1")) }).to_string();
            let live = json!({ "metadata": { "annotations": { LAST_APPLIED: applied } }, "spec": live });
            last_applied(&live, shape).paths()
        };
        let (node, items) = (".spec.nodeName", ".spec.volumes[name=\"v\"].downwardAPI.items");
        let has = |own: &[String]| [node, items].map(|field| own.contains(&field.to_owned()));
        assert_eq!(has(&own(spec(item("v1")))), [true, true]);
        assert_eq!(has(&own(spec(item("v2")))), [true, false], "an atomic list with a default");
    }

    #[test]
    fn the_annotation_of_client_side_apply_follows_kubectl() {
        let applied = json!({ "kind": "ConfigMap", "apiVersion": "v1", "data": { "b": "1", "a": "2" },
                              "metadata": { "name": "n", "annotations": { "x": "y" } } });
        let text = "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\",\"b\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":\
                    {\"x\":\"y\"},\"name\":\"n\"}}\n";
        let mut annotations = json!({ LAST_APPLIED: "{}", "x": "y" });
        update_last_applied(&mut annotations, &applied);
        assert_eq!(annotations, json!({ LAST_APPLIED: text, "x": "y" }));
        let mut without = json!({ "x": "y" });
        update_last_applied(&mut without, &applied);
        assert_eq!(without, json!({ "x": "y" }));
        let mut large = json!({ LAST_APPLIED: "{}", "x": "y".repeat(metadata::ANNOTATIONS_LIMIT) });
        update_last_applied(&mut large, &applied);
        assert!(large.get(LAST_APPLIED).is_none());
    }
}
