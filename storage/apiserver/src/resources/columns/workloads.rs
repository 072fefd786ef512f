//! The columns of workloads and bindings of roles.

use super::{
    super::cells::{
        Cell::{Computed, Count, Number, PathOr},
        workloads as cells,
    },
    AGE, Column, NAME, column, string, wide,
};

const CONTAINERS: Column =
    wide("Containers", Computed(cells::containers), "Names of each container in the template.");
const IMAGES: Column =
    wide("Images", Computed(cells::images), "Images referenced by each container in the template.");

pub(in crate::resources) const DAEMON_SET: &[Column] = &[
    NAME,
    column(
        "Desired",
        "integer",
        Number("/status/desiredNumberScheduled"),
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    column(
        "Current",
        "integer",
        Number("/status/currentNumberScheduled"),
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    column(
        "Ready",
        "integer",
        Number("/status/numberReady"),
        "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod running with a Ready Condition.",
    ),
    column(
        "Up-to-date",
        "integer",
        Number("/status/updatedNumberScheduled"),
        "The total number of nodes that are running updated daemon pod",
    ),
    column(
        "Available",
        "integer",
        Number("/status/numberAvailable"),
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)",
    ),
    string(
        "Node Selector",
        Computed(cells::node_selector),
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::selector),
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const DEPLOYMENT: &[Column] = &[
    NAME,
    string("Ready", Computed(cells::ready_replicas), "Number of the pod with ready state"),
    string(
        "Up-to-date",
        Number("/status/updatedReplicas"),
        "Total number of non-terminating pods targeted by this deployment that have the desired template spec.",
    ),
    string(
        "Available",
        Number("/status/availableReplicas"),
        "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::selector),
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment. It must match the pod template's labels.",
    ),
];

pub(in crate::resources) const REPLICA_SET: &[Column] = &[
    NAME,
    column(
        "Desired",
        "integer",
        Number("/spec/replicas"),
        "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    column(
        "Current",
        "integer",
        Number("/status/replicas"),
        "Replicas is the most recently observed number of non-terminating pods. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    column(
        "Ready",
        "integer",
        Number("/status/readyReplicas"),
        "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::label_selector),
        "Selector is a label query over pods that should match the replica count. Label keys and values that must match in order to be controlled by this replica set. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const STATEFUL_SET: &[Column] = &[
    NAME,
    string("Ready", Computed(cells::ready_replicas), "Number of the pod with ready state"),
    AGE,
    CONTAINERS,
    IMAGES,
];

pub(in crate::resources) const REVISION: &[Column] = &[
    NAME,
    string("Controller", Computed(cells::controller), "Controller of the object"),
    string(
        "Revision",
        Number("/revision"),
        "Revision indicates the revision of the state represented by Data.",
    ),
    AGE,
];

pub(in crate::resources) const JOB: &[Column] = &[
    NAME,
    string("Status", Computed(cells::job_status), "Status of the job."),
    string(
        "Completions",
        Computed(cells::completions),
        "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. However, it may decrease in reaction to scale down of elastic indexed jobs.",
    ),
    string("Duration", Computed(cells::job_duration), "Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(cells::label_selector),
        "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const CRON_JOB: &[Column] = &[
    NAME,
    string(
        "Schedule",
        PathOr("/spec/schedule", ""),
        "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron.",
    ),
    string(
        "Timezone",
        PathOr("/spec/timeZone", "<none>"),
        "The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset is loaded from the system-wide time zone database by the API server during CronJob validation and the controller manager during execution. If no system-wide time zone database can be found a bundled version of the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due to a change in host configuration, the controller will stop creating new new Jobs and will create a system event with the reason UnknownTimeZone. More information can be found in https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
    ),
    column(
        "Suspend",
        "boolean",
        Computed(cells::suspended),
        "This flag tells the controller to suspend subsequent executions, it does not apply to already started executions.  Defaults to false.",
    ),
    column("Active", "integer", Count(&["/status/active"]), "A list of pointers to currently running jobs."),
    string(
        "Last Schedule",
        Computed(cells::last_schedule),
        "Information when was the last time the job was successfully scheduled.",
    ),
    AGE,
    Column { cell: Computed(|job| cells::containers(&job["spec"]["jobTemplate"])), ..CONTAINERS },
    Column { cell: Computed(|job| cells::images(&job["spec"]["jobTemplate"])), ..IMAGES },
    wide(
        "Selector",
        Computed(|job| cells::label_selector(&job["spec"]["jobTemplate"])),
        "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Computed(cells::role),
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", Computed(cells::users), "Users in the clusterRoleBinding"),
    wide("Groups", Computed(cells::groups), "Groups in the clusterRoleBinding"),
    wide("ServiceAccounts", Computed(cells::service_accounts), "ServiceAccounts in the clusterRoleBinding"),
];

pub(in crate::resources) const ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Computed(cells::role),
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", Computed(cells::users), "Users in the roleBinding"),
    wide("Groups", Computed(cells::groups), "Groups in the roleBinding"),
    wide("ServiceAccounts", Computed(cells::service_accounts), "ServiceAccounts in the roleBinding"),
];

pub(in crate::resources) const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    column(
        "Desired",
        "integer",
        Number("/spec/replicas"),
        "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    column(
        "Current",
        "integer",
        Number("/status/replicas"),
        "Replicas is the most recently observed number of replicas. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    column(
        "Ready",
        "integer",
        Number("/status/readyReplicas"),
        "The number of ready replicas for this replication controller.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        Computed(|controller| cells::format_labels(&controller["spec"]["selector"])),
        "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is defaulted to the labels present on the Pod template. Label keys and values that must match in order to be controlled by this replication controller, if empty defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

pub(in crate::resources) const POD_TEMPLATE: &[Column] = &[
    NAME,
    string(
        "Containers",
        Computed(|template| cells::of_template(&template["template"], "name")),
        "Names of each container in the template.",
    ),
    string(
        "Images",
        Computed(|template| cells::of_template(&template["template"], "image")),
        "Images referenced by each container in the template.",
    ),
    string(
        "Pod Labels",
        Computed(|template| cells::format_labels(&template["template"]["metadata"]["labels"])),
        "The labels for the pod template.",
    ),
];

pub(in crate::resources) const AUTOSCALER: &[Column] = &[
    NAME,
    string(
        "Reference",
        Computed(cells::scale_target),
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be collected, as well as to actually change the replica count.",
    ),
    string(
        "Targets",
        Computed(cells::metrics),
        "metrics contains the specifications for which to use to calculate the desired replica count (the maximum replica count across all metrics will be used).  The desired replica count is calculated multiplying the ratio between the target value and the current value by the current number of pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for more information about how each type of metric must respond. If not set, the default metric will be set to 80% average CPU utilization.",
    ),
    string(
        "MinPods",
        Computed(cells::least_replicas),
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  Scaling is active as long as at least one metric value is available.",
    ),
    string(
        "MaxPods",
        Number("/spec/maxReplicas"),
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot be less that minReplicas.",
    ),
    string(
        "Replicas",
        Number("/status/currentReplicas"),
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the autoscaler.",
    ),
    AGE,
];
