//! list: a collection, with selectors and pagination.

use std::sync::Arc;

use http::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{Call, Form, metadata_of, options};
use crate::encoding::{base64_url, unbase64_url};
use crate::protobuf;
use crate::resources::Storage;
use crate::response::{self, Answer, Encoding};
use crate::selectors::Selector;
use crate::status::{Result, Status};
use crate::store::{Key, Object, Page, Span};

/// One page of a collection.
pub struct Selection {
    /// The selected objects, in order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version of the list.
    pub version: u64,
    rest: Option<Rest>,
}

/// The rest after a page.
struct Rest {
    token: String,
    /// Unknown where a selector is set, as upstream.
    count: Option<usize>,
}

/// Returns a list or a table.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    Ok(render(call, &select(call)?))
}

/// Finds the requested objects.
pub fn select(call: &Call<'_>) -> Result<Selection> {
    let resource = call.path.resource;
    options::integer(&call.query, "timeoutSeconds")?;
    let limit = options::integer(&call.query, "limit")?;
    let selector =
        Selector::parse(resource, call.query.get("labelSelector"), call.query.get("fieldSelector"))?;
    options::check_list(&call.query, false)?;
    // Version 0 is the present of upstream's cache, which has no pages (`computeListLimit` in apiserver
    // pkg/storage/cacher/cacher.go); events have no cache. A negative limit is none.
    let paged = call.query.get("resourceVersion") != Some("0") || resource.storage == Storage::Events;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|_| paged).unwrap_or_default();
    let namespace = call.path.namespace.as_deref();
    let after = call.query.get("continue").map(Token::decode).transpose()?;
    let exact = match &after {
        Some(_) if call.query.get("resourceVersion").is_some_and(|version| version != "0") => {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(message));
        }
        Some(token) => token.version,
        None => exact_version(call)?,
    };
    let start = after.as_ref().map(|token| Key::new(&token.namespace, &token.name));
    // With a selector, a page may reach to the end.
    let whole = selector.is_empty().then_some(limit).filter(|limit| *limit > 0);
    let span = Span { namespace, after: start.as_ref(), limit: whole };
    let (page, version) = match exact {
        None => call.store().page(resource.storage, &span),
        Some(version) => {
            let past = call.store().page_at(resource.storage, &span, version);
            let past = past.map_err(|_| match after {
                Some(token) => Status::page_expired(Token { version: None, ..token }.encode()),
                None => Status::expired("The resourceVersion for the provided list is too old."),
            })?;
            (past, version)
        }
    };
    let Page { mut objects, rest: mut left } = page;
    if !selector.is_empty() {
        objects.retain(|object| selector.matches(object));
        if limit > 0 {
            left = objects.len().saturating_sub(limit);
            objects.truncate(limit);
        }
    }
    let rest = objects.last().filter(|_| left > 0).map(|last| {
        let token = Token {
            version: Some(version),
            namespace: last.key.namespace.to_string(),
            name: last.key.name.to_string(),
        };
        Rest { token: token.encode(), count: selector.is_empty().then_some(left) }
    });
    Ok(Selection { objects, version, rest })
}

/// The exact version of the list, if required; a version from the future is rejected.
fn exact_version(call: &Call<'_>) -> Result<Option<u64>> {
    let Some(version) = call.query.get("resourceVersion") else { return Ok(None) };
    let version = options::version(version)
        .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
    let current = call.store().version();
    if version > current {
        return Err(Status::version_too_large(version, current));
    }
    let exact = call.query.get("resourceVersionMatch") == Some("Exact");
    // A page of a list "at least as new" is of the present, which is always new enough.
    Ok((exact && version > 0).then_some(version))
}

/// Writes a page.
pub fn render(call: &Call<'_>, selection: &Selection) -> Answer {
    let resource = call.path.resource;
    let version = selection.version.to_string();
    let mut metadata = json!({ "resourceVersion": version });
    if let Some(rest) = &selection.rest {
        metadata["continue"] = rest.token.as_str().into();
        if let Some(count) = rest.count {
            metadata["remainingItemCount"] = count.into();
        }
    }
    let values = || selection.objects.iter().map(|object| &object.value);
    let accepted = call.accepted();
    match (&accepted.form, accepted.encoding) {
        (Form::Table(table), encoding) => {
            let table = accepted.versioned(table.render(values(), &metadata));
            return response::object(StatusCode::OK, encoding, &table);
        }
        (Form::Metadata, encoding) => {
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": values().map(metadata_of).collect::<Vec<_>>(),
            });
            return response::object(StatusCode::OK, encoding, &accepted.versioned(list));
        }
        (Form::Whole, Encoding::Protobuf) => {
            let kind = format!("{}List", resource.kind);
            let items: Vec<_> = selection.objects.iter().map(|object| resource.protobuf(object)).collect();
            let list = protobuf::encode_list(&resource.api_version(), &kind, &metadata, &items);
            return response::bytes(StatusCode::OK, Encoding::Protobuf.media_type(), Bytes::from(list));
        }
        (Form::Whole, Encoding::Json | Encoding::Yaml) => {}
    }
    // As upstream, lists of custom kinds repeat the kind in each item and have an empty token.
    let custom = resource.custom.is_some();
    if custom && metadata["continue"].is_null() {
        metadata["continue"] = "".into();
    }
    let size: usize = selection.objects.iter().map(|object| object.json().len() + 1).sum();
    let mut text = Vec::with_capacity(size + 256);
    let (kind, api_version) = (resource.list_kind(), resource.api_version());
    text.extend_from_slice(
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
            .as_bytes(),
    );
    for (index, object) in selection.objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match custom {
            true => resource.write_json(object, &mut text),
            false => resource.write_item(object, &mut text, 0),
        }
    }
    text.extend_from_slice(b"]}");
    if accepted.encoding == Encoding::Yaml {
        // The text was written here, so it is JSON.
        let list: Value = serde_json::from_slice(&text).unwrap_or_default();
        return response::object(StatusCode::OK, Encoding::Yaml, &list);
    }
    response::bytes(StatusCode::OK, Encoding::Json.media_type(), Bytes::from(text))
}

/// The position of the next page. Opaque to clients, though its format is upstream's.
struct Token {
    /// The version of the whole list; without one, the page shows the present state.
    version: Option<u64>,
    namespace: String,
    name: String,
}

impl Token {
    fn encode(&self) -> String {
        let start = format!("{}/{}", self.namespace, self.name);
        // As upstream, -1 means that the rest may have another version than the beginning.
        let version = self.version.map_or(json!(-1), |version| json!(version));
        let token = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": start }).to_string();
        base64_url(token.as_bytes())
    }

    fn decode(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = unbase64_url(text).ok_or_else(|| invalid("illegal base64 data"))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| {
            let first = bytes.first().copied().unwrap_or_default();
            let shown = if first.is_ascii_graphic() {
                char::from(first).to_string()
            } else {
                format!("\\x{first:x}")
            };
            invalid(&format!("invalid character '{shown}' looking for beginning of value"))
        })?;
        let start = token["start"].as_str().and_then(|start| start.split_once('/'));
        match (token["rv"].as_i64(), start) {
            (Some(version), Some((namespace, name))) => {
                let version = u64::try_from(version).ok();
                Ok(Self { version, namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(invalid("incorrect encoded start resourceVersion")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_trip() {
        for version in [Some(42), None] {
            let token = Token { version, namespace: "ns".to_owned(), name: "päd?>".to_owned() };
            let read = Token::decode(&token.encode()).unwrap();
            assert_eq!((read.version, read.namespace, read.name), (version, token.namespace, token.name));
        }
        assert!(Token::decode("zzz").is_err());
        assert!(Token::decode("!").is_err());
    }
}
