//! The status that a running monitor serves, read with kube's HTTP client: TLS with the roots of this machine, proxies
//! with a path before the page, and deadlines.

use std::time::Duration;

use http::{Request, Uri};
use kube::{Client, Config};

use crate::stuck::Status;

/// The most time for a connection, and for the response.
const PATIENCE: Duration = Duration::from_secs(10);

/// The status of a monitor cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is not supported. The error does not repeat it, since it may contain a password.
    #[error(
        "--url is not supported: write http://HOST:PORT, for example of `kubectl port-forward`, or https://HOST, without a user"
    )]
    Url,
    /// It does not respond.
    #[error("the monitor at {url} does not respond: check address and port")]
    Connect {
        /// The URL.
        url: String,
        /// The error of the request.
        #[source]
        source: Box<kube::Error>,
    },
    /// It is not a monitor, or not ready.
    #[error("{url} returned no status: {status}")]
    Answer {
        /// The URL.
        url: String,
        /// The HTTP status with the text of the response, or what is wrong with the body.
        status: String,
    },
}

/// Reads `status.json` of the monitor at `http(s)://HOST:PORT[/PATH]`.
///
/// # Errors
/// It cannot be read.
pub async fn fetch(url: &str) -> Result<Status, FetchError> {
    let uri = address(url).ok_or(FetchError::Url)?;
    let connect = |source| FetchError::Connect { url: url.to_owned(), source: Box::new(source) };
    let failed = |status: String| FetchError::Answer { url: url.to_owned(), status };
    // This reads neither kubeconfig nor service account: no credentials are sent.
    let mut config = Config::new(uri);
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = Some(PATIENCE);
    // A monitor that is not ready returns 503, which is to be reported at once.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(connect)?;
    let request = Request::get("/status.json").body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    let body = client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) => failed(format!("{} {}", status.code, status.message.trim())),
        error => connect(error),
    })?;
    serde_json::from_str(&body).map_err(|error| failed(error.to_string()))
}

/// The URL, if it is one of HTTP with a host and without credentials, which would be repeated in errors.
fn address(url: &str) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let supported = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority()?;
    (supported && !authority.host().is_empty() && !authority.as_str().contains('@')).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_http_without_credentials() {
        for (url, expected) in [
            ("http://localhost:8080", true),
            ("http://localhost:8080/", true),
            ("https://monitor.example.com/path/", true),
            ("http://[::1]:8080", true),
            ("localhost:8080", false),
            ("ftp://localhost", false),
            ("http://user:password@localhost:8080", false),
            ("/status.json", false),
        ] {
            assert_eq!(address(url).is_some(), expected, "{url}");
        }
    }
}
