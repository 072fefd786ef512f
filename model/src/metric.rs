//! Every metric that any component exports: name, unit, help, labels and buckets, declared once.
//!
//! Names without the `claimcheck_` prefix are Kubernetes' own, with the labels that its components use,
//! so that existing dashboards and alerts work with the built-in controllers, node and driver. No object's name is
//! ever a label of a `claimcheck_*` metric.

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A number of objects or events.
    Count,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Monotonically increasing.
    Counter,
    /// May increase and decrease.
    Gauge,
    /// A distribution over buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// A metric as it is exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The exported name.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// One sentence for a reader of `/metrics`.
    pub help: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its labels, in order.
    pub labels: &'static [Label],
}

impl Metric {
    /// The names of its labels, in order.
    pub fn label_names(&self) -> Vec<&'static str> {
        self.labels.iter().map(|label| label.name()).collect()
    }
}

macro_rules! labels {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A label of a metric; the set is closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Label { $($(#[doc = $doc])+ $variant,)+ }

        impl Label {
            /// The exported name.
            pub const fn name(self) -> &'static str {
                match self { $(Label::$variant => $name,)+ }
            }
        }
    };
}

labels! {
    /// [`crate::Phase::name`].
    Phase = "phase";
    /// A CSI driver's name.
    DriverName = "driver_name";
    /// A storage class.
    StorageClass = "storage_class";
    /// [`crate::VolumeMode::name`].
    VolumeMode = "volume_mode";
    /// [`crate::ClusterKind::name`]. Not `cluster`: that is the usual external label for the name of a cluster, which
    /// Prometheus does not set on series that have it already.
    ClusterKind = "cluster_kind";
    /// [`crate::Source::name`], of the monitor [`CANARY`] or [`VOLUMES`], or upstream's source of a claim's data.
    Source = "source";
    /// `ok` of a duration; `aborted`, `unobserved` of a phase without one; `passed`, `failed`, `skipped` of a case; `ok`, `failed`, `blocked` of a
    /// run of the canary. Upstream: `empty`, `pvc`, `snapshot`, `populator`, `invalid` of a data source.
    Result = "result";
    /// A node: low cardinality, and upstream has it too.
    Node = "node";
    /// [`crate::LeakKind::name`].
    Kind = "kind";
    /// [`crate::Rule::name`].
    Rule = "rule";
    /// A CSI method without its service.
    Operation = "operation";
    /// A suite of the catalogue.
    Suite = "suite";
    /// A case of the catalogue, with its pattern: a few hundred values.
    Case = "case";
    /// [`crate::Capability::name`].
    Capability = "capability";
    /// `yes`, `no`, or `unknown` if neither driver nor driver file declares it.
    Declared = "declared";
    /// The version of claimcheck.
    Version = "version";
    /// The version that the API server reports.
    KubernetesVersion = "kubernetes_version";
    /// Upstream: `kubernetes.io/csi:<driver>`.
    VolumePlugin = "volume_plugin";
    /// Upstream: the other spelling of the plugin.
    PluginName = "plugin_name";
    /// Upstream: the operation on a volume.
    OperationName = "operation_name";
    /// Upstream: `success` or `fail-unknown`.
    Status = "status";
    /// Upstream: whether an in-tree plugin was migrated to CSI; always `false` here.
    Migrated = "migrated";
    /// Upstream: the full gRPC method path.
    MethodName = "method_name";
    /// Upstream: `OK`, `Aborted`, ...
    GrpcStatusCode = "grpc_status_code";
    /// Upstream: a storage class.
    Class = "class";
    /// Upstream: the outcome of a snapshot operation.
    OperationStatus = "operation_status";
    /// Upstream: `dynamic` or `pre-provisioned`.
    SnapshotType = "snapshot_type";
    /// Upstream: `actual_state_of_world` or `desired_state_of_world`.
    State = "state";
    /// Upstream: why a detach was forced.
    Reason = "reason";
    /// The cause of a wait, as the monitor derives it: a closed set.
    Cause = "cause";
    /// The topology segment of a canary: a zone, `node` for single nodes, or `any`.
    Topology = "topology";
    /// A built-in controller: a handful of values.
    Controller = "controller";
    /// Upstream: the name of the leader election lease, or of the work queue.
    Name = "name";
    /// Upstream of rest_client_*: the API server.
    Host = "host";
    /// Upstream of rest_client_*: the Kubernetes verb.
    Verb = "verb";
    /// Upstream of rest_client_*: the HTTP method.
    Method = "method";
    /// Upstream of rest_client_*: the HTTP status, or `<error>`.
    Code = "code";
    /// Upstream: of kubelet_volume_stats.
    Namespace = "namespace";
    /// Upstream: of kubelet_volume_stats.
    PersistentVolumeClaim = "persistentvolumeclaim";
}

/// [`Label::Source`] of the monitor's canary: the volumes that it creates.
pub const CANARY: &str = "canary";
/// [`Label::Source`] of all other volumes that the monitor follows.
pub const VOLUMES: &str = "volumes";
/// [`Label::StorageClass`] and [`Label::DriverName`] of what any user could invent.
pub const OTHER: &str = "(other)";

/// Upstream's buckets of storage operations (`pkg/volume/util/metrics.go`), extended downwards: upstream
/// Kubernetes never needs to distinguish 1 ms from 50 ms.
pub const OPERATION_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0,
    300.0, 600.0,
];

/// Prometheus' default buckets, which sig-storage-lib-external-provisioner uses, extended downwards.
pub const PROVISION_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// client-go's buckets of requests (`component-base/metrics/prometheus/restclient`), extended downwards.
pub const REQUEST_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Upstream's buckets of work queues: powers of ten from 10 ns (`component-base/metrics/prometheus/workqueue`).
pub const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

macro_rules! metrics {
    ($($const:ident = $name:literal, $unit:ident, $kind:expr, [$($label:ident),*], $help:literal;)+) => {
        $(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub const $const: Metric = Metric {
                name: $name,
                unit: Unit::$unit,
                help: $help,
                kind: $kind,
                labels: &[$(Label::$label),*],
            };
        )+

        /// Every metric of this file.
        pub const ALL: &[Metric] = &[$($const),+];
    };
}

use MetricKind::{Counter, Gauge, Histogram};

metrics! {
    PHASE_DURATION = "claimcheck_phase_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [Phase, DriverName, StorageClass, VolumeMode, ClusterKind, Source, Result],
        "Duration of each phase of a volume's lifecycle with an observed start and end; result is ok.";
    PHASE_WITHOUT_DURATION = "claimcheck_phase_without_duration_total", Count, Counter,
        [Phase, DriverName, StorageClass, VolumeMode, ClusterKind, Source, Result],
        "Number of phases without a duration: aborted, or without an observed start or end.";
    PHASE_OVERHEAD = "claimcheck_phase_overhead_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [Phase, DriverName, ClusterKind],
        "Duration of each phase without the time spent in driver calls.";
    PHASE_WAITING = "claimcheck_phase_waiting", Count, Gauge, [Phase, DriverName, StorageClass],
        "Number of volumes of a cluster that currently wait for the end of a phase.";
    PHASE_WAITING_OLDEST = "claimcheck_phase_waiting_oldest_seconds", Seconds, Gauge, [Phase, DriverName, StorageClass],
        "Age of the longest wait for the end of a phase.";
    STUCK_VOLUMES = "claimcheck_stuck_volumes", Count, Gauge, [Phase, DriverName, StorageClass, Cause],
        "Number of volumes that wait longer than the monitor's limit for something that does not occur by itself.";
    UNUSED_OBJECTS = "claimcheck_unused_objects", Count, Gauge, [Kind],
        "Number of attachments, volumes, mounts and finalizers that nothing uses any more, older than the limit.";
    CANARY_RUNS = "claimcheck_canary_runs_total", Count, Counter, [StorageClass, Topology, Result],
        "Number of finished runs of the monitor's canary.";
    TRACKED = "claimcheck_tracked_volumes", Count, Gauge, [],
        "Number of claims that the monitor follows.";
    LISTS_AFTER_START = "claimcheck_lists_after_start_total", Count, Counter, [Kind],
        "Number of lists of a kind after the first one: 0 unless changes were missed; of Event, those about objects that wait.";
    WATCH_RESTARTS = "claimcheck_watch_restarts_total", Count, Counter, [Kind],
        "Number of times that the watch of a kind failed and was started again.";
    ATTACH = "claimcheck_attach_total", Count, Counter, [DriverName],
        "Number of volumes attached to a node.";
    DETACH = "claimcheck_detach_total", Count, Counter, [DriverName],
        "Number of volumes detached from a node.";
    MOUNT = "claimcheck_mount_total", Count, Counter, [DriverName],
        "Number of volumes mounted into a pod.";
    UNMOUNT = "claimcheck_unmount_total", Count, Counter, [DriverName],
        "Number of volumes unmounted from a pod.";
    ATTACHED = "claimcheck_attached_volumes", Count, Gauge, [DriverName, Node],
        "Number of volumes currently attached to a node.";
    MOUNTED = "claimcheck_mounted_volumes", Count, Gauge, [DriverName, Node],
        "Number of volume mounts in pods currently on a node.";
    LEAKED = "claimcheck_leaked_objects", Count, Gauge, [Kind],
        "Number of objects, mounts and devices leaked by a case or the run.";
    VIOLATIONS = "claimcheck_csi_call_violations_total", Count, Counter, [Rule],
        "Number of CSI calls that succeeded although they were out of order or repeated.";
    RETRIES = "claimcheck_operation_retries_total", Count, Counter, [Operation],
        "Number of CSI calls retried after a failed call on the same object.";
    CASE_RESULT = "claimcheck_case_result_total", Count, Counter, [Suite, Result],
        "Number of finished cases.";
    CASE_DURATION = "claimcheck_case_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS), [Suite, Result],
        "Duration of cases.";
    CASE_FLIPS = "claimcheck_case_flips_total", Count, Counter, [Suite, Case],
        "Number of times a repeated case changed between passed and failed.";
    CAPABILITY_RESULT = "claimcheck_capability_case_result_total", Count, Counter, [Capability, Declared, Result],
        "Number of finished cases, by each driver capability that they exercise.";
    WATCH_LAG = "claimcheck_watch_lag_seconds", Seconds, Histogram(OPERATION_BUCKETS), [],
        "Staleness of claimcheck's own watches, measured with a probe object.";
    RECONCILE_DURATION = "claimcheck_reconcile_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [Controller, Result], "Duration of the reconciliation of one object; result is done or failed.";
    RESYNC_REPAIRS = "claimcheck_resync_repairs_total", Count, Counter, [Controller],
        "Number of reconciliations at a periodic resync that had something to do, since a change had woken no key: 0 unless the controller has a defect.";
    LEADER_STATUS = "leader_election_master_status", Count, Gauge, [Name],
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.";
    BUILD_INFO = "claimcheck_build_info", Count, Gauge, [Version, KubernetesVersion, ClusterKind], "Always 1.";

    PROCESS_MEMORY = "process_resident_memory_bytes", Bytes, Gauge, [], "Resident memory size in bytes.";
    PROCESS_START = "process_start_time_seconds", Seconds, Gauge, [],
        "Start time of the process since unix epoch in seconds.";

    QUEUE_DEPTH = "workqueue_depth", Count, Gauge, [Name], "Current depth of workqueue.";
    QUEUE_ADDS = "workqueue_adds_total", Count, Counter, [Name], "Total number of adds handled by workqueue.";
    QUEUE_RETRIES = "workqueue_retries_total", Count, Counter, [Name],
        "Total number of retries handled by workqueue.";
    QUEUE_LATENCY = "workqueue_queue_duration_seconds", Seconds, Histogram(QUEUE_BUCKETS), [Name],
        "How long in seconds an item stays in workqueue before being requested.";
    QUEUE_WORK = "workqueue_work_duration_seconds", Seconds, Histogram(QUEUE_BUCKETS), [Name],
        "How long in seconds processing an item from workqueue takes.";
    QUEUE_UNFINISHED = "workqueue_unfinished_work_seconds", Seconds, Gauge, [Name],
        "How many seconds of work has done that is in progress and hasn't been observed by work_duration.";
    QUEUE_LONGEST = "workqueue_longest_running_processor_seconds", Seconds, Gauge, [Name],
        "How many seconds has the longest running processor for workqueue been running.";
    REQUESTS = "rest_client_requests_total", Count, Counter, [Code, Host, Method],
        "Number of HTTP requests, partitioned by status code, method, and host.";
    REQUEST_DURATION = "rest_client_request_duration_seconds", Seconds, Histogram(REQUEST_BUCKETS), [Host, Verb],
        "Request latency in seconds. Broken down by verb, and host.";

    STORAGE_OPERATION_DURATION = "storage_operation_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [VolumePlugin, OperationName, Status, Migrated], "Storage operation duration.";
    VOLUME_OPERATION_TOTAL = "volume_operation_total_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [PluginName, OperationName], "Storage operation end to end duration in seconds.";
    VOLUME_OPERATION_ERRORS = "volume_operation_errors_total", Count, Counter, [PluginName, OperationName],
        "Total volume operation errors.";
    CSI_OPERATIONS = "csi_operations_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [DriverName, MethodName, GrpcStatusCode, Migrated],
        "Container Storage Interface operation duration with gRPC error code status total.";
    CSI_SIDECAR_OPERATIONS = "csi_sidecar_operations_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [DriverName, MethodName, GrpcStatusCode, Migrated],
        "Container Storage Interface operation duration with gRPC error code status total.";
    CSI_PLUGIN_OPERATIONS = "csi_plugin_operations_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [DriverName, MethodName, GrpcStatusCode],
        "Container Storage Interface operation duration with gRPC error code status total.";
    PROVISION_TOTAL = "controller_persistentvolumeclaim_provision_total", Count, Counter, [Class, Source],
        "Total number of persistent volumes provisioned successfully.";
    PROVISION_FAILED = "controller_persistentvolumeclaim_provision_failed_total", Count, Counter, [Class, Source],
        "Total number of persistent volume provision failed attempts.";
    PROVISION_DURATION = "controller_persistentvolumeclaim_provision_duration_seconds", Seconds,
        Histogram(PROVISION_BUCKETS), [Class, Source], "Latency in seconds to provision persistent volumes.";
    DELETE_TOTAL = "controller_persistentvolume_delete_total", Count, Counter, [Class],
        "Total number of persistent volumes deleted successfully.";
    DELETE_FAILED = "controller_persistentvolume_delete_failed_total", Count, Counter, [Class],
        "Total number of persistent volume delete failed attempts.";
    DELETE_DURATION = "controller_persistentvolume_delete_duration_seconds", Seconds,
        Histogram(PROVISION_BUCKETS), [Class], "Latency in seconds to delete persistent volumes.";
    SNAPSHOT_OPERATION = "snapshot_controller_operation_total_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [DriverName, OperationName, OperationStatus, SnapshotType],
        "Total number of seconds spent by the controller on an operation from end to end.";
    DATA_SOURCE_VALIDATIONS = "volume_data_source_validator_operation_count", Count, Counter, [Result],
        "Number of validations operations by result";
    VOLUME_MANAGER_VOLUMES = "volume_manager_total_volumes", Count, Gauge, [PluginName, State],
        "Number of volumes in Volume Manager.";
    ATTACHDETACH_VOLUMES = "attachdetach_controller_total_volumes", Count, Gauge, [PluginName, State],
        "Number of volumes in A/D Controller.";
    ATTACHABLE_IN_USE = "storage_count_attachable_volumes_in_use", Count, Gauge, [Node, VolumePlugin],
        "Measure number of volumes in use.";
    FORCED_DETACHES = "attach_detach_controller_attachdetach_controller_forced_detaches", Count, Counter, [Reason],
        "Number of times the A/D Controller performed a forced detach.";
    RECONSTRUCT_VOLUMES = "reconstruct_volume_operations_total", Count, Counter, [],
        "The number of volumes that were attempted to be reconstructed from the operating system during kubelet startup.";
    PV_TOTAL = "pv_collector_total_pv_count", Count, Gauge, [PluginName, VolumeMode],
        "Gauge measuring total number of persistent volumes.";
    PV_BOUND = "pv_collector_bound_pv_count", Count, Gauge, [StorageClass],
        "Gauge measuring number of persistent volume currently bound.";
    PV_UNBOUND = "pv_collector_unbound_pv_count", Count, Gauge, [StorageClass],
        "Gauge measuring number of persistent volume currently unbound.";
    PVC_BOUND = "pv_collector_bound_pvc_count", Count, Gauge, [Namespace, StorageClass],
        "Gauge measuring number of persistent volume claim currently bound.";
    PVC_UNBOUND = "pv_collector_unbound_pvc_count", Count, Gauge, [Namespace, StorageClass],
        "Gauge measuring number of persistent volume claim currently unbound.";
    STATS_CAPACITY = "kubelet_volume_stats_capacity_bytes", Bytes, Gauge, [Namespace, PersistentVolumeClaim],
        "Capacity in bytes of the volume.";
    STATS_AVAILABLE = "kubelet_volume_stats_available_bytes", Bytes, Gauge, [Namespace, PersistentVolumeClaim],
        "Number of available bytes in the volume.";
    STATS_USED = "kubelet_volume_stats_used_bytes", Bytes, Gauge, [Namespace, PersistentVolumeClaim],
        "Number of used bytes in the volume.";
    STATS_INODES = "kubelet_volume_stats_inodes", Count, Gauge, [Namespace, PersistentVolumeClaim],
        "Maximum number of inodes in the volume.";
    STATS_INODES_FREE = "kubelet_volume_stats_inodes_free", Count, Gauge, [Namespace, PersistentVolumeClaim],
        "Number of free inodes in the volume.";
    STATS_INODES_USED = "kubelet_volume_stats_inodes_used", Count, Gauge, [Namespace, PersistentVolumeClaim],
        "Number of used inodes in the volume.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_have_the_suffixes_of_prometheus() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is declared twice", metric.name);
            if metric.name.starts_with("claimcheck_") {
                assert_eq!(metric.kind == Counter, metric.name.ends_with("_total"), "{}", metric.name);
                assert_eq!(
                    metric.unit == Unit::Seconds,
                    metric.name.ends_with("_seconds"),
                    "{}",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn metrics_have_no_object_names_in_their_labels() {
        let objects = [Label::Namespace, Label::PersistentVolumeClaim];
        for metric in ALL.iter().filter(|m| m.name.starts_with("claimcheck_")) {
            assert!(metric.labels.iter().all(|l| !objects.contains(l)), "{}", metric.name);
        }
    }

    /// Prometheus sets these for each target, and those of `external_labels`: a series that has one keeps it as
    /// `exported_*`, or loses the other.
    #[test]
    fn no_label_is_usual_for_targets_or_clusters() {
        let usual = [
            "cluster",
            "container",
            "endpoint",
            "instance",
            "job",
            "namespace",
            "pod",
            "region",
            "replica",
            "service",
        ];
        for metric in ALL.iter().filter(|m| m.name.starts_with("claimcheck_")) {
            for label in metric.label_names() {
                assert!(!usual.contains(&label), "{label} of {}", metric.name);
                // Those of a run, which is not scraped with a label of the node that it runs on.
                assert!(
                    label != "node" || [ATTACHED.name, MOUNTED.name].contains(&metric.name),
                    "{}",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn buckets_grow() {
        for metric in ALL {
            if let Histogram(buckets) = metric.kind {
                assert!(buckets.is_sorted_by(|a, b| a < b), "{}", metric.name);
            }
        }
    }
}
