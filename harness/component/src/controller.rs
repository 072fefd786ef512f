//! `claimcheck controller`: any of the storage controllers, alone or as one of several candidates.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use claimcheck_controllers::{
    self as controllers,
    leader::{Election, Elector, Timing},
    named,
};
use claimcheck_csi::tap::{Tap, TapError};
use claimcheck_model::metric::CSI_SIDECAR_OPERATIONS;
use clap::Args;
use kube::Client;

use super::{ApiArgs, HttpArgs, meters::Meters, termination};

/// The user agent of leader election: rights on leases are not the controllers'.
pub const ELECTION_AGENT: &str = "claimcheck-leader-election";

/// Arguments of the controllers.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// `all`, or any of binder, provisioner, attach-detach, attacher, expander, resizer, scheduler,
    /// protection, ephemeral-volume, node-lifecycle; and garbage, where the API server has no garbage collector
    #[arg(required = true)]
    names: Vec<String>,
    /// Path of the CSI driver's socket, for provisioner, attacher and resizer
    #[arg(long)]
    csi_address: Option<PathBuf>,
    /// The provisioner tells the driver for which claim a volume is
    #[arg(long)]
    extra_create_metadata: bool,
    /// The provisioner asks for the selected node's topology and no other
    #[arg(long)]
    strict_topology: bool,
    /// The provisioner publishes the driver's room for classes that bind at once, too
    #[arg(long)]
    capacity_for_immediate_binding: bool,
    /// Where the provisioner publishes the driver's room (default: kube-system)
    #[arg(long, value_name = "NAMESPACE")]
    capacity_namespace: Option<String>,
    /// How many seconds a node may be silent before it is held to be gone (default: 50)
    #[arg(long, value_name = "SECONDS")]
    node_monitor_grace_period: Option<u64>,
    /// Work only while holding a Lease; exit with an error when it is lost
    #[arg(long)]
    leader_elect: bool,
    /// The namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_election_namespace: String,
    /// The name of the Lease, the same for all processes that could do this work
    #[arg(long, value_name = "NAME", default_value = "claimcheck-controllers")]
    leader_election_name: String,
    /// What tells this process from all others that could hold the Lease, such as its pod's name: started
    /// again, it goes on at once [default: the host's name and a random part]
    #[arg(long, value_name = "NAME")]
    leader_election_identity: Option<String>,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    api: ApiArgs,
}

impl ControllerArgs {
    pub(super) async fn run(self) -> Result<()> {
        let ended = termination()?;
        let mut names = Vec::new();
        for name in &self.names {
            match name.as_str() {
                "all" => names.extend(controllers::Name::ALL),
                name => names.push(name.parse()?),
            }
        }
        let meters = Meters::new();
        let _served = self.http.serve(&meters).await?;
        let client = self.api.nameless(&meters.meter()).await?;
        let options = self.options(&meters)?;
        let mut elector = self.leader_elect.then(|| self.elector(&client));
        if let Some(elector) = &mut elector {
            meters.leads(&self.leader_election_name, false);
            tokio::select! {
                () = elector.acquire() => meters.leads(&self.leader_election_name, true),
                () = ended.cancelled() => return Ok(()),
            }
        }
        let work = controllers::run(&names, client, &options, ended.cancelled_owned());
        let Some(mut elector) = elector else { return Ok(work.await?) };
        let result = tokio::select! {
            result = work => result,
            // Another works already, and two must not: the pod is to be started again, as a candidate.
            lost = elector.hold() => return Err(lost.into()),
        };
        elector.release().await;
        Ok(result?)
    }

    fn options(&self, meters: &Meters) -> Result<controllers::Options, TapError> {
        // The records are metrics, whether or not a harness wants them as well.
        let tap = match self.http.http_endpoint {
            Some(_) => {
                let (tap, records) = Tap::from_env()?.tee();
                meters.follow(records, &CSI_SIDECAR_OPERATIONS);
                Some(tap)
            }
            None => None,
        };
        Ok(controllers::Options {
            csi_address: self.csi_address.clone(),
            tap,
            provisioning: controllers::Provisioning {
                extra_create_metadata: self.extra_create_metadata,
                strict_topology: self.strict_topology,
                capacity_for_immediate_binding: self.capacity_for_immediate_binding,
            },
            node_monitor_grace: self.node_monitor_grace_period.map(Duration::from_secs),
            meter: meters.meter(),
            capacity_namespace: self.capacity_namespace.clone(),
        })
    }

    fn elector(&self, client: &Client) -> Elector {
        let identity = self.leader_election_identity.clone().unwrap_or_else(|| {
            let host = nix::unistd::gethostname().unwrap_or_default();
            format!("{}_{}", host.to_string_lossy(), uuid::Uuid::new_v4())
        });
        let election = Election {
            namespace: self.leader_election_namespace.clone(),
            name: self.leader_election_name.clone(),
            identity,
            timing: Timing::default(),
        };
        Elector::new(named(client, &format!("{ELECTION_AGENT}/{}", env!("CARGO_PKG_VERSION"))), election)
    }
}
