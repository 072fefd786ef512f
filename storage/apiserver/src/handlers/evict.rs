//! eviction: a deletion that PodDisruptionBudgets could reject, which are not enforced here.
//!
//! Mirrors EvictionREST in pkg/registry/core/pod/storage/eviction.go.

use http::StatusCode;
use serde_json::{Value, json};

use super::delete::{DeleteOptions, delete};
use super::{Call, options};
use crate::response::Answer;
use crate::status::{Result, Status};
use crate::time;

/// Deletes the pod in the path with the options of the `Eviction` in the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let eviction = call.parse("Eviction")?;
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != call.name()? {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = options::read_deletion(&eviction["deleteOptions"], &call.query)?;
    if !options.dry_run {
        announce(call, &mut options)?;
    }
    delete(call.store(), call.path.resource, &call.key()?, &options)?;
    let success = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(call.answer_other(StatusCode::CREATED, &success))
}

/// Adds the condition that announces the end of the pod, if the deletion has the pod's identity and version, and adapts
/// that version.
fn announce(call: &Call<'_>, options: &mut DeleteOptions) -> Result<()> {
    loop {
        let pod = call.object()?;
        let version = options.version.as_ref();
        if options.uid.as_ref().is_some_and(|uid| uid != pod.uid())
            || version.is_some_and(|version| *version != pod.version.to_string())
        {
            return Ok(());
        }
        let mut announced = pod.value.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": time::now(),
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        match &mut announced["status"]["conditions"] {
            Value::Array(conditions) if conditions.iter().any(|known| known["type"] == condition["type"]) => {
                return Ok(());
            }
            Value::Array(conditions) => conditions.push(condition),
            unset => *unset = json!([condition]),
        }
        // Stale: another client wrote in between.
        if let Ok(written) = call.store().replace(call.path.resource.storage, &pod, announced) {
            options.version = version.map(|_| written.version.to_string());
            return Ok(());
        }
    }
}
