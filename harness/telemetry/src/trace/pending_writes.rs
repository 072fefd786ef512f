//! Associates API writes with volumes: objects reference each other, and each write belongs to an object.
//!
//! ```text
//! claim <── pods that use it, volume <── attachments
//! ```
//!
//! Resolved when a volume has been deleted: components report their writes in no order, and a write that binds a pod
//! does not contain its spec. Pure.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{ApiWrite, LifecycleObject, Stamp};

/// The maximum number of objects; beyond it the oldest is dropped, so that memory is bounded in long loads.
const OBJECTS: usize = 100_000;
/// The maximum number of writes per object: of a write that is retried for hours the first ones are kept.
const WRITES: usize = 1000;

/// The writes that are not part of a trace yet.
#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    writes: BTreeMap<LifecycleObject, Vec<ApiWrite>>,
    /// For each object, those that refer to it.
    referrers: BTreeMap<LifecycleObject, BTreeSet<LifecycleObject>>,
}

impl PendingWrites {
    /// Records a write.
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

    /// Removes and returns the writes of these objects and of those that refer to them, in order of time, if they
    /// began by `end`: later ones belong to an object of the same name. A pod with other claims keeps its writes for
    /// these.
    pub fn take(
        &mut self,
        roots: impl IntoIterator<Item = LifecycleObject>,
        end: Option<Stamp>,
    ) -> Vec<ApiWrite> {
        let mut todo: Vec<LifecycleObject> = roots.into_iter().collect();
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
            let is_expected =
                others.filter_map(|other| self.referrers.get(other)).any(|by| by.contains(object));
            for write in &later {
                for target in write.refers_to.iter().flatten() {
                    self.referrers.entry(target.clone()).or_default().insert(object.clone());
                }
            }
            let rest = if is_expected { its.iter().cloned().chain(later).collect() } else { later };
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
    use claimcheck_model::{LifecycleObjectKind, ObjectKey};

    use super::*;

    fn object(kind: LifecycleObjectKind, name: &str) -> LifecycleObject {
        LifecycleObject { kind, key: ObjectKey::cluster(name) }
    }

    fn claim(name: &str) -> LifecycleObject {
        object(LifecycleObjectKind::Claim, name)
    }

    fn stamp(at: u64) -> Stamp {
        Stamp { mono_ns: at, wall_ns: at }
    }

    fn write(object: &LifecycleObject, at: u64, refers_to: Option<&[LifecycleObject]>) -> ApiWrite {
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
    fn a_lifecycle_collects_all_referring_writes_in_any_order() {
        let (volume, attachment) =
            (object(LifecycleObjectKind::Volume, "v"), object(LifecycleObjectKind::Attachment, "a"));
        let pod = object(LifecycleObjectKind::Pod, "p");
        let events = [
            // A binding does not contain the pod, and is reported before the creation of the pod.
            write(&pod, 4, None),
            write(&attachment, 5, Some(std::slice::from_ref(&volume))),
            write(&pod, 3, Some(&[claim("c")])),
            write(&volume, 2, Some(&[claim("c")])),
            write(&claim("c"), 1, Some(&[])),
            write(&claim("other"), 1, Some(&[])),
            write(&object(LifecycleObjectKind::Pod, "other"), 1, Some(&[claim("other")])),
        ];
        let mut orders = vec![events.to_vec()];
        orders.push(events.iter().rev().cloned().collect());
        for order in orders {
            let mut pending = PendingWrites::default();
            order.iter().for_each(|write| pending.enter(write));
            assert_eq!(starts(&pending.take([claim("c")], None)), [1, 2, 3, 4, 5]);
            assert_eq!(starts(&pending.take([claim("c")], None)), [0; 0]);
            assert_eq!(pending.take([claim("other")], None).len(), 2);
            assert!(pending.writes.is_empty() && pending.referrers.is_empty(), "{pending:?}");
        }
    }

    #[test]
    fn a_write_to_a_pod_of_two_claims_belongs_to_both() {
        let pod = object(LifecycleObjectKind::Pod, "p");
        let mut pending = PendingWrites::default();
        pending.enter(&write(&pod, 1, Some(&[claim("a"), claim("b")])));
        pending.enter(&write(&pod, 2, None));
        assert_eq!(starts(&pending.take([claim("a")], Some(stamp(9)))), [1, 2]);
        assert_eq!(starts(&pending.take([claim("b")], Some(stamp(9)))), [1, 2]);
        assert!(pending.writes.is_empty() && pending.referrers.is_empty(), "{pending:?}");
    }

    #[test]
    fn a_namesake_that_came_later_keeps_its_writes() {
        let pod = object(LifecycleObjectKind::Pod, "p");
        let mut pending = PendingWrites::default();
        for at in [1, 5] {
            pending.enter(&write(&claim("c"), at, Some(&[])));
            pending.enter(&write(&pod, at + 1, Some(&[claim("c")])));
        }
        assert_eq!(starts(&pending.take([claim("c")], Some(stamp(4)))), [1, 2]);
        assert_eq!(starts(&pending.take([claim("c")], Some(stamp(8)))), [5, 6]);
    }
}
