//! Durations of the operations of snapshots and groups. Upstream: external-snapshotter `pkg/metrics/metrics.go` and
//! `metrics_group.go`.

use std::time::Duration;

use claimcheck_informer::{Cached, Change, World};
use claimcheck_model::{Meter, metric::SNAPSHOT_OPERATION};

use super::{
    content::{Class as _, Content},
    object::Object,
};
use crate::{claims::is_deleting, under_way::UnderWay};

/// Measured operations. All begin when the controller first sees the request for the snapshot or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Until the driver has created it.
    Create,
    /// Until claims can be provisioned from it.
    CreateAndReady,
    /// Until it is deleted.
    Delete,
}

/// Measures snapshots or groups, identified by their uid.
pub struct Measured {
    meter: Meter,
    under_way: UnderWay<(Operation, String)>,
}

impl Measured {
    /// Records with this meter.
    pub fn new(meter: Meter) -> Self {
        Self { meter, under_way: UnderWay::default() }
    }

    /// Operations that begin, and those that end since an object was deleted. `world` includes the change. A creation
    /// ends as cancelled with the object, as upstream's `RecordVolumeGroupSnapshotMetrics` intends for groups, too,
    /// although its controller calls `RecordMetrics`, which does so for snapshots alone.
    pub fn changed<K: Object>(&self, change: &Change, world: &World) {
        match change.both::<K>() {
            (None, Some(new)) if !new.status().is_some_and(K::is_created) => {
                for operation in [Operation::Create, Operation::CreateAndReady] {
                    self.under_way.begin((operation, uid(&**new)));
                }
            }
            (Some(old), Some(new)) => {
                if !is_deleting(&**old) && is_deleting(&**new) {
                    self.under_way.begin((Operation::Delete, uid(&**new)));
                }
            }
            (Some(deleted), None) => {
                self.end(Operation::Delete, &**deleted, world, "success");
                for operation in [Operation::Create, Operation::CreateAndReady] {
                    self.end(operation, &**deleted, world, "cancel");
                }
            }
            (None, _) => {}
        }
    }

    /// A status is written.
    pub fn reported<K: Object>(&self, object: &K, status: &K::Status, world: &World) {
        if K::is_created(status) {
            self.end(Operation::Create, object, world, "success");
        }
        if K::is_ready(status) {
            self.end(Operation::CreateAndReady, object, world, "success");
        }
    }

    fn end<K: Object>(&self, operation: Operation, object: &K, world: &World, status: &str) {
        if let Some(took) = self.under_way.end(&(operation, uid(object))) {
            self.record(operation, object, world, status, took);
        }
    }

    fn record<K: Object>(&self, operation: Operation, of: &K, world: &World, status: &str, took: Duration) {
        // Without a driver there is no row; upstream has `unknown`, or the driver that it knew at the beginning.
        let Some(driver) = driver(of, world) else { return };
        let kind = if of.requested_content().is_some() { "pre-provisioned" } else { "dynamic" };
        let camel = K::Content::WORDS.camel;
        let name = match operation {
            Operation::Create => format!("Create{camel}"),
            Operation::CreateAndReady => format!("Create{camel}AndReady"),
            Operation::Delete => format!("Delete{camel}"),
        };
        let labels = [driver, &name, status, kind];
        self.meter.record(&SNAPSHOT_OPERATION, &labels, took.as_secs_f64());
    }
}

/// The driver of its content, or else of its class.
fn driver<'w, K: Object>(of: &K, world: &'w World) -> Option<&'w str> {
    let content = of.bound_content().and_then(|content| K::Content::store(world).named(content));
    let class = || <K::Content as Content>::Class::store(world).named(of.class()?);
    content.map(|content| content.driver()).or_else(|| Some(class()?.driver()))
}

fn uid<K: Cached>(object: &K) -> String {
    object.metadata().uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, DRIVER, Notes, deleting};
    use claimcheck_model::{group_snapshot::VolumeGroupSnapshotStatus, snapshot::VolumeSnapshotStatus};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// The labels of what is recorded of an object that is created, has these statuses, and is deleted.
    fn recorded<K: Object>(object: K, statuses: &[K::Status]) -> Vec<String> {
        let notes = Notes::default();
        let measured = Measured::new(Meter::new(notes.clone()));
        let mut world = testing::world([
            testing::snapshot_class("snap", "Delete").into(),
            testing::group_snapshot_class("groups", "Delete").into(),
        ]);
        let going = deleting(object.clone(), &["held"]);
        measured.changed::<K>(&world.apply(object.clone()).unwrap(), &world);
        statuses.iter().for_each(|status| measured.reported(&object, status, &world));
        measured.changed::<K>(&world.apply(going.clone()).unwrap(), &world);
        measured.changed::<K>(&world.remove(&going).unwrap(), &world);
        let recorded = notes.recorded().into_iter();
        recorded.map(|(metric, labels, _)| format!("{metric} {labels}")).collect()
    }

    fn group_status(created: bool, ready: bool) -> VolumeGroupSnapshotStatus {
        VolumeGroupSnapshotStatus {
            creation_time: created.then_some(Time(Timestamp::UNIX_EPOCH)),
            ready_to_use: Some(ready),
            ..VolumeGroupSnapshotStatus::default()
        }
    }

    fn snapshot_status(created: bool, ready: bool) -> VolumeSnapshotStatus {
        let VolumeGroupSnapshotStatus { creation_time, ready_to_use, .. } = group_status(created, ready);
        VolumeSnapshotStatus { creation_time, ready_to_use, ..VolumeSnapshotStatus::default() }
    }

    #[test]
    fn operations_of_snapshots_and_groups_are_recorded_once_under_their_own_names() {
        let snapshot = || testing::snapshot("s", "data", "snap");
        let group = || testing::group_snapshot("g", "groups");
        let progress = [(false, false), (true, false), (true, true), (true, true)];
        let all = |of: &str| {
            [format!("Create{of}"), format!("Create{of}AndReady"), format!("Delete{of}")].map(|operation| {
                format!("snapshot_controller_operation_total_seconds {DRIVER} {operation} success dynamic")
            })
        };
        let statuses = progress.map(|(created, ready)| snapshot_status(created, ready));
        assert_eq!(recorded(snapshot(), &statuses), all("Snapshot"));
        let statuses = progress.map(|(created, ready)| group_status(created, ready));
        assert_eq!(recorded(group(), &statuses), all("GroupSnapshot"));
    }

    #[test]
    fn what_is_deleted_before_it_is_ready_was_cancelled() {
        let line = |operation: &str, status: &str| {
            format!("snapshot_controller_operation_total_seconds {DRIVER} {operation} {status} dynamic")
        };
        let group = testing::group_snapshot("g", "groups");
        let expected = [
            line("DeleteGroupSnapshot", "success"),
            line("CreateGroupSnapshot", "cancel"),
            line("CreateGroupSnapshotAndReady", "cancel"),
        ];
        assert_eq!(recorded(group.clone(), &[group_status(false, false)]), expected);
        let expected = [
            line("CreateGroupSnapshot", "success"),
            line("DeleteGroupSnapshot", "success"),
            line("CreateGroupSnapshotAndReady", "cancel"),
        ];
        assert_eq!(recorded(group, &[group_status(true, false)]), expected);
    }

    #[test]
    fn what_existed_before_the_controller_and_what_has_no_driver() {
        let mut created = testing::group_snapshot("g", "groups");
        created.spec.source.volume_group_snapshot_content_name = Some("c".into());
        created.status = Some(group_status(true, false));
        let deletion = format!(
            "snapshot_controller_operation_total_seconds {DRIVER} DeleteGroupSnapshot success pre-provisioned"
        );
        assert_eq!(recorded(created, &[group_status(true, true)]), [deletion]);
        let classless = testing::group_snapshot("g", "missing");
        assert_eq!(recorded(classless, &[group_status(true, true)]), [""; 0]);
    }
}
