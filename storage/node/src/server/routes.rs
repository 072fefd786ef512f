//! Routes of the node's server. Upstream: `pkg/kubelet/server/server.go`, with its codes and messages.

use std::{convert::Infallible, io, sync::Arc};

use claimcheck_informer::Informer;
use claimcheck_model::ObjectKey;
use claimcheck_runtime::{Runtime, State};
use futures::{future::BoxFuture, stream};
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;

use super::choose::{NoLog, choose};
use crate::{
    layout::Layout,
    logs::{LogOptions, LogReader, OptionsError},
    pods::ContainerId,
};

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// State of the server.
pub struct Logs<R> {
    /// The pods of the node.
    pub informer: Informer,
    /// Their containers.
    pub runtime: Arc<R>,
    /// The directory tree of their logs.
    pub layout: Layout,
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Unauthorized")]
    Unauthorized,
    #[error("404: Page Not Found")]
    NoPage,
    #[error("405: Method Not Allowed")]
    Method,
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("pod {0:?} does not exist")]
    NoPod(String),
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer { container: String, pod: String },
    #[error(transparent)]
    NoLog(#[from] NoLog),
    #[error("failed to open the log of container {container}: {error}")]
    Open { container: ContainerId, error: io::Error },
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoPage | Self::NoPod(_) | Self::NoContainer { .. } => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Options(OptionsError::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Options(_) | Self::NoLog(_) | Self::Open { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

impl<R: Runtime> Logs<R> {
    /// Answers a request; `is_known` if its client is authenticated.
    pub async fn answer<B>(&self, request: Request<B>, is_known: bool) -> Result<Response<Body>, Infallible> {
        let answer = match is_known {
            true => self.route(&request).await,
            false => Err(Refusal::Unauthorized),
        };
        Ok(answer.unwrap_or_else(|refusal| text(refusal.code(), refusal.to_string())))
    }

    async fn route<B>(&self, request: &Request<B>) -> Result<Response<Body>, Refusal> {
        let mut parts = request.uri().path().split('/').skip(1);
        let path = [(); 5].map(|()| parts.next());
        if request.method() != Method::GET {
            return Err(Refusal::Method);
        }
        match path {
            [Some("healthz"), None, ..] => Ok(text(StatusCode::OK, "ok".to_owned())),
            [Some("containerLogs"), Some(namespace), Some(pod), Some(container), None] => {
                let options = LogOptions::parse(request.uri().query())?;
                self.log(&ObjectKey::new(namespace, pod), container, &options).await
            }
            _ => Err(Refusal::NoPage),
        }
    }

    async fn log(
        &self,
        key: &ObjectKey,
        container: &str,
        options: &LogOptions,
    ) -> Result<Response<Body>, Refusal> {
        let pod = self.informer.read().pods.get(key).cloned();
        let pod = pod.ok_or_else(|| Refusal::NoPod(key.name.clone()))?;
        if !has_container(&pod, container) {
            return Err(Refusal::NoContainer { container: container.to_owned(), pod: key.name.clone() });
        }
        let id = choose(&pod, container, options.previous)?;
        let reader = self.open(&id, options).await;
        let reader = reader.map_err(|error| Refusal::Open { container: id, error })?;
        let pieces = stream::try_unfold(reader, async |mut reader| {
            let piece = reader.next().await?;
            Ok(piece.map(|bytes| (Frame::data(Bytes::from(bytes)), reader)))
        });
        Ok(response(StatusCode::OK, StreamBody::new(pieces).boxed_unsync()))
    }

    async fn open(&self, id: &ContainerId, options: &LogOptions) -> io::Result<LogReader> {
        let path = self.layout.container_log(&id.pod, &id.container, id.attempt);
        let options = options.clone();
        let ended = options.follow.then(|| ended(self.runtime.clone(), id.to_string()));
        let opened = tokio::task::spawn_blocking(move || LogReader::open(&path, &options, ended));
        opened.await.map_err(io::Error::other)?
    }
}

/// Resolves when a container does not run (any more), or the client has disconnected.
fn ended<R: Runtime>(runtime: Arc<R>, id: String) -> BoxFuture<'static, ()> {
    // Listening before listing, so that no exit falls in between.
    let mut exits = runtime.events();
    Box::pin(async move {
        let listed = runtime.list().await.unwrap_or_default();
        let runs = |(of, state): &(String, State)| *of == id && matches!(state, State::Running { .. });
        if listed.iter().any(runs) {
            while exits.recv().await.is_some_and(|(of, _)| of != id) {}
        }
    })
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    init.iter().chain(regular).any(|container| container.name == name)
}

fn text(code: StatusCode, text: String) -> Response<Body> {
    response(code, Full::from(text).map_err(|never| match never {}).boxed_unsync())
}

fn response(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
