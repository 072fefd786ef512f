//! Jobs and CronJobs: counts, completion mode, policies, pod template, selector, and schedule.
//!
//! Mirrors pkg/apis/batch/validation, without the details of policies for failures and success, and the transitions of
//! the status.

use serde_json::{Value, json};

use super::workload::{counts, name_warnings, not_negative_in, not_selected};
use super::{items, labels, pod, text};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

/// The label with the uid of a Job, which its pods have.
pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// The labels of a Job's pods: two with its name and two with its uid, of which those without a domain are older.
pub const LABELS: [&str; 4] = ["job-name", "batch.kubernetes.io/job-name", "controller-uid", CONTROLLER_UID];

const INDEXED: &str = "Indexed";
/// The longest name of a CronJob, to which the name of a Job adds a time.
const CRON_NAME: usize = 52;

/// Validates a Job.
pub fn validate(job: &Value) -> Vec<FieldError> {
    let spec = &job["spec"];
    let selector = &spec["selector"];
    let mut errors = Vec::new();
    if spec["manualSelector"] != true && !selector.is_null() {
        errors.extend(check_generated(job));
    }
    errors.extend(check_spec("spec", spec));
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(labels::check_selector("spec.selector", selector));
    }
    if labels::matches(selector, &spec["template"]["metadata"]["labels"]) == Some(false) {
        errors.push(not_selected(spec));
    }
    let completions = spec["completions"].as_i64().unwrap_or_default();
    if spec["completionMode"] == INDEXED && completions > 0 {
        let name = &job["metadata"]["name"];
        let host = format!("{}-{}", name.as_str().unwrap_or_default(), completions - 1);
        if names::fault(&host, true).is_some() {
            let message = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(FieldError::invalid("metadata.name", name, message));
        }
    }
    errors
}

/// `validateGeneratedSelector`.
fn check_generated(job: &Value) -> Vec<FieldError> {
    let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
    let expected = json!({ LABELS[0]: name, LABELS[1]: name, LABELS[2]: uid, LABELS[3]: uid });
    // Upstream sorts the labels that it prints.
    let mut given = job["spec"]["template"]["metadata"]["labels"].clone();
    given.sort_all_objects();
    let path = "spec.template.metadata.labels";
    let mut errors = Vec::new();
    for label in [LABELS[2], LABELS[0], LABELS[3], LABELS[1]] {
        let value = expected[label].as_str().unwrap_or_default();
        if given[label].is_null() {
            errors.push(FieldError::required(format!("{path}[{label}]"), &format!("must be '{value}'")));
        } else if given[label] != value {
            errors.push(FieldError::invalid(
                format!("{path}[{label}]"),
                &given,
                format!("must be '{value}'"),
            ));
        }
    }
    let selector = &job["spec"]["selector"];
    if labels::matches(selector, &expected) == Some(false) {
        errors.push(FieldError::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
    errors
}

/// `validateJobSpec`.
fn check_spec(path: &str, spec: &Value) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    let mut errors = not_negative_in(path, spec, &numbers);
    let (failed, per_index) = (&spec["maxFailedIndexes"], &spec["backoffLimitPerIndex"]);
    if !failed.is_null() && per_index.is_null() {
        errors.push(FieldError::required(at("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    let mode = &spec["completionMode"];
    if !mode.is_null() && mode != "NonIndexed" && mode != INDEXED {
        errors.push(FieldError::not_one_of(at("completionMode"), mode, &["NonIndexed", INDEXED]));
    }
    if mode == INDEXED {
        if spec["completions"].is_null() {
            errors.push(FieldError::required(at("completions"), "when completion mode is Indexed"));
        } else if failed.as_i64() > spec["completions"].as_i64() {
            let message = "must be less than or equal to completions";
            errors.push(FieldError::invalid(at("maxFailedIndexes"), failed, message));
        }
    } else if mode.is_null() || mode == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            let message = "requires indexed completion mode";
            let given = !spec[field].is_null();
            errors.extend(given.then(|| FieldError::invalid(at(field), &spec[field], message)));
        }
    }
    let policy = &spec["podFailurePolicy"];
    for (index, rule) in items(&policy["rules"]).enumerate() {
        errors.extend(check_rule(&format!("{path}.podFailurePolicy.rules[{index}]"), rule, per_index));
    }
    let replacement = &spec["podReplacementPolicy"];
    let known: &[&str] = if policy.is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    if !replacement.is_null() && !known.iter().any(|known| replacement == known) {
        errors.push(FieldError::not_supported(at("podReplacementPolicy"), replacement, known));
    }
    let template = &spec["template"];
    errors.extend(labels::check(&at("template.labels"), &template["metadata"]["labels"]));
    errors.extend(pod::validate_template(&at("template.spec"), &template["spec"]));
    let restarts = &template["spec"]["restartPolicy"];
    let field = at("template.spec.restartPolicy");
    match restarts.as_str().unwrap_or_default() {
        "Never" => {}
        "OnFailure" if policy.is_null() => {}
        "OnFailure" => {
            let message = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(field, restarts, message));
        }
        "Always" | "" => {
            errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
        _ => errors.push(FieldError::not_supported(field, restarts, &["Never", "OnFailure"])),
    }
    errors
}

/// A rule of a policy for failures: its action, and that it has one condition.
fn check_rule(path: &str, rule: &Value, per_index: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (action, known) = (text(rule, "action"), ["Count", "FailIndex", "FailJob", "Ignore"]);
    let field = format!("{path}.action");
    if action.is_empty() {
        let message = "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]";
        errors.push(FieldError::required(field, message));
    } else if action == "FailIndex" && per_index.is_null() {
        let message = "requires the backoffLimitPerIndex to be set";
        errors.push(FieldError::invalid(field, &rule["action"], message));
    } else if !known.contains(&action) {
        errors.push(FieldError::not_supported(field, &rule["action"], &known));
    }
    let given = (!rule["onExitCodes"].is_null(), items(&rule["onPodConditions"]).next().is_some());
    let fault = match given {
        (true, true) => Some("specifying both OnExitCodes and OnPodConditions is not supported"),
        (false, false) => Some("specifying one of OnExitCodes and OnPodConditions is required"),
        (true, false) | (false, true) => None,
    };
    errors.extend(fault.map(|fault| FieldError::invalid_part(path, fault)));
    errors
}

/// Validates a change of a Job, of which most of the spec is immutable. The errors of the new object come first.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    let mut keep = |field: &str, same: bool| {
        errors.extend((!same).then(|| FieldError::immutable(format!("spec.{field}"), &is[field])));
    };
    let indexed = is["completionMode"] == INDEXED;
    keep("completions", indexed || was["completions"] == is["completions"]);
    keep("selector", was["selector"] == is["selector"]);
    keep("template", same_template(was, is, old["status"]["startTime"].is_null()));
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        keep(field, was[field] == is[field]);
    }
    if indexed && was["completions"] != is["completions"] && is["completions"] != is["parallelism"] {
        let message = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", &is["completions"], message));
    }
    if errors.is_empty() { errors } else { validate(new).into_iter().chain(errors).collect() }
}

/// Whether the template is the same, except for what may change while the Job is suspended (`validatePodTemplateUpdate`).
fn same_template(was: &Value, is: &Value, not_started: bool) -> bool {
    let strip = |template: &Value| {
        let mut template = template.clone();
        let of_pods = ["nodeSelector", "tolerations", "schedulingGates", "affinity"];
        for (part, fields) in [("spec", &of_pods[..]), ("metadata", &["labels", "annotations"])] {
            if let Value::Object(part) = &mut template[part] {
                part.retain(|field, _| !fields.contains(&field.as_str()));
            }
        }
        for list in ["containers", "initContainers"] {
            for container in
                template["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
            {
                container["resources"] = Value::Null;
            }
        }
        template
    };
    was["template"] == is["template"]
        || (was["suspend"] == true && not_started && strip(&was["template"]) == strip(&is["template"]))
}

/// Validates the status of a Job.
pub fn validate_status(job: &Value) -> Vec<FieldError> {
    counts(&job["status"], &["active", "succeeded", "failed", "ready", "terminating"])
}

/// Validates a CronJob.
pub fn validate_cron_job(job: &Value) -> Vec<FieldError> {
    let mut errors = check_cron_spec(&job["spec"]);
    let name = &job["metadata"]["name"];
    // An update cannot change the name.
    if name.as_str().is_some_and(|name| name.len() > CRON_NAME) {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
    errors
}

/// Validates a change of a CronJob: only its new spec is.
pub fn validate_cron_job_update(_: &Value, _: &Value) -> Vec<FieldError> {
    Vec::new()
}

fn check_cron_spec(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else {
        let fault = schedule_fault(schedule);
        errors.extend(fault.map(|fault| FieldError::invalid("spec.schedule", &schedule.into(), fault)));
        if schedule.contains("TZ") {
            let message = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(FieldError::invalid("spec.schedule", &schedule.into(), message));
        }
    }
    errors.extend(not_negative_in("spec", spec, &["startingDeadlineSeconds"]));
    let zone = &spec["timeZone"];
    if let Some(name) = zone.as_str() {
        let message = format!("unknown time zone {name}");
        // Without a database on the host any name may be one.
        let zones = jiff::tz::db();
        let is_name = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
            !["", ".", ".."].contains(&part) && !part.starts_with('-') && part.bytes().all(plain)
        };
        let known =
            name.split('/').all(is_name) && (zones.is_definitively_empty() || zones.get(name).is_ok());
        errors.extend((!known).then(|| FieldError::invalid("spec.timeZone", zone, message)));
    }
    let (policy, known) = (&spec["concurrencyPolicy"], ["Allow", "Forbid", "Replace"]);
    if !known.iter().any(|known| policy == known) {
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &known));
    }
    let job = &spec["jobTemplate"]["spec"];
    errors.extend(check_spec("spec.jobTemplate.spec", job));
    if !job["selector"].is_null() {
        let message = "`selector` will be auto-generated";
        errors.push(FieldError::invalid("spec.jobTemplate.spec.selector", &job["selector"], message));
    }
    if job["manualSelector"] == true {
        let field = "spec.jobTemplate.spec.manualSelector";
        errors.push(FieldError::not_supported(field, &job["manualSelector"], &["false", "nil"]));
    }
    errors.extend(not_negative_in("spec", spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]));
    errors
}

/// Why a schedule cannot be parsed, in the words of robfig/cron, which upstream uses; only the number of its fields and the
/// characters in them are checked.
fn schedule_fault(schedule: &str) -> Option<String> {
    let words = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    // The zone is an error of its own.
    let fields: Vec<&str> = schedule.split_whitespace().filter(|field| !field.contains("TZ=")).collect();
    if let [word, ..] = fields[..]
        && word.starts_with('@')
    {
        let known = words.contains(&word) || (word == "@every" && fields.len() == 2);
        return (!known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    if fields.len() != 5 {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let limits = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let names = [
        &[][..],
        &[],
        &[],
        &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    ];
    fields.iter().zip(limits).zip(names).find_map(|((field, limits), names)| {
        field.split(',').find_map(|range| range_fault(range, limits, names))
    })
}

/// A part of a field: `*`, a number or name, or a range of them, each with an optional step.
fn range_fault(range: &str, (least, most): (u32, u32), names: &[&str]) -> Option<String> {
    let (bounds, step) = range.split_once('/').map_or((range, None), |(bounds, step)| (bounds, Some(step)));
    let read = |text: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.map(|place| place as u32 + least);
        let failed = || {
            format!(
                "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
                crate::quote::quote(text)
            )
        };
        named.map_or_else(|| text.parse::<u32>().map_err(|_| failed()), Ok)
    };
    if let Some(step) = step {
        match read(step) {
            Err(fault) => return Some(fault),
            Ok(0) => return Some(format!("step of range should be a positive number: {range}")),
            Ok(_) => {}
        }
    }
    if bounds == "*" || bounds == "?" {
        return None;
    }
    let (first, last) = bounds.split_once('-').unwrap_or((bounds, bounds));
    match (read(first), read(last)) {
        (Err(fault), _) | (_, Err(fault)) => Some(fault),
        (Ok(first), _) if first < least => {
            Some(format!("beginning of range ({first}) below minimum ({least}): {range}"))
        }
        (_, Ok(last)) if last > most => {
            Some(format!("end of range ({last}) above maximum ({most}): {range}"))
        }
        (Ok(first), Ok(last)) if first > last => {
            Some(format!("beginning of range ({first}) beyond end of range ({last}): {range}"))
        }
        (Ok(_), Ok(_)) => None,
    }
}

/// Warnings about a Job: its name, and its spec.
pub fn warnings(job: &Value, write: Write) -> Vec<String> {
    let of_spec = spec_warnings("spec", &job["spec"], write);
    name_warnings(job, write).into_iter().chain(of_spec).collect()
}

/// Warnings about a CronJob: its name, and the spec of its Jobs.
pub fn cron_job_warnings(job: &Value, write: Write) -> Vec<String> {
    let of_spec = spec_warnings("spec.jobTemplate.spec", &job["spec"]["jobTemplate"]["spec"], write);
    name_warnings(job, write).into_iter().chain(of_spec).collect()
}

/// Mirrors `WarningsForJobSpec` of pkg/api/job.
fn spec_warnings(path: &str, spec: &Value, write: Write) -> Vec<String> {
    if write == Write::UpdateOfMetadata {
        return Vec::new();
    }
    let above = |field: &str, limit: i64| spec[field].as_i64().is_some_and(|count| count > limit);
    let is_large =
        spec["completionMode"] == "Indexed" && above("completions", 100_000) && above("parallelism", 10_000);
    let large = format!(
        "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
         Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    );
    let of_template = pod::warnings::of_pod(&format!("{path}.template"), &spec["template"]);
    is_large.then_some(large).into_iter().chain(of_template).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Value {
        json!({
            "metadata": { "name": "j", "uid": "u" },
            "spec": {
                "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false, "suspend": true,
                "selector": { "matchLabels": { CONTROLLER_UID: "u" } },
                "template": {
                    "metadata": { "labels": { LABELS[0]: "j", LABELS[1]: "j", LABELS[2]: "u", LABELS[3]: "u" } },
                    "spec": {
                        "restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
                        "containers": [{
                            "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                        }],
                    },
                },
            },
        })
    }

    fn errors_of(validate: fn(&Value) -> Vec<FieldError>, base: Value, patch: &Value) -> Vec<String> {
        let mut object = base;
        json_patch::merge(&mut object, patch);
        validate(&object).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_refused_of_a_job() {
        assert_eq!(validate(&job()), []);
        let rule = |rule: Value| json!({ "podReplacementPolicy": "Failed", "podFailurePolicy": { "rules": [rule] } });
        let table = [
            (
                json!({ "parallelism": -1 }),
                "spec.parallelism: Invalid value: -1: must be greater than or equal",
            ),
            (
                json!({ "completionMode": "No" }),
                "spec.completionMode: Unsupported value: \"No\": supported values",
            ),
            (
                json!({ "completionMode": "Indexed", "completions": null }),
                "spec.completions: Required value: when",
            ),
            (
                json!({ "backoffLimitPerIndex": 1 }),
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed",
            ),
            (json!({ "podReplacementPolicy": "No" }), "spec.podReplacementPolicy: Unsupported value: \"No\""),
            (
                json!({ "template": { "spec": { "restartPolicy": "Always" } } }),
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                json!({ "template": { "metadata": { "labels": { "job-name": "x" } } } }),
                "spec.template.metadata.labels[job-name]: Invalid value: {",
            ),
            (
                rule(json!({ "action": "No", "onExitCodes": {} })),
                "spec.podFailurePolicy.rules[0].action: Unsupported",
            ),
            (
                rule(json!({ "action": "Ignore" })),
                "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of",
            ),
        ];
        for (spec, expected) in table {
            let errors = errors_of(validate, job(), &json!({ "spec": spec }));
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn a_suspended_job_may_be_scheduled_elsewhere() {
        let mut new = job();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({ "a": "b" });
        new["spec"]["parallelism"] = 2.into();
        assert_eq!(validate_update(&job(), &new), []);
        let mut running = job();
        running["spec"]["suspend"] = false.into();
        let errors = validate_update(&running, &new);
        assert!(
            errors.len() == 1 && errors[0].to_string().starts_with("spec.template: Invalid value: {"),
            "{errors:?}"
        );
        new = job();
        new["spec"]["completions"] = 2.into();
        assert_eq!(validate_update(&job(), &new), [FieldError::immutable("spec.completions", &json!(2))]);
    }

    #[test]
    fn what_is_refused_of_a_cron_job() {
        let mut spec = job()["spec"].take();
        spec["selector"] = Value::Null;
        let cron = json!({
            "metadata": { "name": "c" },
            "spec": { "schedule": "*/5 0-3 1,15 jan mon-fri", "concurrencyPolicy": "Allow", "jobTemplate": { "spec": spec } },
        });
        assert_eq!(validate_cron_job(&cron), []);
        let table = [
            (json!({ "schedule": "" }), "spec.schedule: Required value"),
            (
                json!({ "schedule": "* *" }),
                "spec.schedule: Invalid value: \"* *\": expected exactly 5 fields, found 2",
            ),
            (
                json!({ "schedule": "60 * * * *" }),
                "spec.schedule: Invalid value: \"60 * * * *\": end of range (60) above",
            ),
            (
                json!({ "schedule": "a * * * *" }),
                "spec.schedule: Invalid value: \"a * * * *\": failed to parse int from a",
            ),
            (
                json!({ "schedule": "5-1 * * * *" }),
                "spec.schedule: Invalid value: \"5-1 * * * *\": beginning of range (5) b",
            ),
            (
                json!({ "schedule": "*/0 * * * *" }),
                "spec.schedule: Invalid value: \"*/0 * * * *\": step of range should",
            ),
            (
                json!({ "schedule": "@never" }),
                "spec.schedule: Invalid value: \"@never\": unrecognized descriptor: @never",
            ),
            (
                json!({ "schedule": "TZ=UTC * * * * *" }),
                "spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use",
            ),
            (
                json!({ "timeZone": "no zone" }),
                "spec.timeZone: Invalid value: \"no zone\": unknown time zone no zone",
            ),
            (
                json!({ "concurrencyPolicy": "No" }),
                "spec.concurrencyPolicy: Unsupported value: \"No\": supported values",
            ),
            (
                json!({ "jobTemplate": { "spec": { "selector": {} } } }),
                "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
            ),
        ];
        for (patch, expected) in table {
            let errors = errors_of(validate_cron_job, cron.clone(), &json!({ "spec": patch }));
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
        for schedule in ["@hourly", "@every 1h", "0 0 * * ?"] {
            assert_eq!(schedule_fault(schedule), None, "{schedule}");
        }
        let long = json!({ "metadata": { "name": "c".repeat(53) } });
        assert_eq!(errors_of(validate_cron_job, cron, &long).len(), 1);
    }
}
