//! Which controllers have which flags. A flag that none of the controllers of a process has would be accepted and do
//! nothing, so it is refused.
//!
//! Upstream: `main.go` of each sidecar, and `standardflags` of csi-lib-utils.

use claimcheck_controllers::Name;
use clap::{
    ArgMatches, Command,
    error::{Error, ErrorKind},
    parser::ValueSource,
};

use super::inert;

const PROVISIONER: &[Name] = &[Name::Provisioner];
const ATTACHER: &[Name] = &[Name::Attacher];
const RESIZER: &[Name] = &[Name::Resizer];
const SNAPSHOTTER: &[Name] = &[Name::Snapshotter];
const SNAPSHOT_CONTROLLER: &[Name] = &[Name::SnapshotController];
/// Those that call a driver.
const CALLERS: &[Name] = &[Name::Provisioner, Name::Attacher, Name::Resizer, Name::Snapshotter];
/// The programs of kubernetes-csi with the same flags.
pub(super) const SIDECARS: &[Name] =
    &[Name::Provisioner, Name::Attacher, Name::Resizer, Name::Snapshotter, Name::SnapshotController];
/// Those with flags for concurrency and backoff.
const WORKERS: &[Name] = &[
    Name::Provisioner,
    Name::Attacher,
    Name::Resizer,
    Name::Snapshotter,
    Name::SnapshotController,
    Name::DataSourceValidator,
];

/// The controllers with this flag; `None` for all.
pub(super) fn controllers(flag: &str) -> Option<&'static [Name]> {
    if let Some(inert) = inert::FLAGS.iter().find(|inert| inert.name == flag) {
        return inert.of;
    }
    Some(match flag {
        "csi-address" | "timeout" => CALLERS,
        "retry-interval-start" | "retry-interval-max" | "worker-threads" => WORKERS,
        "default-fstype" => &[Name::Provisioner, Name::Attacher],
        "extra-create-metadata" | "node-deployment" => &[Name::Provisioner, Name::Snapshotter],
        "prevent-volume-mode-conversion" => &[Name::Provisioner, Name::SnapshotController],
        "volume-name-prefix"
        | "volume-name-uuid-length"
        | "controller-publish-readonly"
        | "immediate-topology"
        | "strict-topology"
        | "enable-capacity"
        | "capacity-namespace"
        | "capacity-ownerref-level"
        | "capacity-poll-interval"
        | "capacity-threads"
        | "capacity-for-immediate-binding"
        | "kube-api-capacity-qps"
        | "kube-api-capacity-burst"
        | "cloning-protection-threads"
        | "node-deployment-immediate-binding"
        | "node-deployment-base-delay"
        | "node-deployment-max-delay" => PROVISIONER,
        "reconcile-sync" | "max-entries" => ATTACHER,
        "handle-volume-inuse-error" | "extra-modify-metadata" => RESIZER,
        "snapshot-name-prefix"
        | "snapshot-name-uuid-length"
        | "groupsnapshot-name-prefix"
        | "groupsnapshot-name-uuid-length" => SNAPSHOTTER,
        "enable-distributed-snapshotting" => SNAPSHOT_CONTROLLER,
        "node-monitor-grace-period" => &[Name::NodeLifecycle],
        _ => return None,
    })
}

/// Refuses flags on the command line that none of these controllers has.
pub(super) fn check(command: &Command, matches: &ArgMatches, names: &[Name]) -> Result<(), Error> {
    for arg in command.get_arguments() {
        let Some(flag) = arg.get_long() else { continue };
        let is_given = matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let Some(known) = controllers(flag).filter(|_| is_given) else { continue };
        if !known.iter().any(|name| names.contains(name)) {
            let [given, known] = [names, known].map(|names| {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                words(&names)
            });
            let message = format!("--{flag} is a flag of {known}, and has no effect on {given}");
            return Err(Error::raw(ErrorKind::UnknownArgument, message));
        }
    }
    Ok(())
}

/// `a, b and c`.
pub(super) fn words(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
