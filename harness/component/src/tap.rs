//! `claimcheck tap`: a CSI proxy between a user-provided driver and the upstream kubelet and sidecars.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use claimcheck_csi::{
    Driver, Endpoint, NO_DEADLINE, Server, proxy,
    tap::{LineWriter, Tap},
    v1::GetPluginInfoRequest,
};
use clap::Args;

use super::{HttpArgs, meters::Meters, termination};

/// How long a driver may take to become ready before a warning is logged.
const A_WORD: Duration = Duration::from_secs(60);

/// Arguments of the tap.
#[derive(Debug, Args)]
pub struct TapArgs {
    /// The socket to listen on, which kubelet and sidecars call: unix:///csi/csi.sock
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    listen: Endpoint,
    /// The driver's socket: unix:///csi/driver.sock
    #[arg(long, value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    connect: Endpoint,
    /// Name of the calling component, for example provisioner [default: node/NAME]
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// The node's name in the API server
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Inject faults into calls according to this file: a JSON list of rules, which may be replaced at any time
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Numeric id of the group that may call in addition to root
    #[arg(long, value_name = "GID")]
    socket_group: Option<u32>,
    #[command(flatten)]
    http: HttpArgs,
}

impl TapArgs {
    /// Writes one line per call to standard output; the harness reads it from the container's log.
    pub(super) async fn run(self) -> Result<()> {
        let Endpoint::Unix(socket) = self.listen else {
            bail!("--listen {}: a tap must listen on a unix socket, as drivers do", self.listen);
        };
        let ended = termination()?;
        let (mut tap, records) = Tap::channel();
        if let Some(faults) = self.faults {
            tap = tap.with_faults_of(faults);
        }
        let component = self.component.unwrap_or_else(|| format!("node/{}", self.node_name));
        let driver = Driver::new(self.connect, tap, component).with_deadline(NO_DEADLINE);
        let (writer, newest) = LineWriter::new(records);
        let writing = tokio::spawn(writer.write(tokio::io::stdout()));
        let meters = Meters::new();
        meters.records_lines(Some(newest));
        let _served = self.http.serve(meters.clone()).await?;
        let serve = async {
            learn_name(&driver).await?;
            // Only now: a client that can connect to the socket reaches a ready driver with a known name.
            let mut server = Server::bind(&socket)?;
            if let Some(group) = self.socket_group {
                server = server.share_with(group)?;
            }
            meters.meter().ready();
            proxy(server, &driver, ended.cancelled()).await?;
            anyhow::Ok(())
        };
        tokio::select! {
            served = serve => served?,
            () = ended.cancelled() => {}
        }
        // The last of its handles: afterwards the last line is written.
        drop(driver);
        writing.await?.context("the reader of the records has exited")
    }
}

/// Requests the driver's name, which each record carries.
async fn learn_name(driver: &Driver) -> Result<()> {
    while let Err(error) = driver.wait_ready(A_WORD).await {
        tracing::warn!(%error, "waiting for the driver");
    }
    let answer = driver.identity().get_plugin_info(GetPluginInfoRequest {}).await;
    answer.map(drop).with_context(|| format!("the driver at {} does not return its name", driver.endpoint()))
}
