//! CSI drivers: which of their traits may change.
//!
//! Mirrors ValidateCSIDriverUpdate in pkg/apis/storage/validation.

use serde_json::Value;

use crate::status::FieldError;

/// Whether volumes are attached, and for what life cycle, stands.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    // The first name is misspelt upstream, and clients see it so.
    let fixed =
        [("attachRequired", "spec.attachedRequired"), ("volumeLifecycleModes", "spec.volumeLifecycleModes")];
    let changed = fixed.into_iter().filter(|(field, _)| old["spec"][field] != new["spec"][field]);
    changed.map(|(field, path)| FieldError::immutable(path, &new["spec"][field])).collect()
}
