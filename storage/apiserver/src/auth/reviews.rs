//! Reviews: kinds that are answered from their body and never stored.
//!
//! Mirrors pkg/registry/authorization and pkg/registry/authentication, and pkg/apis/authorization/validation.
//! Selectors of access reviews are ignored, as upstream's RBAC ignores them.

use http::StatusCode;
use serde_json::{Value, json};

use super::User;
use super::action::{Action, ResourceTarget};
use super::rbac::{Decision, Rule, aggregate};
use crate::admission::text;
use crate::handlers::Call;
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
use crate::time;
use crate::tokens::ISSUER;

/// Answers the review in the body.
///
/// # Errors
/// 400 and 422 for an invalid review.
pub fn review(call: &Call<'_>) -> Result<Answer> {
    if call.path.name.is_some() {
        return Err(Status::method_not_allowed());
    }
    let mut review = call.decode_body()?;
    if review["spec"].is_null() {
        review["spec"] = json!({});
    }
    match call.path.resource.kind {
        "SelfSubjectReview" => {
            review = json!({
                "metadata": { "creationTimestamp": time::now() },
                "status": { "userInfo": call.user.to_value() },
            });
        }
        "SelfSubjectRulesReview" => review = own_rules(call, &review)?,
        "TokenReview" => review["status"] = token(call, &review["spec"])?,
        "SelfSubjectAccessReview" => {
            check(call, &review, check_attributes(&review["spec"]))?;
            review["status"] = access(call, &call.user, &review["spec"]);
        }
        "LocalSubjectAccessReview" => {
            let namespace = local_namespace(call, &mut review)?;
            let mut errors = check_subject(&review["spec"]);
            errors.extend(check_local(&review["spec"], &namespace));
            check(call, &review, errors)?;
            review["status"] = access(call, &subject(&review["spec"]), &review["spec"]);
        }
        _ => {
            check(call, &review, check_subject(&review["spec"]))?;
            review["status"] = access(call, &subject(&review["spec"]), &review["spec"]);
        }
    }
    let mut answer =
        json!({ "kind": call.path.resource.kind, "apiVersion": call.path.resource.api_version() });
    for field in ["metadata", "spec", "status"] {
        if !review[field].is_null() {
            answer[field] = review[field].take();
        }
    }
    Ok(call.answer_other(StatusCode::CREATED, &answer))
}

/// The user that `token` proves.
fn token(call: &Call<'_>, spec: &Value) -> Result<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences = texts(&spec["audiences"]);
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    Ok(match call.api.authenticate(token, &audiences) {
        Ok(accepted) => json!({
            "authenticated": true, "user": accepted.user.to_value(), "audiences": accepted.audiences,
        }),
        Err(error) => json!({ "user": {}, "error": error.to_string() }),
    })
}

/// The rules of the caller in a namespace.
fn own_rules(call: &Call<'_>, review: &Value) -> Result<Value> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let found = call.api.auth.rbac.policy().rules_of(&call.user, namespace);
    let resources = found.rules.iter().filter(|rule| !rule.resources.is_empty());
    let resources = resources.map(|rule| Rule { paths: Vec::new(), ..rule.clone() }.to_value());
    let paths = found.rules.iter().filter(|rule| !rule.paths.is_empty());
    let paths = paths.map(|rule| {
        Rule { verbs: rule.verbs.clone(), paths: rule.paths.clone(), ..Rule::default() }.to_value()
    });
    let mut status = json!({
        "resourceRules": resources.collect::<Vec<_>>(),
        "nonResourceRules": paths.collect::<Vec<_>>(),
        "incomplete": false,
    });
    if let Some(errors) = aggregate(found.errors) {
        status["evaluationError"] = errors.into();
    }
    Ok(json!({ "metadata": {}, "spec": {}, "status": status }))
}

/// Whether `user` may do what the attributes describe.
fn access(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let attributes = &spec["resourceAttributes"];
    let action = if attributes.is_null() {
        let attributes = &spec["nonResourceAttributes"];
        Action::on_path(text(attributes, "verb"), text(attributes, "path"))
    } else {
        let field = |name: &str| text(attributes, name).to_owned();
        let target = ResourceTarget {
            group: field("group"),
            resource: field("resource"),
            subresource: field("subresource"),
            namespace: field("namespace"),
            name: field("name"),
        };
        Action::on_resource(text(attributes, "verb"), target)
    };
    let (allowed, reason) = match call.api.auth.decide(user, &action) {
        Decision::Allowed(reason) => (true, reason),
        Decision::Denied(reason) | Decision::Unrelated(reason) => (false, reason),
    };
    let mut status = json!({ "allowed": allowed });
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// The user that a review is about.
fn subject(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

/// The namespace in the path, which the body may repeat.
fn local_namespace(call: &Call<'_>, review: &mut Value) -> Result<String> {
    let Some(namespace) = call.path.namespace.clone() else {
        return Err(Status::bad_request("namespace is required on this type: "));
    };
    let given = text(&review["metadata"], "namespace");
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    review["metadata"]["namespace"] = namespace.as_str().into();
    Ok(namespace)
}

/// Rejects a review with errors, or with metadata.
fn check(call: &Call<'_>, review: &Value, mut errors: Vec<FieldError>) -> Result<()> {
    let local = call.path.resource.namespaced;
    let allowed = |name: &str| name == "managedFields" || local && name == "namespace";
    let metadata = review["metadata"].as_object();
    if metadata.into_iter().flatten().any(|(name, value)| !allowed(name) && !value.is_null()) {
        let why = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &review["metadata"], why));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_review(call.path.resource, &errors)) }
}

fn check_attributes(spec: &Value) -> Vec<FieldError> {
    let path = &spec["nonResourceAttributes"];
    match (spec["resourceAttributes"].is_null(), path.is_null()) {
        (false, false) => {
            let why = "cannot be specified in combination with resourceAttributes";
            // Upstream shows its internal type.
            let shown = json!({ "Path": text(path, "path"), "Verb": text(path, "verb") });
            vec![FieldError::invalid("spec.nonResourceAttributes", &shown, why)]
        }
        (true, true) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid("spec.resourceAttributes", path, why)]
        }
        (true, false) | (false, true) => Vec::new(),
    }
}

fn check_subject(spec: &Value) -> Vec<FieldError> {
    let mut errors = check_attributes(spec);
    if text(spec, "user").is_empty() && texts(&spec["groups"]).is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &"".into(), why));
    }
    errors
}

fn check_local(spec: &Value, namespace: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let attributes = &spec["resourceAttributes"];
    if !attributes.is_null() && text(attributes, "namespace") != namespace {
        let given = text(attributes, "namespace").into();
        let why = "must match metadata.namespace";
        errors.push(FieldError::invalid("spec.resourceAttributes.namespace", &given, why));
    }
    let path = &spec["nonResourceAttributes"];
    if !path.is_null() {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", path, why));
    }
    errors
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
