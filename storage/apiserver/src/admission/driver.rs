//! CSIDriver, CSINode and CSIStorageCapacity: required and immutable fields.
//!
//! Mirrors ValidateCSIDriver, ValidateCSINode and ValidateCSIStorageCapacity in pkg/apis/storage/validation.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{items, labels, warnings};
use crate::names;
use crate::quantity::Quantity;
use crate::resources::Write;
use crate::status::FieldError;

const LIFE_CYCLE_MODES: [&str; 2] = ["Persistent", "Ephemeral"];
const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
/// Minimum and maximum lifetime of a token, in seconds.
const TOKEN_LIFE: std::ops::RangeInclusive<i64> = 600..=1 << 32;
/// Minimum interval between updates of CSINode, in seconds.
const ALLOCATABLE_PERIOD: i64 = 10;

/// Validates a CSIDriver.
pub fn validate(driver: &Value) -> Vec<FieldError> {
    let spec = &driver["spec"];
    let mut errors: Vec<_> = check_name(&driver["metadata"]["name"], "metadata.name").into_iter().collect();
    if !GROUP_POLICIES.iter().any(|known| spec["fsGroupPolicy"] == *known) {
        let policy = &spec["fsGroupPolicy"];
        errors.push(FieldError::not_supported("spec.fsGroupPolicy", policy, &GROUP_POLICIES));
    }
    let mut audiences = HashSet::new();
    for (index, request) in items(&spec["tokenRequests"]).enumerate() {
        let path = format!("spec.tokenRequests[{index}]");
        if !audiences.insert(request["audience"].as_str().unwrap_or_default()) {
            errors.push(FieldError::duplicate(format!("{path}.audience"), &request["audience"]));
        }
        let seconds = &request["expirationSeconds"];
        let message = match seconds.as_i64() {
            Some(short) if short < *TOKEN_LIFE.start() => "may not specify a duration less than 10 minutes",
            Some(long) if long > *TOKEN_LIFE.end() => "may not specify a duration larger than 2^32 seconds",
            Some(_) | None => continue,
        };
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, message));
    }
    for mode in items(&spec["volumeLifecycleModes"]) {
        if !LIFE_CYCLE_MODES.iter().any(|known| mode == known) {
            errors.push(FieldError::not_one_of("spec.volumeLifecycleModes", mode, &LIFE_CYCLE_MODES));
        }
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < ALLOCATABLE_PERIOD) {
        let message = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, message));
    }
    let in_secrets = &spec["serviceAccountTokenInSecrets"];
    if !in_secrets.is_null() && audiences.is_empty() {
        let message = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", in_secrets, message));
    }
    errors
}

/// Warnings about a CSIDriver, as kube-apiserver 1.36 sends them.
pub fn warnings(driver: &Value, write: Write) -> Vec<String> {
    let spec = &driver["spec"];
    let requests_tokens = items(&spec["tokenRequests"]).next().is_some();
    if write != Write::Create || !requests_tokens || !spec["serviceAccountTokenInSecrets"].is_null() {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
    vec![text.to_owned()]
}

/// attachRequired and volumeLifecycleModes are immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    // The first name is misspelt upstream, and clients see it so.
    let fixed =
        [("attachRequired", "spec.attachedRequired"), ("volumeLifecycleModes", "spec.volumeLifecycleModes")];
    let changed = fixed.into_iter().filter(|(field, _)| old["spec"][field] != new["spec"][field]);
    changed.map(|(field, path)| FieldError::immutable(path, &new["spec"][field])).collect()
}

/// Validates the drivers of a CSINode.
pub fn validate_node(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for (index, driver) in items(&node["spec"]["drivers"]).enumerate() {
        let path = format!("spec.drivers[{index}]");
        errors.extend(check_name(&driver["name"], &format!("{path}.name")));
        if !seen.insert(driver["name"].as_str().unwrap_or_default()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &driver["name"]));
        }
        let id = driver["nodeID"].as_str().unwrap_or_default();
        match id.len() {
            0 => errors.push(FieldError::required(format!("{path}.nodeID"), "")),
            1..=256 => {}
            _ => {
                let message = "must be 256 characters or less";
                errors.push(FieldError::invalid(format!("{path}.nodeID"), &driver["nodeID"], message));
            }
        }
        let count = &driver["allocatable"]["count"];
        if count.as_i64().is_some_and(|count| count < 0) {
            let message = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.allocatable.count"), count, message));
        }
        let mut keys = HashSet::new();
        for key in items(&driver["topologyKeys"]) {
            if key == "" {
                errors.push(FieldError::required(path.clone(), ""));
            }
            if !keys.insert(key.as_str()) {
                errors.push(FieldError::duplicate(path.clone(), key));
            }
            let faults = labels::key_faults(key.as_str().unwrap_or_default()).into_iter();
            errors.extend(faults.map(|fault| FieldError::invalid(path.clone(), key, fault)));
        }
    }
    errors
}

/// What a driver has registered stays as it is, except for the limit of its volumes. Upstream shows its internal type.
pub fn validate_node_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for was in items(&old["spec"]["drivers"]) {
        for is in items(&new["spec"]["drivers"]).filter(|is| is["name"] == was["name"]) {
            if ["nodeID", "topologyKeys"].iter().any(|field| was[*field] != is[*field]) {
                let shown = json!({
                    "Name": is["name"], "NodeID": is["nodeID"], "TopologyKeys": is["topologyKeys"], "Allocatable": null,
                });
                errors.push(FieldError::immutable("spec.drivers", &shown));
            }
        }
    }
    if errors.is_empty() { errors } else { validate_node(new).into_iter().chain(errors).collect() }
}

/// Validates a CSIStorageCapacity.
pub fn validate_capacity(capacity: &Value) -> Vec<FieldError> {
    let mut errors = labels::check_selector("nodeTopology", &capacity["nodeTopology"]);
    let class = capacity["storageClassName"].as_str().unwrap_or_default();
    let fault = names::fault(class, false);
    errors.extend(fault.map(|fault| FieldError::invalid("storageClassName", &class.into(), fault)));
    // Upstream does not validate the maximum size of a volume.
    let quantity = capacity["capacity"].as_str().and_then(|text| text.parse::<Quantity>().ok());
    if quantity.is_some_and(|quantity| quantity.nanos() < 0) {
        let message = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("capacity", &capacity["capacity"], message));
    }
    errors
}

/// The class and topology of a capacity are immutable.
pub fn validate_capacity_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let fixed = ["nodeTopology", "storageClassName"];
    let changed = fixed.into_iter().filter(|field| old[field] != new[field]);
    changed.map(|field| FieldError::immutable(field, &new[field])).collect()
}

/// Driver names are domain names of at most 63 bytes.
pub(super) fn check_name(name: &Value, path: &str) -> Option<FieldError> {
    let text = name.as_str().unwrap_or_default();
    match text.len() {
        0 => Some(FieldError::required(path, "")),
        1..=63 => {
            let fault = names::fault(&text.to_lowercase(), false)?;
            Some(FieldError::invalid(path, name, fault))
        }
        _ => Some(FieldError::too_long(path, 63)),
    }
}

/// Deprecated labels in the topology of a CSIStorageCapacity (`GetWarningsForNodeSelector`).
pub fn capacity_warnings(capacity: &Value) -> Vec<String> {
    let (path, topology) = ("nodeTopology", &capacity["nodeTopology"]);
    let labels = topology["matchLabels"].as_object().into_iter().flat_map(|labels| labels.keys());
    let labels = labels.filter_map(|key| Some((key, warnings::label_warning(key)?)));
    let of_labels = labels.map(|(key, warning)| format!("{path}.matchLabels.{key}: {warning}"));
    warnings::expression_warnings(path, topology).chain(of_labels).collect()
}
