//! The limit of volumes in CSINode: updated periodically where the CSIDriver has a period, and when a volume cannot be
//! attached because the node is full (KEP-4876).
//!
//! Upstream: `pkg/volume/csi/csi_node_updater.go`, `VerifyExhaustedResource` in `pkg/volume/csi/csi_plugin.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    time::Duration,
};

use tonic::Code;

use super::{Moment, Notice, VolumeManager};
use crate::{
    effects::Host,
    registration,
    volumes::{DriverPolicy, PodUid, VolumeKey},
};

/// Updates of the limits of drivers.
#[derive(Debug, Default)]
pub(super) struct Allocatable {
    /// The period of a driver, and its next update.
    scheduled: BTreeMap<String, (Duration, Moment)>,
    /// The drivers with an update in progress.
    running: BTreeSet<String>,
}

impl Allocatable {
    /// The drivers that are due, of all that have a period. Each is due again one period later.
    fn due(&mut self, periods: BTreeMap<String, Duration>, now: Moment) -> Vec<String> {
        self.scheduled.retain(|driver, (period, _)| periods.get(driver) == Some(period));
        let mut due = Vec::new();
        for (driver, period) in periods {
            let (_, next) = self.scheduled.entry(driver.clone()).or_insert((period, now + period));
            if *next <= now {
                *next = now + period;
                due.push(driver);
            }
        }
        due
    }

    /// When the next driver is due.
    fn next(&self) -> Option<Moment> {
        self.scheduled.values().map(|(_, next)| *next).min()
    }
}

impl<H: Host> VolumeManager<H> {
    /// Starts the updates that are due; returns the time of the next one.
    pub(super) fn update_allocatable(&mut self, now: Moment) -> Option<Moment> {
        let period = |name: &String| Some((name.clone(), self.allocatable_period(name)?));
        let periods = self.drivers.keys().filter_map(period).collect();
        for driver in self.allocatable.due(periods, now) {
            self.update_allocatable_of(&driver);
        }
        self.allocatable.next()
    }

    /// Updates the limit of a driver, unless an update is in progress.
    pub(super) fn update_allocatable_of(&mut self, name: &str) {
        let Some(driver) = self.drivers.get(name).cloned() else { return };
        if !self.allocatable.running.insert(name.to_owned()) {
            return;
        }
        let (node, notices, name) = (self.node_info.clone(), self.notices.clone(), name.to_owned());
        tokio::spawn(async move {
            if let Err(error) = registration::update(&driver, &node).await {
                let error: &dyn Error = &error;
                tracing::warn!(driver = name, error, "cannot update the limit of volumes in CSINode");
            }
            // The receiver is gone when the agent stops.
            let _ = notices.send(Notice::AllocatableUpdated { driver: name });
        });
    }

    /// An update has ended.
    pub(super) fn allocatable_updated(&mut self, driver: &str) {
        self.allocatable.running.remove(driver);
    }

    /// The driver of a volume of the pod that it does not attach because the node is full. Only of a driver with a
    /// period: others do not declare that they report it so.
    pub(super) fn exhausted(&self, pod: &PodUid) -> Option<String> {
        let expected = self.populations.get(pod)?.expected.iter();
        let mut waiting = expected.map(|expected| &expected.key).filter(|key| self.is_unattached(key));
        waiting.find_map(|key| {
            let VolumeKey::Csi { driver, handle } = key else { return None };
            self.allocatable_period(driver)?;
            let name = claimcheck_model::attachment_name(handle, driver, &self.executor.node);
            let world = self.informer.read();
            let status = world.attachments.named(&name)?.status.as_ref()?;
            let code = status.attach_error.as_ref()?.error_code?;
            (code == Code::ResourceExhausted as i32).then(|| driver.clone())
        })
    }

    fn allocatable_period(&self, driver: &str) -> Option<Duration> {
        let world = self.informer.read();
        DriverPolicy::of(world.csi_drivers.named(driver).map(|driver| &**driver)).allocatable_period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_due_every_period_from_when_it_is_known() {
        let seconds = Duration::from_secs;
        let periods = |list: &[(&str, u64)]| -> BTreeMap<String, Duration> {
            list.iter().map(|(name, period)| ((*name).to_owned(), seconds(*period))).collect()
        };
        let mut updates = Allocatable::default();
        // (time, drivers with their periods, those that are due, the next time)
        type Row = (u64, &'static [(&'static str, u64)], &'static [&'static str], Option<u64>);
        let rows: [Row; 8] = [
            (5, &[], &[], None),
            (5, &[("a", 10)], &[], Some(15)),
            (14, &[("a", 10), ("b", 60)], &[], Some(15)),
            (15, &[("a", 10), ("b", 60)], &["a"], Some(25)),
            (26, &[("a", 10), ("b", 60)], &["a"], Some(36)),
            // Another period counts from when it is known.
            (30, &[("a", 20), ("b", 60)], &[], Some(50)),
            (80, &[("a", 20), ("b", 60)], &["a", "b"], Some(100)),
            (90, &[], &[], None),
        ];
        for (now, list, due, next) in rows {
            assert_eq!(updates.due(periods(list), seconds(now)), due, "at {now}");
            assert_eq!(updates.next(), next.map(seconds), "at {now}");
        }
    }
}
