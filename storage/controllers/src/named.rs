//! Clients with a component's user agent.

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, client::Body};
use tower::service_fn;

/// The same client, with this user agent in its requests: the connections and credentials are shared, and the
/// API server's audit log distinguishes the components.
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
