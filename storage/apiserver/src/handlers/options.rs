//! Options of requests: valid combinations, and the DeleteOptions in the body.
//!
//! Mirrors apimachinery pkg/apis/meta/v1/validation and pkg/apis/meta/internalversion/validation.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Call;
use super::delete::{DeleteOptions, Propagation};
use crate::request::Query;
use crate::status::{FieldError, Result, Status};

const POLICIES: [(&str, Propagation); 3] = [
    ("Background", Propagation::Background),
    ("Foreground", Propagation::Foreground),
    ("Orphan", Propagation::Orphan),
];

/// Maximum length of the name of a field manager, in bytes (`FieldManagerMaxLength`).
const MANAGER_LIMIT: usize = 128;

/// Rejects invalid options of a creation, update or patch (`ValidateCreateOptions`, `ValidatePatchOptions`). `applies`
/// if the patch is an apply.
pub fn check_write(query: &Query, verb: &str, applies: bool) -> Result<()> {
    let kind = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => return Ok(()),
    };
    let mut errors = Vec::new();
    let manager = query.get("fieldManager").unwrap_or_default();
    if verb == "patch" && applies && manager.is_empty() {
        errors.push(FieldError::required("fieldManager", "is required for apply patch"));
    }
    if verb == "patch" && !applies && query.get("force").is_some() {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if manager.len() > MANAGER_LIMIT {
        errors.push(FieldError::too_long("fieldManager", MANAGER_LIMIT));
    }
    for (at, character) in manager.char_indices().filter(|(_, character)| !is_printable(*character)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(character));
        errors.push(FieldError::invalid("fieldManager", &manager.into(), detail));
    }
    let directives: Vec<Value> = query.all("dryRun").map(Value::from).collect();
    errors.extend(dry_run_error(&directives));
    let validation = query.get("fieldValidation").unwrap_or_default();
    let known = ["", "Ignore", "Strict", "Warn"];
    if !known.contains(&validation) {
        errors.push(FieldError::not_supported("fieldValidation", &validation.into(), &known));
    }
    if errors.is_empty() { Ok(()) } else { refuse(kind, errors) }
}

/// Go's `unicode.IsPrint`, except for unassigned characters.
fn is_printable(character: char) -> bool {
    character == ' ' || !(character.is_control() || character.is_whitespace() || character == '\u{feff}')
}

/// The error of directives other than `All`.
fn dry_run_error(directives: &[Value]) -> Option<FieldError> {
    let unknown = directives.iter().any(|directive| directive != "All");
    unknown.then(|| FieldError::not_supported("dryRun", &directives.into(), &["All"]))
}

/// The number in a parameter of the query, if it is given.
///
/// # Errors
/// 400, in the words of Go's `strconv.ParseInt`.
pub fn integer(query: &Query, name: &str) -> Result<Option<i64>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let invalid = || Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map(Some).map_err(|_| invalid())
}

/// The number in a `resourceVersion`.
///
/// # Errors
/// The message of upstream's `ParseResourceVersion` (apiserver storage/api_object_versioner.go).
pub fn version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// The options of a deletion, from the body or else the query.
pub fn deletion(call: &Call<'_>) -> Result<DeleteOptions> {
    if call.body.is_empty() {
        return read_deletion(&Value::Null, &call.query);
    }
    let options = call.parse("DeleteOptions")?;
    check_kind(&options)?;
    read_deletion(&options, &Query::default())
}

/// Rejects a body of another kind. `DeleteOptions` are of any version.
fn check_kind(options: &Value) -> Result<()> {
    match options["kind"].as_str().unwrap_or_default() {
        "" | "DeleteOptions" => Ok(()),
        kind => Err(Status::bad_request(format!("{kind} cannot be handled as a DeleteOptions"))),
    }
}

/// `DeleteOptions`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Given {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Map<String, Value>>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<Value>>,
}

/// The options of a deletion, from `DeleteOptions` or else the query.
pub fn read_deletion(options: &Value, query: &Query) -> Result<DeleteOptions> {
    let given: Option<Given> =
        Deserialize::deserialize(options).map_err(|error| Status::bad_request(error.to_string()))?;
    let given = given.unwrap_or_default();
    let grace = match given.grace_period_seconds {
        Some(seconds) => Some(seconds),
        None => integer(query, "gracePeriodSeconds")?,
    };
    let mut errors = Vec::new();
    let policy = given.propagation_policy.as_deref().or(query.get("propagationPolicy"));
    let asked = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
    let orphan = given.orphan_dependents.or(asked);
    let propagation = match (policy, orphan) {
        (None, None) => None,
        (None, Some(true)) => Some(Propagation::Orphan),
        (None, Some(false)) => Some(Propagation::Background),
        (Some(policy), None) => {
            let known = POLICIES.iter().find(|(name, _)| *name == policy);
            if known.is_none() {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_one_of("propagationPolicy", &policy.into(), &known));
            }
            known.map(|(_, propagation)| *propagation)
        }
        (Some(policy), Some(_)) => {
            let message = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", &policy.into(), message));
            None
        }
    };
    let mut dry_run = given.dry_run.unwrap_or_default();
    dry_run.extend(query.all("dryRun").map(Value::from));
    errors.extend(dry_run_error(&dry_run));
    if !errors.is_empty() {
        return refuse("DeleteOptions", errors);
    }
    let condition = |name: &str| given.preconditions.as_ref()?.get(name)?.as_str().map(str::to_owned);
    Ok(DeleteOptions {
        grace,
        uid: condition("uid"),
        version: condition("resourceVersion"),
        collects: orphan == Some(false),
        propagation,
        dry_run: !dry_run.is_empty(),
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
    // Upstream adds both to a watch from the present (`SetListOptionsDefaults`).
    let from_present = matches!(query.get("resourceVersion"), None | Some("0"));
    if watch && !initial && matching.is_none() && from_present && query.get("continue").is_some() {
        errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    if let Some(matching) = matching {
        let known: &[&str] = if watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
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
            errors.push(FieldError::not_one_of(field, &matching.into(), known));
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
            ("continue=x", true, "when continue"),
            ("resourceVersion=5&continue=x", true, ""),
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
        let options = read(Value::Null, "orphanDependents=false&dryRun=All").unwrap();
        assert_eq!((options.propagation, options.dry_run), (Some(Propagation::Background), true));
        let message =
            |options: Value, query: &str| read(options, query).unwrap_err().to_value()["message"].clone();
        assert!(message(json!({ "preconditions": 1 }), "").as_str().unwrap().contains("invalid type"));
        assert_eq!(
            message(Value::Null, "gracePeriodSeconds=x"),
            "strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        assert_eq!(
            message(Value::Null, "propagationPolicy=Nope"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Nope\": supported \
             values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        );
    }

    #[test]
    fn options_of_writes() {
        let long = format!("fieldManager={}", "m".repeat(129));
        let table = [
            ("create", false, "dryRun=All&fieldManager=m&fieldValidation=Warn", ""),
            (
                "create",
                false,
                "dryRun=Nope",
                "Unsupported value: [\\\"Nope\\\"]: supported values: \\\"All\\\"",
            ),
            ("create", false, "dryRun=", "Unsupported value: [\\\"\\\"]"),
            ("update", false, long.as_str(), "Too long: may not be more than 128 bytes"),
            ("create", false, "fieldManager=a%07b", "invalid character U+0007 (at position 1)"),
            ("patch", true, "", "is required for apply patch"),
            ("patch", false, "force=true", "may not be specified for non-apply patch"),
            ("patch", false, "fieldValidation=x", "Unsupported value: \\\"x\\\""),
            ("list", false, "dryRun=Nope", ""),
        ];
        for (verb, applies, query, expected) in table {
            let refused = refused(check_write(&Query::parse(Some(query)), verb, applies));
            assert_eq!(refused.len(), usize::from(!expected.is_empty()), "{query}: {refused:?}");
            assert!(refused.iter().all(|why| why.contains(expected)), "{query}: {refused:?}");
        }
    }

    #[test]
    fn versions_are_unsigned() {
        assert_eq!(version("7"), Ok(7));
        let expected =
            "resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax";
        assert_eq!(version("-1"), Err(expected.to_owned()));
    }
}
