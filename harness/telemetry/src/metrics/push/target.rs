//! The destination of metrics, and its credentials, which never appear in errors or logs.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use reqwest::Url;
use secrecy::SecretString;

use crate::file_flag::{self, FileFlagError};

/// A destination of metrics: an HTTP URL.
#[derive(Clone)]
pub struct PushUrl {
    /// Without credentials.
    pub(super) url: Url,
    pub(super) auth: Option<Auth>,
}

/// The credentials.
#[derive(Clone, Debug)]
pub(super) enum Auth {
    Basic { user: String, password: SecretString },
    Bearer(SecretString),
}

/// An invalid address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write http://HOST:PORT/PATH or https://HOST/PATH; put credentials into a file (--push-bearer-file, --push-basic-file)"
)]
pub struct InvalidUrl;

impl FromStr for PushUrl {
    type Err = InvalidUrl;

    /// Credentials in the address, as in `http://user:password@host`, are removed from it.
    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let mut url: Url = text.parse().map_err(|_| InvalidUrl)?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(InvalidUrl);
        }
        let user = percent_decoded(url.username());
        let auth = (!user.is_empty()).then(|| Auth::Basic {
            user,
            password: percent_decoded(url.password().unwrap_or_default()).into(),
        });
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| InvalidUrl)?;
        Ok(Self { url, auth })
    }
}

/// The text without `%40` and the like, which addresses need for `@`.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.filter(|_| first == b'%').and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Without credentials, and without a query, which may contain some.
impl fmt::Display for PushUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        url.set_query(None);
        url.fmt(f)
    }
}

impl fmt::Debug for PushUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PushUrl({self})")
    }
}

/// Credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] FileFlagError),
    /// It is empty.
    #[error("{flag} {}: is empty; write {expected} into it", path.display())]
    Empty {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
    },
    /// It contains no colon.
    #[error("--push-basic-file {}: write USER:PASSWORD into it", path.display())]
    NoColon {
        /// The file.
        path: PathBuf,
    },
}

impl PushUrl {
    /// With the token in a file, replacing the credentials in the address.
    ///
    /// # Errors
    /// The file contains none.
    pub fn with_bearer(self, path: &Path) -> Result<Self, CredentialsError> {
        let token = read("--push-bearer-file", path, "a token")?;
        Ok(Self { auth: Some(Auth::Bearer(token.into())), ..self })
    }

    /// With the user and the password in a file, replacing those in the address.
    ///
    /// # Errors
    /// The file contains none.
    pub fn with_basic(self, path: &Path) -> Result<Self, CredentialsError> {
        let text = read("--push-basic-file", path, "USER:PASSWORD")?;
        let Some((user, password)) = text.split_once(':') else {
            return Err(CredentialsError::NoColon { path: path.to_owned() });
        };
        Ok(Self { auth: Some(Auth::Basic { user: user.to_owned(), password: password.into() }), ..self })
    }
}

fn read(flag: &'static str, path: &Path, expected: &'static str) -> Result<String, CredentialsError> {
    let text = file_flag::read(flag, path)?;
    match text.trim() {
        "" => Err(CredentialsError::Empty { flag, path: path.to_owned(), expected }),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn credentials_are_taken_out_of_addresses_and_shown_nowhere() {
        let url: PushUrl = "https://ann:p%40role@h:1/api/v1/write?token=hidden".parse().unwrap();
        let Some(Auth::Basic { user, password }) = &url.auth else { panic!("{:?}", url.auth) };
        assert_eq!((user.as_str(), password.expose_secret()), ("ann", "p@role"));
        for shown in [format!("{url}"), format!("{url:?}"), format!("{:?}", url.auth)] {
            assert!(!shown.contains("role") && !shown.contains("hidden"), "{shown}");
        }
        assert_eq!(url.to_string(), "https://h:1/api/v1/write");
        assert_eq!(url.url.query(), Some("token=hidden"));
        for bad in ["", "h:1", "localhost:9091", "ftp://h/", "unix:///x", "http://"] {
            assert_eq!(bad.parse::<PushUrl>().err(), Some(InvalidUrl), "{bad}");
        }
    }

    #[test]
    fn credentials_in_files_come_first_and_mistakes_name_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = |content: &str| {
            let path = folder.path().join("f");
            fs::write(&path, content).unwrap();
            path
        };
        let url = || "http://a:b@h/".parse::<PushUrl>().unwrap();
        let Some(Auth::Bearer(token)) = url().with_bearer(&file("t0ken\n")).unwrap().auth else { panic!() };
        assert_eq!(token.expose_secret(), "t0ken");
        let basic = url().with_basic(&file("ann:pass:word\n")).unwrap().auth;
        assert!(matches!(basic, Some(Auth::Basic { user, password })
            if user == "ann" && password.expose_secret() == "pass:word"));
        let errors = [
            url().with_bearer(&file(" \n")).unwrap_err(),
            url().with_bearer(Path::new("/no/such")).unwrap_err(),
            url().with_basic(&file("onlyuser")).unwrap_err(),
        ];
        for (error, flag) in
            errors.iter().zip(["--push-bearer-file", "--push-bearer-file", "--push-basic-file"])
        {
            let text = error.to_string();
            assert!(text.starts_with(flag) && !text.contains("onlyuser"), "{text}");
        }
    }
}
