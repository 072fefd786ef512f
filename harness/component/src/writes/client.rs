//! A client that records its API writes.

use claimcheck_model::Stamp;
use http::Request;
use kube::{Client, client::Body};
use tower::service_fn;

use super::{Teller, request::Writing};

/// The same client, recording its writes: as those of `agent`, if a request has no user agent.
pub fn telling(client: &Client, teller: &Teller, agent: &'static str) -> Client {
    let (inner, teller) = (client.clone(), teller.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (inner, teller) = (inner.clone(), teller.clone());
        async move {
            match Writing::of(&request, agent) {
                Some(writing) => told(&inner, &teller, request, writing).await,
                None => inner.send(request).await,
            }
        }
    });
    Client::new(service, client.default_namespace())
}

async fn told(
    inner: &Client,
    teller: &Teller,
    request: Request<Body>,
    writing: Writing,
) -> kube::Result<http::Response<Body>> {
    // Bodies are buffered and read here as well: objects have a few kilobytes.
    let (head, body) = request.into_parts();
    let sent = body.collect_bytes().await?;
    let start = Stamp::now();
    let tell = |code, answered: &[u8]| {
        if let Some(write) = writing.ended(code, &sent, answered, start, Stamp::now()) {
            teller.tell(write);
        }
    };
    let answer = match inner.send(Request::from_parts(head, Body::from(sent.clone()))).await {
        Ok(answer) => answer,
        Err(error) => {
            tell(0, &[]);
            return Err(error);
        }
    };
    let (head, body) = answer.into_parts();
    let answered = body.collect_bytes().await?;
    tell(head.status.as_u16(), &answered);
    Ok(http::Response::from_parts(head, Body::from(answered)))
}
