//! Drivers and classes as the values of labels: those that a cluster has. Any user can name others in a claim, and each
//! would be a new series forever.

use std::collections::BTreeSet;

use claimcheck_informer::{World, class::volume_class};
use claimcheck_model::{PER_CASE, class_label, metric::OTHER};
use k8s_openapi::api::core::v1::PersistentVolume;

/// The classes and drivers of volumes so far: they need no StorageClass or CSIDriver, and only administrators and
/// provisioners create volumes.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    classes: BTreeSet<String>,
    drivers: BTreeSet<String>,
}

impl Labels {
    /// A volume exists.
    pub fn enter(&mut self, volume: &PersistentVolume) {
        let class = volume_class(volume);
        if !self.classes.contains(class) {
            self.classes.insert(class.to_owned());
        }
        let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| &csi.driver);
        if let Some(driver) = driver.filter(|driver| !self.drivers.contains(*driver)) {
            self.drivers.insert(driver.clone());
        }
    }

    /// The value for a class.
    pub fn class<'a>(&self, world: &World, class: &'a str) -> &'a str {
        let class = class_label(class);
        let is_known = class.is_empty()
            || class == PER_CASE
            || self.classes.contains(class)
            || world.classes.named(class).is_some();
        if is_known { class } else { OTHER }
    }

    /// The value for a driver.
    pub fn driver<'a>(&self, world: &World, driver: &'a str) -> &'a str {
        let is_known = driver.is_empty()
            || self.drivers.contains(driver)
            || world.csi_drivers.named(driver).is_some()
            || world.classes.iter().any(|class| class.provisioner == driver);
        if is_known { driver } else { OTHER }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{class, volume, world};

    use super::*;

    #[test]
    fn what_a_user_invents_is_no_value_of_a_label() {
        let world = world([class("fast", "csi.test").into()]);
        let mut labels = Labels::default();
        let values = |labels: &Labels| {
            let classes = ["", "fast", "manual", "invented"].map(|class| labels.class(&world, class));
            let drivers = ["csi.test", "invented"].map(|driver| labels.driver(&world, driver));
            [&classes[..], &drivers[..]].concat().join(" ")
        };
        assert_eq!(values(&labels), " fast (other) (other) csi.test (other)");
        labels.enter(&volume("v", "manual", "1Gi"));
        assert_eq!(values(&labels), " fast manual (other) csi.test (other)");
        assert_eq!(labels.class(&world, "cc-bec5-binding-118-manual"), PER_CASE);
    }
}
