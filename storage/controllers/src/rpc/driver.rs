//! A driver's info and capabilities, requested at start and whenever its process was replaced.

use std::{collections::HashSet, os::unix::fs::MetadataExt, path::Path, time::Duration};

use claimcheck_csi::{
    Driver, Endpoint,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        controller_service_capability::{self, rpc::Type as Rpc},
        plugin_capability::{self, service::Type as Service},
    },
};
use tokio::sync::OnceCell;
use tonic::Status;
use tracing::warn;

use super::RpcFailure;

/// How often the driver's socket is checked.
const CHECKS: Duration = Duration::from_secs(1);
/// Interval of a request that the driver does not respond to.
const RETRY: Duration = Duration::from_secs(1);

/// A driver's name and capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// As in storage classes, volumes and CSINodes.
    pub name: String,
    services: HashSet<i32>,
    rpcs: HashSet<i32>,
}

impl DriverInfo {
    /// A driver with these capabilities.
    #[cfg(test)]
    pub fn new(name: &str, services: &[Service], rpcs: &[Rpc]) -> Self {
        Self {
            name: name.to_owned(),
            services: services.iter().map(|service| *service as i32).collect(),
            rpcs: rpcs.iter().map(|rpc| *rpc as i32).collect(),
        }
    }

    /// Requests the driver's info.
    pub async fn query(driver: &Driver) -> Result<Self, RpcFailure> {
        let mut identity = driver.identity();
        let info = identity.get_plugin_info(GetPluginInfoRequest {}).await?.into_inner();
        let plugin = identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await?.into_inner();
        let services: HashSet<i32> = plugin
            .capabilities
            .into_iter()
            .filter_map(|capability| match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => Some(service.r#type),
                _ => None,
            })
            .collect();
        let mut this = Self { name: info.name, services, rpcs: HashSet::new() };
        if this.serves(Service::ControllerService) {
            let request = ControllerGetCapabilitiesRequest {};
            let controller = driver.controller().controller_get_capabilities(request).await?.into_inner();
            this.rpcs = controller
                .capabilities
                .into_iter()
                .filter_map(|capability| capability.r#type)
                .map(|controller_service_capability::Type::Rpc(rpc)| rpc.r#type)
                .collect();
        }
        Ok(this)
    }

    /// Resolves when the driver's process was replaced by one with another name or other capabilities, such as after
    /// an upgrade; until then its restarts go unnoticed. `differs` is whether what the controller has requested in
    /// addition is another now: see [`Details`].
    ///
    /// Upstream's sidecars exit when they lose the connection (`ExitOnConnectionLoss` in csi-lib-utils
    /// `connection/connection.go`), and so request all of it again, but also forget calls of unknown outcome. Here the
    /// new socket shows that the process is a new one: a lost connection is observed with the next call only, which a
    /// sidecar without work never makes.
    pub async fn outdated<F: Future<Output = bool>>(&self, driver: &Driver, differs: impl Fn() -> F) {
        let Endpoint::Unix(path) = driver.endpoint() else { return std::future::pending().await };
        let mut known = socket(path).await;
        loop {
            tokio::time::sleep(CHECKS).await;
            let found = socket(path).await;
            if found.is_none() || found == known {
                continue;
            }
            // It may still be starting: then it is requested again at the next check.
            if let Ok(info) = Self::query(driver).await {
                if info != *self || differs().await {
                    warn!(driver = self.name, "the driver has changed its name or capabilities");
                    return;
                }
                known = found;
            }
        }
    }

    /// Whether it declares a plugin capability, such as a controller.
    pub fn serves(&self, service: Service) -> bool {
        self.services.contains(&(service as i32))
    }

    /// Whether its controller declares a capability.
    pub fn can(&self, rpc: Rpc) -> bool {
        self.rpcs.contains(&(rpc as i32))
    }

    /// Whether the accessibility of its volumes is limited by topology.
    pub fn has_topology(&self) -> bool {
        self.serves(Service::VolumeAccessibilityConstraints)
    }
}

/// What only one controller requests about the driver, and how. It is requested while the driver is observed, since a
/// driver that does not respond may be restarted meanwhile.
pub struct Details<R, T> {
    request: R,
    known: OnceCell<T>,
}

impl<R, F, T> Details<R, T>
where
    R: Fn() -> F,
    F: Future<Output = T>,
    T: PartialEq,
{
    /// Nothing is requested yet.
    pub fn new(request: R) -> Self {
        Self { request, known: OnceCell::new() }
    }

    /// The first response.
    pub async fn get(&self) -> &T {
        self.known.get_or_init(&self.request).await
    }

    /// Whether the driver responds differently now; false without a first response.
    pub async fn differ(&self) -> bool {
        match self.known.get() {
            Some(known) => (self.request)().await != *known,
            None => false,
        }
    }
}

/// The response to a request of [`Details`]; repeated until the driver responds.
pub async fn requested<T, F>(what: &str, request: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Status>>,
{
    loop {
        match request().await {
            Ok(response) => return response,
            Err(error) => warn!(%error, "the driver does not return {what}; retrying"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The identity of the socket: device, inode and time of change, since inodes are used again.
async fn socket(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let file = tokio::fs::metadata(path).await.ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}
