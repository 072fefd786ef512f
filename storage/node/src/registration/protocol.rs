//! The plugin registration protocol: generated bindings, and the calls a node makes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Generated from `proto/pluginregistration.proto` by the test `bindings` of crate claimcheck-csi.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1 {
    include!("generated/pluginregistration.rs");
}

use v1::{InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient};

/// The plugin type that this node registers.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// Timeout of a call: a plugin that responds at all does so at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Errors of calls to a plugin.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// No process accepts connections on the socket (yet).
    #[error("cannot connect to plugin socket {}: is its registrar running?", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The transport's error.
        #[source]
        source: tonic::transport::Error,
    },
    /// The plugin returned an error, or timed out.
    #[error("{call} failed at plugin socket {}: {}", socket.display(), status.message())]
    Call {
        /// The method.
        call: &'static str,
        /// The socket.
        socket: PathBuf,
        /// The plugin's response.
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
    /// If no process accepts connections there.
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

    /// The plugin's info.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn info(&mut self) -> Result<PluginInfo, ProtocolError> {
        let answer = self.client.get_info(InfoRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(|status| self.failed("GetInfo", status))
    }

    /// Notifies the plugin of its registration: `None` for success, or the error.
    ///
    /// # Errors
    /// If it does not respond.
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
