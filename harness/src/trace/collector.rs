//! A collector's address, as people write it.

use std::{fmt, str::FromStr};

/// Where traces go: `http(s)://HOST:PORT/v1/traces`, or `grpc://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    pub(super) way: Way,
    /// What is connected to.
    pub(super) url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http,
    Grpc,
}

/// An address that no traces can be sent to.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is no address for traces: write http://HOST:4318/v1/traces, or grpc://HOST:4317; with TLS https://"
)]
pub struct CollectorError(String);

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(url: &str) -> Result<Self, CollectorError> {
        let wrong = || CollectorError(url.to_owned());
        let (way, address) = match url.strip_prefix("grpc://") {
            Some(rest) => (Way::Grpc, format!("http://{rest}")),
            None => (Way::Http, url.to_owned()),
        };
        let parsed: http::Uri = address.parse().map_err(|_| wrong())?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none() {
            return Err(wrong());
        }
        // What a collector's address is without a path.
        let url = match (way, parsed.path()) {
            (Way::Http, "/" | "") => format!("{}/v1/traces", address.trim_end_matches('/')),
            _ => address,
        };
        Ok(Self { way, url })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
