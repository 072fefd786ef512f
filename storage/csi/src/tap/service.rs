//! The tower layer itself: a service around a channel that records each call and injects faults.

use std::{
    convert::Infallible,
    mem,
    sync::{Arc, OnceLock},
    task,
    time::Duration,
};

use claimcheck_model::{RpcMethod, Stamp};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{
    Code, Status,
    body::Body,
    codegen::{BoxFuture, Bytes, Service, StdError},
};

use crate::message::{Method, frame, frames};

use super::{
    Tap,
    body::TappedBody,
    facts::{self, Facts, ResponseField},
    fault::{FaultAction, Faults},
    known_secrets::KnownSecrets,
    no_response::{connection_lost, deadline_exceeded, unanswered},
    record::{CallEnd, CallId, TapRecord},
    redact, request,
};

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// How often a held call looks whether it may go on.
const HELD: Duration = Duration::from_millis(20);
/// Maximum size of a body with a single message, as of gRPC's servers and clients by default, and the message's prefix.
/// Upstream: `defaultServerMaxReceiveMessageSize` in grpc-go.
pub(super) const BODY_LIMIT: usize = (4 << 20) + 5;

/// A channel with recorded calls, a default deadline, and fault injection.
///
/// Otherwise it is transparent, unless it strips secrets: messages, metadata and status pass unchanged, unknown methods are
/// not parsed. A
/// call without a response because the connection failed is `Unavailable` and one past its deadline
/// `DeadlineExceeded`, as with gRPC's own clients; tonic would return `Unknown` and `Cancelled`. A request that is
/// larger than gRPC's servers accept by default is rejected here: the tap could not remove its secrets from messages.
#[derive(Clone, Debug)]
pub struct Tapped<S> {
    inner: S,
    context: Arc<Context>,
}

/// Shared by all calls of one driver handle.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) tap: Tap,
    pub(crate) component: String,
    /// The driver's name, once it is known.
    pub(crate) driver: OnceLock<String>,
    /// The deadline of calls that set none.
    pub(crate) deadline: Duration,
    /// The caller gets error messages without the secrets and tokens of its request.
    pub(crate) strips: bool,
    /// Where the secrets and tokens of requests are added, if anywhere.
    pub(crate) known: Option<KnownSecrets>,
}

impl<S> Tapped<S> {
    pub(crate) fn new(inner: S, context: Arc<Context>) -> Self {
        Self { inner, context }
    }
}

impl<S> Service<Request<Body>> for Tapped<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<StdError>,
    S::Future: Send,
{
    type Response = Response<TappedBody>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> task::Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(|error| unanswered(error.into()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        // Only this one is known to be ready.
        let inner = mem::replace(&mut self.inner, clone);
        Box::pin(tapped(inner, Arc::clone(&self.context), request))
    }
}

async fn tapped<S>(
    inner: S,
    context: Arc<Context>,
    mut request: Request<Body>,
) -> Result<Response<TappedBody>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Error: Into<StdError>,
{
    let limit = deadline_of(request.headers()).unwrap_or_else(|| {
        let limit = context.deadline;
        request.headers_mut().insert(GRPC_TIMEOUT, header_of(limit));
        limit
    });
    let method = RpcMethod::from(request.uri().path());
    let claim = request.extensions().get::<ForClaim>().map(ForClaim::text);
    let (request, facts, body) = match read(request, &method).await {
        Ok((request, facts, body)) => (request, Facts { claim: facts.claim.or(claim), ..facts }, body),
        Err(status) => {
            Call::start(context, method, Facts::default(), &[]).end(&status);
            return Err(status);
        }
    };
    let deadline = Instant::now() + limit;
    let mut call = Call::start(context.clone(), method, facts, &body);
    drop(body);
    let outcome = tokio::select! {
        // tonic has the same deadline, but calls it `Cancelled`.
        biased;
        () = sleep_until(deadline) => Err(deadline_exceeded()),
        outcome = attempt(inner, request, call.fault(), &context.tap.faults) => outcome,
    };
    match outcome {
        Ok(response) => Ok(TappedBody::around(response, call, deadline)),
        Err(status) => {
            call.end(&status);
            Err(status)
        }
    }
}

/// An extension of a request for CreateVolume: its claim, which a driver need not know, for faults of the calls for it.
#[derive(Clone, Debug)]
pub struct ForClaim {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ForClaim {
    pub(super) fn text(&self) -> String {
        format!("/{}/{}/", self.namespace, self.name)
    }
}

/// The call itself, unless a fault prevents it.
async fn attempt<S>(
    mut inner: S,
    request: Request<Body>,
    fault: Option<FaultAction>,
    faults: &Faults,
) -> Result<Response<Body>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Error: Into<StdError>,
{
    let mut changes = None;
    let lost = match fault {
        None | Some(FaultAction::Record) => false,
        Some(FaultAction::Delay { ms }) => {
            sleep(Duration::from_millis(ms)).await;
            false
        }
        Some(FaultAction::Error { code, message }) => return Err(Status::new(code, message)),
        Some(FaultAction::Hang) => std::future::pending().await,
        Some(action @ FaultAction::Hold { refuse, .. }) => {
            // Held calls are rare, and only in tests: nothing announces the end of a rule.
            while faults.has(&action) {
                sleep(HELD).await;
            }
            if refuse {
                return Err(Status::unavailable("the call was not answered (injected fault)"));
            }
            false
        }
        Some(FaultAction::DropAfter) => true,
        Some(FaultAction::Answer { with }) => {
            changes = Some((request.uri().path().to_owned(), with));
            false
        }
    };
    let mut response = inner.call(request).await.map_err(|error| unanswered(error.into()))?;
    if lost {
        // The driver is done only when its answer is complete.
        while let Some(frame) = response.body_mut().frame().await {
            frame.map_err(connection_lost)?;
        }
        return Err(Status::unavailable("the answer was lost (injected fault)"));
    }
    match changes {
        Some((path, with)) => changed(response, &path, &with).await,
        None => Ok(response),
    }
}

/// The response of a method with other fields; an error remains as it is.
async fn changed(response: Response<Body>, path: &str, with: &Value) -> Result<Response<Body>, Status> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(unread)?;
    let trailers = body.trailers().cloned().map(Ok::<_, Infallible>);
    let mut bytes = body.to_bytes();
    if let (Some(method), Ok([message])) = (Method::at(path), frames(&bytes).as_deref()) {
        let other = method.answer.decode(message).and_then(|mut answer| {
            json_patch::merge(&mut answer, with);
            method.answer.encode(&answer)
        });
        bytes = frame(&other.map_err(|error| Status::internal(format!("an injected answer: {error}")))?);
    }
    let body = Full::new(bytes).with_trailers(async move { trailers });
    Ok(Response::from_parts(head, Body::new(body)))
}

/// Extracts the fields of a request that has any, and returns its body, too; leaves every other unparsed.
async fn read(request: Request<Body>, method: &RpcMethod) -> Result<(Request<Body>, Facts, Bytes), Status> {
    if !facts::reads_request(method) {
        return Ok((request, Facts::default(), Bytes::new()));
    }
    let (head, body) = request.into_parts();
    let bytes = Limited::new(body, BODY_LIMIT).collect().await.map_err(unread)?.to_bytes();
    let facts = facts::request_facts(method, &bytes);
    Ok((Request::from_parts(head, Body::new(Full::new(bytes.clone()))), facts, bytes))
}

/// The status of a request that is interrupted, or too large.
fn unread(error: StdError) -> Status {
    match error.downcast::<Status>() {
        Ok(status) => *status,
        Err(_) => Status::resource_exhausted("the request is larger than 4 MiB, which gRPC's servers reject"),
    }
}

/// A call that has been recorded as started. Ends exactly once: dropping it is `Canceled`.
#[derive(Debug)]
pub(super) struct Call {
    context: Arc<Context>,
    /// As it was last recorded.
    record: TapRecord,
    /// The values of the request's secrets and tokens, only to remove them from messages.
    secrets: Vec<String>,
    /// An injected fault makes it fail.
    injected: bool,
}

impl Call {
    fn start(context: Arc<Context>, method: RpcMethod, facts: Facts, body: &[u8]) -> Self {
        let Facts { volume_id, volume_name, claim, node, target, secrets } = facts;
        let started = TapRecord::started(CallId::next(), context.component.as_str(), method, Stamp::now());
        let mut record = TapRecord { volume_id, volume_name, claim, node, target, ..started };
        if context.tap.faults.records(&record) {
            record.request = request::readable(&record.method, body, &secrets);
        }
        if let Some(known) = &context.known {
            known.add(&secrets);
        }
        let mut call = Self { context, record, secrets, injected: false };
        call.write();
        call
    }

    fn fault(&mut self) -> Option<FaultAction> {
        let fault = self.context.tap.faults.next(&self.record);
        self.injected = fault.as_ref().is_some_and(FaultAction::fails);
        fault
    }

    /// Whether the response body must be kept for [`Self::learn`].
    pub(super) fn reads_response(&self) -> bool {
        facts::reads_response(&self.record.method)
    }

    /// Adds the fields of a successful response.
    pub(super) fn learn(&mut self, body: &[u8]) {
        match facts::response_field(&self.record.method, body) {
            Some(ResponseField::VolumeId(id)) => {
                self.context.tap.faults.learn(&id, self.record.claim.as_deref());
                self.record.volume_id = Some(id);
            }
            // A restarted driver returns the same name.
            Some(ResponseField::DriverName(name)) => drop(self.context.driver.set(name)),
            None => {}
        }
    }

    /// Whether its end is recorded.
    pub(super) fn is_over(&self) -> bool {
        self.record.end.is_some()
    }

    /// Records the end, unless it is recorded already.
    pub(super) fn end(&mut self, status: &Status) {
        if self.is_over() {
            return;
        }
        let code = status.code();
        // In case the driver quotes one of the secrets.
        let message = (code != Code::Ok).then(|| redact::cleaned(status.message(), &self.secrets));
        // It is in the record of the start.
        self.record.request = None;
        self.record.end = Some(CallEnd { at: Stamp::now(), code, message, injected: self.injected });
        self.write();
    }

    /// Removes the secrets and tokens of the request from a status, if the caller requires that.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        let Some(status) = Status::from_header_map(headers).filter(|_| self.context.strips) else { return };
        let message = redact::without_secrets(status.message(), &self.secrets);
        let message = redact::without_tokens(&message);
        if message == status.message() {
            return;
        }
        // The details may quote the request, too; they are of any type.
        headers.remove("grpc-status-details-bin");
        if let Err(unwritten) = Status::new(status.code(), message).add_header(headers) {
            tracing::debug!(code = ?unwritten.code(), "a status without secrets cannot be written");
            headers.remove("grpc-message");
        }
    }

    fn write(&mut self) {
        self.record.driver = self.context.driver.get().cloned();
        self.context.tap.sink.write(self.record.clone());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(&Status::cancelled("the caller did not wait for the answer"));
    }
}

/// The deadline that the caller set with `Request::set_timeout`, by gRPC's header.
fn deadline_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // gRPC allows eight digits, so no unit overflows.
    let number = number.parse::<u32>().ok().map(u64::from)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A deadline as gRPC's header: milliseconds, in eight digits (a good day) at most.
fn header_of(deadline: Duration) -> HeaderValue {
    let millis = deadline.as_millis().min(99_999_999);
    HeaderValue::from_str(&format!("{millis}m")).expect("digits and a letter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_header_is_read_in_every_unit() {
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("4S", Some(Duration::from_secs(4))),
            ("5m", Some(Duration::from_millis(5))),
            ("6u", Some(Duration::from_micros(6))),
            ("7n", Some(Duration::from_nanos(7))),
            ("7", None),
            ("", None),
            ("sS", None),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(GRPC_TIMEOUT),
                HeaderValue::from_static(text),
            )]);
            assert_eq!(deadline_of(&headers), expected, "{text}");
        }
        assert_eq!(header_of(Duration::from_secs(15)), "15000m");
        assert_eq!(header_of(Duration::MAX), "99999999m");
    }
}
