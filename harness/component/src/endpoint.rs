//! The HTTP endpoint of a component for probes and scrapers.

use std::{
    net::{AddrParseError, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use tokio_util::task::AbortOnDropHandle;

use claimcheck_telemetry::serve::{ServeError, Serving, Site, serve, serve_unix};

/// An HTTP endpoint: `<address>:<port>`, or `:<port>` for all addresses of the machine, as the sidecars of
/// kubernetes-csi accept it; or `unix://<path>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpEndpoint {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A unix socket: on the embedded cluster, where a port per component could conflict with other programs.
    Unix(PathBuf),
}

/// An invalid endpoint.
#[derive(Debug, thiserror::Error)]
#[error("write :8080 (all addresses), 127.0.0.1:8080 or unix:///path/to/socket")]
pub struct InvalidEndpoint(#[source] Option<AddrParseError>);

impl FromStr for HttpEndpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(InvalidEndpoint(None))
            };
        }
        match text.strip_prefix(':').map(str::parse) {
            // Dual-stack: the kernel accepts IPv4 there, too.
            Some(Ok(port)) => Ok(Self::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))),
            Some(Err(_)) | None => text.parse().map(Self::Tcp).map_err(|error| InvalidEndpoint(Some(error))),
        }
    }
}

/// A server; dropping it stops it.
#[derive(Debug)]
pub(super) enum Served {
    Tcp { _serving: Serving },
    Unix { _task: AbortOnDropHandle<()> },
}

impl HttpEndpoint {
    /// Serves a site there.
    pub(super) async fn serve(&self, site: impl Site) -> Result<Served, ServeError> {
        Ok(match self {
            Self::Tcp(address) => Served::Tcp { _serving: serve(*address, site).await? },
            Self::Unix(path) => Served::Unix { _task: serve_unix(path, site)? },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_all_addresses() {
        let parse = |text: &str| text.parse::<HttpEndpoint>().ok();
        let tcp = |text: &str| text.parse().ok().map(HttpEndpoint::Tcp);
        assert_eq!(parse(":9808"), tcp("[::]:9808"));
        assert_eq!(parse("127.0.0.1:0"), tcp("127.0.0.1:0"));
        assert_eq!(parse("unix:///cc/m/x.sock"), Some(HttpEndpoint::Unix("/cc/m/x.sock".into())));
        for bad in ["9808", ":", ":x", "localhost:1", "", "unix://", "unix://x"] {
            let error = bad.parse::<HttpEndpoint>().expect_err(bad).to_string();
            assert!(error.contains(":8080"), "{bad}: {error}");
        }
    }
}
