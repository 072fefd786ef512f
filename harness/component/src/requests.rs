//! `rest_client_*`: a component's requests to the API server, as client-go counts them
//! (`component-base/metrics/prometheus/restclient`).

use std::time::Instant;

use claimcheck_model::{
    Meter,
    metric::{REQUEST_DURATION, REQUESTS},
};
use http::Request;
use kube::{Client, client::Body};
use tower::service_fn;

/// The same client, with requests to `host` recorded by the meter.
pub(super) fn metered(client: &Client, host: &str, meter: &Meter) -> Client {
    let (inner, host, meter) = (client.clone(), host.to_owned(), meter.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (inner, host, meter) = (inner.clone(), host.clone(), meter.clone());
        async move {
            let (method, watches) = (request.method().clone(), watches(&request));
            let began = Instant::now();
            let answer = inner.send(request).await;
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            meter.increment(&REQUESTS, &[&code, &host, method.as_str()]);
            // A watch lasts as long as its client: client-go does not time it either.
            if !watches {
                meter.record(&REQUEST_DURATION, &[&host, method.as_str()], began.elapsed().as_secs_f64());
            }
            answer
        }
    });
    Client::new(service, client.default_namespace())
}

fn watches(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_distinguished_from_lists() {
        let asks = |uri: &str| watches(&Request::get(uri).body(Body::empty()).expect("a request"));
        assert!(asks("/api/v1/pods?watch=true&resourceVersion=1") && asks("/api/v1/pods?a=b&watch=1"));
        assert!(!asks("/api/v1/pods") && !asks("/api/v1/pods?watch=false"));
    }
}
