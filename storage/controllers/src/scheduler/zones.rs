//! The zone and region labels of volumes, which provisioners of the time before node affinity wrote: a node must have
//! the same ones.
//!
//! Upstream: `pkg/scheduler/framework/plugins/volumezone/volume_zone.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

const LABELS: [&str; 4] = [BETA_ZONE, BETA_REGION, ZONE, REGION];

/// Separates the zones of a volume that is in several (`LabelMultiZoneDelimiter`).
const DELIMITER: &str = "__";

/// The zone and region labels of a volume.
pub fn of(volume: &PersistentVolume) -> impl Iterator<Item = (&'static str, &str)> {
    let labels = volume.metadata.labels.as_ref();
    LABELS.into_iter().filter_map(move |key| Some((key, labels?.get(key)?.as_str())))
}

/// Whether the node is in the volume's zone and region. A node without any of the labels is in all of them, and a
/// malformed label of a volume is ignored.
pub fn matches(volume: &PersistentVolume, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let has = node.metadata.labels.as_ref().unwrap_or(&empty);
    if !LABELS.iter().any(|key| has.contains_key(*key)) {
        return true;
    }
    of(volume).all(|(key, zones)| {
        let zones: Vec<&str> = zones.split(DELIMITER).map(str::trim).collect();
        let node = has.get(key).or_else(|| has.get(stable(key)));
        zones.contains(&"") || node.is_some_and(|node| zones.contains(&node.as_str()))
    })
}

/// The label that replaced a beta one; others stay.
fn stable(label: &'static str) -> &'static str {
    match label {
        BETA_ZONE => ZONE,
        BETA_REGION => REGION,
        label => label,
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{node, volume};

    use super::*;

    #[test]
    fn a_node_is_in_the_zone_of_a_volume() {
        type Labels = &'static [(&'static str, &'static str)];
        let cases: [(Labels, Labels, bool); 9] = [
            (&[], &[(ZONE, "a")], true),
            (&[(ZONE, "a")], &[], true),
            (&[(ZONE, "a")], &[(ZONE, "a")], true),
            (&[(ZONE, "a")], &[(ZONE, "b")], false),
            (&[(ZONE, "a")], &[(REGION, "r")], false),
            (&[(ZONE, "a"), (REGION, "r")], &[(ZONE, "a"), (REGION, "s")], false),
            (&[(ZONE, "a__b")], &[(ZONE, "b")], true),
            (&[(ZONE, "a__")], &[(ZONE, "b")], true),
            (&[(BETA_ZONE, "a")], &[(ZONE, "a")], true),
        ];
        for (of_volume, of_node, expected) in cases {
            let labels = |labels: &[(&str, &str)]| {
                Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
            };
            let (mut volume, mut node) = (volume("v", "fast", "1Gi"), node("n1"));
            (volume.metadata.labels, node.metadata.labels) = (labels(of_volume), labels(of_node));
            assert_eq!(matches(&volume, &node), expected, "{of_volume:?} {of_node:?}");
        }
    }
}
