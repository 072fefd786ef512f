//! Clients that say which component asks.

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, client::Body};
use tower::service_fn;

/// The same client, whose requests carry this user agent: the connections and the rights are shared, and the
/// API server's audit log tells components apart.
///
/// Nothing is changed where the client was configured with a user agent of its own.
pub fn named(client: &Client, agent: &str) -> Client {
    let agent = HeaderValue::from_str(agent).expect("components are named in plain letters");
    let inner = client.clone();
    let service = service_fn(move |mut request: http::Request<Body>| {
        let inner = inner.clone();
        request.headers_mut().insert(USER_AGENT, agent.clone());
        async move { inner.send(request).await }
    });
    Client::new(service, client.default_namespace())
}
