//! What a side runs in this process: the scripted driver and the built-in controllers.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use claimcheck_controllers::{Name, Options};
use claimcheck_csi::{
    BindError, Server, Services,
    v1::{
        controller_server::ControllerServer, group_controller_server::GroupControllerServer,
        identity_server::IdentityServer, node_server::NodeServer,
    },
};
use kube::Client;
use tokio::task::JoinSet;

use crate::{driver::Driver, lock};

/// What runs in this process until it is dropped, and why some of it has ended.
#[derive(Default)]
pub struct Tasks {
    running: JoinSet<()>,
    ended: Arc<Mutex<Vec<String>>>,
}

impl Tasks {
    /// Runs what may end.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// What has ended, although it should run.
    pub fn ended(&self) -> Vec<String> {
        lock(&self.ended).clone()
    }

    /// Runs what should not end.
    fn run<E: std::error::Error + Send>(
        &mut self,
        name: String,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let ended = self.ended.clone();
        self.running.spawn(async move {
            if let Err(error) = task.await {
                lock(&ended).push(format!("{name} ({error})"));
            }
        });
    }

    /// Serves a driver at a socket.
    pub fn serve(&mut self, driver: &Driver, socket: &Path) -> Result<PathBuf, BindError> {
        let mut services = Services::default()
            .with(IdentityServer::new(driver.clone()))
            .with(ControllerServer::new(driver.clone()))
            .with(GroupControllerServer::new(driver.clone()));
        if driver.is_local() {
            services = services.with(NodeServer::new(driver.clone()));
        }
        let serving = Server::bind(socket)?.serve(services, std::future::pending());
        self.run(format!("the driver at {}", socket.display()), serving);
        Ok(socket.to_owned())
    }

    /// Runs built-in controllers.
    pub fn run_built_in(&mut self, client: &Client, options: Options, names: &'static [Name]) {
        let client = client.clone();
        let running =
            async move { claimcheck_controllers::run(names, client, &options, std::future::pending()).await };
        self.run(format!("the built-in controllers {names:?}"), running);
    }
}
