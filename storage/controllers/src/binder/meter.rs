//! Metrics of the binder, with the names of upstream's persistent volume controller
//! (`pkg/controller/volume/persistentvolume/metrics/metrics.go`).

use std::{collections::BTreeMap, time::Duration};

use claimcheck_informer::{Change, World, key_of};
use claimcheck_model::{
    Meter, ObjectKey, PROVISIONED_BY, csi_plugin,
    meter::Reading,
    metric::{Metric, PV_BOUND, PV_TOTAL, PV_UNBOUND, PVC_BOUND, PVC_UNBOUND, VOLUME_OPERATION_TOTAL},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::action::{Action, VolumePhase};
use crate::{
    claims::{annotation, claim_phase, class_name, name, volume_mode, volume_phase},
    context::Context,
    under_way::UnderWay,
};

/// Measures provisioning, from the request to a provisioner until the claim is bound, and deletion, from the
/// release of a volume until its object is deleted: the latency that users see, whichever component causes it.
#[derive(Default)]
pub(super) struct Measured {
    meter: Meter,
    provisioned: UnderWay<ObjectKey>,
    deleted: UnderWay<String>,
}

impl Measured {
    /// Registers with the context's meter, including the numbers of claims and volumes.
    pub(super) fn new(context: &Context) -> Self {
        context.count(readings);
        Self { meter: context.meter.clone(), ..Self::default() }
    }

    /// An action was carried out.
    pub(super) fn acted(&self, action: &Action) {
        match action {
            Action::AskProvisioner(claim, _) => self.provisioned.begin(key_of(&**claim)),
            Action::SetClaimBound(claim, volume) => {
                if let Some(took) = self.provisioned.end(&key_of(&**claim)) {
                    self.record(volume, "provision", took);
                }
            }
            Action::SetVolumePhase(volume, VolumePhase::Released) => {
                self.deleted.begin(name(&**volume).to_owned());
            }
            _ => {}
        }
    }

    /// Ends the operations of deleted objects.
    pub(super) fn changed(&self, change: &Change) {
        if change.new.is_some() {
            return;
        }
        if change.object::<PersistentVolumeClaim>().is_some() {
            self.provisioned.end(&change.key);
        } else if let Some(volume) = change.object::<PersistentVolume>()
            && let Some(took) = self.deleted.end(&change.key.name)
        {
            self.record(volume, "delete", took);
        }
    }

    fn record(&self, volume: &PersistentVolume, operation: &str, took: Duration) {
        // Of a volume that no provisioner made there is no operation to time.
        let Some(provisioner) = annotation(volume, PROVISIONED_BY) else { return };
        self.meter.record(&VOLUME_OPERATION_TOTAL, &[provisioner, operation], took.as_secs_f64());
    }
}

/// Numbers of claims and volumes. Upstream: `pvAndPVCCountCollector`.
fn readings(world: &World) -> Vec<Reading> {
    let mut counts: BTreeMap<(&str, Vec<String>), Reading> = BTreeMap::new();
    let mut add = |metric: &'static Metric, labels: &[&str]| {
        let zero = Reading::new(metric, labels, 0.0);
        counts.entry((metric.name, zero.labels.clone())).or_insert(zero).value += 1.0;
    };
    for volume in world.volumes.iter() {
        let spec = volume.spec.as_ref();
        let driver = spec.and_then(|spec| spec.csi.as_ref()).map(|csi| csi_plugin(&csi.driver));
        let mode = volume_mode(spec.and_then(|spec| spec.volume_mode.as_deref()));
        // Upstream's word for what no plugin of its own knows.
        add(&PV_TOTAL, &[driver.as_deref().unwrap_or("N/A"), mode]);
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        add(if volume_phase(volume) == "Bound" { &PV_BOUND } else { &PV_UNBOUND }, &[class]);
    }
    for claim in world.claims.iter() {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let counted = if claim_phase(claim) == "Bound" { &PVC_BOUND } else { &PVC_UNBOUND };
        add(counted, &[namespace, class_name(claim)]);
    }
    counts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_and_volumes_are_counted_as_upstream_does() {
        let mut world = World::default();
        let spec = json!({"csi": {"driver": "d", "volumeHandle": "h"}, "storageClassName": "gold"});
        for (name, phase) in [("a", "Bound"), ("b", "Bound"), ("c", "Released")] {
            let volume = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}});
            world.apply::<PersistentVolume>(serde_json::from_value(volume).unwrap());
        }
        let claim =
            json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": {"storageClassName": "gold"}});
        world.apply::<PersistentVolumeClaim>(serde_json::from_value(claim).unwrap());
        let expected = [
            Reading::new(&PV_BOUND, &["gold"], 2.0),
            Reading::new(&PV_TOTAL, &["kubernetes.io/csi:d", "Filesystem"], 3.0),
            Reading::new(&PV_UNBOUND, &["gold"], 1.0),
            Reading::new(&PVC_UNBOUND, &["ns", "gold"], 1.0),
        ];
        let mut found = readings(&world);
        found.sort_by_key(|reading| reading.metric.name);
        let mut expected = Vec::from(expected);
        expected.sort_by_key(|reading| reading.metric.name);
        assert_eq!(found, expected);
    }
}
