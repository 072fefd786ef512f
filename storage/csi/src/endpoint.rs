//! A driver's endpoint, in all formats that drivers and sidecars accept.

use std::{fmt, path::PathBuf, str::FromStr};

use thiserror::Error;

use crate::socket::PATH_LIMIT;

/// The address of a CSI endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A unix socket: `unix:///path`, `unix:/path`, or just `/path`.
    Unix(PathBuf),
    /// `tcp://host:port`, for development.
    Tcp(String),
}

/// Why a text is not an endpoint.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EndpointError {
    /// Another scheme, or none.
    #[error("endpoint {0:?} is neither unix:///path nor tcp://host:port")]
    Scheme(String),
    /// The socket's path is not absolute; components run in different directories.
    #[error("endpoint {0:?} is not an absolute path: write unix:///path with three slashes")]
    Relative(String),
    /// The kernel's limit.
    #[error("the path of endpoint {0:?} is longer than {PATH_LIMIT} bytes: choose a shorter directory")]
    TooLong(String),
    /// The host or the port is missing.
    #[error("endpoint {0:?} needs a host and a port: tcp://host:port")]
    Port(String),
}

impl Endpoint {
    /// Parses an endpoint.
    ///
    /// # Errors
    /// [`EndpointError`] says what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if let Some(address) = text.strip_prefix("tcp://") {
            let valid = address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && port.parse::<u16>().is_ok()
                    && address.parse::<http::uri::Authority>().is_ok()
            });
            return valid
                .then(|| Self::Tcp(address.to_owned()))
                .ok_or_else(|| EndpointError::Port(text.into()));
        }
        let path = match text.strip_prefix("unix:") {
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None if text.starts_with('/') => text,
            None => return Err(EndpointError::Scheme(text.into())),
        };
        if !path.starts_with('/') {
            return Err(EndpointError::Relative(text.into()));
        }
        if path.len() > PATH_LIMIT {
            return Err(EndpointError::TooLong(text.into()));
        }
        Ok(Self::Unix(path.into()))
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_drivers_are_given() {
        for text in ["unix:///run/csi.sock", "unix:/run/csi.sock", "/run/csi.sock"] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint, Endpoint::Unix("/run/csi.sock".into()), "{text}");
            assert_eq!(endpoint.to_string(), "unix:///run/csi.sock");
        }
        for text in ["tcp://127.0.0.1:10000", "tcp://[::1]:10000"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn names_the_error() {
        let long = format!("unix:///{}", "x".repeat(PATH_LIMIT));
        for (text, expected) in [
            ("unix://run/csi.sock", EndpointError::Relative("unix://run/csi.sock".into())),
            ("unix://", EndpointError::Relative("unix://".into())),
            ("http://x:1", EndpointError::Scheme("http://x:1".into())),
            ("", EndpointError::Scheme(String::new())),
            ("tcp://host", EndpointError::Port("tcp://host".into())),
            ("tcp://:1", EndpointError::Port("tcp://:1".into())),
            (&long, EndpointError::TooLong(long.clone())),
        ] {
            assert_eq!(Endpoint::parse(text), Err(expected), "{text}");
        }
    }
}
