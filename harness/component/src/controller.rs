//! `claimcheck controller`: any of the storage controllers, optionally with leader election.

use std::{path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Result, ensure};
use claimcheck_controllers::{self as controllers, Name, Provisioning, Resizing};
use claimcheck_csi::tap::{Tap, TapError};
use claimcheck_model::metric::CSI_SIDECAR_OPERATIONS;
use clap::{
    ArgMatches, Args, Command, FromArgMatches,
    error::{Error, ErrorKind},
};

use super::{
    ApiArgs, HttpArgs, accounts,
    election::ElectionArgs,
    gates, go,
    inert::InertArgs,
    meters::{METRICS, Meters, Pages},
    scope,
    sidecar::SidecarArgs,
    termination,
};

/// The driver's socket by default, as of upstream's sidecars (`standardflags` of csi-lib-utils).
const SOCKET: &str = "/run/csi/socket";

/// Arguments of the controllers: flags that at least one of the named controllers has.
#[derive(Debug)]
pub struct ControllerArgs(Flags);

#[derive(Debug, Args)]
#[command(version, args_override_self = true)]
struct Flags {
    /// `all`, or any of binder, provisioner, attach-detach, attacher, expander, resizer, snapshotter,
    /// snapshot-controller, scheduler, protection, ephemeral-volume, node-lifecycle; and garbage, for API servers
    /// without a garbage collector; and data-source-validator, for clusters with VolumePopulators
    #[arg(required = true)]
    names: Vec<Selection>,
    /// The CSI driver's socket, for provisioner, attacher, resizer and snapshotter: a path, or unix:///path
    #[arg(long, value_name = "ADDRESS", default_value = SOCKET, value_parser = go::socket)]
    csi_address: PathBuf,
    /// Time without a node heartbeat before the node is marked unreachable [default: 50s]
    #[arg(long, value_name = "DURATION", value_parser = go::seconds)]
    node_monitor_grace_period: Option<Duration>,
    /// Feature gates of the upstream programs that the controllers stand for. Off by default are, of
    /// kube-controller-manager, PersistentVolumeClaimUnusedSinceTime, which writes the condition Unused of PVCs; of
    /// kube-scheduler, StorageCapacityScoring, which prefers nodes with more storage capacity; and of
    /// external-provisioner, CrossNamespaceVolumeDataSource, which creates volumes from data sources in other namespaces
    /// if a ReferenceGrant there permits it. On by default are ReleaseLeaderElectionOnExit and, of external-resizer,
    /// RecoverVolumeExpansionFailure, without which PVCs cannot request less after a failed expansion. Gates of features
    /// that are always on are accepted with the value true
    #[arg(long, value_name = "NAME=BOOL,..", value_parser = gates::gates)]
    feature_gates: Vec<gates::Gates>,
    /// Serve the metrics of --http-endpoint at this path
    #[arg(long, value_name = "PATH", default_value = METRICS, value_parser = page)]
    metrics_path: String,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    sidecar: SidecarArgs,
    #[command(flatten)]
    _inert: InertArgs,
}

/// One word of the names.
#[derive(Clone, Debug)]
struct Selection(Vec<Name>);

impl FromStr for Selection {
    type Err = controllers::Error;

    fn from_str(text: &str) -> Result<Self, controllers::Error> {
        Ok(Self(match text {
            "all" => Name::ALL.to_vec(),
            name => vec![name.parse()?],
        }))
    }
}

fn page(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err(format!("write a path, such as {METRICS}")),
    }
}

impl Args for ControllerArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}

impl FromArgMatches for ControllerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let flags = Flags::from_arg_matches(matches)?;
        let names = flags.names();
        scope::check(&Flags::augment_args(Command::new("controller")), matches, &names)?;
        match gates::foreign(&flags.feature_gates, &names) {
            Some(foreign) => Err(Error::raw(ErrorKind::InvalidValue, foreign)),
            None => Ok(Self(flags)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ControllerArgs {
    pub(super) async fn run(self) -> Result<()> {
        self.0.run().await
    }
}

impl Flags {
    fn names(&self) -> Vec<Name> {
        self.names.iter().flat_map(|selection| &selection.0).copied().collect()
    }

    async fn run(self) -> Result<()> {
        let ended = termination()?;
        let names = self.names();
        let meters = Meters::new();
        let pages = Pages { meters: meters.clone(), metrics_path: self.metrics_path.clone() };
        let _served = self.http.serve(pages).await?;
        let client = self.api.nameless(&meters.meter()).await?;
        let options = self.options(&meters)?;
        let mut elector = None;
        if self.election.leader_election {
            // Upstream: external-snapshotter `cmd/csi-snapshotter/main.go`.
            ensure!(
                options.node_deployment.is_none() || !names.contains(&Name::Snapshotter),
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
        if gates::value(&self.feature_gates, gates::RELEASE_ON_EXIT).unwrap_or(true) {
            elector.release().await;
        }
        Ok(result?)
    }

    fn options(&self, meters: &Meters) -> Result<controllers::Options> {
        let capacity_namespace = self.sidecar.capacity_namespace.clone();
        let sidecar = self.sidecar.options()?;
        let recover_expansion_failure = gates::value(&self.feature_gates, gates::RECOVERY).unwrap_or(true);
        // The other gates are off by default.
        let gate = |name| gates::value(&self.feature_gates, name).unwrap_or(false);
        let cross_namespace_sources = gate(gates::CROSS_NAMESPACE);
        Ok(controllers::Options {
            csi_address: Some(self.csi_address.clone()),
            accounts: accounts::from_environment(&self.names())?,
            tap: self.tap(meters)?,
            node_monitor_grace: self.node_monitor_grace_period,
            unused_since_time: gate(gates::UNUSED_SINCE_TIME),
            capacity_scoring: gate(gates::CAPACITY_SCORING),
            meter: meters.meter(),
            capacity_namespace: capacity_namespace.or_else(|| self.api.pod_namespace()),
            provisioning: Provisioning { cross_namespace_sources, ..sidecar.provisioning },
            resizing: Resizing { recover_expansion_failure, ..sidecar.resizing },
            ..sidecar
        })
    }

    /// The records are exported as metrics, whether or not a harness receives them as well.
    fn tap(&self, meters: &Meters) -> Result<Option<Tap>, TapError> {
        if self.http.address().is_none() {
            return Ok(None);
        }
        let (tap, records) = Tap::from_env()?.tee();
        meters.follow(records, &CSI_SIDECAR_OPERATIONS);
        Ok(Some(tap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_of_recovery_reaches_the_resizer() {
        for (gates, recovers) in [
            (&[][..], true),
            (&["--feature-gates=RecoverVolumeExpansionFailure=true"], true),
            (&["--feature-gates=RecoverVolumeExpansionFailure=false"], false),
        ] {
            let words = ["controller", "resizer"].iter().chain(gates);
            let matches = Flags::augment_args(Command::new("controller")).get_matches_from(words);
            let flags = Flags::from_arg_matches(&matches).expect("they are valid");
            let options = flags.options(&Meters::new()).expect("they are consistent");
            assert_eq!(options.resizing.recover_expansion_failure, recovers, "{gates:?}");
        }
    }
}
