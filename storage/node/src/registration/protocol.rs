//! The plugin registration protocol: generated bindings, and the calls a node makes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Generated from `proto/pluginregistration.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("pluginregistration");
}

use v1::{InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient};

/// The type of plugin that this node registers.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// A plugin that answers at all answers at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a plugin could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Nobody accepts on the socket (yet).
    #[error("cannot connect to plugin socket {}: is its registrar running?", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the transport said.
        #[source]
        source: tonic::transport::Error,
    },
    /// The plugin answered with an error, or not in time.
    #[error("{call} failed at plugin socket {}: {}", socket.display(), status.message())]
    Call {
        /// The method.
        call: &'static str,
        /// The socket.
        socket: PathBuf,
        /// The plugin's answer.
        status: Box<tonic::Status>,
    },
}

/// One plugin's registration socket.
#[derive(Clone, Debug)]
pub struct Plugin {
    socket: PathBuf,
    client: RegistrationClient<Channel>,
}

impl Plugin {
    /// Connects to a registration socket.
    ///
    /// # Errors
    /// If nobody accepts there.
    pub async fn connect(socket: &Path) -> Result<Self, ProtocolError> {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The URI is never resolved: the connector knows where to go.
        let channel = Endpoint::from_static("http://plugin.invalid")
            .timeout(TIMEOUT)
            .connect_with_connector(connector)
            .await
            .map_err(|source| ProtocolError::Connect { socket: socket.to_owned(), source })?;
        Ok(Self { socket: socket.to_owned(), client: RegistrationClient::new(channel) })
    }

    /// What the plugin says it is.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn info(&mut self) -> Result<PluginInfo, ProtocolError> {
        let answer = self.client.get_info(InfoRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(|status| self.failed("GetInfo", status))
    }

    /// Tells the plugin whether it was registered: none, or why not.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn notify(&mut self, error: Option<String>) -> Result<(), ProtocolError> {
        let status =
            RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
        let answer = self.client.notify_registration_status(status).await;
        answer.map(drop).map_err(|status| self.failed("NotifyRegistrationStatus", status))
    }

    fn failed(&self, call: &'static str, status: tonic::Status) -> ProtocolError {
        ProtocolError::Call { call, socket: self.socket.clone(), status: Box::new(status) }
    }
}
