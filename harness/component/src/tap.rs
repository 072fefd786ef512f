//! `claimcheck tap`: in front of a driver that is not ours, called by kubelets and sidecars that are not ours.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use claimcheck_csi::{
    Driver, Endpoint, NO_DEADLINE, Server, proxy,
    tap::{Tap, write_lines},
    v1::GetPluginInfoRequest,
};
use clap::Args;

use super::termination;

/// How long a driver may take to be ready before the log says that it is not.
const A_WORD: Duration = Duration::from_secs(60);

/// Arguments of the tap.
#[derive(Debug, Args)]
pub struct TapArgs {
    /// Where kubelet and sidecars shall call: unix:///csi/csi.sock
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    listen: Endpoint,
    /// Where the driver listens: unix:///csi/driver.sock
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    connect: Endpoint,
    /// Who calls through it: provisioner, for example [default: node/NAME]
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// The name of the node, as the API server knows it
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Make calls fail as this file says: a JSON list of rules, which may be replaced at any time
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// The group that may call, beside root
    #[arg(long, value_name = "GID")]
    socket_group: Option<u32>,
}

impl TapArgs {
    /// Writes a line for each call to standard output, for the harness to follow as the container's log.
    pub(super) async fn run(self) -> Result<()> {
        let Endpoint::Unix(socket) = self.listen else {
            bail!("--listen {}: a tap listens at a unix socket, as drivers do", self.listen);
        };
        let ended = termination()?;
        let (mut tap, records) = Tap::channel();
        if let Some(faults) = self.faults {
            tap = tap.with_faults_of(faults);
        }
        let component = self.component.unwrap_or_else(|| format!("node/{}", self.node_name));
        let driver = Driver::new(self.connect, tap, component).with_deadline(NO_DEADLINE);
        let writing = tokio::spawn(write_lines(records, tokio::io::stdout()));
        let serve = async {
            learn_name(&driver).await?;
            // Only now: whoever finds the socket finds a driver behind it, whose name is known.
            let mut server = Server::bind(&socket)?;
            if let Some(group) = self.socket_group {
                server = server.share_with(group)?;
            }
            proxy(server, &driver, ended.cancelled()).await?;
            anyhow::Ok(())
        };
        tokio::select! {
            served = serve => served?,
            () = ended.cancelled() => {}
        }
        // The last of its handles: then the last line is written.
        drop(driver);
        writing.await?.context("nobody reads the records")
    }
}

/// Asks the driver for its name, which each record carries.
async fn learn_name(driver: &Driver) -> Result<()> {
    while let Err(error) = driver.wait_ready(A_WORD).await {
        tracing::warn!(%error, "waiting for the driver");
    }
    let answer = driver.identity().get_plugin_info(GetPluginInfoRequest {}).await;
    answer.map(drop).with_context(|| format!("the driver at {} does not say its name", driver.endpoint()))
}
