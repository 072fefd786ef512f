//! Which writes belong to which volume: objects name each other, and a write is of an object.
//!
//! ```text
//! claim <── pods that use it, volume <── attachments
//! ```
//!
//! Sorted out when a volume's life has ended: components tell their writes in no order, and one that binds a pod
//! does not show what is in it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{ApiWrite, Stamp, Written};

/// So many objects are kept; beyond it the first is let go, so that a long load does not grow.
const OBJECTS: usize = 100_000;
/// So many writes of one object are kept: one that is retried for hours is told by its first.
const WRITES: usize = 1000;

/// The writes that no trace has taken yet.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    writes: BTreeMap<Written, Vec<ApiWrite>>,
    /// By an object, those that refer to it.
    referrers: BTreeMap<Written, BTreeSet<Written>>,
}

impl Ledger {
    /// Enters a write.
    pub fn enter(&mut self, write: &ApiWrite) {
        for target in write.refers_to.iter().flatten() {
            self.referrers.entry(target.clone()).or_default().insert(write.object.clone());
        }
        let of_object = self.writes.entry(write.object.clone()).or_default();
        if of_object.len() < WRITES {
            of_object.push(write.clone());
        }
        if self.writes.len() > OBJECTS {
            self.writes.pop_first();
        }
        if self.referrers.len() > OBJECTS {
            self.referrers.pop_first();
        }
    }

    /// Takes what was written of these objects and of those that refer to them, in the order of time, as far as it
    /// began by `end`: what came later is about a namesake. A pod with further claims keeps its writes for these.
    pub fn take(&mut self, roots: impl IntoIterator<Item = Written>, end: Option<Stamp>) -> Vec<ApiWrite> {
        let mut todo: Vec<Written> = roots.into_iter().collect();
        let mut objects = BTreeSet::new();
        while let Some(object) = todo.pop() {
            todo.extend(self.referrers.remove(&object).unwrap_or_default());
            objects.insert(object);
        }
        let mut taken = Vec::new();
        for object in &objects {
            let Some(writes) = self.writes.remove(object) else { continue };
            let (its, later): (Vec<_>, Vec<_>) =
                writes.into_iter().partition(|write| end.is_none_or(|end| write.start <= end));
            let others = its.iter().chain(&later).flat_map(|write| write.refers_to.iter().flatten());
            let is_wanted =
                others.filter_map(|other| self.referrers.get(other)).any(|by| by.contains(object));
            for write in &later {
                for target in write.refers_to.iter().flatten() {
                    self.referrers.entry(target.clone()).or_default().insert(object.clone());
                }
            }
            let rest = if is_wanted { its.iter().cloned().chain(later).collect() } else { later };
            if !rest.is_empty() {
                self.writes.insert(object.clone(), rest);
            }
            taken.extend(its);
        }
        taken.sort_by_key(|write| write.start);
        taken
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{ObjectKey, WrittenKind};

    use super::*;

    fn object(kind: WrittenKind, name: &str) -> Written {
        Written { kind, key: ObjectKey::cluster(name) }
    }

    fn claim(name: &str) -> Written {
        object(WrittenKind::Claim, name)
    }

    fn stamp(at: u64) -> Stamp {
        Stamp { mono_ns: at, wall_ns: at }
    }

    fn write(object: &Written, at: u64, refers_to: Option<&[Written]>) -> ApiWrite {
        ApiWrite {
            agent: "a".into(),
            verb: "patch".into(),
            object: object.clone(),
            subresource: String::new(),
            refers_to: refers_to.map(<[_]>::to_vec),
            code: 200,
            start: stamp(at),
            seconds: 0.0,
        }
    }

    fn starts(writes: &[ApiWrite]) -> Vec<u64> {
        writes.iter().map(|write| write.start.mono_ns).collect()
    }

    #[test]
    fn a_life_takes_all_that_refers_to_it_in_whatever_order_it_is_told() {
        let (volume, attachment) = (object(WrittenKind::Volume, "v"), object(WrittenKind::Attachment, "a"));
        let pod = object(WrittenKind::Pod, "p");
        let told = [
            // A binding does not show the pod, and is told before the one who made the pod tells of it.
            write(&pod, 4, None),
            write(&attachment, 5, Some(std::slice::from_ref(&volume))),
            write(&pod, 3, Some(&[claim("c")])),
            write(&volume, 2, Some(&[claim("c")])),
            write(&claim("c"), 1, Some(&[])),
            write(&claim("other"), 1, Some(&[])),
            write(&object(WrittenKind::Pod, "other"), 1, Some(&[claim("other")])),
        ];
        let mut orders = vec![told.to_vec()];
        orders.push(told.iter().rev().cloned().collect());
        for order in orders {
            let mut ledger = Ledger::default();
            order.iter().for_each(|write| ledger.enter(write));
            assert_eq!(starts(&ledger.take([claim("c")], None)), [1, 2, 3, 4, 5]);
            assert_eq!(starts(&ledger.take([claim("c")], None)), [0; 0]);
            assert_eq!(ledger.take([claim("other")], None).len(), 2);
            assert!(ledger.writes.is_empty() && ledger.referrers.is_empty(), "{ledger:?}");
        }
    }

    #[test]
    fn a_pod_of_two_claims_is_told_of_both() {
        let pod = object(WrittenKind::Pod, "p");
        let mut ledger = Ledger::default();
        ledger.enter(&write(&pod, 1, Some(&[claim("a"), claim("b")])));
        ledger.enter(&write(&pod, 2, None));
        assert_eq!(starts(&ledger.take([claim("a")], Some(stamp(9)))), [1, 2]);
        assert_eq!(starts(&ledger.take([claim("b")], Some(stamp(9)))), [1, 2]);
        assert!(ledger.writes.is_empty() && ledger.referrers.is_empty(), "{ledger:?}");
    }

    #[test]
    fn a_namesake_that_came_later_keeps_its_writes() {
        let pod = object(WrittenKind::Pod, "p");
        let mut ledger = Ledger::default();
        for at in [1, 5] {
            ledger.enter(&write(&claim("c"), at, Some(&[])));
            ledger.enter(&write(&pod, at + 1, Some(&[claim("c")])));
        }
        assert_eq!(starts(&ledger.take([claim("c")], Some(stamp(4)))), [1, 2]);
        assert_eq!(starts(&ledger.take([claim("c")], Some(stamp(8)))), [5, 6]);
    }
}
