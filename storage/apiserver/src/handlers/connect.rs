//! exec, attach and portforward: a connection between the client and the kubelet of the pod's node.
//!
//! Mirrors ExecLocation, AttachLocation and PortForwardLocation in pkg/registry/core/pod/strategy.go, and
//! UpgradeAwareHandler in apimachinery pkg/util/proxy. The kubelet understands the same protocols as the client, so that
//! bytes are only copied.

use std::io;

use http::header::{
    CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::Call;
use super::log::{choose_container, kubelet_address};
use crate::kubelet::{self, Upgrade};
use crate::request::Query;
use crate::response::Answer;
use crate::status::{Result, Status};

/// The subresources that are connections.
pub const SUBRESOURCES: [&str; 3] = ["attach", "exec", "portforward"];

/// The headers of a request and of its response that concern the upgrade. Extensions of WebSocket are not agreed on.
const HEADERS: [HeaderName; 7] = [
    CONNECTION,
    UPGRADE,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION,
    SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_ACCEPT,
    HeaderName::from_static("x-stream-protocol-version"),
];

/// Connects the client with the kubelet.
pub async fn handle(call: &Call<'_>) -> Result<Answer> {
    let pod = call.object()?;
    let name = &pod.key.name;
    let subresource = call.path.subresource.as_deref().unwrap_or_default();
    let path = match subresource {
        "portforward" => format!("/portForward/{}/{name}", pod.key.namespace),
        _ => {
            let container = choose_container(&pod.value, call.query.get("container"))?;
            format!("/{subresource}/{}/{name}/{container}?{}", pod.key.namespace, streams(&call.query))
        }
    };
    let Some(node) = pod.value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    };
    let address = kubelet_address(call, node)?;
    let client = call.head.extensions.get::<OnUpgrade>().cloned();
    let client = client.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
    // The query may contain a secret.
    let shown = path.split('?').next().unwrap_or_default();
    let internal =
        |error: &dyn std::fmt::Display| Status::internal(&format!("error dialing backend: {shown}: {error}"));
    let uri: Uri = path.parse().map_err(|error| internal(&error))?;
    let mut request = http::Request::new(());
    *request.method_mut() = call.head.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = select(&call.head.headers);
    match kubelet::upgrade(address, request, &call.api.node_authorization).await {
        Ok(Upgrade::Accepted(headers, kubelet)) => {
            let stop = call.api.stop.clone();
            tokio::spawn(async move {
                if let Some(Err(error)) = stop.run_until_cancelled(copy(client, kubelet)).await {
                    tracing::debug!(%error, "connection between client and kubelet ended");
                }
            });
            let mut answer = Response::new(Either::Left(Full::new(Bytes::new())));
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *answer.headers_mut() = select(&headers);
            Ok(answer)
        }
        Ok(Upgrade::Refused(StatusCode::NOT_FOUND, text)) => {
            Err(Status::missing_subresource(call.path.resource, subresource, name, &text))
        }
        Ok(Upgrade::Refused(code, text)) if code.is_client_error() => Err(Status::bad_request(text)),
        Ok(Upgrade::Refused(_, text)) => {
            Err(Status::internal(&format!("unable to upgrade connection: {text}")))
        }
        Err(error) => Err(internal(&error)),
    }
}

async fn copy(client: OnUpgrade, kubelet: Upgraded) -> io::Result<()> {
    let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
    let mut kubelet = TokioIo::new(kubelet);
    copy_bidirectional(&mut client, &mut kubelet).await?;
    Ok(())
}

fn select(headers: &HeaderMap) -> HeaderMap {
    let mut selected = HeaderMap::new();
    for name in HEADERS {
        for value in headers.get_all(&name) {
            selected.append(name.clone(), value.clone());
        }
    }
    selected
}

/// The kubelet's query for PodExecOptions and PodAttachOptions. Upstream: streamParams.
fn streams(query: &Query) -> String {
    let mut params = form_urlencoded::Serializer::new(String::new());
    for (option, param) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(option) {
            params.append_pair(param, "1");
        }
    }
    for argument in query.all("command") {
        params.append_pair("command", argument);
    }
    params.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_translated_for_the_kubelet() {
        for (query, expected) in [
            ("stdout=true&stderr=1&stdin=false&container=c", "output=1&error=1"),
            (
                "command=sh&command=-c&command=echo+a%26b&tty=true",
                "tty=1&command=sh&command=-c&command=echo+a%26b",
            ),
            ("command=&command=x", "command=&command=x"),
            ("", ""),
        ] {
            assert_eq!(streams(&Query::parse(Some(query))), expected, "{query}");
        }
    }

    #[test]
    fn credentials_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "impersonate-user", "sec-websocket-extensions", "upgrade"] {
            headers.insert(name, "x".parse().unwrap());
        }
        assert_eq!(select(&headers).keys().collect::<Vec<_>>(), [&UPGRADE]);
    }
}
