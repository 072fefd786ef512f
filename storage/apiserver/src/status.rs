//! Failures as Kubernetes `Status` objects, with upstream's reasons, codes and wording.
//!
//! Mirrors apimachinery pkg/api/errors and pkg/util/validation/field.

use std::fmt;

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Map, Value, json};

use crate::resources::Resource;
use crate::response::{self, Answer, Encoding};

/// Why a request failed. Boxed, since it is part of every handler's `Result`.
#[derive(Debug)]
pub struct Status(Box<Failure>);

#[derive(Debug)]
struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// The token of a page.
    page: Option<String>,
}

/// The result of a handler.
pub type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    fn new(
        code: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
        details: Option<Value>,
    ) -> Self {
        Self(Box::new(Failure { code, reason, message: message.into(), details, page: None }))
    }

    /// A failure with any code.
    pub fn failed(code: u16, message: String) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reason = match code {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self::new(status, reason, message, Some(json!({})))
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message, None)
    }

    /// 400: the object of a write has no name, unlike the path.
    pub fn undeterminable_name(name: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))
    }

    /// 401: the token is unknown.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None)
    }

    /// 403: RBAC does not permit an action on `resource`. `name` may be empty.
    pub fn not_permitted(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let subject = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let details = details(Some(name).filter(|name| !name.is_empty()), group, resource);
        let message = format!("{subject}{named} is forbidden: {why}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message, Some(details))
    }

    /// 403: RBAC does not permit an action on a path that is not about objects.
    pub fn path_not_permitted(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}"), Some(json!({})))
    }

    /// 403: admission rejects `name`.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_plural());
        let details = details(Some(name), resource.group, resource.plural);
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message, Some(details))
    }

    /// 403: a terminating namespace accepts no new objects.
    pub fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Self::forbidden(resource, name, &why);
        let cause = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        if let Some(Value::Object(details)) = &mut status.0.details {
            details.insert("causes".to_owned(), cause);
        }
        status
    }

    /// 422: a review is invalid. As upstream, it has no kind (`NewInvalid` in pkg/registry/authorization).
    pub fn invalid_review(resource: &Resource, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&format!(".{}", resource.group), resource.group, "", "", errors)
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified_plural());
        let details = details(Some(name), resource.group, resource.plural);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, Some(details))
    }

    /// 404: the path is not served.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, Some(json!({})))
    }

    /// 404: the object exists, but not the requested part.
    pub fn missing_subresource(resource: &Resource, subresource: &str, name: &str, why: &str) -> Self {
        let kind = format!("{}/{subresource}", resource.plural);
        let message = format!("the server could not find the requested resource ({kind} {name})");
        let mut details = details(Some(name), resource.group, &kind);
        details["causes"] = json!([{ "reason": "UnexpectedServerResponse", "message": why }]);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message, Some(details))
    }

    /// 405: the path exists, but not the verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message, Some(json!({})))
    }

    /// 405: a custom kind does not support the verb on this path (`NewMethodNotSupported`).
    pub fn verb_not_supported(resource: &Resource, verb: &str) -> Self {
        let message =
            format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified_plural());
        let details = details(None, resource.group, resource.plural);
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message, Some(details))
    }

    /// 406: the client accepts none of the supported `types`.
    pub fn not_acceptable(types: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", types.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, None)
    }

    /// 406: the object has not the requested form.
    pub fn not_convertible(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, None)
    }

    /// 409: the name is in use.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_plural());
        let details = details(Some(name), resource.group, resource.plural);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message, Some(details))
    }

    /// 409: the name is in use by an object that is being deleted.
    pub fn being_deleted(resource: &Resource, name: &str) -> Self {
        let mut status = Self::already_exists(resource, name);
        status.0.message.insert_str(0, "object is being deleted: ");
        status
    }

    /// 409: the request has an outdated version.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(&resource.qualified_plural(), resource.group, resource.plural, name, why)
    }

    /// 409: `name` has another identity than expected.
    pub fn conflict_on(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict(&resource.qualified_plural(), resource.group, resource.plural, name, why)
    }

    /// 409: a precondition fails; upstream names the kind here, not the plural.
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict(&resource.qualified_kind(), resource.strategy_group(), resource.kind, name, why)
    }

    /// 409: an update is about an object with the uid `given`, which the stored one has not.
    pub fn other_uid(resource: &Resource, name: &str, given: &str, stored: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
        Self::conflict_on(resource, name, &why)
    }

    /// 409: the operation conflicts with the state of the object.
    pub fn refused(resource: &Resource, subresource: &str, name: &str, why: &str) -> Self {
        let kind = format!("{}/{subresource}", resource.plural);
        Self::conflict(&kind, resource.group, &kind, name, why)
    }

    /// 409: applied fields belong to other managers.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message, Some(json!({ "causes": causes })))
    }

    fn conflict(subject: &str, group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {subject} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message, Some(details(Some(name), group, kind)))
    }

    /// 410: the version is older than the history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message, None)
    }

    /// 410: the page belongs to an expired list. `token` continues with the present state.
    pub fn page_expired(token: String) -> Self {
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a \
             new list without the continue parameter, or use the continue token in this response to retrieve \
             the remainder of the results. Continuing with the provided token results in an inconsistent list \
             - objects that were created, modified, or deleted between the time the first chunk was returned \
             and now may show up in the list.",
        );
        status.0.page = Some(token);
        status
    }

    /// 413: the body is larger than an object may be.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message, None)
    }

    /// 413: a JSON patch has too many operations.
    pub fn too_many_operations(limit: usize, given: usize) -> Self {
        let message = format!("The allowed maximum operations in a JSON patch is {limit}, got {given}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message, None)
    }

    /// 415: the body's media type is not supported.
    pub fn unsupported_body() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, None)
    }

    /// 415: unknown patch type.
    pub fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, Some(json!({})))
    }

    /// 415: a patch type that objects of CustomResourceDefinitions do not support.
    pub fn unsupported_custom_patch() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message, None)
    }

    /// 422: one or more fields are invalid.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&resource.qualified_kind(), resource.strategy_group(), resource.kind, name, errors)
    }

    /// 422: an update has no version, which its kind requires. As upstream, the name of the resource is in place of its
    /// kind (`Store.Update` in apiserver pkg/registry/generic/registry).
    pub fn version_required(resource: &Resource, name: &str) -> Self {
        let error =
            FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        Self::invalid_kind(&resource.qualified_plural(), resource.group, resource.plural, name, &[error])
    }

    /// 422 for a non-resource, such as the options of a request.
    pub fn invalid_kind(subject: &str, group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // Go's aggregated errors have every text once.
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = match &texts[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({ "reason": e.problem.reason(), "message": e.body(), "field": e.field }))
            .collect();
        let mut details = details(Some(name).filter(|name| !name.is_empty()), group, kind);
        if let Value::Object(details) = &mut details {
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        let message = format!("{subject} \"{name}\" is invalid: {joined}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, Some(details))
    }

    /// 422: the result `value` of a patch cannot be decoded. As upstream, the subject is empty (`jsonPatcher` and
    /// `strategicPatchObject` in apiserver's `endpoints/handlers/patch.go`).
    pub fn invalid_patch(value: &str, why: &str) -> Self {
        Self::invalid_kind("", "", "", "", &[FieldError::invalid("patch", &value.into(), why)])
    }

    /// 422 for a JSON patch that does not apply.
    pub fn patch_rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message, Some(json!({})))
    }

    /// 504: the request has a version from the future.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message, Some(details))
    }

    /// 409 for a write with a version that another client has just changed.
    pub fn lost_race() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes \
                       to the latest version and try again";
        Self::new(StatusCode::CONFLICT, "Conflict", message, None)
    }

    /// 429: the client must retry after a second.
    pub fn throttled() -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        let details = json!({ "retryAfterSeconds": 1 });
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, Some(details))
    }

    /// 500, without any effect.
    pub fn internal(why: &str) -> Self {
        let details = json!({ "causes": [{ "message": why }] });
        let message = format!("Internal error occurred: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, Some(details))
    }

    /// 500 without a reason, like upstream's response to an unclassified failure.
    pub fn unclassified(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message, None)
    }

    /// 503, without any effect.
    pub fn unavailable(why: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why, Some(json!({})))
    }

    /// The `Status` object.
    pub fn to_value(&self) -> Value {
        let Failure { code, reason, message, details, page } = &*self.0;
        let mut value = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        });
        if !reason.is_empty() {
            value["reason"] = (*reason).into();
        }
        if let Some(page) = page {
            value["metadata"]["continue"] = page.as_str().into();
        }
        if let Some(details) = details {
            value["details"] = details.clone();
        }
        value["code"] = code.as_u16().into();
        value
    }

    /// The response that carries it.
    pub fn into_answer(self, encoding: Encoding) -> Answer {
        let mut answer = response::object(self.0.code, encoding, &self.to_value());
        if matches!(self.0.code, StatusCode::GATEWAY_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

fn details(name: Option<&str>, group: &str, kind: &str) -> Value {
    let mut map = Map::new();
    if let Some(name) = name {
        map.insert("name".to_owned(), name.into());
    }
    if !group.is_empty() {
        map.insert("group".to_owned(), group.into());
    }
    if !kind.is_empty() {
        map.insert("kind".to_owned(), kind.into());
    }
    Value::Object(map)
}

/// A value in a message: strings in quotes, all others as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    field: String,
    problem: Problem,
    detail: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Problem {
    Required,
    Invalid(String),
    NotSupported(String),
    Forbidden,
    Duplicate(String),
    NotFound(String),
    TooLong,
    TooMany(usize),
    TypeInvalid(String),
}

impl Problem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid(_) => "FieldValueInvalid",
            Self::NotSupported(_) => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate(_) => "FieldValueDuplicate",
            Self::NotFound(_) => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany(_) => "FieldValueTooMany",
            Self::TypeInvalid(_) => "FieldValueTypeInvalid",
        }
    }
}

impl FieldError {
    /// The field is required; `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self { field: field.into(), problem: Problem::Required, detail: detail.to_owned() }
    }

    /// The field's `value` is invalid, because of `detail`.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: Problem::Invalid(shown(value)), detail: detail.into() }
    }

    /// The same error of a part of an object, of which `path` is the place. The text of the error has the field's place in
    /// that part.
    pub fn below(self, path: &str) -> Self {
        let field = match self.field.as_str() {
            "" => path.to_owned(),
            "<nil>" => return self,
            item if item.starts_with('[') => format!("{path}{item}"),
            field => format!("{path}.{field}"),
        };
        Self { field, ..self }
    }

    /// The field's value, which has fields or items, is invalid. As upstream, it is not shown (`field.OmitValueType`).
    pub fn invalid_part(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: Problem::Invalid(String::new()), detail: detail.into() }
    }

    /// The field's value, which has fields or items, occurs twice. As upstream, it is not shown.
    pub fn duplicate_part(field: impl Into<String>) -> Self {
        let problem = Problem::Duplicate(String::new());
        Self { field: field.into(), problem, detail: String::new() }
    }

    /// The field's `value` is not one of `supported`.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let mut supported: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        supported.sort();
        let detail = format!("supported values: {}", supported.join(", "));
        Self { field: field.into(), problem: Problem::NotSupported(shown(value)), detail }
    }

    /// The field must not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: Problem::Forbidden, detail: detail.into() }
    }

    /// The field's `value` occurs twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), problem: Problem::Duplicate(shown(value)), detail: String::new() }
    }

    /// The same error with an explanation.
    pub fn with_detail(self, detail: &str) -> Self {
        Self { detail: detail.to_owned(), ..self }
    }

    /// The field's `value` refers to a missing object.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), problem: Problem::NotFound(shown(value)), detail: String::new() }
    }

    /// The field has more than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self { field: field.into(), problem: Problem::TooLong, detail }
    }

    /// The field has `count` items or fields, which are more than `limit`.
    pub fn too_many(field: impl Into<String>, count: usize, limit: usize) -> Self {
        let items = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {items}");
        Self { field: field.into(), problem: Problem::TooMany(count), detail }
    }

    /// The field's `value` has another type than the schema requires.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: Problem::TypeInvalid(shown(value)), detail: detail.into() }
    }

    /// The field's `value` is not one of `supported`, which upstream does not sort here.
    pub fn not_one_of(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        Self::unsupported(field, value, format!("supported values: {}", supported.join(", ")))
    }

    /// The field's `value` is not one of those that `detail` lists.
    pub fn unsupported(field: impl Into<String>, value: &Value, detail: String) -> Self {
        Self { field: field.into(), problem: Problem::NotSupported(shown(value)), detail }
    }

    /// The field is immutable once it is set.
    pub fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    /// Whether the rules of a schema cannot be evaluated with this error (`hasBlockingErr` in
    /// apiextensions-apiserver pkg/registry/customresource/strategy.go).
    pub fn blocks_rules(&self) -> bool {
        matches!(
            self.problem,
            Problem::NotSupported(_)
                | Problem::Required
                | Problem::TooLong
                | Problem::TooMany(_)
                | Problem::TypeInvalid(_)
        )
    }

    /// The message, without the field.
    fn body(&self) -> String {
        let head = match &self.problem {
            Problem::Required => "Required value".to_owned(),
            Problem::Invalid(value) if value.is_empty() => "Invalid value".to_owned(),
            Problem::Duplicate(value) if value.is_empty() => "Duplicate value".to_owned(),
            Problem::Invalid(value) => format!("Invalid value: {value}"),
            Problem::NotSupported(value) => format!("Unsupported value: {value}"),
            Problem::Forbidden => "Forbidden".to_owned(),
            Problem::Duplicate(value) => format!("Duplicate value: {value}"),
            Problem::NotFound(value) => format!("Not found: {value}"),
            Problem::TooLong => "Too long".to_owned(),
            Problem::TooMany(count) => format!("Too many: {count}"),
            Problem::TypeInvalid(value) => format!("Invalid value: {value}"),
        };
        if self.detail.is_empty() { head } else { format!("{head}: {}", self.detail) }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As upstream, some errors are about the whole and name no field.
        match self.field.is_empty() {
            true => write!(f, "{}", self.body()),
            false => write!(f, "{}: {}", self.field, self.body()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_without_a_kind() {
        let status = Status::invalid_patch("{}", "no").to_value();
        assert_eq!(status["message"], " \"\" is invalid: patch: Invalid value: \"{}\": no");
        assert_eq!(status["details"].as_object().map(Map::len), Some(1), "only causes: {status}");
    }
}
