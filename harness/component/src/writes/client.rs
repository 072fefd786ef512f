//! A client that records its API writes.

use claimcheck_model::Stamp;
use http::Request;
use kube::{Client, client::Body};
use tower::service_fn;

use super::{ApiWriteRecorder, request::PendingWrite};

/// The same client, recording its writes: as those of `agent`, if a request has no user agent.
pub fn recording_client(client: &Client, recorder: &ApiWriteRecorder, agent: &'static str) -> Client {
    let (inner, recorder) = (client.clone(), recorder.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (inner, recorder) = (inner.clone(), recorder.clone());
        async move {
            match PendingWrite::of(&request, agent) {
                Some(pending) => send_recorded(&inner, &recorder, request, pending).await,
                None => inner.send(request).await,
            }
        }
    });
    Client::new(service, client.default_namespace())
}

async fn send_recorded(
    inner: &Client,
    recorder: &ApiWriteRecorder,
    request: Request<Body>,
    pending: PendingWrite,
) -> kube::Result<http::Response<Body>> {
    // Bodies are buffered and read here as well: objects have a few kilobytes.
    let (head, body) = request.into_parts();
    let sent = body.collect_bytes().await?;
    let start = Stamp::now();
    let record_write = |code, answered: &[u8]| {
        if let Some(write) = pending.ended(code, &sent, answered, start, Stamp::now()) {
            recorder.record(write);
        }
    };
    let answer = match inner.send(Request::from_parts(head, Body::from(sent.clone()))).await {
        Ok(answer) => answer,
        Err(error) => {
            record_write(0, &[]);
            return Err(error);
        }
    };
    let (head, body) = answer.into_parts();
    let answered = body.collect_bytes().await?;
    record_write(head.status.as_u16(), &answered);
    Ok(http::Response::from_parts(head, Body::from(answered)))
}
