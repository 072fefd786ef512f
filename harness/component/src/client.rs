//! The harness's own client: it retries requests when the server fails.
//!
//! kube-rs itself retries 429, 503 and 504, honouring `Retry-After`. It returns internal errors, as
//! controllers with a work queue require; a case that creates its claim once does not. A patch with a conflict
//! is retried too, as in kubectl: it describes the change, not the previous state.
//!
//! A server that restarts refuses connections for some seconds, and after that requests that it accepts once it has read
//! its roles. Requests are repeated meanwhile. A creation that the server had executed before its response was lost then
//! conflicts with itself: the object is read instead.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_model::Backoff;
use futures::FutureExt as _;
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, USER_AGENT},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tokio::time::Instant;
use tower::{
    BoxError, ServiceBuilder,
    buffer::BufferLayer,
    retry::{Policy, RetryLayer},
};

/// The client's user agent.
pub const AGENT: &str = "claimcheck-harness";
/// The number of repetitions before an error is returned to the caller: about two seconds in total.
const ATTEMPTS: u32 = 7;
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
    Ok(from_config(config)?)
}

/// A client with the user agent [`AGENT`] that tolerates failures of the server.
///
/// # Errors
/// The configuration cannot be used.
pub fn from_config(mut config: Config) -> kube::Result<Client> {
    config.headers.push((USER_AGENT, http::HeaderValue::from_static(AGENT)));
    // Watches may be idle for minutes.
    config.read_timeout = None;
    let layers = ServiceBuilder::new()
        .layer(RetryLayer::new(AfterFailure::default()))
        .layer(BufferLayer::new(WAITING))
        .into_inner();
    Ok(ClientBuilder::try_from(config)?.with_layer(&layers).build())
}

/// When a request is repeated.
#[derive(Clone, Debug, Default)]
struct AfterFailure {
    /// Attempts that failed.
    failures: u32,
    /// When the server was first unreachable for this request.
    unreachable_since: Option<Instant>,
    /// An attempt may have been executed although it failed.
    may_be_done: bool,
    /// Of all requests.
    server: Arc<Mutex<Contact>>,
}

/// What is known of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Contact {
    /// It has responded: otherwise its address may be wrong, and waiting be useless.
    has_responded: bool,
    /// When it was last unreachable.
    last_unreachable: Option<Instant>,
}

impl AfterFailure {
    fn server(&self) -> MutexGuard<'_, Contact> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request that could not be sent, or not be answered, is repeated.
    fn outlasts_restart(&mut self) -> bool {
        let now = Instant::now();
        let since = *self.unreachable_since.get_or_insert(now);
        let mut server = self.server();
        server.last_unreachable = Some(now);
        server.has_responded && now - since < RESTART
    }

    /// Whether the server was unreachable a moment ago.
    fn is_warming_up(&self) -> bool {
        self.server().last_unreachable.is_some_and(|last| last.elapsed() < WARM_UP)
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for AfterFailure {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<tokio::time::Sleep> {
        if result.is_ok() {
            self.server().has_responded = true;
        }
        let repeat = match result {
            Err(_) => self.outlasts_restart(),
            Ok(answer) => match answer.status() {
                StatusCode::INTERNAL_SERVER_ERROR => self.failures < ATTEMPTS,
                StatusCode::CONFLICT if self.may_be_done && *request.method() == Method::POST => {
                    self.may_be_done = false;
                    read_instead(request)
                }
                StatusCode::CONFLICT => is_plain_patch(request) && self.failures < ATTEMPTS,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.is_warming_up(),
                _ => false,
            },
        };
        self.may_be_done |= match result {
            Err(_) => true,
            Ok(answer) => answer.status() == StatusCode::INTERNAL_SERVER_ERROR,
        };
        repeat.then(|| {
            self.failures += 1;
            tokio::time::sleep(BACKOFF.delay(self.failures))
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

/// Makes the creation of an object the request that reads it; returns whether it could.
fn read_instead(request: &mut Request<Body>) -> bool {
    let body = request.body().try_clone().and_then(|body| body.collect_bytes().now_or_never()?.ok());
    let object: Option<serde_json::Value> = body.and_then(|body| serde_json::from_slice(&body).ok());
    let name = object.as_ref().and_then(|object| object["metadata"]["name"].as_str());
    let uri = name.and_then(|name| format!("{}/{name}", request.uri().path()).parse().ok());
    let Some(uri) = uri else { return false };
    (*request.method_mut(), *request.uri_mut(), *request.body_mut()) = (Method::GET, uri, Body::empty());
    true
}

/// A patch for which conflicts are races; those of a server-side apply are about field ownership.
fn is_plain_patch(request: &Request<Body>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    *request.method() == Method::PATCH && !kind.starts_with("application/apply-patch")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "/api/v1/namespaces";

    /// Which of these results, in order, are repeated; `Err` is a failed connection. A second passes before each.
    async fn repeated(results: &[Result<u16, ()>]) -> Vec<bool> {
        let mut policy = AfterFailure::default();
        let mut repeated = Vec::new();
        for result in results {
            tokio::time::advance(Duration::from_secs(1)).await;
            repeated.push(repeats(&mut policy, *result));
        }
        repeated
    }

    fn repeats(policy: &mut AfterFailure, result: Result<u16, ()>) -> bool {
        let mut request = Request::get(GET).body(Body::empty()).unwrap();
        let mut result = result.map_err(|()| BoxError::from("connection refused")).map(|status| {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        });
        policy.retry(&mut request, &mut result).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_responded_is_not_waited_for() {
        assert_eq!(repeated(&[Err(()), Err(())]).await, [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_outlasts_a_restart() {
        let mut policy = AfterFailure::default();
        assert!(!repeats(&mut policy, Ok(200)));
        // Each request has a policy of its own, with the same contact.
        let mut next = policy.clone();
        for second in 0..60 {
            assert!(repeats(&mut next, Err(())), "after {second} s");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(!repeats(&mut next, Err(())), "the server does not return");
        assert!(repeats(&mut policy, Ok(403)), "its roles are not read yet");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!repeats(&mut policy, Ok(403)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_internal_error_is_repeated_and_a_refusal_is_not() {
        let answers = [200, 500, 403, 401, 404, 409].map(Ok);
        assert_eq!(repeated(&answers).await, [false, true, false, false, false, false]);
        let errors = [Ok(500); 8];
        assert_eq!(repeated(&errors).await, [[true; 7].as_slice(), &[false]].concat());
    }
    /// A creation with this body after these results; the last one is a conflict.
    fn conflicts(body: &'static str, earlier: &[Result<u16, ()>]) -> Option<Request<Body>> {
        let mut policy = AfterFailure::default();
        repeats(&mut policy, Ok(200));
        earlier.iter().for_each(|result| assert!(repeats(&mut policy, *result)));
        let mut request =
            Request::post("/api/v1/namespaces/n/pods?").body(body.as_bytes().to_vec().into()).unwrap();
        let mut result = Ok(Response::builder().status(409).body(()).unwrap());
        policy.retry(&mut request, &mut result).map(|_| request)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_creation_without_a_response_has_created_is_read() {
        let body = r#"{"metadata":{"name":"pod"}}"#;
        for earlier in [Err(()), Ok(500)] {
            let request = conflicts(body, &[earlier]).unwrap();
            assert_eq!(
                (request.method(), request.uri().path()),
                (&Method::GET, "/api/v1/namespaces/n/pods/pod")
            );
            // Its name is not known.
            assert!(conflicts(r#"{"metadata":{"generateName":"pod-"}}"#, &[earlier]).is_none());
        }
        assert!(conflicts(body, &[]).is_none(), "it is the object of someone else");
    }
}
