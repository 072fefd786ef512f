//! The selector of a Job, without which the stock controller creates no pods for it.

use serde_json::Value;

use super::default_to;

/// A label of a Job's pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// All labels of a Job's pods.
const LABELS: [&str; 4] = ["job-name", "batch.kubernetes.io/job-name", "controller-uid", CONTROLLER_UID];

/// A new Job selects its pods by its own uid, unless its writer selects them.
///
/// Mirrors `generateSelector` in pkg/registry/batch/job/strategy.go.
pub(super) fn select_own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (job["metadata"]["name"].clone(), job["metadata"]["uid"].clone());
    let spec = &mut job["spec"];
    for (label, value) in LABELS.into_iter().zip([&name, &name, &uid, &uid]) {
        default_to(&mut spec["template"]["metadata"]["labels"], label, value.clone());
    }
    default_to(&mut spec["selector"]["matchLabels"], CONTROLLER_UID, uid);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_job_selects_its_pods() {
        let mut job = json!({
            "metadata": { "name": "j", "uid": "u" },
            "spec": { "template": { "metadata": { "labels": { "a": "b" } } } },
        });
        select_own_pods(&mut job);
        let labels = json!({
            "a": "b", "job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", CONTROLLER_UID: "u",
        });
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(job["spec"]["selector"], json!({ "matchLabels": { CONTROLLER_UID: "u" } }));
        let mut manual = json!({ "spec": { "manualSelector": true } });
        select_own_pods(&mut manual);
        assert_eq!(manual, json!({ "spec": { "manualSelector": true } }));
    }
}
