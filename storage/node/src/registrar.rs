//! The registrar: registers a CSI driver with a kubelet, built-in or stock, as the node-driver-registrar
//! sidecar does.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use claimcheck_csi::{BindError, Driver, ServeError, Server, Services, v1};
use tokio::sync::Notify;
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

/// How long the socket is missing after the first rejection; each further time twice as long, as kubelets wait between their
/// own attempts (`pkg/kubelet/pluginmanager/operationexecutor`).
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const LAST_PAUSE: Duration = Duration::from_secs(120);

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
/// If the kubelet rejects the driver, the socket is removed and created again: a kubelet before Kubernetes 1.35 tries again
/// only then (kubernetes#133335). Upstream's registrar exits, and its container is restarted
/// (`cmd/csi-node-driver-registrar/main.go`).
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
    let mut shutdown = pin!(shutdown);
    let mut pause = FIRST_PAUSE;
    loop {
        let rejected = Arc::new(Notify::new());
        let registrar =
            Registrar { name: name.clone(), endpoint: endpoint.to_owned(), rejected: rejected.clone() };
        let services = Services::default().with(RegistrationServer::new(registrar));
        let (server, socket) = listen(path.clone())?;
        let mut is_rejected = false;
        let ended = async {
            tokio::select! {
                () = &mut shutdown => {}
                () = rejected.notified() => is_rejected = true,
            }
        };
        let served = server.serve(services, ended).await;
        drop(socket);
        served.map_err(|source| RegistrarError::Serve { driver: name.clone(), source })?;
        if !is_rejected {
            return Ok(());
        }
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_PAUSE),
        }
    }
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
    /// Notified when the kubelet rejects the driver.
    rejected: Arc<Notify>,
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
            tracing::warn!(driver = self.name, error = status.error, "the kubelet rejected the driver");
            self.rejected.notify_one();
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use claimcheck_csi::{Endpoint, tap::Tap};
    use tokio::sync::oneshot;

    use super::*;
    use crate::{agent_tests::driver::FakeDriver, registration::protocol::Plugin, testing::FakeHost};

    #[tokio::test]
    async fn a_rejected_driver_is_offered_again_with_a_new_socket_and_a_registered_one_is_not() {
        // Not in TMPDIR, which may be long: the path of a unix socket ends at 108 bytes.
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let socket = root.path().join("csi.sock");
        let driver = FakeDriver::new(FakeHost::default());
        let _serving = driver.serve(&socket);
        let path = root.path().join(format!("{}-reg.sock", crate::testing::DRIVER));
        let registry = root.path().to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        let registrar = tokio::spawn(async move {
            let driver = Driver::new(Endpoint::Unix(socket), Tap::none(), "registrar");
            serve(&driver, &registry, "/csi.sock", async { drop(stopped.await) }).await
        });
        let exists = async |expected| {
            while path.exists() != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        exists(true).await;
        let mut kubelet = Plugin::connect(&path).await.unwrap();
        kubelet.notify(Some("NodeGetInfo failed".into())).await.unwrap();
        drop(kubelet);
        exists(false).await;
        exists(true).await;
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let second = inode();
        let mut kubelet = Plugin::connect(&path).await.unwrap();
        assert_eq!(kubelet.info().await.unwrap().endpoint, "/csi.sock");
        kubelet.notify(None).await.unwrap();
        drop(kubelet);
        tokio::time::sleep(FIRST_PAUSE).await;
        assert_eq!(inode(), second);
        drop(stop);
        registrar.await.unwrap().unwrap();
        assert!(!path.exists());
    }
}
