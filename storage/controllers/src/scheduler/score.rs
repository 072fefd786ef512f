//! Which of the nodes that fit has the most storage capacity for a pod's volumes: upstream's gate
//! StorageCapacityScoring, with the default shape of `VolumeBindingArgs`, by which the node with the least utilisation
//! is preferred.
//!
//! Upstream: `Score` in `pkg/scheduler/framework/plugins/volumebinding/volume_binding.go`, `scorer.go` there, and
//! `SetDefaults_VolumeBindingArgs` in `pkg/scheduler/apis/config/v1/defaults.go`.

use std::collections::BTreeMap;

use claimcheck_informer::{World, quantity};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};

use super::{late_binding, nodes::Choice, volumes::UnboundClaim};
use crate::claims::{class_name, requested};

/// The score of a node that would not be used at all.
const MAX: i64 = 100;

/// Whether nodes are compared by storage capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacityScoring {
    /// All nodes are equal.
    #[default]
    Off,
    /// As with the gate.
    On,
}

impl CapacityScoring {
    /// The score of a node for these WaitForFirstConsumer claims. A node that does not fit has the lowest.
    pub fn node_score(self, late: &[UnboundClaim<'_>], node: &Node, world: &World) -> i64 {
        match self {
            Self::On if !late.is_empty() => {
                late_binding::choose(late, node, world).map_or(0, |choice| score(&choice))
            }
            Self::On | Self::Off => 0,
        }
    }
}

/// What the volumes of one class use.
#[derive(Default)]
struct Use {
    requested: i128,
    capacity: i128,
}

impl Use {
    fn score(&self) -> i64 {
        if self.capacity == 0 || self.requested > self.capacity {
            return 0;
        }
        let utilisation = self.requested * i128::from(MAX) / self.capacity;
        // Of a value from 0 to 100.
        MAX - i64::try_from(utilisation).unwrap_or(MAX)
    }
}

/// The average of the classes. If a free volume is bound, new volumes do not count, as upstream.
fn score(choice: &Choice) -> i64 {
    let mut classes = BTreeMap::<&str, Use>::new();
    for (volume, claim) in &choice.take {
        let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let of_class = classes.entry(class.unwrap_or_default()).or_default();
        of_class.requested += i128::from(requested(claim));
        of_class.capacity += i128::from(size(volume));
    }
    if choice.take.is_empty() {
        for new in &choice.make {
            let Some(published) = &new.capacity else { continue };
            let of_class = classes.entry(class_name(&new.claim)).or_default();
            of_class.requested += i128::from(requested(&new.claim));
            // That of the segment, from which all volumes of the class are made.
            of_class.capacity =
                i128::from(published.capacity.as_ref().and_then(quantity::bytes).unwrap_or(0));
        }
    }
    let Ok(count) = i64::try_from(classes.len()) else { return 0 };
    let sum: i64 = classes.values().map(Use::score).sum();
    // Rounded, half up.
    if count == 0 { 0 } else { (2 * sum + count) / (2 * count) }
}

fn size(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).and_then(quantity::bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use claimcheck_informer::testing::{capacity, claim, volume};

    use super::*;
    use crate::scheduler::nodes::NewVolume;

    /// Each volume as class, requested size, and size of the volume.
    fn static_volumes(volumes: &[(&str, &str, &str)]) -> Choice {
        let take = volumes.iter().map(|(class, requested, size)| {
            (Arc::new(volume("v", class, size)), Arc::new(claim("c", class, requested)))
        });
        Choice { take: take.collect(), make: Vec::new() }
    }

    /// Each volume as class, requested size, and capacity of the segment; empty if none is published.
    fn new_volumes(volumes: &[(&str, &str, &str)]) -> Choice {
        let make = volumes.iter().map(|(class, requested, left)| NewVolume {
            claim: Arc::new(claim("c", class, requested)),
            capacity: (!left.is_empty()).then(|| Arc::new(capacity("k", class, "n", left))),
        });
        Choice { take: Vec::new(), make: make.collect() }
    }

    #[test]
    fn the_least_used_node_has_the_highest_score() {
        for (volumes, expected) in [
            (&[][..], 0),
            (&[("a", "10Gi", "100Gi")], 90),
            (&[("a", "100Gi", "100Gi")], 0),
            (&[("a", "1Gi", "3Gi")], 67),
            // Of one class together, and of several on average.
            (&[("a", "10Gi", "100Gi"), ("b", "40Gi", "100Gi")], 75),
            (&[("a", "10Gi", "100Gi"), ("b", "41Gi", "100Gi")], 75),
        ] {
            assert_eq!(score(&static_volumes(volumes)), expected, "free: {volumes:?}");
            assert_eq!(score(&new_volumes(volumes)), expected, "new: {volumes:?}");
        }
        let of_one_class = [("a", "20Gi", "50Gi"), ("a", "20Gi", "50Gi")];
        assert_eq!(score(&static_volumes(&of_one_class)), 60, "each has its capacity");
        assert_eq!(score(&new_volumes(&of_one_class)), 20, "all are made from one capacity");
        assert_eq!(
            score(&new_volumes(&[("a", "20Gi", "50Gi"), ("a", "40Gi", "50Gi")])),
            0,
            "too much together"
        );
        assert_eq!(score(&new_volumes(&[("a", "20Gi", "")])), 0, "nothing is published");
        assert_eq!(score(&new_volumes(&[("a", "20Gi", ""), ("b", "20Gi", "50Gi")])), 60, "it does not count");
        let mut both = new_volumes(&[("a", "49Gi", "50Gi")]);
        both.take = static_volumes(&[("b", "10Gi", "100Gi")]).take;
        assert_eq!(score(&both), 90, "new volumes do not count");
    }
}
