//! list: a collection, selected and in pages.

use std::sync::Arc;

use http::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::Call;
use crate::kubeconfig::base64;
use crate::response::{self, Answer};
use crate::selectors::Selector;
use crate::status::{Result, Status};
use crate::store::{Key, Object};
use crate::table::Table;

/// One page of a collection.
pub struct Selection {
    /// The selected objects, in order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version that they are the state of.
    pub version: u64,
    rest: Option<Rest>,
}

/// What follows a page.
struct Rest {
    token: String,
    /// Unknown where a selector is set, as upstream.
    count: Option<usize>,
}

/// Answers with a list or a table.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    Ok(render(call, &select(call)?))
}

/// Finds the objects that the request asks for.
pub fn select(call: &Call<'_>) -> Result<Selection> {
    let resource = call.path.resource;
    let selector =
        Selector::parse(resource, call.query.get("labelSelector"), call.query.get("fieldSelector"))?;
    let limit: usize = match call.query.get("limit") {
        Some(limit) => limit.parse().map_err(|_| Status::bad_request("limit must be a number"))?,
        None => 0,
    };
    let namespace = call.path.namespace.as_deref();
    let after = call.query.get("continue").map(Token::decode).transpose()?;
    let exact = match &after {
        Some(token) => Some(token.version),
        None => exact_version(call)?,
    };
    let after = after.map(|token| Key::new(&token.namespace, &token.name));
    let (mut objects, version) = match exact {
        None => call.store().list(resource.shelf, namespace, after.as_ref()),
        Some(version) => {
            let past = call.store().list_at(resource.shelf, namespace, after.as_ref(), version);
            let past = past.map_err(|_| {
                Status::expired(
                    "The provided continue parameter is too old to display a consistent list result. \
                                 You must start a new list without the continue parameter.",
                )
            })?;
            (past, version)
        }
    };
    if !selector.is_empty() {
        objects.retain(|object| selector.matches(object));
    }
    let mut rest = None;
    if limit > 0 && objects.len() > limit {
        let count = selector.is_empty().then_some(objects.len() - limit);
        objects.truncate(limit);
        let last = &objects[limit - 1].key;
        let token = Token { version, namespace: last.namespace.to_string(), name: last.name.to_string() };
        rest = Some(Rest { token: token.encode(), count });
    }
    Ok(Selection { objects, version, rest })
}

/// The version that the list must be of, if it must be of one; a version from the future is refused.
fn exact_version(call: &Call<'_>) -> Result<Option<u64>> {
    let Some(version) = call.query.get("resourceVersion") else { return Ok(None) };
    let version: u64 = version
        .parse()
        .map_err(|_| Status::bad_request(format!("invalid resource version \"{version}\"")))?;
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
    if call.wants_table() {
        let objects: Vec<&Object> = selection.objects.iter().map(Arc::as_ref).collect();
        let table = Table::new(resource, call.query.get("includeObject"));
        return response::json(StatusCode::OK, &table.render(&objects, &version, Some(&metadata)));
    }
    let size: usize = selection.objects.iter().map(|object| object.json().len() + 1).sum();
    let mut text = Vec::with_capacity(size + 256);
    let (kind, api_version) = (resource.kind, resource.api_version());
    text.extend_from_slice(
        format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
        )
        .as_bytes(),
    );
    for (index, object) in selection.objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        resource.write_item(object, &mut text, 0);
    }
    text.extend_from_slice(b"]}");
    response::bytes(StatusCode::OK, response::JSON, Bytes::from(text))
}

/// Where the next page begins. Opaque to clients, though they can see what upstream's looks like.
struct Token {
    version: u64,
    namespace: String,
    name: String,
}

impl Token {
    fn encode(&self) -> String {
        let start = format!("{}/{}", self.namespace, self.name);
        let token = json!({ "v": "meta.k8s.io/v1", "rv": self.version, "start": start }).to_string();
        base64(token.as_bytes()).trim_end_matches('=').replace('+', "-").replace('/', "_")
    }

    fn decode(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = unbase64(text).ok_or_else(|| invalid("illegal base64 data"))?;
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
        match (token["rv"].as_u64(), start) {
            (Some(version), Some((namespace, name))) => {
                Ok(Self { version, namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(invalid("incorrect encoded start resourceVersion")),
        }
    }
}

/// URL-safe base64 without padding.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut word, mut bits) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        word = (word << 6 | u32::from(digit)) & 0xff_ffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_trip() {
        let token = Token { version: 42, namespace: "ns".to_owned(), name: "päd?>".to_owned() };
        let read = Token::decode(&token.encode()).unwrap();
        assert_eq!((read.version, read.namespace, read.name), (42, token.namespace, token.name));
        assert!(Token::decode("zzz").is_err());
        assert!(Token::decode("!").is_err());
    }
}
