//! The configuration of the controllers: mostly flags of upstream's sidecars, with their names.

use std::{path::PathBuf, time::Duration};

use claimcheck_csi::tap::Tap;
use claimcheck_informer::Backoff;
use claimcheck_model::Meter;

use crate::{accounts::Accounts, naming::Naming, throttle::RequestLimit};

/// Configuration of the controllers. By default that of upstream's sidecars, except for backoff and concurrency,
/// which are the controllers' own.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver's socket, for provisioner, attacher, resizer and snapshotter.
    pub csi_address: Option<PathBuf>,
    /// The accounts of the controllers; `None` for that of the client.
    pub accounts: Option<Accounts>,
    /// Destination of RPC records; `None` for the one in the environment, if any.
    pub tap: Option<Tap>,
    /// Calls of the driver and their repetition.
    pub calls: Calls,
    /// `--kube-api-qps` and `--kube-api-burst`: the rate of each controller's requests.
    pub requests: Option<RequestLimit>,
    /// `--resync`: the interval of resyncs, on average; `None` for upstream's default, which depends on the sidecar.
    pub resync: Option<Duration>,
    /// Configuration of the provisioner.
    pub provisioning: Provisioning,
    /// `--volume-name-prefix`, `--volume-name-uuid-length`: names of provisioned volumes.
    pub volume_names: Naming,
    /// `--snapshot-name-prefix`, `--snapshot-name-uuid-length`: names of snapshots in the driver.
    pub snapshot_names: Naming,
    /// `--groupsnapshot-name-prefix`, `--groupsnapshot-name-uuid-length`: names of groups of snapshots in the driver.
    pub group_snapshot_names: Naming,
    /// `--default-fstype` of provisioner and attacher: the file system of volumes of classes, and of attached
    /// volumes, that name none; may be empty.
    pub default_fs_type: String,
    /// Configuration of the attacher.
    pub attaching: Attaching,
    /// Configuration of the resizer.
    pub resizing: Resizing,
    /// `--node-deployment` of provisioner and snapshotter; `None` for one process per cluster.
    pub node_deployment: Option<NodeDeployment>,
    /// `--enable-distributed-snapshotting` of the snapshot controller: it labels contents with the node of their
    /// volume, for snapshotters with `--node-deployment`.
    pub distributed_snapshotting: bool,
    /// The time without a heartbeat after which a node is unreachable: `--node-monitor-grace-period` of
    /// kube-controller-manager, with its default.
    pub node_monitor_grace: Option<Duration>,
    /// The feature gate PersistentVolumeClaimUnusedSinceTime of kube-controller-manager: the protection of claims
    /// writes their condition `Unused`.
    pub unused_since_time: bool,
    /// The feature gate StorageCapacityScoring of kube-scheduler: the scheduler prefers nodes with more storage capacity.
    pub capacity_scoring: bool,
    /// Metrics of the controllers.
    pub meter: Meter,
    /// The namespace of capacities; `None` for `kube-system`. Upstream: the provisioner's `NAMESPACE`.
    pub capacity_namespace: Option<String>,
    /// The owner of capacities.
    pub capacity_owner: CapacityOwner,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            csi_address: None,
            accounts: None,
            tap: None,
            calls: Calls::default(),
            requests: None,
            resync: None,
            provisioning: Provisioning::default(),
            volume_names: Naming::volumes(),
            snapshot_names: Naming::snapshots(),
            group_snapshot_names: Naming::group_snapshots(),
            default_fs_type: String::new(),
            attaching: Attaching::default(),
            resizing: Resizing::default(),
            node_deployment: None,
            distributed_snapshotting: false,
            node_monitor_grace: None,
            unused_since_time: false,
            capacity_scoring: false,
            meter: Meter::default(),
            capacity_namespace: None,
            capacity_owner: CapacityOwner::default(),
        }
    }
}

/// Calls of a driver and their repetition, with the names of the sidecars' flags. The snapshot controller, which
/// calls no driver, has all but the timeout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// `--timeout`: the deadline of a call; `None` for upstream's default, which depends on the sidecar.
    pub timeout: Option<Duration>,
    /// `--worker-threads`, and `--workers` of the resizer.
    pub workers: Option<usize>,
    /// `--retry-interval-start` and `--retry-interval-max`.
    pub backoff: Option<Backoff>,
}

/// Options of the provisioner, with the names of external-provisioner's flags.
#[derive(Clone, Copy, Debug)]
pub struct Provisioning {
    /// `--extra-create-metadata`: pass the names of the claim and volume to the driver, as parameters.
    pub extra_create_metadata: bool,
    /// `--strict-topology`: request only the selected node's topology.
    pub strict_topology: bool,
    /// `--immediate-topology`: request the topology of all nodes for classes with binding mode Immediate, or none.
    pub immediate_topology: bool,
    /// `--controller-publish-readonly`: the volume of a claim with access mode ReadOnlyMany alone is read-only.
    pub controller_publish_readonly: bool,
    /// `--enable-capacity`: publish the driver's capacity.
    pub enable_capacity: bool,
    /// `--capacity-for-immediate-binding`: publish capacities for classes with binding mode Immediate, too.
    pub capacity_for_immediate_binding: bool,
    /// `--capacity-poll-interval`: how long a capacity is valid without a reason to measure it again.
    pub capacity_poll_interval: Duration,
    /// `--capacity-threads`: the number of concurrent GetCapacity calls.
    pub capacity_threads: usize,
    /// `--kube-api-capacity-qps` and `--kube-api-capacity-burst`: the rate of requests about published capacities.
    pub capacity_requests: Option<RequestLimit>,
    /// `--cloning-protection-threads`: the number of sources of volumes that are processed concurrently.
    pub cloning_threads: usize,
    /// `--prevent-volume-mode-conversion`: a volume of another volume mode than its snapshot's source requires an
    /// annotation on the content. Of the snapshot controller, too: it writes that mode to contents.
    pub prevent_mode_conversion: bool,
    /// `--feature-gates=CrossNamespaceVolumeDataSource=true`: create volumes from data sources in other namespaces, if
    /// a ReferenceGrant there permits it.
    pub cross_namespace_sources: bool,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self {
            extra_create_metadata: false,
            strict_topology: false,
            immediate_topology: true,
            controller_publish_readonly: false,
            enable_capacity: false,
            capacity_for_immediate_binding: false,
            capacity_poll_interval: Duration::from_secs(60),
            capacity_threads: 1,
            capacity_requests: None,
            cloning_threads: 1,
            prevent_mode_conversion: true,
            cross_namespace_sources: false,
        }
    }
}

/// Options of the resizer, with the names of external-resizer's flags.
#[derive(Clone, Copy, Debug)]
pub struct Resizing {
    /// `--handle-volume-inuse-error`: after FailedPrecondition, wait until no pod uses the volume.
    pub handle_volume_inuse_error: bool,
    /// `--extra-modify-metadata`: pass the names of the claim and volume to ControllerModifyVolume, as parameters.
    pub extra_modify_metadata: bool,
    /// The feature gate RecoverVolumeExpansionFailure: record the size and the progress of an expansion in the claim's
    /// status, so that the claim can request less after a failure.
    pub recover_expansion_failure: bool,
}

impl Default for Resizing {
    fn default() -> Self {
        Self {
            handle_volume_inuse_error: true,
            extra_modify_metadata: false,
            recover_expansion_failure: true,
        }
    }
}

/// A provisioner or snapshotter on each node, next to the driver there: it handles the volumes of its node only. Flags
/// `--node-deployment*` of external-provisioner and external-snapshotter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDeployment {
    /// The node's name. Upstream: `NODE_NAME`.
    pub node: String,
    /// `--node-deployment-immediate-binding`: provision claims of classes with binding mode Immediate, too.
    pub immediate_binding: bool,
    /// `--node-deployment-base-delay`: the longest delay before the first attempt to own such a claim.
    pub base_delay: Duration,
    /// `--node-deployment-max-delay`: the longest delay before later attempts.
    pub max_delay: Duration,
}

impl Default for NodeDeployment {
    fn default() -> Self {
        Self {
            node: String::new(),
            immediate_binding: true,
            base_delay: Duration::from_secs(20),
            max_delay: Duration::from_secs(60),
        }
    }
}

/// The owner of CSIStorageCapacity objects, with which they are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CapacityOwner {
    /// The driver's CSIDriver object.
    #[default]
    Driver,
    /// A pod in the namespace of the capacities, or one of its owners: `--capacity-ownerref-level`.
    Pod {
        /// The pod's name. Upstream: `POD_NAME`.
        name: String,
        /// 0 for the pod itself, 1 for its controller, 2 for the controller of that one.
        level: u8,
    },
    /// None: `--capacity-ownerref-level=-1`.
    Nothing,
}

/// Options of the attacher, with the names of external-attacher's flags.
#[derive(Clone, Copy, Debug)]
pub struct Attaching {
    /// `--reconcile-sync`: the interval in which the driver's list of volumes is compared with the attachments.
    pub reconcile_sync: Duration,
    /// `--max-entries`: the size of a page of that list; 0 leaves it to the driver.
    pub max_entries: i32,
}

impl Default for Attaching {
    fn default() -> Self {
        Self { reconcile_sync: Duration::from_secs(60), max_entries: 0 }
    }
}
