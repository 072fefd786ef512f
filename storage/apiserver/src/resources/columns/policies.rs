//! The columns of kinds on which no built-in controller acts.

use super::{
    super::cells::{
        Cell::{Computed, Count, Number, PathOr},
        policies as cells, workloads,
    },
    AGE, Column, NAME, column, string,
};

pub(in crate::resources) const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    string(
        "Min Available",
        Computed(|budget| cells::int_or_percent(&budget["spec"]["minAvailable"])),
        "The minimum number of pods that must be available.",
    ),
    string(
        "Max Unavailable",
        Computed(|budget| cells::int_or_percent(&budget["spec"]["maxUnavailable"])),
        "The maximum number of pods that may be unavailable.",
    ),
    column(
        "Allowed Disruptions",
        "integer",
        Number("/status/disruptionsAllowed"),
        "Calculated number of pods that may be disrupted at this time.",
    ),
    AGE,
];

pub(in crate::resources) const NETWORK_POLICY: &[Column] = &[
    NAME,
    string(
        "Pod-Selector",
        Computed(|policy| workloads::format_selector(&policy["spec"]["podSelector"])),
        "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
    ),
    AGE,
];

pub(in crate::resources) const INGRESS: &[Column] = &[
    NAME,
    string(
        "Class",
        PathOr("/spec/ingressClassName", "<none>"),
        "The name of the IngressClass resource that should be used for additional configuration",
    ),
    string(
        "Hosts",
        Computed(cells::hosts),
        "Hosts that incoming requests are matched against before the ingress rule",
    ),
    string(
        "Address",
        Computed(cells::address),
        "Address is a list containing ingress points for the load-balancer",
    ),
    string("Ports", Computed(cells::ingress_ports), "Ports of TLS configurations that open"),
    AGE,
];

pub(in crate::resources) const QUOTA: &[Column] = &[
    NAME,
    string(
        "Request",
        Computed(|quota| cells::quota(quota, false)),
        "Request represents a minimum amount of cpu/memory that a container may consume.",
    ),
    string(
        "Limit",
        Computed(|quota| cells::quota(quota, true)),
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
    ),
    AGE,
];

pub(in crate::resources) const ENDPOINTS: &[Column] = &[
    NAME,
    string(
        "Endpoints",
        Computed(cells::endpoints),
        "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the IPs they share. A single address with multiple ports, some of which are ready and some of which are not (because they come from different containers) will result in the address being displayed in different subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service.",
    ),
    AGE,
];

pub(in crate::resources) const WEBHOOKS: &[Column] = &[
    NAME,
    column(
        "Webhooks",
        "integer",
        Count(&["/webhooks"]),
        "Webhooks indicates the number of webhooks registered in this configuration",
    ),
    AGE,
];
