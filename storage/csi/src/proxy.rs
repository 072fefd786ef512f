//! A driver's socket with the tap in front of it: for callers outside of the harness, a kubelet or a stock
//! sidecar. [`proxy`] is for a user-provided driver; [`serve_tapped`] is for the built-in one.
//!
//! ```text
//! kubelet, sidecar ══ unix socket ══ proxy ─ Tapped ─ channel ══ unix socket ══ a vendor's driver
//!                                              └─> TapRecord
//! ```
//!
//! Messages, metadata and status pass unchanged, including those of services that CSI does not define. A call
//! without a deadline gets that of the handle.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    task::{self, Poll},
    time::Duration,
};

use http::{Request, Response};
use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, Service, StdError},
};
use tower::ServiceExt;

use crate::{
    client::Driver,
    server::{ServeError, Server, Services},
    tap::{Context, Tap, Tapped},
};

/// A deadline that is effectively infinite, for [`Driver::with_deadline`]: callers of a proxy set their own.
pub const NO_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// Forwards every call from `server` to `driver`, until `shutdown` resolves; then calls in progress are
/// finished. While the driver is unavailable, calls fail as `Unavailable`.
///
/// # Errors
/// [`ServeError`] if accepting connections fails for good.
pub async fn proxy(
    server: Server,
    driver: &Driver,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    server.serve_any(Proxy(driver.service()), shutdown).await
}

/// Serves `services`, and records every call of them with `component` as the caller, until `shutdown` resolves;
/// then calls in progress are finished. `driver` is the driver's name.
///
/// # Errors
/// [`ServeError`] if accepting connections fails for good.
pub async fn serve_tapped(
    server: Server,
    services: Services,
    tap: Tap,
    component: String,
    driver: String,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let context = Context {
        tap,
        component,
        driver: OnceLock::from(driver),
        deadline: NO_DEADLINE,
        strips: false,
        known: None,
    };
    server.serve_any(Proxy(Tapped::new(services, Arc::new(context))), shutdown).await
}

#[derive(Clone)]
struct Proxy<S>(Tapped<S>);

impl<S> Service<Request<Body>> for Proxy<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<StdError>,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    /// Each call waits for the driver's connection itself: waiting here would make calls wait for one another.
    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let driver = self.0.clone();
        Box::pin(async move {
            let answer = driver.oneshot(request).await;
            Ok(answer.map_or_else(Status::into_http, |answer| answer.map(Body::new)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http_body_util::{BodyExt, Full};
    use tokio::sync::{Notify, mpsc::UnboundedReceiver};
    use tonic::{Code, codegen::Bytes, metadata::MetadataValue, server::NamedService};

    use super::*;
    use crate::{
        Endpoint, connect,
        tap::TapRecord,
        v1::{NodeUnpublishVolumeRequest, node_client::NodeClient},
    };

    /// Answers every call with its own body and metadata, and the status that the metadata asks for.
    #[derive(Clone)]
    struct Echo;

    impl NamedService for Echo {
        const NAME: &'static str = "csi.v1.Node";
    }

    /// The same under a name that CSI does not have.
    #[derive(Clone)]
    struct UnknownService;

    impl NamedService for UnknownService {
        const NAME: &'static str = "vendor.Private";
    }

    macro_rules! echoes {
        ($($name:ident),+) => {
            $(impl Service<Request<Body>> for $name {
                type Response = Response<Body>;
                type Error = Infallible;
                type Future = BoxFuture<Response<Body>, Infallible>;

                fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
                    Poll::Ready(Ok(()))
                }

                fn call(&mut self, request: Request<Body>) -> Self::Future {
                    Box::pin(async move { Ok(echo(request).await) })
                }
            })+
        };
    }
    echoes!(Echo, UnknownService);

    async fn echo(request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let status = head.headers.get("wanted-status").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from(status.unwrap_or(0)));
        trailers.insert("said-last", http::HeaderValue::from_static("trailer"));
        let body = Full::new(bytes).with_trailers(async move { Some(Ok(trailers)) });
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        for (name, value) in head.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-")) {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }

    /// A driver, a proxy before it, and what the proxy records.
    struct Chain {
        _folder: tempfile::TempDir,
        endpoint: Endpoint,
        records: UnboundedReceiver<TapRecord>,
        stop_driver: Arc<Notify>,
        driver: tokio::task::JoinHandle<()>,
    }

    fn serve(path: &Path) -> (Arc<Notify>, tokio::task::JoinHandle<()>) {
        let stop = Arc::new(Notify::new());
        let server = Server::bind(path).unwrap();
        let stopped = stop.clone();
        let services = Services::default().with(Echo).with(UnknownService);
        let task = tokio::spawn(async move { server.serve(services, stopped.notified()).await.unwrap() });
        (stop, task)
    }

    fn chain() -> Chain {
        let folder = tempfile::tempdir().unwrap();
        let (inner, outer) = (folder.path().join("driver.sock"), folder.path().join("csi.sock"));
        let (stop_driver, driver) = serve(&inner);
        let (tap, records) = Tap::channel();
        let behind =
            Driver::new(Endpoint::Unix(inner), tap, "node/n1").named("d.io").with_deadline(NO_DEADLINE);
        let server = Server::bind(&outer).unwrap();
        tokio::spawn(async move { proxy(server, &behind, std::future::pending()).await });
        Chain { _folder: folder, endpoint: Endpoint::Unix(outer), records, stop_driver, driver }
    }

    /// A gRPC message of these bytes.
    fn frame(bytes: &[u8]) -> Bytes {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[0], &length[..], bytes].concat().into()
    }

    async fn raw(endpoint: &Endpoint, path: &str, body: Bytes) -> Response<Body> {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-of-the-caller", "kept")
            .body(Body::new(Full::new(body)))
            .unwrap();
        connect(endpoint).oneshot(request).await.unwrap()
    }

    #[tokio::test]
    async fn what_goes_through_is_what_came() {
        let mut chain = chain();
        for path in ["/csi.v1.Node/NodeFromTheFuture", "/vendor.Private/Anything"] {
            for bytes in [&b""[..], b"\xff\xfe no message at all", &[7; 100_000]] {
                let answer = raw(&chain.endpoint, path, frame(bytes)).await;
                assert_eq!(answer.headers()["x-of-the-caller"], "kept");
                let answer = answer.into_body().collect().await.unwrap();
                assert_eq!(answer.trailers().unwrap()["said-last"], "trailer");
                assert_eq!(answer.to_bytes(), frame(bytes), "{path}");
                let record = chain.records.recv().await.unwrap();
                assert_eq!((record.method.path(), record.end), (path, None));
                assert_eq!(chain.records.recv().await.unwrap().code(), Some(Code::Ok));
            }
        }
    }

    #[tokio::test]
    async fn calls_are_recorded_with_their_volume_and_their_status() {
        let mut chain = chain();
        let mut node = NodeClient::new(connect(&chain.endpoint));
        let expected = NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path: "/t".into() };
        let mut request = tonic::Request::new(expected);
        request.metadata_mut().insert("wanted-status", MetadataValue::from_static("10"));
        let status = node.node_unpublish_volume(request).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        let (start, end) = (chain.records.recv().await.unwrap(), chain.records.recv().await.unwrap());
        assert_eq!((start.volume_id.as_deref(), start.target.as_deref()), (Some("v"), Some("/t")));
        assert_eq!((start.driver.as_deref(), start.component.as_str()), (Some("d.io"), "node/n1"));
        assert_eq!((start.id, Some(Code::Aborted)), (end.id, end.code()));
        assert!(end.start == start.start && end.end.is_some_and(|end| start.start <= end.at));
    }

    #[tokio::test]
    async fn the_builtin_driver_records_its_own_calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let server = Server::bind(&path).unwrap();
        let (tap, mut records) = Tap::channel();
        let services = Services::default().with(Echo);
        let (component, name) = ("node/n1".to_owned(), "d.io".to_owned());
        tokio::spawn(serve_tapped(server, services, tap, component, name, std::future::pending()));
        let expected = NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path: "/t".into() };
        let mut node = NodeClient::new(connect(&Endpoint::Unix(path)));
        node.node_unpublish_volume(expected).await.unwrap();
        let (start, end) = (records.recv().await.unwrap(), records.recv().await.unwrap());
        assert_eq!((start.driver.as_deref(), start.volume_id.as_deref()), (Some("d.io"), Some("v")));
        assert_eq!((start.id, Some(Code::Ok)), (end.id, end.code()));
    }

    #[tokio::test]
    async fn a_driver_may_go_and_come_back() {
        let chain = chain();
        let Endpoint::Unix(outer) = &chain.endpoint else { unreachable!("it is one") };
        let inner = outer.with_file_name("driver.sock");
        let code = async || {
            let expected = NodeUnpublishVolumeRequest::default();
            let answer = NodeClient::new(connect(&chain.endpoint)).node_unpublish_volume(expected).await;
            answer.map_or_else(|status| status.code(), |_| Code::Ok)
        };
        assert_eq!(code().await, Code::Ok);
        chain.stop_driver.notify_one();
        chain.driver.await.unwrap();
        assert_eq!(code().await, Code::Unavailable);
        let (_stop, _driver) = serve(&inner);
        assert_eq!(code().await, Code::Ok);
    }
}
