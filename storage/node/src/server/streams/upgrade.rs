//! The upgrade of a request to a connection with streams. Pure.
//! Upstream: `Handshake` in `streaming/pkg/httpstream`, `wsstream.Conn`, with their protocols and codes.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The header of SPDY clients with the protocols of their streams.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// `exec` and `attach`, as WebSocket messages: v5 has a message that ends a stream.
pub const V5: &str = "v5.channel.k8s.io";
/// `exec` and `attach`, as WebSocket messages or SPDY streams.
pub const V4: &str = "v4.channel.k8s.io";
/// `portforward`, as SPDY streams.
pub const PORT_FORWARD: &str = "portforward.k8s.io";
/// `portforward`, as SPDY in WebSocket messages.
pub const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// The protocols of a route, by transport.
#[derive(Clone, Copy, Debug)]
pub struct Protocols {
    /// Values of `Sec-WebSocket-Protocol`.
    pub websocket: &'static [&'static str],
    /// Values of `X-Stream-Protocol-Version`.
    pub spdy: &'static [&'static str],
}

/// The protocols of `exec` and `attach`.
pub const REMOTE_COMMAND: Protocols = Protocols { websocket: &[V5, V4], spdy: &[V4] };
/// The protocols of `portforward`.
pub const FORWARDING: Protocols = Protocols { websocket: &[TUNNEL], spdy: &[PORT_FORWARD] };

/// The agreed transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Messages.
    WebSocket {
        /// One of [`Protocols::websocket`].
        protocol: &'static str,
        /// The response to the client's key.
        accept: String,
    },
    /// Frames.
    Spdy {
        /// One of [`Protocols::spdy`].
        protocol: &'static str,
    },
}

/// Why a request cannot be upgraded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// It requests none.
    #[error("Upgrade request required")]
    Required,
    /// None of its protocols is served.
    #[error(
        "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
        client.join(" "), server.join(" ")
    )]
    Protocol {
        /// The client's.
        client: Vec<String>,
        /// Those that are served.
        server: &'static [&'static str],
    },
}

/// Selects the transport and the client's first protocol that is served.
///
/// # Errors
/// See [`UpgradeError`].
pub fn negotiate(headers: &HeaderMap, served: Protocols) -> Result<Transport, UpgradeError> {
    let connection = values(headers, &CONNECTION);
    if !connection.iter().any(|value| value.eq_ignore_ascii_case("upgrade")) {
        return Err(UpgradeError::Required);
    }
    let upgrade = values(headers, &UPGRADE);
    let requests = |transport: &str| upgrade.iter().any(|value| value.eq_ignore_ascii_case(transport));
    if requests("websocket") {
        let protocol = select(values(headers, &SEC_WEBSOCKET_PROTOCOL), served.websocket)?;
        let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(UpgradeError::Required)?;
        Ok(Transport::WebSocket { protocol, accept: derive_accept_key(key.as_bytes()) })
    } else if requests("SPDY/3.1") {
        Ok(Transport::Spdy { protocol: select(values(headers, &STREAM_PROTOCOL), served.spdy)? })
    } else {
        Err(UpgradeError::Required)
    }
}

/// The headers of the response with status 101.
pub fn accepted(transport: &Transport) -> Vec<(HeaderName, HeaderValue)> {
    let connection = (CONNECTION, HeaderValue::from_static("Upgrade"));
    match transport {
        Transport::WebSocket { protocol, accept } => {
            let accept = HeaderValue::from_str(accept).expect("base64 is a valid header value");
            vec![
                connection,
                (UPGRADE, HeaderValue::from_static("websocket")),
                (SEC_WEBSOCKET_ACCEPT, accept),
                (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
            ]
        }
        Transport::Spdy { protocol } => vec![
            connection,
            (UPGRADE, HeaderValue::from_static("SPDY/3.1")),
            (STREAM_PROTOCOL, HeaderValue::from_static(protocol)),
        ],
    }
}

fn select(client: Vec<String>, server: &'static [&'static str]) -> Result<&'static str, UpgradeError> {
    let served = |requested: &String| server.iter().find(|served| *served == requested);
    match client.iter().find_map(served) {
        Some(protocol) => Ok(protocol),
        None => Err(UpgradeError::Protocol { client, server }),
    }
}

/// The values of a header: each line may contain several.
fn values(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_protocol_of_the_client_that_is_served_is_selected() {
        // Key and response are the example of RFC 6455.
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let websocket =
            |protocol| Transport::WebSocket { protocol, accept: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned() };
        let refused = |client: &[&str], server| {
            let client = client.iter().map(|&protocol| protocol.to_owned()).collect();
            Err(UpgradeError::Protocol { client, server })
        };
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket"), key];
        let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let in_websocket = |protocols| [&upgrade[..], &[("sec-websocket-protocol", protocols)][..]].concat();
        let in_spdy = |protocols| [&spdy[..], &[("x-stream-protocol-version", protocols)][..]].concat();
        let rows = [
            (in_websocket("v5.channel.k8s.io, v4.channel.k8s.io"), REMOTE_COMMAND, Ok(websocket(V5))),
            (in_websocket("x,v4.channel.k8s.io"), REMOTE_COMMAND, Ok(websocket(V4))),
            (in_websocket(TUNNEL), FORWARDING, Ok(websocket(TUNNEL))),
            (in_websocket("channel.k8s.io"), REMOTE_COMMAND, refused(&["channel.k8s.io"], &[V5, V4])),
            (in_spdy(V4), REMOTE_COMMAND, Ok(Transport::Spdy { protocol: V4 })),
            (in_spdy(PORT_FORWARD), FORWARDING, Ok(Transport::Spdy { protocol: PORT_FORWARD })),
            (spdy.to_vec(), REMOTE_COMMAND, refused(&[], &[V4])),
            (vec![("connection", "Upgrade"), ("upgrade", "h2c")], FORWARDING, Err(UpgradeError::Required)),
            (vec![("upgrade", "websocket"), key], REMOTE_COMMAND, Err(UpgradeError::Required)),
            (vec![], REMOTE_COMMAND, Err(UpgradeError::Required)),
        ];
        for (headers, served, expected) in rows {
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a valid value"))
                })
                .collect();
            assert_eq!(negotiate(&map, served), expected, "{headers:?}");
        }
    }
}
