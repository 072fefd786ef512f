//! Discovery: groups, versions and resources, in the classic and the aggregated form.

use std::net::SocketAddr;

use http::StatusCode;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use hyper::body::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::encoding::base64;
use crate::resources::{self, Resource};
use crate::response::{self, Answer};
use crate::status::{Result, Status};

/// The media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`.
pub fn core(head: &Parts, address: SocketAddr) -> Answer {
    if wants_aggregated(head) {
        return aggregated(&[""]);
    }
    let versions = json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string() }],
    });
    response::json(StatusCode::OK, &versions)
}

/// `/apis`.
pub fn groups(head: &Parts) -> Answer {
    if wants_aggregated(head) {
        return aggregated(&named_groups());
    }
    let groups: Vec<Value> = named_groups().into_iter().map(describe_group).collect();
    response::json(StatusCode::OK, &json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
}

/// `/apis/<group>`.
pub fn group(name: &str) -> Result<Answer> {
    if !named_groups().contains(&name) {
        return Err(Status::unknown_resource());
    }
    let mut group = json!({ "kind": "APIGroup", "apiVersion": "v1" });
    if let (Value::Object(group), Value::Object(description)) = (&mut group, describe_group(name)) {
        group.extend(description);
    }
    Ok(response::json(StatusCode::OK, &group))
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub fn resources(group: &str, version: &str) -> Result<Answer> {
    let rows = rows(group).into_iter().filter(|row| row.version == version);
    let entries: Vec<Value> = rows.flat_map(describe).collect();
    if entries.is_empty() {
        return Err(Status::unknown_resource());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": entries });
    // Upstream omits it for the core group, since its discovery is older than the field.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Ok(response::json(StatusCode::OK, &list))
}

/// The groups other than core, in order of their first row.
fn named_groups() -> Vec<&'static str> {
    let mut groups = Vec::new();
    for row in resources::all() {
        if !row.group.is_empty() && !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    groups
}

/// The rows of a group in order of their names.
fn rows(group: &str) -> Vec<&'static Resource> {
    let mut rows: Vec<_> = resources::all().iter().filter(|row| row.group == group).collect();
    rows.sort_by_key(|row| row.plural);
    rows
}

fn describe_group(name: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/v1"), "version": "v1" });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

/// A resource and its subresources, in the classic form.
fn describe(row: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": row.verbs(),
    });
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
    entry["storageVersionHash"] = storage_version_hash(row).into();
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
    let name = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    base64(&Sha256::digest(name)[..8])
}

fn wants_aggregated(head: &Parts) -> bool {
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|part| part.contains("as=APIGroupDiscoveryList") && part.contains("v=v2;"))
}

fn aggregated(groups: &[&str]) -> Answer {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            let resources: Vec<Value> = rows(group).into_iter().map(describe_aggregated).collect();
            json!({
                "metadata": metadata,
                "versions": [{ "version": "v1", "resources": resources, "freshness": "Current" }],
            })
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

fn describe_aggregated(row: &Resource) -> Value {
    let kind = |kind: &str, foreign: Option<(&str, &str)>| {
        let (group, version) = foreign.unwrap_or((row.group, ""));
        json!({ "group": group, "version": version, "kind": kind })
    };
    let mut entry = json!({
        "resource": row.plural,
        "responseKind": kind(row.kind, None),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs(),
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
