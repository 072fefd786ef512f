//! The harness's own client: it retries requests when the server fails.
//!
//! kube-rs itself retries 429, 503 and 504, honouring `Retry-After`. It returns internal errors, as
//! controllers with a work queue require; a case that creates its claim once does not. A patch with a conflict
//! is retried too, as in kubectl: it describes the change, not the previous state.
//!
//! A server that restarts takes half a minute until it accepts connections, and some seconds more until it has read its
//! roles. A request is repeated meanwhile, unless the server may have executed it and would refuse it the second time.

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

/// The client's user agent.
pub const AGENT: &str = "claimcheck-harness";
/// The number of attempts before an error is returned to the caller: about two seconds in total.
const ATTEMPTS: u32 = 8;
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(10), max: Duration::from_secs(1) };
/// How long a request is repeated while no server can be reached.
const RESTART: Duration = Duration::from_secs(60);
/// How long a server that was unreachable may refuse requests that it accepts later.
const WARM_UP: Duration = Duration::from_secs(10);
/// The size of the queue of requests.
const WAITING: usize = 1024;

/// A kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is invalid, or refers to a missing entry.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// No client can be created from it.
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

/// A client with the user agent [`AGENT`] that tolerates failures of the server.
///
/// # Errors
/// The configuration cannot be used.
pub fn of_config(mut config: Config) -> kube::Result<Client> {
    config.headers.push((USER_AGENT, http::HeaderValue::from_static(AGENT)));
    // Watches may be idle for minutes.
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

    /// None for a streamed body, which is never sent here.
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

/// A patch for which conflicts are races; those of a server-side apply are about field ownership.
fn is_plain_patch(request: &Request<Body>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    *request.method() == Method::PATCH && !kind.starts_with("application/apply-patch")
}
