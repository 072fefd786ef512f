//! A process of the driver, at a socket that the test chooses, so that it can be restarted.

use std::path::Path;

use claimcheck_csi::{
    Server, Services,
    v1::{
        controller_server::{Controller, ControllerServer},
        group_controller_server::GroupControllerServer,
        identity_server::IdentityServer,
        node_server::NodeServer,
    },
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::fake::Fake;

/// A process of the driver.
pub struct Process {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Process {
    /// With the services of the cluster's driver, except this controller service.
    pub fn start(path: &Path, identity: &Fake, controller: impl Controller) -> Self {
        let listening = Server::bind(path).unwrap();
        let services = services(identity, controller);
        let (stop, stopped) = oneshot::channel();
        let ended = async { drop(stopped.await) };
        let serving = tokio::spawn(async move { listening.serve(services, ended).await.unwrap() });
        Self { stop, serving }
    }

    pub async fn stop(self) {
        drop(self.stop);
        self.serving.await.unwrap();
    }
}

/// The services of a driver, with this controller service.
pub fn services(driver: &Fake, controller: impl Controller) -> Services {
    Services::default()
        .with(IdentityServer::new(driver.clone()))
        .with(GroupControllerServer::new(driver.clone()))
        .with(NodeServer::new(driver.clone()))
        .with(ControllerServer::new(controller))
}
