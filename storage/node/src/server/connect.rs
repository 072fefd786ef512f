//! `exec`, `attach` and `portForward`: checks, then the upgrade of the connection, then the session.
//! Upstream: `getExec`, `getAttach` and `getPortForward` in `pkg/kubelet/server/server.go`.

use std::{io, sync::Arc};

use claimcheck_model::ObjectKey;
use claimcheck_runtime::{Runtime, State};
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::{
    routes::{Logs, Refusal},
    streams::{
        StreamOptions, Streams, exec, port_forward, spdy,
        upgrade::{self, FORWARDING, REMOTE_COMMAND, Transport, UpgradeError, V4},
        websocket,
    },
};
use crate::{
    logs::{LogOptions, LogReader},
    pods::ContainerId,
};

/// What an upgraded connection is used for.
pub type Session = BoxFuture<'static, ()>;

/// The program or log behind the streams.
enum Work<R> {
    Exec { runtime: Arc<R>, id: ContainerId, options: StreamOptions },
    Attach(io::Result<LogReader>),
}

impl<R: Runtime> Work<R> {
    async fn run(self, streams: Streams) {
        match self {
            Self::Exec { runtime, id, options } => exec::exec(&*runtime, &id, options, streams).await,
            Self::Attach(log) => exec::attach(log, streams).await,
        }
    }
}

impl<R: Runtime> Logs<R> {
    /// `exec` or `attach`, by `verb`.
    pub(super) async fn remote_command<B>(
        &self,
        request: &Request<B>,
        verb: &str,
        key: &ObjectKey,
        container: &str,
    ) -> Result<(Response<()>, Session), Refusal> {
        let options = StreamOptions::parse(request.uri().query())?;
        let uid = self.pod(key).await?.metadata.uid.clone().unwrap_or_default();
        let running = self.running(&uid).await?;
        let id = running.into_iter().find(|id| id.container == container);
        let id = id.ok_or_else(|| Refusal::NotRunning(container.to_owned()))?;
        let transport = upgrade::negotiate(request.headers(), REMOTE_COMMAND)?;
        let upgrade = upgrade_of(request)?;
        let head = switching(&transport);
        let work = match verb {
            "attach" => {
                let options = LogOptions { follow: true, tail_lines: Some(0), ..LogOptions::default() };
                Work::Attach(self.open(&id, &options).await)
            }
            _ => Work::Exec { runtime: self.runtime.clone(), id, options: options.clone() },
        };
        let session = async move {
            let connection = match upgrade.await {
                Ok(connection) => connection,
                Err(error) => return tracing::debug!(%error, "connection was not upgraded"),
            };
            match transport {
                Transport::WebSocket { protocol, .. } => {
                    let first = (protocol == V4).then(|| options.first());
                    websocket::serve(connection, first, |streams| work.run(streams)).await;
                }
                Transport::Spdy { .. } => {
                    let expected = options.expected();
                    spdy::serve(TokioIo::new(connection), |events, actions| {
                        spdy::remote_command(events, actions, expected, |streams| work.run(streams))
                    })
                    .await;
                }
            }
        };
        Ok((head, Box::pin(session)))
    }

    /// `portForward`.
    pub(super) async fn port_forward<B>(
        &self,
        request: &Request<B>,
        key: &ObjectKey,
    ) -> Result<(Response<()>, Session), Refusal> {
        let uid = self.pod(key).await?.metadata.uid.clone().unwrap_or_default();
        if self.running(&uid).await?.is_empty() {
            return Err(Refusal::NoPodRuns(format!("{}_{}", key.name, key.namespace)));
        }
        let transport = upgrade::negotiate(request.headers(), FORWARDING)?;
        let upgrade = upgrade_of(request)?;
        let head = switching(&transport);
        let target = port_forward::Target { pod: key.name.clone(), uid };
        let session = async move {
            let connection = match upgrade.await {
                Ok(connection) => connection,
                Err(error) => return tracing::debug!(%error, "connection was not upgraded"),
            };
            match transport {
                Transport::WebSocket { .. } => {
                    websocket::tunnel(connection, |tunnel| {
                        spdy::serve(tunnel, |events, actions| port_forward::run(target, events, actions))
                    })
                    .await;
                }
                Transport::Spdy { .. } => {
                    let work = |events, actions| port_forward::run(target, events, actions);
                    spdy::serve(TokioIo::new(connection), work).await;
                }
            }
        };
        Ok((head, Box::pin(session)))
    }

    /// The containers of a pod that run.
    async fn running(&self, uid: &str) -> Result<Vec<ContainerId>, Refusal> {
        let all = self.runtime.list().await?.into_iter();
        let running = all.filter(|(_, state)| matches!(state, State::Running { .. }));
        let ids = running.filter_map(|(id, _)| id.parse::<ContainerId>().ok());
        Ok(ids.filter(|id| id.pod.as_str() == uid).collect())
    }
}

fn upgrade_of<B>(request: &Request<B>) -> Result<OnUpgrade, UpgradeError> {
    request.extensions().get::<OnUpgrade>().cloned().ok_or(UpgradeError::Required)
}

fn switching(transport: &Transport) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend(upgrade::accepted(transport));
    response
}
