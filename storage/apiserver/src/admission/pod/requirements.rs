//! Requests and limits of containers.
//!
//! Mirrors `ValidateContainerResourceRequirements` in pkg/apis/core/validation; devices of claims are left out.

use serde_json::{Map, Value};

use crate::admission::labels;
use crate::quantity::Quantity;
use crate::status::FieldError;

/// A whole amount, in billionths.
const UNIT: i128 = 1_000_000_000;
/// Resources without a domain, besides huge pages.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE: &str = "hugepages-";

/// The requests and limits at `path`.
pub fn validate(path: &str, resources: &Value) -> Vec<FieldError> {
    let (requests, limits) = (&resources["requests"], &resources["limits"]);
    let mut errors = Vec::new();
    for (name, limit) in amounts(limits) {
        errors.extend(check_amount(&format!("{path}.limits[{name}]"), name, limit));
    }
    for (name, request) in amounts(requests) {
        errors.extend(check_amount(&format!("{path}.requests[{name}]"), name, request));
        errors.extend(check_limited(path, name, request, &limits[name]));
    }
    let used = |name: &str| !requests[name].is_null() || !limits[name].is_null();
    let huge = amounts(requests).chain(amounts(limits)).any(|(name, _)| name.starts_with(HUGE));
    if huge && !used("cpu") && !used("memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    errors
}

/// `validateContainerResourceName`.
fn check_container_resource(path: &str, name: &str) -> Vec<FieldError> {
    let mut faults = labels::key_faults(name);
    if !name.contains('/') && !OF_CONTAINERS.contains(&name) && !name.starts_with(HUGE) {
        faults.push("must be a standard resource type or fully qualified".to_owned());
        faults.push("must be a standard resource for containers".to_owned());
    }
    faults.iter().map(|fault| FieldError::invalid(path, &name.into(), fault)).collect()
}

/// Whether the name has a domain that is not one of Kubernetes.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn nanos(amount: &Value) -> i128 {
    amount.as_str().and_then(|text| text.parse().ok()).map_or(0, Quantity::nanos)
}

fn amounts(list: &Value) -> impl Iterator<Item = (&String, &Value)> {
    list.as_object().into_iter().flat_map(Map::iter)
}

fn check_amount(path: &str, name: &str, amount: &Value) -> Vec<FieldError> {
    let mut errors = check_container_resource(path, name);
    let nanos = nanos(amount);
    if nanos < 0 {
        errors.push(FieldError::invalid(path, amount, "must be greater than or equal to 0"));
    }
    if is_extended(name) && nanos % UNIT != 0 {
        errors.push(FieldError::invalid(path, amount, "must be an integer"));
    }
    errors
}

/// A request is at most the limit; that of a resource which cannot be overcommitted equals it.
fn check_limited(path: &str, name: &str, request: &Value, limit: &Value) -> Option<FieldError> {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let exact = !is_native || name.starts_with(HUGE);
    let Some(text) = limit.as_str() else {
        let message = "Limit must be set for non overcommitable resources";
        return exact.then(|| FieldError::required(format!("{path}.limits"), message));
    };
    let (requested, limited) = (nanos(request), nanos(limit));
    let relation = match exact {
        true if requested != limited => "equal to",
        false if requested > limited => "less than or equal to",
        _ => return None,
    };
    let message = format!("must be {relation} {name} limit of {text}");
    Some(FieldError::invalid(format!("{path}.requests"), request, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_refused_of_requests_and_limits() {
        let table = [
            (json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1", "memory": "1Gi" } }), ""),
            (json!({ "limits": { "example.com/gpu": "1" } }), ""),
            (
                json!({ "limits": { "cpu": "-1" } }),
                "r.limits[cpu]: Invalid value: \"-1\": must be greater than",
            ),
            (
                json!({ "limits": { "nope": "1" } }),
                "r.limits[nope]: Invalid value: \"nope\": must be a standard",
            ),
            (
                json!({ "limits": { "pods": "1" } }),
                "r.limits[pods]: Invalid value: \"pods\": must be a standard resou",
            ),
            (
                json!({ "limits": { "example.com/gpu": "500m" } }),
                "r.limits[example.com/gpu]: Invalid value: \"500m\"",
            ),
            (
                json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } }),
                "r.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                json!({ "requests": { "example.com/gpu": "1" }, "limits": { "example.com/gpu": "2" } }),
                "r.requests: Invalid value: \"1\": must be equal to example.com/gpu limit of 2",
            ),
            (
                json!({ "requests": { "example.com/gpu": "1" } }),
                "r.limits: Required value: Limit must be set",
            ),
            (
                json!({ "limits": { "hugepages-2Mi": "4Mi" } }),
                "r: Forbidden: HugePages require cpu or memory",
            ),
        ];
        for (resources, expected) in table {
            let errors: Vec<String> = validate("r", &resources).iter().map(ToString::to_string).collect();
            assert_eq!(errors.is_empty(), expected.is_empty(), "{errors:?}");
            assert!(errors.first().is_none_or(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
    }
}
