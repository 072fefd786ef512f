//! Every metric that any component exports: name, unit, help, labels and buckets, declared once.
//!
//! Names without the `claimcheck_` prefix are Kubernetes' own, with the labels that its components use,
//! so that existing dashboards and alerts work over our controllers, node and driver. No object's name is
//! ever a label of a `claimcheck_*` metric.

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
}

/// How a metric is collected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution over these upper bounds.
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
    /// How it is collected.
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
        /// A label of a metric; there are no others.
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
    /// [`crate::ClusterKind::name`].
    Cluster = "cluster";
    /// [`crate::Source::name`], or upstream's source of a claim's data.
    Source = "source";
    /// `ok`, `aborted`, `unobserved` of a phase; `passed`, `failed`, `skipped` of a case.
    Result = "result";
    /// A node: of a cluster's few, and upstream has it too.
    Node = "node";
    /// [`crate::LeakKind::name`].
    Kind = "kind";
    /// [`crate::Rule::name`].
    Rule = "rule";
    /// A bare CSI method.
    Operation = "operation";
    /// A suite of the catalogue.
    Suite = "suite";
    /// A case of the catalogue, with its pattern: of a few hundred.
    Case = "case";
    /// [`crate::Capability::name`].
    Capability = "capability";
    /// `yes`, `no`, or `unknown` where neither driver nor driver file says.
    Declared = "declared";
    /// The version of claimcheck.
    Version = "version";
    /// What the API server says it is.
    KubernetesVersion = "kubernetes_version";
    /// Upstream: `kubernetes.io/csi:<driver>`.
    VolumePlugin = "volume_plugin";
    /// Upstream: the other spelling of the plugin.
    PluginName = "plugin_name";
    /// Upstream: what is done with a volume.
    OperationName = "operation_name";
    /// Upstream: `success` or `fail-unknown`.
    Status = "status";
    /// Upstream: of an in-tree plugin served by CSI; `false` here.
    Migrated = "migrated";
    /// Upstream: the whole gRPC path.
    MethodName = "method_name";
    /// Upstream: `OK`, `Aborted`, ...
    GrpcStatusCode = "grpc_status_code";
    /// Upstream: a storage class.
    Class = "class";
    /// Upstream: outcome of a snapshot operation.
    OperationStatus = "operation_status";
    /// Upstream: `dynamic` or `pre-provisioned`.
    SnapshotType = "snapshot_type";
    /// Upstream: `actual_state_of_world` or `desired_state_of_world`.
    State = "state";
    /// Upstream: why a detach was forced.
    Reason = "reason";
    /// A controller of ours: of a handful.
    Controller = "controller";
    /// Upstream: the lease that is led, or the queue that is worked on.
    Name = "name";
    /// Upstream of rest_client_*: the API server.
    Host = "host";
    /// Upstream of rest_client_*: what is done with an object.
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

/// Upstream's buckets of storage operations (`pkg/volume/util/metrics.go`), with ours below them: stock
/// Kubernetes never needs to tell 1 ms from 50 ms.
pub const OPERATION_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0,
    300.0, 600.0,
];

/// Prometheus' default buckets, which sig-storage-lib-external-provisioner uses, with ours below them.
pub const PROVISION_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// client-go's buckets of requests (`component-base/metrics/prometheus/restclient`), with ours below them.
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
        [Phase, DriverName, StorageClass, VolumeMode, Cluster, Source, Result],
        "How long each phase of a volume's life took; result ok only where start and end were seen.";
    PHASE_OVERHEAD = "claimcheck_phase_overhead_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [Phase, DriverName, Cluster],
        "How long each phase took without the time in which the driver worked.";
    ATTACH = "claimcheck_attach_total", Count, Counter, [DriverName], "Volumes that became attached to a node.";
    DETACH = "claimcheck_detach_total", Count, Counter, [DriverName], "Volumes that became detached from a node.";
    MOUNT = "claimcheck_mount_total", Count, Counter, [DriverName], "Volumes that became mounted in a pod.";
    UNMOUNT = "claimcheck_unmount_total", Count, Counter, [DriverName], "Volumes that were unmounted from a pod.";
    ATTACHED = "claimcheck_attached_volumes", Count, Gauge, [DriverName, Node], "Volumes attached to a node now.";
    MOUNTED = "claimcheck_mounted_volumes", Count, Gauge, [DriverName, Node], "Mounts of volumes in pods of a node now.";
    LEAKED = "claimcheck_leaked_objects", Count, Gauge, [Kind], "Things that a case or the run left behind.";
    VIOLATIONS = "claimcheck_csi_call_violations_total", Count, Counter, [Rule],
        "CSI calls that succeeded out of order, or twice.";
    RETRIES = "claimcheck_operation_retries_total", Count, Counter, [Operation],
        "CSI calls whose predecessor on the same object failed.";
    CASE_RESULT = "claimcheck_case_result_total", Count, Counter, [Suite, Result], "Cases that ended.";
    CASE_DURATION = "claimcheck_case_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS), [Suite, Result],
        "How long cases ran.";
    CASE_FLIPS = "claimcheck_case_flips_total", Count, Counter, [Suite, Case],
        "How often a repeated case passed after it had failed, or failed after it had passed.";
    CAPABILITY_RESULT = "claimcheck_capability_case_result_total", Count, Counter, [Capability, Declared, Result],
        "Cases that ended, under each capability of the driver that they exercise.";
    WATCH_LAG = "claimcheck_watch_lag_seconds", Seconds, Histogram(OPERATION_BUCKETS), [],
        "How stale our own observation is, measured with a probe object.";
    RECONCILE_DURATION = "claimcheck_reconcile_duration_seconds", Seconds, Histogram(OPERATION_BUCKETS),
        [Controller, Result], "How long controllers took to reconcile one object; result done or failed.";
    LEADER_STATUS = "leader_election_master_status", Count, Gauge, [Name],
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.";
    BUILD_INFO = "claimcheck_build_info", Count, Gauge, [Version, KubernetesVersion, Cluster], "Always 1.";

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
    fn names_are_unique_and_end_as_prometheus_wants() {
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
    fn our_metrics_have_no_objects_in_their_labels() {
        let objects = [Label::Namespace, Label::PersistentVolumeClaim];
        for metric in ALL.iter().filter(|m| m.name.starts_with("claimcheck_")) {
            assert!(metric.labels.iter().all(|l| !objects.contains(l)), "{}", metric.name);
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
