//! The status of a definition: accepted names, conditions, stored versions.
//!
//! Mirrors pkg/controller/status/naming_controller.go, pkg/controller/establish, pkg/controller/apiapproval, and
//! pkg/registry/customresourcedefinition/etcd.go. Upstream waits some seconds before a kind is established, for
//! other API servers; there are none here.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::schema::{list, texts};
use super::{CLEANUP, definition, is_preinstalled};
use crate::time;

/// Names that the definitions of a group have.
#[derive(Debug, Default)]
pub struct Taken {
    /// Plural, singular, and short names.
    resources: HashSet<String>,
    /// Kinds, and kinds of lists.
    kinds: HashSet<String>,
}

impl Taken {
    /// The names that `definitions` have in the group of `definition`, including its own.
    pub fn of<'a>(definition: &Value, definitions: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        let group = &definition["spec"]["group"];
        for names in definitions.into_iter().filter(|other| other["spec"]["group"] == *group) {
            let names = &names["status"]["acceptedNames"];
            let text = |name: &str| names[name].as_str().unwrap_or_default().to_owned();
            taken.resources.extend([text("plural"), text("singular")]);
            taken.resources.extend(texts(&names["shortNames"]));
            taken.kinds.extend([text("kind"), text("listKind")]);
        }
        taken
    }
}

/// Whether the condition is true.
pub fn is_true(definition: &Value, condition: &str) -> bool {
    let mut conditions = list(&definition["status"]["conditions"]).iter();
    conditions.any(|other| other["type"] == condition && other["status"] == "True")
}

/// The status of a definition, when others have the names in `taken`.
pub fn plan(definition: &Value, taken: &Taken) -> Value {
    let mut status = definition["status"].clone();
    let (accepted, conflict) = accept(&definition["spec"]["names"], &status["acceptedNames"], taken);
    status["acceptedNames"] = accepted;
    match conflict {
        None => {
            set(&mut status, "NamesAccepted", ("True", "NoConflicts", "no conflicts found"));
            let established = ("True", "InitialNamesAccepted", "the initial names have been accepted");
            set(&mut status, "Established", established);
        }
        Some((reason, message)) => {
            set(&mut status, "NamesAccepted", ("False", reason, &message));
            // A kind that is served keeps its accepted names.
            if !is_true(definition, "Established") {
                set(&mut status, "Established", ("False", "NotAccepted", "not all names are accepted"));
            }
        }
    }
    if let Some(version) = definition::storage_version(definition) {
        match &mut status["storedVersions"] {
            Value::Array(versions) if versions.iter().any(|other| other == version) => {}
            Value::Array(versions) => versions.push(version.into()),
            unset => *unset = json!([version]),
        }
    }
    // A manifest of an older release replaces the definition that exists from the start, with fewer versions.
    if is_preinstalled(definition["metadata"]["name"].as_str().unwrap_or_default())
        && let Value::Array(stored) = &mut status["storedVersions"]
    {
        let versions = list(&definition["spec"]["versions"]);
        stored.retain(|stored| versions.iter().any(|version| version["name"] == *stored));
    }
    approve(definition, &mut status);
    status
}

/// The accepted names, and the last conflict: its reason and message.
fn accept(requested: &Value, accepted: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let mut names = accepted.clone();
    let mut conflict = None;
    let mut request = |name: &str, reason: &'static str, taken: &HashSet<String>| {
        let expected = requested[name].as_str().unwrap_or_default();
        if requested[name] != accepted[name] && taken.contains(expected) {
            conflict = Some((reason, format!("\"{expected}\" is already in use")));
        } else if !expected.is_empty() {
            names[name] = expected.into();
        }
    };
    request("plural", "PluralConflict", &taken.resources);
    request("singular", "SingularConflict", &taken.resources);
    request("kind", "KindConflict", &taken.kinds);
    request("listKind", "ListKindConflict", &taken.kinds);
    let (short, before) = (texts(&requested["shortNames"]), texts(&accepted["shortNames"]));
    let used = short.iter().filter(|name| !before.contains(name) && taken.resources.contains(*name));
    let used: Vec<String> = used.map(|name| format!("\"{name}\" is already in use")).collect();
    match &used[..] {
        [] => copy(requested, &mut names, "shortNames"),
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
    copy(requested, &mut names, "categories");
    (names, conflict)
}

fn copy(from: &Value, to: &mut Value, name: &str) {
    match (list(&from[name]).is_empty(), to) {
        (false, to) => to[name] = from[name].clone(),
        (true, Value::Object(to)) => drop(to.shift_remove(name)),
        (true, _) => {}
    }
}

/// The approval of kinds in groups of the Kubernetes project, which the validation has checked.
fn approve(definition: &Value, status: &mut Value) {
    let annotation = &definition["metadata"]["annotations"]["api-approved.kubernetes.io"];
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    if !definition::is_protected(group) {
        return;
    }
    let given = annotation.as_str().unwrap_or_default();
    let condition = "KubernetesAPIApprovalPolicyConformant";
    match given.starts_with("unapproved") {
        true => {
            let message = format!("not approved: {given:?}");
            set(status, condition, ("False", "UnapprovedAnnotation", &message));
        }
        false => {
            let message = format!("approved in {given}");
            set(status, condition, ("True", "ApprovedAnnotation", &message));
        }
    }
}

/// Sets a condition, with the time of the last change of its status.
fn set(status: &mut Value, kind: &str, (state, reason, message): (&str, &str, &str)) {
    let before = list(&status["conditions"]).iter().find(|condition| condition["type"] == kind);
    let since = before.filter(|before| before["status"] == state);
    let since = since.map_or_else(|| time::now().into(), |before| before["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": state, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match &mut status["conditions"] {
        Value::Array(conditions) => match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(before) => *before = condition,
            None => conditions.push(condition),
        },
        unset => *unset = json!([condition]),
    }
}

/// A definition that is deleted waits for the deletion of its objects.
pub fn begin_deletion(definition: &mut Value) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(&mut definition["status"], "Terminating", ("True", "InstanceDeletionPending", message));
    match &mut definition["metadata"]["finalizers"] {
        Value::Array(finalizers) if finalizers.iter().any(|held| held == CLEANUP) => {}
        Value::Array(finalizers) => finalizers.push(CLEANUP.into()),
        unset => *unset = json!([CLEANUP]),
    }
}

/// The definition while objects of its kind remain, which have finalizers.
pub fn await_objects(definition: &mut Value) {
    let state = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    set(&mut definition["status"], "Terminating", state);
}

/// The definition without objects, which is removed.
pub fn end_deletion(definition: &mut Value) {
    let state = ("False", "InstanceDeletionCompleted", "removed all instances");
    set(&mut definition["status"], "Terminating", state);
    if let Value::Array(finalizers) = &mut definition["metadata"]["finalizers"] {
        finalizers.retain(|finalizer| finalizer != CLEANUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        let mut definition = json!({ "spec": {
            "group": "example.com",
            "names": { "plural": plural, "kind": kind, "singular": kind, "listKind": format!("{kind}List"),
                       "shortNames": short },
            "versions": [{ "name": "v1", "storage": true }],
        } });
        definition::begin(&mut definition);
        definition
    }

    /// Type, status and reason of the conditions.
    fn conditions(status: &Value) -> Vec<(&str, &str, &str)> {
        list(&status["conditions"])
            .iter()
            .map(|condition| {
                let text = |name: &str| condition[name].as_str().unwrap_or_default();
                (text("type"), text("status"), text("reason"))
            })
            .collect()
    }

    #[test]
    fn names_are_accepted_once() {
        let mut first = definition("things", "Thing", &["th"]);
        first["status"] = plan(&first, &Taken::of(&first, [&first]));
        assert_eq!(
            conditions(&first["status"]),
            [("NamesAccepted", "True", "NoConflicts"), ("Established", "True", "InitialNamesAccepted")]
        );
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        assert_eq!(plan(&first, &Taken::of(&first, [&first])), first["status"], "nothing changes");
        for (second, reason, message) in [
            (definition("others", "Thing", &[]), "ListKindConflict", "\"ThingList\" is already in use"),
            (definition("others", "Other", &["th"]), "ShortNamesConflict", "\"th\" is already in use"),
            (definition("th", "Other", &[]), "PluralConflict", "\"th\" is already in use"),
        ] {
            let status = plan(&second, &Taken::of(&second, [&first, &second]));
            let expected = [("NamesAccepted", "False", reason), ("Established", "False", "NotAccepted")];
            assert_eq!(conditions(&status), expected);
            assert_eq!(status["conditions"][0]["message"], message);
        }
        let mut elsewhere = definition("others", "Thing", &[]);
        elsewhere["spec"]["group"] = "other.example.com".into();
        let status = plan(&elsewhere, &Taken::of(&elsewhere, [&first, &elsewhere]));
        assert_eq!(conditions(&status)[0], ("NamesAccepted", "True", "NoConflicts"));
    }

    #[test]
    fn the_kinds_of_the_project_have_a_condition_about_their_approval() {
        for (group, expected) in [("a.k8s.io", true), ("a.x-k8s.io", false), ("kubernetes.io", true)] {
            let mut definition = definition("things", "Thing", &[]);
            definition["spec"]["group"] = group.into();
            let status = plan(&definition, &Taken::default());
            let found = conditions(&status).iter().any(|(kind, ..)| kind.ends_with("Conformant"));
            assert_eq!(found, expected, "{group}");
        }
    }

    #[test]
    fn a_new_storage_version_is_recorded_and_deletion_has_conditions() {
        let mut definition = definition("things", "Thing", &[]);
        definition["spec"]["versions"] = json!([{ "name": "v1" }, { "name": "v2", "storage": true }]);
        definition["status"] = plan(&definition, &Taken::default());
        assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
        begin_deletion(&mut definition);
        assert_eq!(definition["metadata"]["finalizers"], json!([CLEANUP]));
        assert!(is_true(&definition, "Terminating"));
        await_objects(&mut definition);
        assert!(is_true(&definition, "Terminating"));
        end_deletion(&mut definition);
        assert_eq!(definition["metadata"]["finalizers"], json!([]));
        assert!(!is_true(&definition, "Terminating") && is_true(&definition, "Established"));
    }
}
