//! The arguments of leader election, with the names and defaults of upstream's sidecars.

use std::time::Duration;

use anyhow::Result;
use claimcheck_controllers::{
    Name, Options, driver_name,
    leader::{Election, Elector, Timing, lease_name},
    named,
};
use clap::Args;
use kube::Client;

use super::go;

/// The user agent of leader election, since its RBAC rules on leases are not part of the controllers'.
const ELECTION_AGENT: &str = "claimcheck-leader-election";
/// The lease of a process with several controllers.
const LEASE: &str = "claimcheck-controllers";
/// The namespace of leases outside of a pod.
const NAMESPACE: &str = "kube-system";

/// Arguments of leader election.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election", mut_args = go::switch)]
pub(super) struct ElectionArgs {
    /// Run only while holding a Lease; exit with an error when it is lost
    #[arg(long, visible_alias = "leader-elect", value_name = go::BOOL)]
    pub(super) leader_election: bool,
    /// Namespace of the Lease [default: that of this pod, or kube-system outside of a pod]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// The name of the Lease, the same for all candidates [default: claimcheck-controllers; for a process that runs
    /// one sidecar alone, upstream's name, such as external-attacher-leader-DRIVER]. The Lease claimcheck-controllers
    /// does not exclude stock sidecars, which hold Leases of their own: stop them first
    #[arg(long, value_name = "NAME")]
    leader_election_name: Option<String>,
    /// The identity of this candidate, such as its pod's name: after a restart with the same identity it resumes
    /// at once [default: the host's name and a random suffix]
    #[arg(long, value_name = "NAME")]
    leader_election_identity: Option<String>,
    /// Labels that a leader adds to the Lease, for example team:storage,tier:one
    #[arg(long, value_name = "KEY:VALUE,...", value_delimiter = ',', value_parser = label)]
    leader_election_labels: Vec<(String, String)>,
    /// How long other candidates wait for a leader that does not renew the Lease
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go::duration)]
    leader_election_lease_duration: Duration,
    /// How long the leader tries to renew the Lease before it exits
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go::duration)]
    leader_election_renew_deadline: Duration,
    /// The time between two renewals
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = go::duration)]
    leader_election_retry_period: Duration,
}

impl ElectionArgs {
    /// The name of the lease. That of a single sidecar contains the name of its driver, which is waited for.
    pub(super) async fn lease(&self, names: &[Name], options: &Options) -> Result<String> {
        if let Some(name) = &self.leader_election_name {
            return Ok(name.clone());
        }
        let of_sidecar = match names {
            [name] if name.needs_driver() => lease_name(*name, &driver_name(*name, options).await?),
            [name] => lease_name(*name, ""),
            _ => None,
        };
        Ok(of_sidecar.unwrap_or_else(|| LEASE.to_owned()))
    }

    /// A candidate for this lease, by default in the pod's namespace.
    pub(super) fn elector(&self, client: &Client, lease: &str, pod: Option<String>) -> Result<Elector> {
        let identity = self.leader_election_identity.clone().unwrap_or_else(|| {
            let host = nix::unistd::gethostname().unwrap_or_default();
            format!("{}_{}", host.to_string_lossy(), uuid::Uuid::new_v4())
        });
        let namespace = self.leader_election_namespace.clone().or(pod);
        let timing = Timing {
            lease: self.leader_election_lease_duration,
            deadline: self.leader_election_renew_deadline,
            retry: self.leader_election_retry_period,
        };
        let election = Election {
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            name: lease.to_owned(),
            identity,
            labels: self.leader_election_labels.iter().cloned().collect(),
            timing: timing.checked()?,
        };
        let client = named(client, &format!("{ELECTION_AGENT}/{}", env!("CARGO_PKG_VERSION")));
        Ok(Elector::new(client, election))
    }
}

/// Upstream: `Set` of the flag's type in csi-lib-utils `standardflags/flags.go`.
fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.trim().split_once(':').filter(|(key, _)| !key.is_empty());
    let (key, value) = parts.ok_or_else(|| "write KEY:VALUE, separated by commas".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        election: ElectionArgs,
    }

    fn parse(args: &[&str]) -> ElectionArgs {
        let line = Line::try_parse_from(["controller"].iter().chain(args)).expect("they are valid");
        line.election
    }

    #[test]
    fn labels_are_pairs_with_colons() {
        let labels = parse(&["--leader-election-labels=team:storage, tier:one"]).leader_election_labels;
        assert_eq!(labels, [("team", "storage"), ("tier", "one")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        for malformed in ["team", ":storage", "a:b,,c:d"] {
            let line = Line::try_parse_from(["controller", "--leader-election-labels", malformed]);
            assert!(line.unwrap_err().to_string().contains("write KEY:VALUE"), "{malformed}");
        }
    }

    #[test]
    fn it_is_switched_on_with_either_name() {
        assert!(!parse(&[]).leader_election);
        for (arg, on) in [
            ("--leader-election", true),
            ("--leader-election=true", true),
            ("--leader-election=false", false),
            ("--leader-elect", true),
        ] {
            assert_eq!(parse(&[arg]).leader_election, on, "{arg}");
        }
    }

    #[tokio::test]
    async fn one_sidecar_has_the_lease_of_upstream_and_several_controllers_have_their_own() {
        let lease = async |names: &[Name], args: &[&str]| {
            parse(args).lease(names, &Options::default()).await.map_err(|error| error.to_string())
        };
        assert_eq!(lease(&[Name::Attacher, Name::Provisioner], &[]).await.as_deref(), Ok(LEASE));
        assert_eq!(lease(&[Name::Protection], &[]).await.as_deref(), Ok(LEASE));
        let snapshots = lease(&[Name::SnapshotController], &[]).await;
        assert_eq!(snapshots.as_deref(), Ok("snapshot-controller-leader"));
        let validator = lease(&[Name::DataSourceValidator], &[]).await;
        assert_eq!(validator.as_deref(), Ok("data-source-validator-leader"));
        let given = lease(&[Name::Attacher], &["--leader-election-name=mine"]).await;
        assert_eq!(given.as_deref(), Ok("mine"));
        let error = lease(&[Name::Attacher], &[]).await.expect_err("its driver is unknown");
        assert!(error.contains("set --csi-address"), "{error}");
    }
}
