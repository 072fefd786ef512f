//! The flags of upstream's sidecars, with their names and defaults, so that a vendor's arguments can be copied.
//!
//! A flag applies to all controllers of the process that have it upstream. Controllers that need different values are
//! separate processes, as upstream's sidecars are.

use std::time::Duration;

use anyhow::{Context, Result};
use claimcheck_controllers::{
    Attaching, Calls, CapacityOwner, Naming, NodeDeployment, Options, Provisioning, RequestLimit, Resizing,
    UidPart,
};
use claimcheck_model::Backoff;
use clap::{Args, builder::NonEmptyStringValueParser};

use super::go;

/// `--kube-api-qps` and `--kube-api-burst` of upstream's sidecars by default.
const REQUESTS: RequestLimit = RequestLimit { qps: 5.0, burst: 10 };
/// `--kube-api-capacity-qps` and `--kube-api-capacity-burst` of external-provisioner by default.
const CAPACITY_REQUESTS: RequestLimit = RequestLimit { qps: 1.0, burst: 5 };

/// Flags of upstream's sidecars.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of upstream's sidecars", mut_args = go::switch)]
pub(super) struct SidecarArgs {
    /// Timeout of a call to the driver [default: 10s for provisioner and resizer, 15s for attacher, 1m for
    /// snapshotter]
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    timeout: Option<Duration>,
    /// Sidecars: delay until the first retry of a failed operation; it doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = go::duration)]
    retry_interval_start: Duration,
    /// Sidecars: the longest delay until a retry
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go::duration)]
    retry_interval_max: Duration,
    /// Sidecars: number of objects that each processes concurrently [default: 100 for provisioner, 10 for the others]
    #[arg(
        long,
        visible_alias = "workers",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    worker_threads: Option<u16>,
    /// Requests per second of each controller to the API server [default: no limit, or upstream's 5 with
    /// --kube-api-burst]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = qps)]
    kube_api_qps: Option<f64>,
    /// Number of requests that may exceed --kube-api-qps after a pause [default: 10]
    #[arg(long, value_name = "N")]
    kube_api_burst: Option<u32>,
    /// Interval in which every object is processed again as after a restart, as a safety net [default: 10m, or 15m for
    /// snapshotter and snapshot-controller]
    #[arg(
        long,
        visible_alias = "resync-period",
        env = "CLAIMCHECK_RESYNC",
        value_name = "DURATION",
        value_parser = go::duration
    )]
    resync: Option<Duration>,
    /// Provisioner, attacher: the file system of volumes with none in the StorageClass or PersistentVolume
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    default_fstype: String,
    /// Provisioner, snapshotter: pass the names of PVC and PV, or snapshot and content, to the driver
    #[arg(long, value_name = go::BOOL)]
    extra_create_metadata: bool,
    /// Provisioner: prefix of the names of volumes
    #[arg(long, value_name = "PREFIX", default_value = "pvc", value_parser = NonEmptyStringValueParser::new())]
    volume_name_prefix: String,
    /// Provisioner: number of digits of the PVC's UID in the names of volumes; -1 for all, with dashes
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    volume_name_uuid_length: UidPart,
    /// Provisioner: volumes of PVCs with access mode ReadOnlyMany alone are read-only
    #[arg(long, value_name = go::BOOL)]
    controller_publish_readonly: bool,
    /// Provisioner: for binding mode Immediate, pass the topology of all nodes to the driver, or none
    #[arg(long, value_name = go::BOOL, default_value = "true")]
    immediate_topology: bool,
    /// Provisioner: request only the selected node's topology
    #[arg(long, value_name = go::BOOL)]
    strict_topology: bool,
    /// Provisioner: publish the driver's GetCapacity as CSIStorageCapacity objects
    #[arg(long, value_name = go::BOOL)]
    enable_capacity: bool,
    /// Provisioner: the namespace of CSIStorageCapacity objects [default: that of this pod, or kube-system outside
    /// of a pod]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) capacity_namespace: Option<String>,
    /// Provisioner: the owner of CSIStorageCapacity objects: -1 for none, 0 for the pod POD_NAME, 1 for its
    /// controller, 2 for the controller of that one [default: the CSIDriver object]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i8).range(-1..)
    )]
    capacity_ownerref_level: Option<i8>,
    /// Provisioner: interval of GetCapacity
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go::duration)]
    capacity_poll_interval: Duration,
    /// Provisioner: number of concurrent GetCapacity calls
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    capacity_threads: u16,
    /// Provisioner: requests per second about CSIStorageCapacity objects [default: no limit, or upstream's 1 with
    /// --kube-api-capacity-burst]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = qps)]
    kube_api_capacity_qps: Option<f64>,
    /// Provisioner: number of requests that may exceed --kube-api-capacity-qps after a pause [default: 5]
    #[arg(long, value_name = "N")]
    kube_api_capacity_burst: Option<u32>,
    /// Provisioner: number of PVCs that are protected as sources of clones concurrently
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    cloning_protection_threads: u16,
    /// Provisioner: publish capacities for StorageClasses with binding mode Immediate, too
    #[arg(long, value_name = go::BOOL)]
    capacity_for_immediate_binding: bool,
    /// Provisioner, snapshot-controller: a volume of another volume mode than its snapshot's source requires the
    /// annotation snapshot.storage.kubernetes.io/allow-volume-mode-change of the VolumeSnapshotContent
    #[arg(long, value_name = go::BOOL, default_value = "true")]
    prevent_volume_mode_conversion: bool,
    /// Provisioner, snapshotter: handle the volumes of the node NODE_NAME only, for one process on each node
    #[arg(long, value_name = go::BOOL)]
    node_deployment: bool,
    /// Provisioner with --node-deployment: provision PVCs of StorageClasses with binding mode Immediate, too
    #[arg(long, value_name = go::BOOL, default_value = "true")]
    node_deployment_immediate_binding: bool,
    /// Provisioner with --node-deployment: the longest delay before the first attempt to own such a PVC
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = go::duration)]
    node_deployment_base_delay: Duration,
    /// Provisioner with --node-deployment: the longest delay before later attempts
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go::duration)]
    node_deployment_max_delay: Duration,
    /// Snapshot controller: label VolumeSnapshotContents with the node of their volume, for snapshotters with
    /// --node-deployment
    #[arg(long, value_name = go::BOOL)]
    enable_distributed_snapshotting: bool,
    /// Attacher: interval in which VolumeAttachments are compared with the driver's ListVolumes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go::duration)]
    reconcile_sync: Duration,
    /// Attacher: number of volumes in a page of ListVolumes; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    max_entries: i32,
    /// Resizer: if the driver returns FailedPrecondition, wait until no pod uses the volume
    #[arg(long, value_name = go::BOOL, default_value = "true")]
    handle_volume_inuse_error: bool,
    /// Resizer: pass the names of PVC and PV to ControllerModifyVolume
    #[arg(long, value_name = go::BOOL)]
    extra_modify_metadata: bool,
    /// Snapshotter: prefix of the names of snapshots
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "snapshot",
        value_parser = NonEmptyStringValueParser::new()
    )]
    snapshot_name_prefix: String,
    /// Snapshotter: number of digits of the VolumeSnapshot's UID in the names of snapshots; -1 for all, with dashes
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    snapshot_name_uuid_length: UidPart,
    /// Snapshotter: prefix of the names of group snapshots
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "groupsnapshot",
        value_parser = NonEmptyStringValueParser::new()
    )]
    groupsnapshot_name_prefix: String,
    /// Snapshotter: number of digits of the VolumeGroupSnapshot's UID in the names of group snapshots; -1 for all,
    /// with dashes
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true)]
    groupsnapshot_name_uuid_length: UidPart,
}

impl SidecarArgs {
    /// The options of the controllers that these flags set, and the defaults of all others.
    pub(super) fn options(&self) -> Result<Options> {
        Ok(Options {
            calls: Calls {
                timeout: self.timeout,
                workers: self.worker_threads.map(usize::from),
                backoff: Some(Backoff { base: self.retry_interval_start, max: self.retry_interval_max }),
            },
            requests: requests(self.kube_api_qps, self.kube_api_burst, REQUESTS),
            resync: self.resync,
            provisioning: Provisioning {
                extra_create_metadata: self.extra_create_metadata,
                strict_topology: self.strict_topology,
                immediate_topology: self.immediate_topology,
                controller_publish_readonly: self.controller_publish_readonly,
                enable_capacity: self.enable_capacity,
                capacity_for_immediate_binding: self.capacity_for_immediate_binding,
                capacity_poll_interval: self.capacity_poll_interval,
                capacity_threads: self.capacity_threads.into(),
                capacity_requests: requests(
                    self.kube_api_capacity_qps,
                    self.kube_api_capacity_burst,
                    CAPACITY_REQUESTS,
                ),
                cloning_threads: self.cloning_protection_threads.into(),
                prevent_mode_conversion: self.prevent_volume_mode_conversion,
                ..Provisioning::default()
            },
            volume_names: Naming {
                prefix: self.volume_name_prefix.clone(),
                uid: self.volume_name_uuid_length,
            },
            snapshot_names: Naming {
                prefix: self.snapshot_name_prefix.clone(),
                uid: self.snapshot_name_uuid_length,
            },
            group_snapshot_names: Naming {
                prefix: self.groupsnapshot_name_prefix.clone(),
                uid: self.groupsnapshot_name_uuid_length,
            },
            default_fs_type: self.default_fstype.clone(),
            attaching: Attaching { reconcile_sync: self.reconcile_sync, max_entries: self.max_entries },
            resizing: Resizing {
                handle_volume_inuse_error: self.handle_volume_inuse_error,
                extra_modify_metadata: self.extra_modify_metadata,
                ..Resizing::default()
            },
            node_deployment: self.node_deployment()?,
            distributed_snapshotting: self.enable_distributed_snapshotting,
            capacity_owner: self.capacity_owner()?,
            ..Options::default()
        })
    }

    fn node_deployment(&self) -> Result<Option<NodeDeployment>> {
        if !self.node_deployment {
            return Ok(None);
        }
        let node = std::env::var("NODE_NAME").ok().filter(|node| !node.is_empty());
        let node =
            node.context("--node-deployment needs the name of this node: set NODE_NAME to spec.nodeName")?;
        Ok(Some(self.deployed_on(node)))
    }

    fn deployed_on(&self, node: String) -> NodeDeployment {
        NodeDeployment {
            node,
            immediate_binding: self.node_deployment_immediate_binding,
            base_delay: self.node_deployment_base_delay,
            max_delay: self.node_deployment_max_delay,
        }
    }

    fn capacity_owner(&self) -> Result<CapacityOwner> {
        let Some(level) = self.capacity_ownerref_level.filter(|_| self.enable_capacity) else {
            return Ok(CapacityOwner::Driver);
        };
        let Ok(level) = level.try_into() else { return Ok(CapacityOwner::Nothing) };
        let name = std::env::var("POD_NAME")
            .context("--capacity-ownerref-level needs the name of this pod: set POD_NAME to metadata.name")?;
        Ok(CapacityOwner::Pod { name, level })
    }
}

/// As client-go reads them: zero is the default, and a negative rate is no limit.
fn requests(qps: Option<f64>, burst: Option<u32>, default: RequestLimit) -> Option<RequestLimit> {
    if qps.is_none() && burst.is_none() {
        return None;
    }
    let qps = qps.filter(|qps| *qps != 0.0).unwrap_or(default.qps);
    let burst = burst.filter(|burst| *burst != 0).unwrap_or(default.burst);
    (qps > 0.0).then_some(RequestLimit { qps, burst })
}

fn qps(text: &str) -> Result<f64, String> {
    let qps = text.parse::<f64>().ok().filter(|qps| qps.is_finite() && !(0.0 < *qps && *qps < 0.001));
    qps.ok_or_else(|| "write requests per second, for example 20; a negative number is no limit".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        sidecar: SidecarArgs,
    }

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        let line = Line::try_parse_from(["controller"].iter().chain(args))?;
        Ok(line.sidecar.options().expect("no flag here needs the environment"))
    }

    /// Their `main.go`, and `standardflags` of csi-lib-utils.
    #[test]
    fn defaults_are_those_of_upstream() {
        let options = parse(&[]).expect("nothing is required");
        let seconds = Duration::from_secs;
        let Calls { timeout, workers, backoff } = options.calls;
        assert_eq!((timeout, workers), (None, None), "they depend on the sidecar");
        assert_eq!(backoff, Some(Backoff { base: seconds(1), max: seconds(300) }));
        assert_eq!(options.requests, None);
        let Provisioning {
            extra_create_metadata,
            strict_topology,
            immediate_topology,
            controller_publish_readonly,
            enable_capacity,
            capacity_for_immediate_binding,
            capacity_poll_interval,
            capacity_threads,
            capacity_requests,
            cloning_threads,
            prevent_mode_conversion,
            cross_namespace_sources,
        } = options.provisioning;
        assert!(prevent_mode_conversion);
        assert!(immediate_topology && capacity_poll_interval == seconds(60) && capacity_threads == 1);
        assert!(capacity_requests.is_none() && cloning_threads == 1 && options.resync.is_none());
        let Resizing { handle_volume_inuse_error, extra_modify_metadata, recover_expansion_failure } =
            options.resizing;
        assert!(handle_volume_inuse_error && !extra_modify_metadata && recover_expansion_failure);
        let off = [
            extra_create_metadata,
            strict_topology,
            controller_publish_readonly,
            enable_capacity,
            capacity_for_immediate_binding,
            cross_namespace_sources,
        ];
        assert_eq!(off, [false; 6]);
        assert_eq!((options.volume_names, options.snapshot_names), (Naming::volumes(), Naming::snapshots()));
        assert_eq!(options.group_snapshot_names, Naming::group_snapshots());
        let Attaching { reconcile_sync, max_entries } = options.attaching;
        assert_eq!((reconcile_sync, max_entries), (seconds(60), 0));
        assert_eq!(options.default_fs_type, "");
        assert_eq!(options.capacity_owner, CapacityOwner::Driver);
        assert_eq!((options.node_deployment, options.distributed_snapshotting), (None, false));
    }

    #[test]
    fn values_reach_the_controllers() {
        let options = parse(&[
            "--timeout=1m30s",
            "--retry-interval-start=500ms",
            "--retry-interval-max=2m",
            "--workers=7",
            "--default-fstype=ext4",
            "--volume-name-prefix=vendor",
            "--volume-name-uuid-length=10",
            "--snapshot-name-prefix=snap",
            "--snapshot-name-uuid-length=-1",
            "--groupsnapshot-name-prefix=group",
            "--groupsnapshot-name-uuid-length=12",
            "--extra-create-metadata",
            "--immediate-topology=false",
            "--enable-capacity=true",
            "--capacity-ownerref-level=-1",
            "--capacity-poll-interval=10s",
            "--reconcile-sync=5m0s",
            "--max-entries=100",
            "--capacity-threads=3",
            "--handle-volume-inuse-error=false",
            "--extra-modify-metadata",
            "--resync-period=15m",
            "--prevent-volume-mode-conversion=false",
            "--kube-api-capacity-qps=3",
            "--cloning-protection-threads=4",
        ]);
        let options = options.expect("they are valid");
        let seconds = Duration::from_secs;
        assert_eq!((options.calls.timeout, options.calls.workers), (Some(seconds(90)), Some(7)));
        let backoff = Backoff { base: Duration::from_millis(500), max: seconds(120) };
        assert_eq!(options.calls.backoff, Some(backoff));
        assert_eq!(options.default_fs_type, "ext4");
        assert_eq!(options.volume_names, Naming { prefix: "vendor".into(), uid: UidPart::Digits(10) });
        assert_eq!(options.snapshot_names, Naming { prefix: "snap".into(), uid: UidPart::Whole });
        let groups = Naming { prefix: "group".into(), uid: UidPart::Digits(12) };
        assert_eq!(options.group_snapshot_names, groups);
        let provisioning = options.provisioning;
        assert!(!provisioning.prevent_mode_conversion);
        assert!(provisioning.extra_create_metadata && provisioning.enable_capacity);
        assert!(!provisioning.immediate_topology && !provisioning.strict_topology);
        assert_eq!((provisioning.capacity_poll_interval, provisioning.capacity_threads), (seconds(10), 3));
        let limit = RequestLimit { qps: 3.0, burst: 5 };
        assert_eq!((provisioning.capacity_requests, provisioning.cloning_threads), (Some(limit), 4));
        assert_eq!(options.resync, Some(seconds(900)));
        let Resizing { handle_volume_inuse_error, extra_modify_metadata, .. } = options.resizing;
        assert!(!handle_volume_inuse_error && extra_modify_metadata);
        assert_eq!(options.capacity_owner, CapacityOwner::Nothing);
        assert_eq!((options.attaching.reconcile_sync, options.attaching.max_entries), (seconds(300), 100));
    }

    #[test]
    fn a_process_per_node_has_the_defaults_of_upstream() {
        let of = |args: &[&str]| {
            let line = Line::try_parse_from(["controller"].iter().chain(args)).expect("they are valid");
            line.sidecar.deployed_on("a".into())
        };
        let default = NodeDeployment { node: "a".into(), ..NodeDeployment::default() };
        assert_eq!(of(&[]), default);
        let seconds = Duration::from_secs;
        assert_eq!((default.base_delay, default.max_delay), (seconds(20), seconds(60)));
        let changed = of(&[
            "--node-deployment",
            "--node-deployment-immediate-binding=false",
            "--node-deployment-base-delay=1s",
            "--node-deployment-max-delay=5s",
        ]);
        let expected = NodeDeployment {
            node: "a".into(),
            immediate_binding: false,
            base_delay: seconds(1),
            max_delay: seconds(5),
        };
        assert_eq!(changed, expected);
        assert!(parse(&["--enable-distributed-snapshotting"]).expect("it is valid").distributed_snapshotting);
    }

    #[test]
    fn the_rate_of_requests_is_that_of_client_go() {
        let limit = |args: &[&str]| parse(args).expect("they are valid").requests;
        for (args, expected) in [
            (&["--kube-api-qps=20"][..], Some((20.0, 10))),
            (&["--kube-api-burst=40"], Some((5.0, 40))),
            (&["--kube-api-qps", "0.5", "--kube-api-burst", "0"], Some((0.5, 10))),
            (&["--kube-api-qps=0"], Some((5.0, 10))),
            (&["--kube-api-qps", "-1", "--kube-api-burst", "40"], None),
        ] {
            let expected = expected.map(|(qps, burst)| RequestLimit { qps, burst });
            assert_eq!(limit(args), expected, "{args:?}");
        }
    }

    #[test]
    fn mistakes_name_the_flag_and_the_remedy() {
        for (arg, flag, remedy) in [
            ("--timeout=10", "--timeout", "for example 500ms, 10s or 1m30s"),
            ("--retry-interval-max=0s", "--retry-interval-max", "for example 500ms, 10s or 1m30s"),
            ("--worker-threads=0", "--worker-threads", "0 is not in 1.."),
            ("--kube-api-qps=fast", "--kube-api-qps", "requests per second, for example 20"),
            ("--kube-api-qps=0.0001", "--kube-api-qps", "requests per second, for example 20"),
            ("--volume-name-uuid-length=0", "--volume-name-uuid-length", "from 1 to 32, or -1"),
            ("--volume-name-prefix=", "--volume-name-prefix", "a value is required"),
            ("--strict-topology=yes", "--strict-topology", "write true or false"),
            ("--capacity-ownerref-level=-2", "--capacity-ownerref-level", "-2 is not in -1.."),
            ("--max-entries=-1", "--max-entries", "-1 is not in 0.."),
            ("--retry-intervall-start=1s", "--retry-intervall-start", "'--retry-interval-start'"),
            ("--enable-capacty", "--enable-capacty", "'--enable-capacity'"),
        ] {
            let error = parse(&[arg]).expect_err(arg).to_string();
            assert!(error.contains(flag) && error.contains(remedy), "{arg}: {error}");
        }
    }
}
