//! The status that a running monitor serves.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::stuck::Status;

/// The status of a monitor cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is not supported.
    #[error("--url {0} is not supported: write http://HOST:PORT, for example of `kubectl port-forward`")]
    Url(String),
    /// It does not respond.
    #[error("the monitor at {url} does not respond: check address and port")]
    Connect {
        /// The URL.
        url: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is not a monitor, or not ready.
    #[error("{url} returned no status: {status}")]
    Answer {
        /// The URL.
        url: String,
        /// The status line, or what is wrong with the body.
        status: String,
    },
}

/// Reads `/status.json` of the monitor at `http://HOST:PORT`.
///
/// # Errors
/// It cannot be read.
pub async fn fetch(url: &str) -> Result<Status, FetchError> {
    let authority = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    let authority = authority.filter(|authority| authority.contains(':') && !authority.contains('@'));
    let authority = authority.ok_or_else(|| FetchError::Url(url.to_owned()))?;
    let answer =
        get(authority).await.map_err(|source| FetchError::Connect { url: url.to_owned(), source })?;
    let failed = |status: &str| FetchError::Answer { url: url.to_owned(), status: status.to_owned() };
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed("the response is incomplete"))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(failed(status));
    }
    serde_json::from_str(body).map_err(|error| failed(&error.to_string()))
}

/// One request of HTTP/1.0, so that the end of the response is that of the connection.
async fn get(authority: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET /status.json HTTP/1.0\r\nHost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
