//! Metrics of the snapshot controller. Upstream: external-snapshotter `pkg/metrics/metrics.go`.

use std::time::Duration;

use claimcheck_informer::{Change, World};
use claimcheck_model::{
    Meter,
    metric::SNAPSHOT_OPERATION,
    snapshot::{VolumeSnapshot, VolumeSnapshotStatus},
};

use crate::{context::Context, under_way::UnderWay};

/// Measured operations. All begin when the controller first sees the request for the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    /// Until the driver has created it.
    Create,
    /// Until claims can be provisioned from it.
    CreateAndReady,
    /// Until it is deleted.
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateSnapshot",
            Self::CreateAndReady => "CreateSnapshotAndReady",
            Self::Delete => "DeleteSnapshot",
        }
    }
}

/// Measures snapshots, identified by their uid.
pub(super) struct Measured {
    meter: Meter,
    under_way: UnderWay<(Operation, String)>,
}

impl Measured {
    pub(super) fn new(context: &Context) -> Self {
        Self { meter: context.meter.clone(), under_way: UnderWay::default() }
    }

    /// Operations that begin, and those that end since a snapshot was deleted. `world` includes the change.
    pub(super) fn changed(&self, change: &Change, world: &World) {
        let (old, new) = change.both::<VolumeSnapshot>();
        match (old, new) {
            (None, Some(new)) if !is_created(new.status.as_ref()) => {
                for operation in [Operation::Create, Operation::CreateAndReady] {
                    self.under_way.begin((operation, uid(new)));
                }
            }
            (Some(old), Some(new)) => {
                let (before, now) = (&old.metadata.deletion_timestamp, &new.metadata.deletion_timestamp);
                if before.is_none() && now.is_some() {
                    self.under_way.begin((Operation::Delete, uid(new)));
                }
            }
            (Some(gone), None) => {
                self.end(Operation::Delete, gone, world, "success");
                for operation in [Operation::Create, Operation::CreateAndReady] {
                    self.end(operation, gone, world, "cancel");
                }
            }
            (None, _) => {}
        }
    }

    /// A status is written.
    pub(super) fn reported(&self, snapshot: &VolumeSnapshot, status: &VolumeSnapshotStatus, world: &World) {
        if is_created(Some(status)) {
            self.end(Operation::Create, snapshot, world, "success");
        }
        if status.ready_to_use == Some(true) {
            self.end(Operation::CreateAndReady, snapshot, world, "success");
        }
    }

    fn end(&self, operation: Operation, snapshot: &VolumeSnapshot, world: &World, status: &str) {
        if let Some(took) = self.under_way.end(&(operation, uid(snapshot))) {
            self.record(operation, snapshot, world, status, took);
        }
    }

    fn record(&self, operation: Operation, of: &VolumeSnapshot, world: &World, status: &str, took: Duration) {
        let found = of.content().and_then(|content| world.snapshot_contents.named(content));
        let class = of.spec.volume_snapshot_class_name.as_deref();
        let class = class.and_then(|class| world.snapshot_classes.named(class));
        // Upstream leaves out what it knows no driver of.
        let driver = found.map(|found| &found.spec.driver).or(class.map(|class| &class.driver));
        let Some(driver) = driver else { return };
        let kind = match of.spec.source.volume_snapshot_content_name {
            Some(_) => "pre-provisioned",
            None => "dynamic",
        };
        let labels = [driver.as_str(), operation.name(), status, kind];
        self.meter.record(&SNAPSHOT_OPERATION, &labels, took.as_secs_f64());
    }
}

fn is_created(status: Option<&VolumeSnapshotStatus>) -> bool {
    status.is_some_and(|status| status.creation_time.is_some())
}

fn uid(snapshot: &VolumeSnapshot) -> String {
    snapshot.metadata.uid.clone().unwrap_or_default()
}
