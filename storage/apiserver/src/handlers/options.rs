//! Options of requests: valid combinations, and the DeleteOptions in the body.
//!
//! Mirrors apimachinery pkg/apis/meta/v1/validation and pkg/apis/meta/internalversion/validation.

use serde_json::Value;

use super::Call;
use super::delete::{DeleteOptions, Propagation};
use crate::request::Query;
use crate::status::{FieldError, Result, Status};

const POLICIES: [(&str, Propagation); 3] = [
    ("Background", Propagation::Background),
    ("Foreground", Propagation::Foreground),
    ("Orphan", Propagation::Orphan),
];

/// Rejects a `dryRun` other than `All`.
pub fn check_dry_run(query: &Query, verb: &str) -> Result<()> {
    let kind = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    };
    match query.get("dryRun") {
        None | Some("All") => Ok(()),
        Some(other) => refuse(kind, vec![FieldError::not_supported("dryRun", &other.into(), &["All"])]),
    }
}

/// The options of a deletion, from the body or else the query.
pub fn deletion(call: &Call<'_>) -> Result<DeleteOptions> {
    let options = if call.body.is_empty() { Value::Null } else { call.parse("DeleteOptions")? };
    read_deletion(&options, &call.query)
}

/// The options of a deletion, from `DeleteOptions` or else the query.
pub fn read_deletion(options: &Value, query: &Query) -> Result<DeleteOptions> {
    let grace = match options["gracePeriodSeconds"].as_i64() {
        Some(seconds) => Some(seconds),
        None => query
            .get("gracePeriodSeconds")
            .map(|text| text.parse())
            .transpose()
            .map_err(|_| Status::bad_request("gracePeriodSeconds must be a number of seconds"))?,
    };
    let mut errors = Vec::new();
    let policy = options["propagationPolicy"].as_str().or(query.get("propagationPolicy"));
    let orphan = options["orphanDependents"].as_bool();
    let propagation = match (policy, orphan) {
        (None, None) => None,
        (None, Some(true)) => Some(Propagation::Orphan),
        (None, Some(false)) => Some(Propagation::Background),
        (Some(policy), None) => {
            let known = POLICIES.iter().find(|(name, _)| *name == policy);
            if known.is_none() {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &policy.into(), &supported));
            }
            known.map(|(_, propagation)| *propagation)
        }
        (Some(policy), Some(_)) => {
            let message = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &policy.into(), message));
            None
        }
    };
    let dry_run = options["dryRun"].as_array().map_or(&[][..], Vec::as_slice);
    for other in dry_run.iter().filter(|directive| *directive != "All") {
        errors.push(FieldError::not_supported("dryRun", other, &["All"]));
    }
    if !errors.is_empty() {
        return refuse("DeleteOptions", errors);
    }
    let condition = |name: &str| options["preconditions"][name].as_str().map(str::to_owned);
    Ok(DeleteOptions {
        grace,
        uid: condition("uid"),
        version: condition("resourceVersion"),
        propagation,
        dry_run: !dry_run.is_empty() || query.dry_run(),
    })
}

/// Rejects contradictory options of a list or watch.
pub fn check_list(query: &Query, watch: bool) -> Result<()> {
    let initial = query.get("sendInitialEvents").is_some();
    let matching = query.get("resourceVersionMatch");
    let field = "resourceVersionMatch";
    let forbidden = |message: &str| FieldError::forbidden(field, message);
    let mut errors = Vec::new();
    if watch && initial && matching != Some("NotOlderThan") {
        errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if let Some(matching) = matching {
        let known: &[&str] = if watch { &["NotOlderThan"] } else { &["", "Exact", "NotOlderThan"] };
        if watch && !initial {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !watch && query.get("resourceVersion").is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if query.get("continue").is_some() {
            errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !known.contains(&matching) {
            errors.push(FieldError::not_supported(field, &matching.into(), known));
        }
        if !watch && matching == "Exact" && query.get("resourceVersion") == Some("0") {
            errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if !watch && initial {
        let message = "sendInitialEvents is forbidden for list";
        errors.push(FieldError::forbidden("sendInitialEvents", message));
    }
    if errors.is_empty() { Ok(()) } else { refuse("ListOptions", errors) }
}

fn refuse<T>(kind: &str, errors: Vec<FieldError>) -> Result<T> {
    Err(Status::invalid_kind(&format!("{kind}.meta.k8s.io"), "meta.k8s.io", kind, "", &errors))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rejected fields, each with the reason.
    fn refused<T: std::fmt::Debug>(result: Result<T>) -> Vec<String> {
        let status = result.err().map(|status| status.to_value()).unwrap_or_default();
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.iter().map(|cause| format!("{}: {}", cause["field"], cause["message"])).collect()
    }

    #[test]
    fn options_of_lists_and_watches() {
        let table = [
            ("", false, ""),
            ("resourceVersion=5&resourceVersionMatch=Exact", false, ""),
            ("resourceVersionMatch=Exact", false, "unless resourceVersion is provided"),
            ("resourceVersion=0&resourceVersionMatch=Exact", false, "forbidden for resourceVersion"),
            ("resourceVersion=1&resourceVersionMatch=NotOlderThan&continue=x", false, "when continue"),
            ("resourceVersion=1&resourceVersionMatch=Newer", false, "Unsupported value"),
            ("sendInitialEvents=true", false, "forbidden for list"),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, ""),
            ("sendInitialEvents=true", true, "requires setting resourceVersionMatch to NotOlderThan"),
            ("resourceVersionMatch=NotOlderThan", true, "unless sendInitialEvents is provided"),
        ];
        for (query, watch, expected) in table {
            let refused = refused(check_list(&Query::parse(Some(query)), watch));
            assert_eq!(refused.len(), usize::from(!expected.is_empty()), "{query}: {refused:?}");
            assert!(refused.iter().all(|why| why.contains(expected)), "{query}: {refused:?}");
        }
    }

    #[test]
    fn options_of_deletions() {
        let read = |options: Value, query: &str| read_deletion(&options, &Query::parse(Some(query)));
        let options = read(json!({ "orphanDependents": true, "dryRun": ["All"] }), "gracePeriodSeconds=3");
        let options = options.unwrap();
        assert_eq!((options.propagation, options.grace), (Some(Propagation::Orphan), Some(3)));
        assert!(options.dry_run);
        let foreground = read(Value::Null, "propagationPolicy=Foreground").unwrap();
        assert_eq!(foreground.propagation, Some(Propagation::Foreground));
        for options in [
            json!({ "propagationPolicy": "Now" }),
            json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
            json!({ "dryRun": ["Some"] }),
        ] {
            assert_eq!(refused(read(options.clone(), "")).len(), 1, "{options}");
        }
        assert_eq!(refused(check_dry_run(&Query::parse(Some("dryRun=x")), "patch")).len(), 1);
    }
}
