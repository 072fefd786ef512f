//! One request, retried while its failure may be transient.

use std::time::Duration;

use claimcheck_model::Backoff;
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use secrecy::ExposeSecret;

use super::target::{Auth, PushUrl};

/// The maximum number of attempts.
const ATTEMPTS: u32 = 6;
/// The timeout of an attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a quoted response.
const SHOWN: usize = 200;

/// Metrics could not be delivered. The error names the flag, never the credentials.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// It is unreachable, or does not respond.
    #[error(
        "--remote-write {url}: cannot be reached: {reason}: check the address, and that the server is running"
    )]
    Unreachable {
        /// The address.
        url: PushUrl,
        /// The innermost cause.
        reason: String,
    },
    /// It requires authentication.
    #[error(
        "--remote-write {url}: returned {status}: pass credentials with --push-bearer-file or --push-basic-file"
    )]
    Credentials {
        /// The address.
        url: PushUrl,
        /// 401 or 403.
        status: StatusCode,
    },
    /// It rejects them.
    #[error("--remote-write {url}: returned {status}: {body_text}")]
    Refused {
        /// The address.
        url: PushUrl,
        /// The status.
        status: StatusCode,
        /// The body.
        body_text: String,
    },
}

/// Sends series; transient failures (5xx, 429, no response) are retried with increasing delay.
///
/// # Errors
/// It could not be delivered.
pub(super) async fn send(
    client: &Client,
    to: &PushUrl,
    body: Vec<u8>,
    backoff: Backoff,
) -> Result<(), PushError> {
    let mut attempt = 1;
    loop {
        let (passes, error) = match once(client, to, body.clone()).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !passes || attempt == ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, attempt, "metrics were not delivered; retrying");
        tokio::time::sleep(backoff.delay(attempt)).await;
        attempt += 1;
    }
}

/// Also returns whether the failure may be transient.
async fn once(client: &Client, to: &PushUrl, body: Vec<u8>) -> Result<(), (bool, PushError)> {
    let request = client
        .post(to.url.clone())
        .timeout(TIMEOUT)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONTENT_ENCODING, "snappy")
        .header("x-prometheus-remote-write-version", "0.1.0");
    let request = match &to.auth {
        None => request,
        Some(Auth::Basic { user, password }) => request.basic_auth(user, Some(password.expose_secret())),
        Some(Auth::Bearer(token)) => request.bearer_auth(token.expose_secret()),
    };
    let url = to.clone();
    let answer = match request.body(body).send().await {
        Ok(answer) => answer,
        Err(error) => return Err((true, PushError::Unreachable { url, reason: innermost(error) })),
    };
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let error = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PushError::Credentials { url, status },
        _ => {
            let body_text = answer.text().await.unwrap_or_default();
            let body_text = body_text.trim().chars().take(SHOWN).collect();
            PushError::Refused { url, status, body_text }
        }
    };
    Err((status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS, error))
}

/// Otherwise the address would be printed twice, and with its query.
fn innermost(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
