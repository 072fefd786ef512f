//! Jobs and CronJobs. They are stored only: this server creates no pods for them.

use serde_json::{Value, json};

use super::columns::workloads as columns;
use super::workloads::default_template;
use super::{BASE, Field, Generation, Resource, Storage, default_to, pod, status_of};

/// A label of a Job's pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// All labels of a Job's pods.
const LABELS: [&str; 4] = ["job-name", "batch.kubernetes.io/job-name", "controller-uid", CONTROLLER_UID];

const BATCH: Resource = Resource {
    group: "batch",
    namespaced: true,
    categories: &["all"],
    generation: Generation::Versions,
    begin: |job| job["status"] = json!({}),
    settle_status: |_, job| {
        default_to(job, "status", json!({}));
        pod::write_times(job, &["lastProbeTime", "lastTransitionTime"]);
    },
    ..BASE
};

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::Jobs,
            kind: "Job",
            plural: "jobs",
            singular: "job",
            subresources: const { &[status_of("Job")] },
            default: default_job,
            begin: begin_job,
            fields: &[Field { name: "status.successful", pointers: &["/status/succeeded"], unset: "0" }],
            columns: columns::JOB,
            empty: r#","spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#,
            ..BATCH
        },
        Resource {
            storage: Storage::CronJobs,
            kind: "CronJob",
            plural: "cronjobs",
            singular: "cronjob",
            short_names: &["cj"],
            subresources: const { &[status_of("CronJob")] },
            default: default_cron_job,
            columns: columns::CRON_JOB,
            empty: concat!(
                r#","spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"#,
                r#""spec":{"containers":null}}}}},"status":{}"#
            ),
            ..BATCH
        },
    ]
}

/// Mirrors `SetDefaults_Job` of pkg/apis/batch/v1.
fn default_job(job: &mut Value) {
    // A new Job gets labels in `begin_job`.
    let is_generated = !job["spec"]["template"]["metadata"]["labels"][CONTROLLER_UID].is_null();
    if is_generated || job["spec"]["manualSelector"] == true {
        default_labels(job);
    }
    let spec = &mut job["spec"];
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = 1.into();
    }
    default_to(spec, "parallelism", 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    default_to(spec, "backoffLimit", limit);
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    default_to(spec, "podReplacementPolicy", replacement);
    default_to(spec, "manualSelector", false);
    default_parts(spec);
}

/// The labels of a Job without any are those of its template.
fn default_labels(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() && job["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
        job["metadata"]["labels"] = labels;
    }
}

/// Mirrors `SetDefaults_CronJob`; the defaults of a Job are not those of the template of one.
fn default_cron_job(job: &mut Value) {
    let spec = &mut job["spec"];
    default_to(spec, "concurrencyPolicy", "Allow");
    default_to(spec, "suspend", false);
    default_to(spec, "successfulJobsHistoryLimit", 3);
    default_to(spec, "failedJobsHistoryLimit", 1);
    // Go writes it even when it is empty.
    default_to(&mut spec["jobTemplate"], "metadata", json!({}));
    default_parts(&mut spec["jobTemplate"]["spec"]);
}

/// The defaults of the parts of a Job's spec. What reading them adds is removed again.
fn default_parts(spec: &mut Value) {
    for rule in spec["podFailurePolicy"]["rules"].as_array_mut().into_iter().flatten() {
        for pattern in rule["onPodConditions"].as_array_mut().into_iter().flatten() {
            default_to(pattern, "status", "True");
        }
        remove_nulls(rule);
    }
    if spec["podFailurePolicy"]["rules"].is_null() {
        spec["podFailurePolicy"] = Value::Null;
    }
    remove_nulls(spec);
    default_template(spec);
}

fn remove_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
    }
}

/// A new Job selects its pods by its own uid, unless its writer selects them.
///
/// Mirrors `generateSelector` in pkg/registry/batch/job/strategy.go.
fn begin_job(job: &mut Value) {
    job["status"] = json!({});
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (job["metadata"]["name"].clone(), job["metadata"]["uid"].clone());
    let spec = &mut job["spec"];
    for (label, value) in LABELS.into_iter().zip([&name, &name, &uid, &uid]) {
        default_to(&mut spec["template"]["metadata"]["labels"], label, value.clone());
    }
    default_to(&mut spec["selector"]["matchLabels"], CONTROLLER_UID, uid);
    // After the labels above: in upstream's code, a Job without labels and its template have one map of them.
    default_labels(job);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_job_selects_its_pods() {
        let mut job = json!({
            "metadata": { "name": "j", "uid": "u" },
            "spec": { "template": { "metadata": { "labels": { "a": "b" } } } },
        });
        default_job(&mut job);
        let numbers = ["completions", "parallelism", "backoffLimit"];
        assert_eq!(numbers.map(|field| job["spec"][field].as_i64().unwrap()), [1, 1, 6]);
        begin_job(&mut job);
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(
            labels,
            &json!({ "a": "b", "job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", CONTROLLER_UID: "u" })
        );
        assert_eq!(&job["metadata"]["labels"], labels, "those of its template");
        assert_eq!(job["spec"]["selector"], json!({ "matchLabels": { CONTROLLER_UID: "u" } }));
        job["metadata"]["labels"] = json!({});
        default_job(&mut job);
        assert_eq!(job["metadata"]["labels"]["a"], "b", "also after an update");
        let mut own = json!({ "spec": { "manualSelector": true, "backoffLimitPerIndex": 1 } });
        default_job(&mut own);
        begin_job(&mut own);
        assert_eq!(
            (&own["spec"]["selector"], &own["spec"]["backoffLimit"]),
            (&Value::Null, &json!(i32::MAX))
        );
    }

    #[test]
    fn the_template_of_a_job_has_the_defaults_of_its_parts_only() {
        let pattern = json!({ "type": "DisruptionTarget" });
        let rule = json!({ "action": "Ignore", "onPodConditions": [pattern] });
        let mut job =
            json!({ "spec": { "jobTemplate": { "spec": { "podFailurePolicy": { "rules": [rule] } } } } });
        default_cron_job(&mut job);
        let spec = &job["spec"]["jobTemplate"]["spec"];
        assert_eq!(spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
        assert_eq!(spec["template"]["spec"]["dnsPolicy"], "ClusterFirst");
        assert!(spec.get("parallelism").is_none() && spec.get("completions").is_none(), "{spec}");
        assert_eq!(job["spec"]["concurrencyPolicy"], "Allow");
    }
}
