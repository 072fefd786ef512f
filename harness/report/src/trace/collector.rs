//! A collector's address as people write it, with what is sent along and which certificates are trusted. What is
//! secret is in no error and no log.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use reqwest::Url;

use super::{
    credentials::{self, CredentialsError, basic},
    tls::{Tls, TlsError},
};
use crate::metrics::push::percent_decoded;

/// Where traces go: `http(s)://HOST:PORT/v1/traces`, or `grpc(s)://HOST:PORT`.
#[derive(Clone, Debug)]
pub struct Collector {
    pub(super) way: Way,
    /// What is connected to, without user and password.
    pub(super) url: Url,
    /// Sent with every request; their values are marked as secret.
    pub(super) headers: HeaderMap,
    pub(super) tls: Arc<Tls>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http,
    Grpc,
}

/// An address that no traces can be sent to. It does not repeat it, since it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write http://HOST:4318/v1/traces or grpc://HOST:4317; with TLS https:// or grpcs://")]
pub struct NoCollector;

impl FromStr for Collector {
    type Err = NoCollector;

    /// Credentials in the address, as `https://user:password@host`, are taken out of it.
    fn from_str(text: &str) -> Result<Self, NoCollector> {
        let (way, address) = match text.split_once("://").ok_or(NoCollector)? {
            ("grpc", rest) => (Way::Grpc, format!("http://{rest}")),
            ("grpcs", rest) => (Way::Grpc, format!("https://{rest}")),
            ("http" | "https", _) => (Way::Http, text.to_owned()),
            _ => return Err(NoCollector),
        };
        let mut url: Url = address.parse().map_err(|_| NoCollector)?;
        let mut headers = HeaderMap::new();
        let user = percent_decoded(url.username());
        if !user.is_empty() {
            let password = percent_decoded(url.password().unwrap_or_default());
            headers.insert(AUTHORIZATION, basic(&user, &password).ok_or(NoCollector)?);
        }
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| NoCollector)?;
        // What a collector's address is without a path.
        if way == Way::Http && url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(Self { way, url, headers, tls: Arc::default() })
    }
}

impl Collector {
    /// With the headers of a text as `OTEL_EXPORTER_OTLP_HEADERS` has it: `name=value,name=value`, values
    /// percent-encoded. They take the place of what the address says.
    ///
    /// # Errors
    /// It is none; told as `of`, without the values.
    pub fn with_headers(mut self, of: &'static str, text: &str) -> Result<Self, CredentialsError> {
        self.headers.extend(credentials::of_list(of, text)?);
        Ok(self)
    }

    /// With the headers of a file, `Name: value` on a line each. They take the place of all others.
    ///
    /// # Errors
    /// It cannot be read, or is none; told as the flag, without the values.
    pub fn with_headers_file(mut self, flag: &'static str, path: &Path) -> Result<Self, CredentialsError> {
        self.headers.extend(credentials::of_file(flag, path)?);
        Ok(self)
    }

    /// Which trusts the certificates of a file (PEM) beside those that this machine trusts.
    ///
    /// # Errors
    /// There is none in it.
    pub fn trusting(self, path: &Path) -> Result<Self, TlsError> {
        Ok(Self { tls: Arc::new(Tls::trusting(path)?), ..self })
    }

    /// A text of others without what is secret here, should they have quoted it.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let secrets = self.headers.values().filter_map(|value: &HeaderValue| value.to_str().ok());
        // A token is quoted without the word before it.
        let words = secrets.flat_map(|secret| [secret, secret.rsplit(' ').next().unwrap_or_default()]);
        let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.iter().fold(text.to_owned(), |text, word| text.replace(word, "***stripped***"))
    }
}

/// Without credentials, and without a query, which may hold some.
impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        url.set_query(None);
        url.fmt(f)
    }
}
