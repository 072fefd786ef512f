//! The handle on a driver: typed clients over one tapped connection, which reconnects after a restart of the
//! driver.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{
    net::{TcpStream, UnixStream},
    time::{Instant, sleep, timeout_at},
};
use tonic::{Status, transport::Channel};
use tower::service_fn;

use crate::{
    endpoint::Endpoint,
    tap::{Context, KnownSecrets, Tap, Tapped},
    v1::{
        ProbeRequest, controller_client::ControllerClient, group_controller_client::GroupControllerClient,
        identity_client::IdentityClient, node_client::NodeClient,
        snapshot_metadata_client::SnapshotMetadataClient,
    },
};

/// The deadline of a call by default, that of the external-attacher; a sidecar has that of its `--timeout`.
pub const SIDECAR_DEADLINE: Duration = Duration::from_secs(15);
/// The kubelet's deadline of a call (`csiTimeout` in pkg/volume/csi/csi_plugin.go).
pub const KUBELET_DEADLINE: Duration = Duration::from_secs(120);

/// Maximum size of a header list, as in gRPC's Go clients: a status, including its message, is part of one.
const MAX_HEADER_BYTES: u32 = 16 << 20;

/// Delays between attempts to connect to a starting driver: from the first, doubling up to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));

/// A channel to a driver under the tap.
pub type DriverService = Tapped<Channel>;

/// A driver at an endpoint, for one component. Clones share the connection.
///
/// Connects with the first call and again with the first call after the driver exited: a driver may crash and
/// restart at the same socket. A call that was in progress then fails as `Unavailable`.
#[derive(Clone, Debug)]
pub struct Driver {
    endpoint: Arc<Endpoint>,
    channel: Channel,
    context: Arc<Context>,
}

/// Why a driver is not ready.
#[derive(Debug, Error)]
#[error("the driver at {endpoint} is not ready after {waited:?}: check its log")]
pub struct NotReady {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The timeout.
    pub waited: Duration,
    /// The error of the last attempt.
    #[source]
    pub last: NotReadyCause,
}

/// Why an attempt to connect to a driver failed.
#[derive(Debug, Error)]
pub enum NotReadyCause {
    /// No process accepts connections.
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    /// Probe failed.
    #[error("cannot probe")]
    Probe(#[source] Box<Status>),
    /// Probe returns that the driver is still starting.
    #[error("the driver reports that it is still starting")]
    Starting,
    /// The timeout passed before the first attempt had a response.
    #[error("no response yet")]
    Silent,
}

impl Driver {
    /// A handle for `component` (e.g. `provisioner`, `node/<name>`), with [`SIDECAR_DEADLINE`].
    /// Does not connect yet. Must be called within a tokio runtime.
    pub fn new(endpoint: Endpoint, tap: Tap, component: impl Into<String>) -> Self {
        let context = Context {
            tap,
            component: component.into(),
            driver: OnceLock::new(),
            deadline: SIDECAR_DEADLINE,
            strips: false,
            known: None,
        };
        Self { channel: connect(&endpoint), endpoint: Arc::new(endpoint), context: Arc::new(context) }
    }

    /// The component that makes these calls, as in records.
    pub fn component(&self) -> &str {
        &self.context.component
    }

    /// The same handle with another deadline for calls that set none. Earlier clones keep their own.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        self.changed(|context| context.deadline = deadline)
    }

    /// The same handle, with error messages without the secrets and tokens of the request: for components that write them
    /// to Events, conditions and logs. Drivers have quoted whole requests in them.
    #[must_use]
    pub fn stripping_secrets(self) -> Self {
        self.changed(|context| context.strips = true)
    }

    /// The same handle, which adds the secrets and tokens of its requests to these.
    #[must_use]
    pub fn with_known_secrets(self, known: KnownSecrets) -> Self {
        self.changed(|context| context.known = Some(known))
    }

    fn changed(self, change: impl FnOnce(&mut Context)) -> Self {
        let Context { tap, component, driver, deadline, strips, known } = &*self.context;
        let mut context = Context {
            tap: tap.clone(),
            component: component.clone(),
            driver: driver.clone(),
            deadline: *deadline,
            strips: *strips,
            known: known.clone(),
        };
        change(&mut context);
        Self { context: Arc::new(context), ..self }
    }

    /// Sets the driver's name in the tap's records, if it is known without GetPluginInfo; the first name stays.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        drop(self.context.driver.set(name.into()));
        self
    }

    /// Its endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The Identity service.
    pub fn identity(&self) -> IdentityClient<DriverService> {
        IdentityClient::new(self.service())
    }

    /// The Controller service.
    pub fn controller(&self) -> ControllerClient<DriverService> {
        ControllerClient::new(self.service())
    }

    /// The Node service.
    pub fn node(&self) -> NodeClient<DriverService> {
        NodeClient::new(self.service())
    }

    /// The GroupController service.
    pub fn group_controller(&self) -> GroupControllerClient<DriverService> {
        GroupControllerClient::new(self.service())
    }

    /// The SnapshotMetadata service.
    pub fn snapshot_metadata(&self) -> SnapshotMetadataClient<DriverService> {
        SnapshotMetadataClient::new(self.service())
    }

    /// The tapped channel, for any other client.
    pub fn service(&self) -> DriverService {
        Tapped::new(self.channel.clone(), Arc::clone(&self.context))
    }

    /// Waits until the driver listens and its Probe returns ready, for at most `limit`.
    ///
    /// No event announces a socket, so this polls, with growing delays. Attempts to connect are not RPCs and so
    /// not recorded; every Probe is.
    ///
    /// # Errors
    /// [`NotReady`] when `limit` has passed; its source is the error of the last attempt.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), NotReady> {
        let deadline = Instant::now() + limit;
        let mut last = NotReadyCause::Silent;
        let mut pause = BACKOFF.0;
        loop {
            match timeout_at(deadline, self.try_ready()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(cause)) => last = cause,
                // The error of an earlier attempt is more specific than the timeout of this one.
                Err(_) => {}
            }
            if Instant::now() + pause >= deadline {
                return Err(NotReady { endpoint: (*self.endpoint).clone(), waited: limit, last });
            }
            sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    async fn try_ready(&self) -> Result<(), NotReadyCause> {
        match &*self.endpoint {
            Endpoint::Unix(path) => UnixStream::connect(path).await.map(drop),
            Endpoint::Tcp(address) => TcpStream::connect(address).await.map(drop),
        }
        .map_err(NotReadyCause::Connect)?;
        let probe = self.identity().probe(ProbeRequest {}).await;
        match probe.map_err(|status| NotReadyCause::Probe(Box::new(status)))?.into_inner().ready {
            None | Some(true) => Ok(()),
            Some(false) => Err(NotReadyCause::Starting),
        }
    }
}

/// A channel that connects with the first call, and again whenever the connection was lost.
/// Must be called within a tokio runtime.
pub fn connect(endpoint: &Endpoint) -> Channel {
    match endpoint {
        Endpoint::Unix(path) => {
            let path = path.clone();
            let connector = service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            // A unix socket has no host; gRPC's own clients say `localhost`, and servers check for one.
            Channel::from_static("http://localhost")
                .http2_max_header_list_size(MAX_HEADER_BYTES)
                .connect_with_connector_lazy(connector)
        }
        Endpoint::Tcp(address) => Channel::from_shared(format!("http://{address}"))
            .expect("parsing the endpoint checked that it is host:port")
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .connect_lazy(),
    }
}
