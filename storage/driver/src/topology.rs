//! Topology: segments of the cluster, each with its own capacity.
//!
//! A node's segment is set on its driver's command line. A volume belongs to one segment from its creation on
//! and is rejected on nodes of others, as a disk of one zone would be. (All nodes see the state directory, so
//! only the rejection makes it so.)

use std::{collections::BTreeMap, fmt};

use claimcheck_csi::v1::{Topology, TopologyRequirement};
use serde::{Deserialize, Serialize};

use crate::{driver::Driver, error::Result, volume::VolumeId};

/// Keys and values of a segment; empty for a driver without topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Segment(BTreeMap<String, String>);

impl Segment {
    /// The segment with these keys and values.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Whether the driver has no topology.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of `term` matches this segment. The empty term matches every segment.
    fn lies_in(&self, term: &Topology) -> bool {
        term.segments.iter().all(|(key, value)| self.0.get(key) == Some(value))
    }

    /// The protocol's form; `None` for a driver without topology.
    pub fn to_csi(&self) -> Option<Topology> {
        (!self.is_empty()).then(|| Topology { segments: self.0.clone() })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}={value}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The segments that satisfy a requirement, the preferred ones first and each once. Without a requirement all
/// do, `own` first: all are permitted, and the caller's is the likeliest to be used.
///
/// CSI specification, `TopologyRequirement`: requisite is the constraint, preferred the order of preference
/// within it.
pub fn admitted(requirement: Option<&TopologyRequirement>, known: &[Segment], own: &Segment) -> Vec<Segment> {
    let Some(requirement) = requirement else {
        let others = known.iter().filter(|segment| *segment != own);
        return [own].into_iter().chain(others).cloned().collect();
    };
    let TopologyRequirement { requisite, preferred } = requirement;
    let allowed =
        |segment: &Segment| requisite.is_empty() || requisite.iter().any(|term| segment.lies_in(term));
    let mut found: Vec<Segment> = Vec::new();
    for term in preferred.iter().chain(requisite) {
        for segment in known.iter().filter(|segment| segment.lies_in(term) && allowed(segment)) {
            if !found.contains(segment) {
                found.push(segment.clone());
            }
        }
    }
    found
}

impl Driver {
    /// The segments of all nodes that ever ran a driver, each once and in order.
    pub(crate) fn segments(&self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for node in self.store.nodes()? {
            segments.extend(self.store.node(&node)?.map(|node| node.topology));
        }
        segments.sort();
        segments.dedup();
        Ok(segments)
    }

    /// Bytes that a segment has left for new volumes; `None` if the driver has no `--capacity`. Reads every
    /// record, so that nothing can be lost or counted twice; only drivers with a capacity pay the cost.
    pub(crate) fn room_in(&self, segment: &Segment) -> Result<Option<u64>> {
        let Some(total) = self.config.capacity_bytes else { return Ok(None) };
        let mut used = 0u64;
        for id in self.store.ids::<VolumeId>()? {
            if let Some(volume) = self.store.load(&id)?.filter(|volume| volume.topology == *segment) {
                used = used.saturating_add(volume.capacity_bytes);
            }
        }
        Ok(Some(total.saturating_sub(used)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Segment {
        Segment::new([("zone".to_owned(), name.to_owned())])
    }

    fn term(pairs: &[(&str, &str)]) -> Topology {
        Topology { segments: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect() }
    }

    #[test]
    fn requirements_choose_among_known_segments() {
        let known = [zone("a"), zone("b"), zone("c")];
        let of = |names: &[&str]| names.iter().map(|name| term(&[("zone", name)])).collect::<Vec<_>>();
        // (requisite, preferred, segments in order)
        let table: [(&[&str], &[&str], &[&str]); 6] = [
            (&["a", "b"], &[], &["a", "b"]),
            (&["a", "b"], &["b", "a"], &["b", "a"]),
            (&["a", "b"], &["b"], &["b", "a"]),
            (&["a"], &["c", "a"], &["a"]),
            (&[], &["c"], &["c"]),
            (&["nowhere"], &[], &[]),
        ];
        for (requisite, preferred, expected) in table {
            let requirement = TopologyRequirement { requisite: of(requisite), preferred: of(preferred) };
            let found = admitted(Some(&requirement), &known, &known[0]);
            assert_eq!(found, expected.iter().map(|name| zone(name)).collect::<Vec<_>>(), "{requirement:?}");
        }
        assert_eq!(admitted(None, &known, &known[1]), [zone("b"), zone("a"), zone("c")]);
        let other_key = TopologyRequirement { requisite: vec![term(&[("rack", "a")])], preferred: vec![] };
        assert_eq!(admitted(Some(&other_key), &known, &known[0]), []);
    }

    #[test]
    fn reads_well() {
        let segment =
            Segment::new([("zone".to_owned(), "a".to_owned()), ("rack".to_owned(), "1".to_owned())]);
        assert_eq!(segment.to_string(), "rack=1,zone=a");
        assert_eq!(Segment::default().to_csi(), None);
    }
}
