//! One request, made again while its failure may pass.

use std::time::Duration;

use claimcheck_model::Backoff;
use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use secrecy::ExposeSecret;

use super::target::{Auth, PushUrl};

/// How often it is made, at most.
const ATTEMPTS: u32 = 6;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an answer is shown.
const SHOWN: usize = 200;

/// Metrics that did not arrive. Says of which flag, never with which credentials.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// It is not there, or does not answer.
    #[error("{flag} {url}: cannot be reached: {why}: check the address, and that it is up")]
    Unreachable {
        /// Of which flag.
        flag: &'static str,
        /// Where.
        url: PushUrl,
        /// The innermost cause.
        why: String,
    },
    /// It wants to know who we are.
    #[error("{flag} {url}: answered {status}: give credentials with --push-bearer-file or --push-basic-file")]
    Credentials {
        /// Of which flag.
        flag: &'static str,
        /// Where.
        url: PushUrl,
        /// 401 or 403.
        status: StatusCode,
    },
    /// It does not take them.
    #[error("{flag} {url}: answered {status}: {said}")]
    Refused {
        /// Of which flag.
        flag: &'static str,
        /// Where.
        url: PushUrl,
        /// What it answered.
        status: StatusCode,
        /// And in words.
        said: String,
    },
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// For which flag.
    pub flag: &'static str,
    pub method: Method,
    pub to: PushUrl,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Sends it; what may pass (5xx, 429, no answer) is tried again after a growing pause.
///
/// # Errors
/// It did not arrive.
pub(super) async fn send(client: &Client, letter: &Letter, backoff: Backoff) -> Result<(), PushError> {
    let mut attempt = 1;
    loop {
        let (passes, error) = match once(client, letter).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if !passes || attempt == ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, attempt, "metrics did not arrive; trying again");
        tokio::time::sleep(backoff.delay(attempt)).await;
        attempt += 1;
    }
}

/// With whether the failure may pass.
async fn once(client: &Client, letter: &Letter) -> Result<(), (bool, PushError)> {
    let Letter { flag, method, to, headers, body } = letter;
    let flag = *flag;
    let request = client.request(method.clone(), to.url.clone()).timeout(PATIENCE);
    let request = match &to.auth {
        None => request,
        Some(Auth::Basic { user, password }) => request.basic_auth(user, Some(password.expose_secret())),
        Some(Auth::Bearer(token)) => request.bearer_auth(token.expose_secret()),
    };
    let url = to.clone();
    let answer = match request.headers(headers.clone()).body(body.clone()).send().await {
        Ok(answer) => answer,
        Err(error) => return Err((true, PushError::Unreachable { flag, url, why: innermost(error) })),
    };
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let error = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PushError::Credentials { flag, url, status },
        _ => {
            let said = answer.text().await.unwrap_or_default();
            let said = said.trim().chars().take(SHOWN).collect();
            PushError::Refused { flag, url, status, said }
        }
    };
    Err((status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS, error))
}

/// The address would be said twice, and with its query.
fn innermost(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
