//! Pods: service account, priority, and validation.
//!
//! Mirrors ValidatePodSpec in pkg/apis/core/validation, plugin/pkg/admission/serviceaccount and
//! plugin/pkg/admission/priority. No token is mounted into pods: no pod of the harness calls the API, and an
//! additional volume would cost time in each of them.

mod containers;
mod environment;
mod placement;
mod requirements;
mod volumes;

pub use volumes::HOST_PATH_TYPES;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::items;
use crate::names;
use crate::resources::{Resource, Storage};
use crate::status::{FieldError, Result, Status};
use crate::store::{Key, Object, Store};

/// Completes a new pod, or rejects it.
pub fn admit(store: &Store, resource: &Resource, pod: &mut Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&pod["metadata"]["name"]);
    let refuse = |why: String| Err(Status::forbidden(resource, &name, &why));
    let namespace = text(&pod["metadata"]["namespace"]);
    let account = text(&pod["spec"]["serviceAccountName"]);
    // Without its namespace the pod is refused in other words when it is stored.
    let lives = store.get(Storage::Namespaces, &Key::cluster(&namespace)).is_some();
    if lives && store.get(Storage::ServiceAccounts, &Key::new(&namespace, &account)).is_none() {
        let missing = format!("serviceaccount \"{account}\" not found");
        return refuse(format!("error looking up service account {namespace}/{account}: {missing}"));
    }
    // The plug-in RuntimeClass.
    let has_overhead = pod["spec"]["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty());
    if has_overhead && text(&pod["spec"]["runtimeClassName"]).is_empty() {
        let reason = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return refuse(reason.to_owned());
    }
    let asked = text(&pod["spec"]["priorityClassName"]);
    let class = match asked.is_empty() {
        true => default_priority(store),
        false => match store.get(Storage::PriorityClasses, &Key::cluster(&asked)) {
            Some(class) => Some(class),
            None => return refuse(format!("no PriorityClass with name {asked} was found")),
        },
    };
    let priority = class.as_ref().and_then(|class| class.value["value"].as_i64()).unwrap_or_default();
    if pod["spec"]["priority"].as_i64().is_some_and(|given| given != priority) {
        return refuse(format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission \
             controller computed {priority} from the given PriorityClass name",
            pod["spec"]["priority"]
        ));
    }
    pod["spec"]["priority"] = priority.into();
    let policy = class.as_ref().and_then(|class| class.value["preemptionPolicy"].as_str());
    let policy = policy.unwrap_or("PreemptLowerPriority");
    match pod["spec"]["preemptionPolicy"].as_str() {
        Some(given) if given != policy => {
            return refuse(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
                 admission controller computed {policy} from the given PriorityClass name"
            ));
        }
        _ => pod["spec"]["preemptionPolicy"] = policy.into(),
    }
    if let (true, Some(class)) = (asked.is_empty(), class) {
        pod["spec"]["priorityClassName"] = (*class.key.name).into();
    }
    Ok(())
}

/// The class of pods without one; of several, the one with the lowest value.
fn default_priority(store: &Store) -> Option<Arc<Object>> {
    let (classes, _) = store.list(Storage::PriorityClasses, None);
    let defaults = classes.into_iter().filter(|class| class.value["globalDefault"] == true);
    defaults.min_by_key(|class| class.value["value"].as_i64())
}

/// Validates a pod.
pub fn validate(pod: &Value) -> Vec<FieldError> {
    validate_spec("spec", pod["metadata"]["name"].as_str().unwrap_or_default(), &pod["spec"])
}

/// `pod` is the name of the pod.
fn validate_spec(path: &str, pod: &str, spec: &Value) -> Vec<FieldError> {
    let (mut errors, mountable) = volumes::validate(path, pod, spec);
    errors.extend(containers::validate(path, spec, &mountable));
    errors.extend(containers::host_ports(path, spec));
    errors.extend(placement::validate(path, spec));
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|seconds| seconds < 1) {
        let message = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), deadline, message));
    }
    errors.extend(environment::volumes_of_files(path, spec));
    errors
}

/// The fault of the name of a container or volume at `path`, which is a DNS label that is not in `seen`.
fn check_name<'a>(path: &str, named: &'a Value, seen: &mut HashSet<&'a str>) -> Option<FieldError> {
    let (path, value) = (format!("{path}.name"), &named["name"]);
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() {
        Some(FieldError::required(path, ""))
    } else if let Some(fault) = names::fault(name, true) {
        Some(FieldError::invalid(path, value, fault))
    } else {
        (!seen.insert(name)).then(|| FieldError::duplicate(path, value))
    }
}

#[cfg(test)]
mod tests;
