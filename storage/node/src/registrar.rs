//! The registrar: registers a CSI driver with a kubelet, built-in or stock, as the node-driver-registrar
//! sidecar does.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use claimcheck_csi::{BindError, Driver, ServeError, Server, Services, v1};
use tonic::{Request, Response, Status};

use crate::registration::protocol::{
    CSI_PLUGIN,
    v1::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer},
    },
};

/// Errors of the registrar.
#[derive(Debug, thiserror::Error)]
pub enum RegistrarError {
    /// The driver does not return its name.
    #[error("the driver failed GetPluginInfo ({}): check that it runs and serves at its endpoint", .0.message())]
    Driver(Box<Status>),
    /// The registration socket cannot be created.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The registration socket cannot be renamed to its final name.
    #[error("cannot serve registration socket {}: check that its directory exists", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The server failed.
    #[error("registration server of driver {driver} failed")]
    Serve {
        /// The driver.
        driver: String,
        /// The error.
        #[source]
        source: ServeError,
    },
}

/// Interval of log messages about a driver that does not respond.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the driver, then registers it; see [`serve`].
///
/// # Errors
/// As [`serve`].
pub async fn run(
    driver: &Driver,
    registry: &Path,
    endpoint: &str,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RegistrarError> {
    let mut shutdown = pin!(shutdown);
    let answers = async {
        while let Err(error) = driver.wait_ready(TIMEOUT).await {
            tracing::warn!(%error, "waiting for the driver");
        }
    };
    tokio::select! {
        () = answers => serve(driver, registry, endpoint, shutdown).await,
        () = &mut shutdown => Ok(()),
    }
}

/// Requests the driver's name, then serves `<registry>/<name>-reg.sock` until `shutdown` resolves; then the
/// socket is removed, and the driver unregistered with it.
///
/// `endpoint` is the path of the driver's socket for the kubelet, which may differ from the path that `driver`
/// uses.
///
/// # Errors
/// If the driver does not respond, or the socket cannot be created.
pub async fn serve(
    driver: &Driver,
    registry: &Path,
    endpoint: &str,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RegistrarError> {
    let answer = driver.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await;
    let name = answer.map_err(|status| RegistrarError::Driver(Box::new(status)))?.into_inner().name;
    let path = registry.join(format!("{name}-reg.sock"));
    let service = RegistrationServer::new(Registrar { name: name.clone(), endpoint: endpoint.to_owned() });
    let (server, socket) = listen(path)?;
    let served = server.serve(Services::default().with(service), shutdown).await;
    drop(socket);
    served.map_err(|source| RegistrarError::Serve { driver: name, source })
}

/// A socket's file, removed when the guard is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens under a hidden name and then renames it: a client that sees the socket can connect to it. A socket
/// that a killed predecessor left is replaced.
fn listen(path: PathBuf) -> Result<(Server, SocketFile), RegistrarError> {
    let hidden = path.with_file_name(format!(".{}", crate::layout::file_name(&path)));
    let server = Server::bind(&hidden)?;
    match std::fs::rename(&hidden, &path) {
        Ok(()) => Ok((server, SocketFile(path))),
        Err(source) => Err(RegistrarError::Socket { path, source }),
    }
}

struct Registrar {
    name: String,
    endpoint: String,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: CSI_PLUGIN.into(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!(driver = self.name, "registered with the kubelet");
        } else {
            // The kubelet tries again by itself.
            tracing::warn!(driver = self.name, error = status.error, "the kubelet rejected the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
