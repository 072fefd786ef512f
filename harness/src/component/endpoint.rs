//! Where a component answers probes and scrapers.

use std::{
    net::{AddrParseError, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// An address to serve HTTP on: `<address>:<port>`, or `:<port>` for all addresses of the machine, as the
/// sidecars of kubernetes-csi take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpEndpoint(pub SocketAddr);

impl FromStr for HttpEndpoint {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        match text.strip_prefix(':').map(str::parse) {
            // Of both families: the kernel takes IPv4 there, too.
            Some(Ok(port)) => Ok(Self(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))),
            Some(Err(_)) | None => text.parse().map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_all_addresses() {
        let parse = |text: &str| text.parse().ok().map(|HttpEndpoint(address)| address.to_string());
        assert_eq!(parse(":9808").as_deref(), Some("[::]:9808"));
        assert_eq!(parse("127.0.0.1:0").as_deref(), Some("127.0.0.1:0"));
        for bad in ["9808", ":", ":x", "localhost:1", ""] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
