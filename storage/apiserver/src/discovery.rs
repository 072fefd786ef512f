//! Discovery: groups, versions and resources, in the classic and the aggregated form.

use std::cmp::Reverse;
use std::net::SocketAddr;

use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use hyper::body::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::custom::{self, Kinds};
use crate::encoding::base64;
use crate::handlers::discovery_encoding;
use crate::resources::{self, Resource, Storage};
use crate::response::{self, Answer, Encoding};
use crate::status::{Result, Status};

/// The media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`.
///
/// # Errors
/// 406 if the client accepts no supported encoding.
pub fn core(head: &Parts, address: SocketAddr, kinds: &Kinds) -> Result<Answer> {
    if wants_aggregated(head) {
        return Ok(aggregated(&[""], kinds));
    }
    let versions = json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string() }],
    });
    document(head, Route::GoRestful, &versions)
}

/// `/apis`.
///
/// # Errors
/// 406 if the client accepts no supported encoding.
pub fn groups(head: &Parts, kinds: &Kinds) -> Result<Answer> {
    let names = named_groups(kinds);
    if wants_aggregated(head) {
        return Ok(aggregated(&names, kinds));
    }
    let groups: Vec<Value> = names.into_iter().map(|name| describe_group(name, kinds)).collect();
    let list = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
    document(head, Route::Own, &list)
}

/// `/apis/<group>`.
pub fn group(head: &Parts, name: &str, kinds: &Kinds) -> Result<Answer> {
    if !named_groups(kinds).contains(&name) {
        return Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    let mut group = json!({ "kind": "APIGroup", "apiVersion": "v1" });
    if let (Value::Object(group), Value::Object(description)) = (&mut group, describe_group(name, kinds)) {
        group.extend(description);
    }
    document(head, Route::Own, &group)
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub fn resources(head: &Parts, group: &str, version: &str, kinds: &Kinds) -> Result<Answer> {
    let rows = rows(group, kinds).into_iter().filter(|row| row.version == version);
    let entries: Vec<Value> = rows.flat_map(describe).collect();
    if entries.is_empty() {
        // go-restful serves everything below a built-in group.
        return match resources::all().iter().any(|row| row.group == group) {
            true => Err(Status::unknown_resource()),
            false => Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        };
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({ "kind": "APIResourceList" });
    // Upstream omits it for the core group, since its discovery is older than the field.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["groupVersion"] = group_version.into();
    list["resources"] = entries.into();
    document(head, route_of(group, kinds), &list)
}

/// What serves a document upstream, which matters for the texts of errors.
#[derive(Clone, Copy, PartialEq)]
enum Route {
    /// go-restful, which checks what the client accepts itself.
    GoRestful,
    /// A handler of its own.
    Own,
}

/// The route of a group: those of custom kinds have handlers of their own.
fn route_of(group: &str, kinds: &Kinds) -> Route {
    let built_in = resources::all().iter().any(|row| row.group == group);
    match rows(group, kinds).iter().any(|row| row.custom.is_some()) && !built_in {
        true => Route::Own,
        false => Route::GoRestful,
    }
}

/// A document in the encoding that the client accepts. Those about kinds have no protobuf here: a client that accepts
/// nothing else gets JSON.
fn document(head: &Parts, route: Route, document: &Value) -> Result<Answer> {
    let encoding = match discovery_encoding(head, route == Route::GoRestful)? {
        Encoding::Protobuf => Encoding::Json,
        text => text,
    };
    Ok(response::object(StatusCode::OK, encoding, document))
}

/// The groups other than core, in order of their first row.
fn named_groups(kinds: &Kinds) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for row in resources::all().iter().chain(kinds.rows().iter().copied()) {
        if !row.group.is_empty() && !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    groups
}

/// The rows of a group in order of their names.
fn rows(group: &str, kinds: &Kinds) -> Vec<&'static Resource> {
    let all = resources::all().iter().chain(kinds.rows().iter().copied());
    let mut rows: Vec<_> = all.filter(|row| row.group == group).collect();
    rows.sort_by_key(|row| row.plural);
    rows
}

/// The versions of a group, the preferred one first.
fn versions(group: &str, kinds: &Kinds) -> Vec<&'static str> {
    let mut versions: Vec<_> = rows(group, kinds).into_iter().map(|row| row.version).collect();
    versions.sort_by_key(|version| Reverse(custom::order(version)));
    versions.dedup();
    versions
}

fn describe_group(name: &str, kinds: &Kinds) -> Value {
    let describe = |version: &str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions(name, kinds).into_iter().map(describe).collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

/// A resource and its subresources, in the classic form.
fn describe(row: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": verbs(row),
    });
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
    // What is never stored has no storage version.
    if !row.storage.is_virtual() {
        entry["storageVersionHash"] = storage_version_hash(row).into();
    }
    let below = row.subresources.iter().map(|subresource| {
        let mut entry = json!({
            "name": format!("{}/{}", row.plural, subresource.name),
            "singularName": "",
            "namespaced": row.namespaced,
            "kind": subresource.kind,
            "verbs": subresource.verbs,
        });
        if let Some((group, version)) = subresource.foreign {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entry
    });
    std::iter::once(entry).chain(below).collect()
}

/// The storage version hash for clients that migrate storage: eight bytes of a hash over group, version, kind.
fn storage_version_hash(row: &Resource) -> String {
    let stored = resources::stored(row.storage);
    // Definitions are stored in an old version: `apiextensions.k8s.io` in the API server's storage configuration.
    let version = if row.storage == Storage::Definitions { "v1beta1" } else { stored.version };
    let name = format!("{}/{version}/{}", stored.group, stored.kind);
    base64(&Sha256::digest(name)[..8])
}

fn wants_aggregated(head: &Parts) -> bool {
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|part| part.contains("as=APIGroupDiscoveryList") && part.contains("v=v2;"))
}

fn aggregated(groups: &[&str], kinds: &Kinds) -> Answer {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            let versions = versions(group, kinds).into_iter().map(|version| {
                let rows = rows(group, kinds).into_iter().filter(|row| row.version == version);
                let resources: Vec<Value> = rows.map(describe_aggregated).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            });
            json!({ "metadata": metadata, "versions": versions.collect::<Vec<_>>() })
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let mut answer = response::bytes(StatusCode::OK, AGGREGATED, Bytes::from(list.to_string()));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    answer
}

/// The verbs of a resource, in upstream's order. The documents about custom kinds are written by
/// apiextensions-apiserver `customresource_discovery_controller.go`.
fn verbs(row: &Resource) -> &'static [&'static str] {
    match row.custom.is_some() {
        true => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        false => row.verbs(),
    }
}

fn describe_aggregated(row: &Resource) -> Value {
    let kind = |kind: &str, foreign: Option<(&str, &str)>| {
        // Of a built-in kind, only those of another group are set.
        let own = if row.custom.is_some() { (row.group, row.version) } else { ("", "") };
        let (group, version) = foreign.unwrap_or(own);
        json!({ "group": group, "version": version, "kind": kind })
    };
    let mut entry = json!({
        "resource": row.plural,
        "responseKind": kind(row.kind, None),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": verbs(row),
    });
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
    if !row.subresources.is_empty() {
        let below = row.subresources.iter().map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": kind(subresource.kind, subresource.foreign),
                "verbs": subresource.verbs,
            })
        });
        entry["subresources"] = below.collect();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_kinds_of_built_in_kinds_have_no_group() {
        let response = |storage| describe_aggregated(resources::stored(storage))["responseKind"].clone();
        let expected = json!({ "group": "", "version": "", "kind": "StorageClass" });
        assert_eq!(response(Storage::Classes), expected);
    }

    #[test]
    fn the_hash_is_of_the_stored_version() {
        assert_eq!(storage_version_hash(resources::stored(Storage::Definitions)), "jfWCUB31mvA=");
        assert_eq!(storage_version_hash(resources::stored(Storage::ConfigMaps)), "qFsyl6wFWjQ=");
    }
}
