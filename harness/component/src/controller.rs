//! `claimcheck controller`: any of the storage controllers, optionally with leader election.

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

/// The user agent of leader election, since its RBAC rules on leases are not part of the controllers'.
pub const ELECTION_AGENT: &str = "claimcheck-leader-election";

/// Arguments of the controllers.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// `all`, or any of binder, provisioner, attach-detach, attacher, expander, resizer, scheduler,
    /// protection, ephemeral-volume, node-lifecycle; and garbage, for API servers without a garbage collector
    #[arg(required = true)]
    names: Vec<String>,
    /// Path of the CSI driver's socket; required for provisioner, attacher and resizer
    #[arg(long)]
    csi_address: Option<PathBuf>,
    /// Provisioner: pass the names of the PVC and PV to CreateVolume (external-provisioner: --extra-create-metadata)
    #[arg(long)]
    extra_create_metadata: bool,
    /// Provisioner: request only the selected node's topology (external-provisioner: --strict-topology)
    #[arg(long)]
    strict_topology: bool,
    /// Provisioner: publish CSIStorageCapacity for StorageClasses with binding mode Immediate, too
    #[arg(long)]
    capacity_for_immediate_binding: bool,
    /// Provisioner: the namespace of its CSIStorageCapacity objects (default: kube-system)
    #[arg(long, value_name = "NAMESPACE")]
    capacity_namespace: Option<String>,
    /// Seconds without a node heartbeat before the node is marked unreachable (default: 50)
    #[arg(long, value_name = "SECONDS")]
    node_monitor_grace_period: Option<u64>,
    /// Run only while holding a Lease; exit with an error when it is lost
    #[arg(long)]
    leader_elect: bool,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_election_namespace: String,
    /// The name of the Lease, the same for all candidates
    #[arg(long, value_name = "NAME", default_value = "claimcheck-controllers")]
    leader_election_name: String,
    /// The identity of this candidate, such as its pod's name: after a restart with the same identity it resumes
    /// at once [default: the host's name and a random suffix]
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
            // Another process is the leader, and two must not run: the pod is restarted as a candidate.
            lost = elector.hold() => return Err(lost.into()),
        };
        elector.release().await;
        Ok(result?)
    }

    fn options(&self, meters: &Meters) -> Result<controllers::Options, TapError> {
        // The records are exported as metrics, whether or not a harness receives them as well.
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
