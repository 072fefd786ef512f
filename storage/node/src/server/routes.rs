//! Routes of the node's server. Upstream: `pkg/kubelet/server/server.go`, with its codes and messages.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use claimcheck_informer::{Informer, Kind, KindSet};
use claimcheck_model::ObjectKey;
use claimcheck_runtime::{Runtime, RuntimeError, State};
use futures::{future::BoxFuture, stream};
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Pod;
use tokio::{sync::mpsc, time::timeout};

use super::{
    choose::{NoLog, choose},
    connect::Session,
    streams::{NoStreams, upgrade::UpgradeError},
};
use crate::{
    layout::Layout,
    logs::{LogOptions, LogReader, OptionsError},
    pods::{ContainerId, has_ephemeral_container},
};

/// How long a request waits for the list of the node's pods.
const LISTED: Duration = Duration::from_secs(10);

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
pub(super) enum Refusal {
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
    #[error("the node cannot list its pods: {0}")]
    NoPods(String),
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer { container: String, pod: String },
    #[error(transparent)]
    NoLog(#[from] NoLog),
    #[error(transparent)]
    NoStreams(#[from] NoStreams),
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    #[error("container not found ({0:?})")]
    NotRunning(String),
    #[error("pod not found ({0:?})")]
    NoPodRuns(String),
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    #[error("failed to open the log of container {container}: {error}")]
    Open { container: ContainerId, error: io::Error },
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::NoPods(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NoPage | Self::NoPod(_) | Self::NoContainer { .. } => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Options(OptionsError::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Upgrade(UpgradeError::Protocol { .. }) => StatusCode::FORBIDDEN,
            Self::NotRunning(_) | Self::NoPodRuns(_) | Self::Runtime(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Options(_)
            | Self::NoLog(_)
            | Self::Open { .. }
            | Self::NoStreams(_)
            | Self::Upgrade(UpgradeError::Required) => StatusCode::BAD_REQUEST,
        }
    }
}

impl<R: Runtime> Logs<R> {
    /// Answers a request; `is_known` if its client is authenticated. What is to be done with an upgraded connection is
    /// sent to `sessions`.
    pub async fn answer<B>(
        &self,
        request: Request<B>,
        is_known: bool,
        sessions: &mpsc::UnboundedSender<Session>,
    ) -> Result<Response<Body>, Infallible> {
        let answer = match is_known {
            true => self.route(&request, sessions).await,
            false => Err(Refusal::Unauthorized),
        };
        Ok(answer.unwrap_or_else(|refusal| text(refusal.code(), refusal.to_string())))
    }

    async fn route<B>(
        &self,
        request: &Request<B>,
        sessions: &mpsc::UnboundedSender<Session>,
    ) -> Result<Response<Body>, Refusal> {
        let mut parts = request.uri().path().split('/').skip(1);
        let path = [(); 5].map(|()| parts.next());
        // Clients of SPDY send POST.
        let streams = matches!(path, [Some("exec" | "attach" | "portForward"), ..]);
        if !(request.method() == Method::GET || streams && request.method() == Method::POST) {
            return Err(Refusal::Method);
        }
        match path {
            [Some(verb @ ("exec" | "attach")), Some(namespace), Some(pod), Some(container), None] => {
                let key = ObjectKey::new(namespace, pod);
                let (head, session) = self.remote_command(request, verb, &key, container).await?;
                Ok(upgraded(head, session, sessions))
            }
            [Some("portForward"), Some(namespace), Some(pod), None, None] => {
                let (head, session) = self.port_forward(request, &ObjectKey::new(namespace, pod)).await?;
                Ok(upgraded(head, session, sessions))
            }
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
        let pod = self.pod(key).await?;
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

    /// A pod of the node. A node that has just started answers once it has listed its pods.
    pub(super) async fn pod(&self, key: &ObjectKey) -> Result<Arc<Pod>, Refusal> {
        let pods = self.informer.for_user_of(KindSet::of(&[Kind::Pod]));
        if timeout(LISTED, pods.synced()).await.is_err() {
            let reason = self.informer.pending().borrow().get(&(Kind::Pod, None)).cloned();
            return Err(Refusal::NoPods(reason.unwrap_or_default()));
        }
        let pod = self.informer.read().pods.get(key).cloned();
        pod.ok_or_else(|| Refusal::NoPod(key.name.clone()))
    }

    /// Opens the log of an instance.
    pub(super) async fn open(&self, id: &ContainerId, options: &LogOptions) -> io::Result<LogReader> {
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
    init.iter().chain(regular).any(|container| container.name == name) || has_ephemeral_container(pod, name)
}

/// The response that upgrades a connection, which `session` then uses.
fn upgraded(
    head: Response<()>,
    session: Session,
    sessions: &mpsc::UnboundedSender<Session>,
) -> Response<Body> {
    // The receiver exists for as long as the connection.
    let _ = sessions.send(session);
    head.map(|()| Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync())
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
