//! A collector's address as given by users, with its headers and trusted certificates. Secrets
//! never appear in errors or logs.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use reqwest::{Certificate, Url};

use super::credentials::{self, CredentialsError, basic};
use crate::metrics::push::percent_decoded;

/// The destination of traces: `http(s)://HOST:PORT/v1/traces`.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The URL to connect to, without user and password.
    pub(super) url: Url,
    /// Sent with every request; their values are marked as secret.
    pub(super) headers: HeaderMap,
    /// Trusted in addition to those that this machine trusts.
    pub(super) certificates: Vec<Certificate>,
}

/// An invalid address. The error does not repeat it, since it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write http://HOST:4318/v1/traces or https://HOST/v1/traces: traces are sent by OTLP over HTTP")]
pub struct InvalidCollectorUrl;

/// A file without certificates.
#[derive(Debug, thiserror::Error)]
#[error("{} contains no usable certificate: pass a PEM file with the collector's CA", path.display())]
pub struct TlsError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FromStr for Collector {
    type Err = InvalidCollectorUrl;

    /// Credentials in the address, as in `https://user:password@host`, are removed from it.
    fn from_str(text: &str) -> Result<Self, InvalidCollectorUrl> {
        let mut url: Url = text.parse().map_err(|_| InvalidCollectorUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidCollectorUrl);
        }
        let mut headers = HeaderMap::new();
        let user = percent_decoded(url.username());
        if !user.is_empty() {
            let password = percent_decoded(url.password().unwrap_or_default());
            headers.insert(AUTHORIZATION, basic(&user, &password).ok_or(InvalidCollectorUrl)?);
        }
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| InvalidCollectorUrl)?;
        // The default path of a collector's address.
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(Self { url, headers, certificates: Vec::new() })
    }
}

impl Collector {
    /// With headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`, values
    /// percent-encoded. They replace the credentials in the address.
    ///
    /// # Errors
    /// A header is invalid; the error names `of`, without the values.
    pub fn with_headers(mut self, of: &'static str, text: &str) -> Result<Self, CredentialsError> {
        self.headers.extend(credentials::from_list(of, text)?);
        Ok(self)
    }

    /// With the headers in a file, one `Name: value` per line. They replace all others.
    ///
    /// # Errors
    /// It cannot be read, or a header is invalid; the error names the flag, without the values.
    pub fn with_headers_file(mut self, flag: &'static str, path: &Path) -> Result<Self, CredentialsError> {
        self.headers.extend(credentials::from_file(flag, path)?);
        Ok(self)
    }

    /// Trusts the certificates in a file (PEM) in addition to those that this machine trusts.
    ///
    /// # Errors
    /// It contains no certificate.
    pub fn trusting(self, path: &Path) -> Result<Self, TlsError> {
        let certificates = fs::read(path).and_then(|pem| {
            let found = Certificate::from_pem_bundle(&pem).map_err(io::Error::other)?;
            if found.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(found) }
        });
        let certificates = certificates.map_err(|source| TlsError { path: path.to_owned(), source })?;
        Ok(Self { certificates, ..self })
    }

    /// Redacts the secrets from an external text that may quote them.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let secrets = self.headers.values().filter_map(|value: &HeaderValue| value.to_str().ok());
        // A token may be quoted without the scheme before it.
        let words = secrets.flat_map(|secret| [secret, secret.rsplit(' ').next().unwrap_or_default()]);
        let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.iter().fold(text.to_owned(), |text, word| text.replace(word, "[hidden by claimcheck]"))
    }
}

/// Without credentials, and without a query, which may contain some.
impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        url.set_query(None);
        url.fmt(f)
    }
}
