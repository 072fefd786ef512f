//! token: issues a signed token for a `TokenRequest` of a service account.
//!
//! Mirrors TokenREST in pkg/registry/core/serviceaccount/storage/token.go, and pkg/serviceaccount/claims.go.

use http::StatusCode;
use k8s_openapi::api::authentication::v1::TokenRequest;
use serde_json::{Map, Value, json};

use super::Call;
use crate::resources::{self, Storage};
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
use crate::store::Key;
use crate::time;
use crate::tokens::{self, ISSUER, LIFE};

/// Issues a token for the service account in the path.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let account = call.object()?;
    let body = call.parse("TokenRequest")?;
    let request: TokenRequest = serde_json::from_value(body.clone()).map_err(|error| {
        let kind = "TokenRequest in version \"v1\" cannot be handled as a TokenRequest";
        Status::bad_request(format!("{kind}: {error}"))
    })?;
    let spec = request.spec.unwrap_or_default();
    let seconds = spec.expiration_seconds.unwrap_or(3600);
    let mut errors = Vec::new();
    let field = "spec.expirationSeconds";
    if seconds < *LIFE.start() {
        let message = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(field, &seconds.into(), message));
    } else if seconds > *LIFE.end() {
        let message = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(field, &seconds.into(), message));
    }
    if !errors.is_empty() {
        let subject = "TokenRequest.authentication.k8s.io";
        return Err(Status::invalid_kind(subject, "authentication.k8s.io", "TokenRequest", "", &errors));
    }
    let mut audiences = spec.audiences.unwrap_or_default();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let (namespace, name) = (&*account.key.namespace, &*account.key.name);
    let bound = &body["spec"]["boundObjectRef"];
    let objects = if bound.is_object() { bound_objects(call, &account.key, bound)? } else { Map::new() };
    let claims = tokens::claims(&account, objects, &audiences, seconds);
    let token = call.api.signer.sign(&claims).map_err(|error| Status::internal(&error.to_string()))?;
    let mut answer = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "name": name, "namespace": namespace, "uid": account.uid(), "creationTimestamp": time::now() },
        "spec": { "audiences": audiences, "expirationSeconds": seconds },
        "status": { "token": token, "expirationTimestamp": time::in_seconds(seconds) },
    });
    // Go writes it even when it is not set.
    answer["spec"]["boundObjectRef"] = bound.clone();
    Ok(call.answer_other(StatusCode::CREATED, &answer))
}

/// The object to which the token is bound, by its name in the claims; of a pod also its node.
fn bound_objects(call: &Call<'_>, account: &Key, bound: &Value) -> Result<Map<String, Value>> {
    let text = |field: &str| bound[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (claim, storage) = match (group, text("kind")) {
        ("", "Pod") => ("pod", Storage::Pods),
        ("", "Secret") => ("secret", Storage::Secrets),
        ("", "Node") => ("node", Storage::Nodes),
        (group, kind) => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    let name = bound["name"].as_str().unwrap_or_default();
    let key = if storage.namespaced() { Key::new(&account.namespace, name) } else { Key::cluster(name) };
    let resource = resources::stored(storage);
    let object = call.store().get(storage, &key).ok_or_else(|| Status::not_found(resource, name))?;
    let spec = &object.value["spec"];
    if storage == Storage::Pods && spec["serviceAccountName"] != *account.name {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
            account.name
        )));
    }
    if let Some(uid) = bound["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != object.uid()) {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object \
             might have been deleted and then recreated"
        );
        return Err(Status::conflict_on(resource, name, &why));
    }
    let mut objects = Map::new();
    objects.insert(claim.to_owned(), json!({ "name": name, "uid": object.uid() }));
    let node = spec["nodeName"].as_str().filter(|node| storage == Storage::Pods && !node.is_empty());
    if let Some(name) = node {
        // As upstream, a node that does not exist is only named.
        let claim = match call.store().get(Storage::Nodes, &Key::cluster(name)) {
            Some(node) => json!({ "name": name, "uid": node.uid() }),
            None => json!({ "name": name }),
        };
        objects.insert("node".to_owned(), claim);
    }
    Ok(objects)
}
