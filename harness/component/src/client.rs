//! The harness's own client: what it asks for is asked again when the server fails.
//!
//! kube-rs does so itself for 429, 503 and 504, as `Retry-After` says. An internal error it hands on, and
//! controllers with a queue want it so; a case that creates its claim once does not. A patch that lost a race
//! is sent again too, as kubectl does: it says what shall change, not what was there before.

use std::time::Duration;

use claimcheck_model::Backoff;
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, USER_AGENT},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{
    BoxError, ServiceBuilder,
    buffer::BufferLayer,
    retry::{Policy, RetryLayer},
};

/// What the client calls itself.
pub const AGENT: &str = "claimcheck-harness";
/// How often a request is made before its failure is the caller's: about two seconds in all.
const ATTEMPTS: u32 = 8;
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(10), max: Duration::from_secs(1) };
/// Requests that wait for their turn to be sent.
const WAITING: usize = 1024;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is not one, or names what is not in it.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// No client can be made of it.
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// A client for the API server of a kubeconfig (YAML).
///
/// # Errors
/// The kubeconfig cannot be used.
pub async fn client(kubeconfig: &str) -> Result<Client, ClientError> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(of_config(config)?)
}

/// A client that names itself [`AGENT`] and outlasts failures of the server.
///
/// # Errors
/// The configuration cannot be used.
pub fn of_config(mut config: Config) -> kube::Result<Client> {
    config.headers.push((USER_AGENT, http::HeaderValue::from_static(AGENT)));
    // Watches are quiet for minutes.
    config.read_timeout = None;
    let layers = ServiceBuilder::new()
        .layer(RetryLayer::new(AfterFailure { attempts: 1 }))
        .layer(BufferLayer::new(WAITING))
        .into_inner();
    Ok(ClientBuilder::try_from(config)?.with_layer(&layers).build())
}

#[derive(Clone, Debug)]
struct AfterFailure {
    attempts: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for AfterFailure {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<tokio::time::Sleep> {
        let failed = result.as_ref().is_ok_and(|answer| match answer.status() {
            StatusCode::INTERNAL_SERVER_ERROR => true,
            StatusCode::CONFLICT => is_plain_patch(request),
            _ => false,
        });
        (failed && self.attempts < ATTEMPTS).then(|| {
            self.attempts += 1;
            tokio::time::sleep(BACKOFF.delay(self.attempts - 1))
        })
    }

    /// None for a body that is streamed, which nobody here sends.
    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        *again.extensions_mut() = request.extensions().clone();
        Some(again)
    }
}

/// A patch whose conflicts are races; those of an apply are a dispute about fields.
fn is_plain_patch(request: &Request<Body>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    *request.method() == Method::PATCH && !kind.starts_with("application/apply-patch")
}
