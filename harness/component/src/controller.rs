//! `claimcheck controller`: any of the storage controllers, optionally with leader election.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use claimcheck_controllers::{self as controllers, Provisioning};
use claimcheck_csi::tap::{Tap, TapError};
use claimcheck_model::metric::CSI_SIDECAR_OPERATIONS;
use clap::Args;

use super::{
    ApiArgs, HttpArgs, election::ElectionArgs, gates, meters::Meters, sidecar::SidecarArgs, termination,
};

/// Arguments of the controllers.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// `all`, or any of binder, provisioner, attach-detach, attacher, expander, resizer, snapshotter,
    /// snapshot-controller, scheduler, protection, ephemeral-volume, node-lifecycle; and garbage, for API servers
    /// without a garbage collector; and selinux-warning, which `all` does not include, as upstream; and
    /// data-source-validator, for clusters with VolumePopulators
    #[arg(required = true)]
    names: Vec<String>,
    /// Path of the CSI driver's socket; required for provisioner, attacher, resizer and snapshotter
    #[arg(long)]
    csi_address: Option<PathBuf>,
    /// Seconds without a node heartbeat before the node is marked unreachable (default: 50)
    #[arg(long, value_name = "SECONDS")]
    node_monitor_grace_period: Option<u64>,
    /// Feature gates of kube-controller-manager: PersistentVolumeClaimUnusedSinceTime=true writes the condition Unused
    /// of PVCs (default: false). Of external-provisioner: CrossNamespaceVolumeDataSource=true creates volumes from data
    /// sources in other namespaces, if a ReferenceGrant there permits it (default: false)
    #[arg(long, value_name = "NAME=BOOL,..", value_delimiter = ',', value_parser = gates::gate)]
    feature_gates: Vec<gates::Gate>,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    sidecar: SidecarArgs,
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
        let mut elector = None;
        if self.election.leader_election {
            // Upstream: external-snapshotter `cmd/csi-snapshotter/main.go`.
            ensure!(
                options.node_deployment.is_none() || !names.contains(&controllers::Name::Snapshotter),
                "leader election cannot happen when --node-deployment is set: start the snapshotter without \
                 --leader-election"
            );
            let lease = tokio::select! {
                lease = self.election.lease(&names, &options) => lease?,
                () = ended.cancelled() => return Ok(()),
            };
            let mut candidate = self.election.elector(&client, &lease, self.api.pod_namespace())?;
            meters.leads(&lease, false);
            tokio::select! {
                () = candidate.acquire() => meters.leads(&lease, true),
                () = ended.cancelled() => return Ok(()),
            }
            elector = Some(candidate);
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

    fn options(&self, meters: &Meters) -> Result<controllers::Options> {
        let capacity_namespace = self.sidecar.capacity_namespace.clone();
        let sidecar = self.sidecar.options()?;
        let cross_namespace_sources = gates::cross_namespace(&self.feature_gates);
        Ok(controllers::Options {
            csi_address: self.csi_address.clone(),
            tap: self.tap(meters)?,
            node_monitor_grace: self.node_monitor_grace_period.map(Duration::from_secs),
            unused_since_time: gates::unused_since_time(&self.feature_gates),
            meter: meters.meter(),
            capacity_namespace: capacity_namespace.or_else(|| self.api.pod_namespace()),
            provisioning: Provisioning { cross_namespace_sources, ..sidecar.provisioning },
            ..sidecar
        })
    }

    /// The records are exported as metrics, whether or not a harness receives them as well.
    fn tap(&self, meters: &Meters) -> Result<Option<Tap>, TapError> {
        if self.http.http_endpoint.is_none() {
            return Ok(None);
        }
        let (tap, records) = Tap::from_env()?.tee();
        meters.follow(records, &CSI_SIDECAR_OPERATIONS);
        Ok(Some(tap))
    }
}
