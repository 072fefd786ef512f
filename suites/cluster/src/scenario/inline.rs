//! The CSI inline volumes of a scenario's pods: they have no claim, and a handle that the kubelet makes.

use claimcheck_model::inline_volume_handle;
use claimcheck_scenario::Store;
use serde_json::Value;

/// The handles of all that its pods have, or had, of this driver.
pub(super) fn handles(store: &Store, driver: &str) -> Vec<String> {
    let mut handles: Vec<String> = store.seen("Pod").flat_map(|pod| of_pod(pod, driver)).collect();
    handles.sort();
    handles.dedup();
    handles
}

fn of_pod(pod: &Value, driver: &str) -> Vec<String> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let inline = volumes.filter(|volume| volume["csi"]["driver"] == driver);
    inline.filter_map(|volume| Some(inline_volume_handle(uid, volume["name"].as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_inline_volumes_of_the_driver_have_a_handle() {
        let pod = json!({
            "metadata": { "uid": "u" },
            "spec": { "volumes": [
                { "name": "a", "csi": { "driver": "d" } },
                { "name": "b", "csi": { "driver": "other" } },
                { "name": "c", "persistentVolumeClaim": { "claimName": "c" } },
            ] },
        });
        assert_eq!(of_pod(&pod, "d"), [inline_volume_handle("u", "a")]);
    }
}
