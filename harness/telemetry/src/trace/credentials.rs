//! Headers that are sent to a collector, mostly for authentication.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::file_flag::{self, FileFlagError};
use crate::metrics::push::percent_decoded;

/// Headers cannot be used. The error contains no values.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] FileFlagError),
    /// One is not a valid header.
    #[error("{of}: header {nth} cannot be used: write {expected}")]
    NoHeader {
        /// The source.
        of: String,
        /// Its position, from 1; lines of a file include comments and empty lines.
        nth: usize,
        /// The expected format.
        expected: &'static str,
    },
}

/// Headers in the format of OpenTelemetry's environment variables: a list like W3C baggage without
/// its properties ("Specifying headers via environment variables").
pub(super) fn from_list(of: &str, text: &str) -> Result<HeaderMap, CredentialsError> {
    let expected = "NAME=VALUE,NAME=VALUE, with %2C for a comma in a value";
    let pairs = text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty());
    let header = |(at, pair): (usize, &str)| {
        let pair = pair.split_once('=').map(|(name, value)| (name, percent_decoded(value.trim())));
        let header = pair.and_then(|(name, value)| header(name, &value));
        header.ok_or_else(|| CredentialsError::NoHeader { of: of.to_owned(), nth: at + 1, expected })
    };
    pairs.map(header).collect()
}

/// Headers of a file, one per line in HTTP syntax; lines that begin with `#` are ignored.
pub(super) fn from_file(flag: &'static str, path: &Path) -> Result<HeaderMap, CredentialsError> {
    let text = file_flag::read(flag, path)?;
    let lines = text.lines().map(str::trim).enumerate();
    let header = |(at, line): (usize, &str)| {
        let header = line.split_once(':').and_then(|(name, value)| header(name, value.trim()));
        let (of, expected) = (format!("{flag} {}", path.display()), "Name: value on a line");
        header.ok_or(CredentialsError::NoHeader { of, nth: at + 1, expected })
    };
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(header).collect()
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.trim().parse().ok()?, secret(value)?))
}

/// The `Authorization` header of a user.
pub(super) fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    secret(&format!("Basic {}", BASE64.encode(format!("{user}:{password}"))))
}

/// A value that `Debug` does not show.
fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shown(headers: &HeaderMap) -> Vec<String> {
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn headers_are_read_as_the_specification_has_them() {
        let headers = from_list("V", "api-key=a%2Cb%3D, Authorization = Bearer t=1 ,,").unwrap();
        assert_eq!(shown(&headers), ["api-key: a,b=", "authorization: Bearer t=1"]);
        assert!(headers.values().all(HeaderValue::is_sensitive) && !format!("{headers:?}").contains("t=1"));
        assert!(from_list("V", "").unwrap().is_empty());

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        fs::write(&path, "# who we are\nAuthorization: Bearer a:b\n\nx-tenant:  one \n").unwrap();
        let headers = from_file("--flag", &path).unwrap();
        assert_eq!(shown(&headers), ["authorization: Bearer a:b", "x-tenant: one"]);
    }

    #[test]
    fn mistakes_name_the_place_and_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        fs::write(&path, "a: fine\n\nhidden\n").unwrap();
        let missing = folder.path().join("missing");
        for (error, starts, holds) in [
            (from_list("V", "a=fine,hidden").unwrap_err(), "V: header 2", "NAME=VALUE"),
            (from_list("V", "bad name=hidden").unwrap_err(), "V: header 1", "NAME=VALUE"),
            (from_list("V", "a=hidden%0Ab").unwrap_err(), "V: header 1", "%2C"),
            (from_file("--flag", &path).unwrap_err(), "--flag ", "header 3"),
            (from_file("--flag", &missing).unwrap_err(), "--flag ", "cannot be read"),
        ] {
            let text = error.to_string();
            assert!(text.starts_with(starts) && text.contains(holds) && !text.contains("hidden"), "{text}");
        }
    }
}
