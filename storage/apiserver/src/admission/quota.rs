//! ResourceQuotas and LimitRanges: names of resources, amounts and scopes.
//!
//! Mirrors `ValidateResourceQuota` and `ValidateLimitRange` in pkg/apis/core/validation, and pkg/apis/core/helper.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::{items, labels, text};
use crate::quantity::Quantity;
use crate::resources::Write;
use crate::status::FieldError;

pub(super) const UNIT: i128 = 1_000_000_000;
/// Names of resources without a domain: those of a container, the other ones that are amounts, and numbers of objects.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const AMOUNTS: [&str; 7] = [
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const OBJECTS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const OF_PODS: [&str; 6] =
    ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

/// Validates a ResourceQuota.
pub fn validate(quota: &Value) -> Vec<FieldError> {
    let spec = &quota["spec"];
    let mut errors = check_amounts("spec.hard", &spec["hard"]);
    errors.extend(check_scopes(spec));
    errors.extend(check_scope_selector(spec));
    errors
}

/// Validates the status of a ResourceQuota.
pub fn validate_status(quota: &Value) -> Vec<FieldError> {
    let status = &quota["status"];
    let mut errors = check_amounts("status.hard", &status["hard"]);
    errors.extend(check_amounts("status.used", &status["used"]));
    errors
}

/// Validates a change of a ResourceQuota, of which the scopes are immutable. The errors of the new object come first.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let scopes = |quota: &Value| -> BTreeSet<String> {
        items(&quota["spec"]["scopes"]).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(old) == scopes(new) {
        return Vec::new();
    }
    let error = FieldError::immutable("spec.scopes", &new["spec"]["scopes"]);
    validate(new).into_iter().chain([error]).collect()
}

/// Requests above their limits, which no pod can exhaust.
pub fn warnings(quota: &Value, write: Write) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let named = |name: String| hard[&name].as_str().map(|amount| (name, amount));
    let amount = |text: &str| text.parse::<Quantity>().map_or(0, Quantity::nanos);
    let kinds = ["cpu", "memory", "ephemeral-storage"].into_iter().filter(|_| write == Write::Create);
    let warnings = kinds.filter_map(|kind| {
        let plain = (kind != "ephemeral-storage").then(|| kind.to_owned());
        let (request, requested) = named(format!("requests.{kind}")).or_else(|| named(plain?))?;
        let (limit, limited) = named(format!("limits.{kind}"))?;
        let above = amount(requested) > amount(limited);
        above
            .then(|| format!("ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"))
    });
    warnings.collect()
}

/// Amounts by resource.
fn check_amounts(path: &str, amounts: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let path = format!("{path}[{name}]");
        errors.extend(check_name(&path, name));
        if !name.contains('/') && !is_of_quotas(name) {
            errors.push(FieldError::invalid(
                &path,
                &name.as_str().into(),
                "must be a standard resource for quota",
            ));
        }
        let nanos = nanos(amount);
        if nanos < 0 {
            errors.push(FieldError::invalid(&path, amount, "must be greater than or equal to 0"));
        }
        if nanos % UNIT != 0 && (OBJECTS.contains(&name.as_str()) || is_extended(name)) {
            errors.push(FieldError::invalid(&path, amount, "must be an integer"));
        }
    }
    errors
}

pub(super) fn nanos(amount: &Value) -> i128 {
    amount.as_str().and_then(|text| text.parse().ok()).map_or(0, Quantity::nanos)
}

fn is_of_quotas(name: &str) -> bool {
    let huge = ["hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    huge || OF_CONTAINERS.contains(&name) || AMOUNTS.contains(&name) || OBJECTS.contains(&name)
}

/// Whether the name has a domain that is not one of Kubernetes.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// `validateResourceName`.
fn check_name(path: &str, name: &str) -> Vec<FieldError> {
    let value = name.into();
    let faults = labels::key_faults(name);
    let unknown = faults.is_empty() && !name.contains('/') && !is_of_quotas(name) && name != "storage";
    let message = "must be a standard resource type or fully qualified";
    let faults = faults.into_iter().chain(unknown.then(|| message.to_owned()));
    faults.map(|fault| FieldError::invalid(path, &value, fault)).collect()
}

/// Whether a quota of `resource` can be limited to `scope`.
fn applies(scope: &str, resource: &str) -> bool {
    let of_pods = resource == "pods" || OF_PODS.contains(&resource);
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope => of_pods || !SCOPES.contains(&scope),
    }
}

fn check_scopes(spec: &Value) -> Vec<FieldError> {
    let scopes: Vec<&str> = items(&spec["scopes"]).filter_map(Value::as_str).collect();
    let invalid = |message: &str| FieldError::invalid("spec.scopes", &spec["scopes"], message);
    let mut errors = Vec::new();
    for scope in &scopes {
        errors.extend((!SCOPES.contains(scope)).then(|| invalid("unsupported scope")));
        let misapplied = misapplied(spec, scope).map(|_| invalid("unsupported scope applied to resource"));
        errors.extend(misapplied);
    }
    errors.extend(conflicting(&scopes).map(|()| invalid("conflicting scopes")));
    errors
}

/// The resources to which the scope does not apply.
fn misapplied<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a String> {
    let resources = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name);
    resources.filter(move |name| is_of_quotas(name) && !applies(scope, name))
}

/// The pairs of scopes that exclude each other.
fn conflicting(scopes: &[&str]) -> impl Iterator<Item = ()> {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.into_iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).map(|_| ())
}

fn check_scope_selector(spec: &Value) -> Vec<FieldError> {
    let path = "spec.scopeSelector.matchExpressions";
    let mut errors = Vec::new();
    let mut scopes = Vec::new();
    for expression in items(&spec["scopeSelector"]["matchExpressions"]) {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(format!("{path}.scopeName"), &scope.into(), "unsupported scope"));
        }
        errors.extend(misapplied(spec, scope).map(|_| {
            FieldError::invalid(path, &spec["scopeSelector"], "unsupported scope applied to resource")
        }));
        let valued = matches!(scope, "PriorityClass" | "VolumeAttributesClass") || !SCOPES.contains(&scope);
        if !valued && operator != "Exists" {
            let message = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                           ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                           ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(format!("{path}.operator"), &operator.into(), message));
        }
        let none = items(&expression["values"]).next().is_none();
        match operator {
            "In" | "NotIn" if none => {
                let message =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(format!("{path}.values"), message));
            }
            "Exists" | "DoesNotExist" if !none => {
                let message =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(format!("{path}.values"), &expression["values"], message));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let message = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), &operator.into(), message));
            }
        }
        scopes.push(scope);
    }
    errors.extend(
        conflicting(&scopes)
            .map(|()| FieldError::invalid("spec.scopes", &spec["scopes"], "conflicting scopes")),
    );
    errors
}

/// Validates a LimitRange.
pub fn validate_limit_range(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut kinds = HashSet::new();
    for (index, limit) in items(&range["spec"]["limits"]).enumerate() {
        let path = format!("spec.limits[{index}]");
        let kind = text(limit, "type");
        let field = format!("{path}.type");
        let faults = labels::key_faults(kind);
        let known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) || kind.contains('/');
        let message = "must be a standard limit type or fully qualified";
        let unknown = (faults.is_empty() && !known).then(|| message.to_owned());
        let faults = faults.into_iter().chain(unknown);
        errors.extend(faults.map(|fault| FieldError::invalid(&field, &kind.into(), fault)));
        errors.extend((!kinds.insert(kind)).then(|| FieldError::duplicate(&field, &kind.into())));
        errors.extend(check_limit(&path, kind, limit));
    }
    errors
}

fn check_limit(path: &str, kind: &str, limit: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut resources = BTreeSet::new();
    let named = |field: &'static str| {
        limit[field].as_object().into_iter().flatten().map(move |(name, _)| (field, name))
    };
    let is_pod = kind == "Pod";
    for field in ["max", "min", "default", "defaultRequest"] {
        if is_pod && field.starts_with("default") {
            let given = named(field).next().is_some();
            let message = "may not be specified when `type` is 'Pod'";
            errors.extend(given.then(|| FieldError::forbidden(format!("{path}.{field}"), message)));
            continue;
        }
        for (field, name) in named(field) {
            errors.extend(check_limited(&format!("{path}.{field}[{name}]"), kind, name));
            resources.insert(name);
        }
    }
    let unbounded = ["min", "max"].iter().all(|field| limit[field]["storage"].is_null());
    if kind == "PersistentVolumeClaim" && unbounded {
        let message = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(format!("{path}.limits"), message));
    }
    for (field, name) in named("maxLimitRequestRatio") {
        errors.extend(check_limited(&format!("{path}.{field}[{name}]"), kind, name));
        resources.insert(name);
    }
    for name in resources {
        errors.extend(check_order(path, name, limit, is_pod));
    }
    errors
}

/// `validateLimitRangeResourceName`.
fn check_limited(path: &str, kind: &str, name: &str) -> Vec<FieldError> {
    if matches!(kind, "Pod" | "Container") {
        check_container_resource(path, name)
    } else {
        check_name(path, name)
    }
}

/// `validateContainerResourceName`.
pub(super) fn check_container_resource(path: &str, name: &str) -> Vec<FieldError> {
    let mut errors = check_name(path, name);
    let of_containers = OF_CONTAINERS.contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !of_containers {
        let message = "must be a standard resource for containers";
        errors.push(FieldError::invalid(path, &name.into(), message));
    }
    errors
}

/// The amounts of one resource do not contradict each other.
fn check_order(path: &str, name: &str, limit: &Value, is_pod: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let amount = |field: &str| {
        let given = &limit[field][name];
        let ignored = is_pod && field.starts_with("default");
        given.as_str().filter(|_| !ignored).map(|text| (nanos(given), text))
    };
    // The smaller and the greater amount with their names, and which of them the error is about.
    let orders = [
        ("min", "max", "min", "min"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
        ("min", "default", "default", "min"),
        ("default", "max", "default", "max"),
    ];
    let title = |field: &str, other: &str| match (field, other) {
        ("defaultRequest", _) => "default request value",
        ("default", "defaultRequest") => "default limit value",
        ("default", _) => "default value",
        ("min", _) => "min value",
        _ => "max value",
    };
    for (small, great, field, shown) in orders {
        let (Some((low, low_text)), Some((high, high_text))) = (amount(small), amount(great)) else {
            continue;
        };
        if low > high {
            let (small, great) = (title(small, great), title(great, small));
            let message = format!("{small} {low_text} is greater than {great} {high_text}");
            errors.push(FieldError::invalid(format!("{path}.{field}[{name}]"), &limit[shown][name], message));
        }
    }
    let ratio_path = format!("{path}.maxLimitRequestRatio[{name}]");
    if let Some((ratio, ratio_text)) = amount("maxLimitRequestRatio") {
        let given = &limit["maxLimitRequestRatio"][name];
        if ratio < UNIT {
            let message = format!("ratio {ratio_text} is less than 1");
            errors.push(FieldError::invalid(&ratio_path, given, message));
        }
        if let (Some((low, _)), Some((high, _))) = (amount("min"), amount("max")) {
            let most = high as f64 / low as f64;
            if ratio as f64 / UNIT as f64 > most {
                let message = format!("ratio {ratio_text} is greater than max/min = {most:.6}");
                errors.push(FieldError::invalid(&ratio_path, given, message));
            }
        }
    }
    let overcommits = !is_extended(name) && !name.starts_with("hugepages-");
    if let (Some((default, text)), Some((request, request_text)), false) =
        (amount("default"), amount("defaultRequest"), overcommits)
        && default != request
    {
        let message =
            format!("default value {text} must equal to defaultRequest value {request_text} in {name}");
        let field = format!("{path}.defaultRequest[{name}]");
        errors.push(FieldError::invalid(field, &limit["defaultRequest"][name], message));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_refused_of_a_quota() {
        let table = [
            (json!({ "hard": { "pods": "4", "requests.storage": "1Gi", "count/jobs.batch": "2" } }), ""),
            (json!({ "hard": { "gold.storageclass.storage.k8s.io/requests.storage": "1Gi" } }), ""),
            (json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort"] }), ""),
            (
                json!({ "hard": { "pods": "-1" } }),
                "spec.hard[pods]: Invalid value: \"-1\": must be greater than",
            ),
            (
                json!({ "hard": { "pods": "500m" } }),
                "spec.hard[pods]: Invalid value: \"500m\": must be an integer",
            ),
            (
                json!({ "hard": { "storage": "1" } }),
                "spec.hard[storage]: Invalid value: \"storage\": must be a stand",
            ),
            (json!({ "scopes": ["No"] }), "spec.scopes: Invalid value: [\"No\"]: unsupported scope"),
            (
                json!({ "hard": { "secrets": "1" }, "scopes": ["Terminating"] }),
                "spec.scopes: Invalid value: [\"Terminating\"]: unsupported scope applied to resource",
            ),
            (
                json!({ "scopes": ["Terminating", "NotTerminating"] }),
                "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
            ),
            (
                json!({ "scopeSelector": { "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "In" }] } }),
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value",
            ),
            (
                json!({ "scopeSelector": { "matchExpressions": [{ "scopeName": "BestEffort", "operator": "DoesNotExist" }] } }),
                "spec.scopeSelector.matchExpressions.operator: Invalid value: \"DoesNotExist\": must be 'Exists'",
            ),
        ];
        for (spec, expected) in table {
            let errors = texts(validate(&json!({ "spec": spec })));
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{spec}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{spec}: {errors:?}");
        }
        assert_eq!(validate(&json!({ "spec": { "hard": { "nope": "1" } } })).len(), 2, "as upstream");
    }

    #[test]
    fn scopes_are_immutable() {
        let quota = |scopes: Value| json!({ "spec": { "scopes": scopes } });
        assert_eq!(validate_update(&quota(json!(["BestEffort"])), &quota(json!(["BestEffort"]))), []);
        let errors = texts(validate_update(&quota(json!(["BestEffort"])), &quota(Value::Null)));
        assert_eq!(errors, ["spec.scopes: Invalid value: null: field is immutable"]);
    }

    #[test]
    fn requests_above_limits_cause_a_warning() {
        let quota = |cpu: &str| json!({ "spec": { "hard": { cpu: "2", "limits.cpu": "1" } } });
        for name in ["cpu", "requests.cpu"] {
            let expected = format!("ResourceQuota {name} (2) should be less than limits.cpu (1)");
            assert_eq!(warnings(&quota(name), Write::Create), [expected]);
        }
        assert!(warnings(&quota("cpu"), Write::Update).is_empty());
    }

    #[test]
    fn what_is_refused_of_a_limit_range() {
        let container = |more: Value| {
            let mut limit = json!({ "type": "Container" });
            json_patch::merge(&mut limit, &more);
            json!([limit])
        };
        let table = [
            (container(json!({ "max": { "cpu": "2" }, "min": { "cpu": "1" } })), ""),
            (json!([{ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" } }]), ""),
            (
                json!([{ "type": "PersistentVolumeClaim" }]),
                "spec.limits[0].limits: Required value: either minimum",
            ),
            (
                json!([{ "type": "No" }]),
                "spec.limits[0].type: Invalid value: \"No\": must be a standard limit type",
            ),
            (json!([{ "type": "Pod" }, { "type": "Pod" }]), "spec.limits[1].type: Duplicate value: \"Pod\""),
            (
                json!([{ "type": "Pod", "default": { "cpu": "1" } }]),
                "spec.limits[0].default: Forbidden: may not be",
            ),
            (
                container(json!({ "max": { "cpu": "1" }, "min": { "cpu": "2" } })),
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                container(json!({ "defaultRequest": { "cpu": "2" }, "default": { "cpu": "1" } })),
                "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than \
                 default limit value 1",
            ),
            (
                container(json!({ "max": { "cpu": "1" }, "default": { "cpu": "2" } })),
                "spec.limits[0].default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1",
            ),
            (
                container(json!({ "maxLimitRequestRatio": { "cpu": "500m" } })),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
            (
                container(
                    json!({ "max": { "cpu": "3" }, "min": { "cpu": "2" }, "maxLimitRequestRatio": { "cpu": "2" } }),
                ),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = \
                 1.500000",
            ),
        ];
        for (limits, expected) in table {
            let errors = texts(validate_limit_range(&json!({ "spec": { "limits": limits } })));
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{limits}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{limits}: {errors:?}");
        }
    }
}
