//! Metrics of the provisioner. Upstream: sig-storage-lib-external-provisioner `controller/metrics/metrics.go`;
//! one observation per attempt.

use std::time::Duration;

use claimcheck_model::{
    Meter,
    metric::{
        DELETE_DURATION, DELETE_FAILED, DELETE_TOTAL, PROVISION_DURATION, PROVISION_FAILED, PROVISION_TOTAL,
    },
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::claims::{class_name, volume_class};

/// A volume was created for a claim, in one attempt with this duration.
pub(super) fn provisioned(meter: &Meter, claim: &PersistentVolumeClaim, took: Duration) {
    let labels = class_and_source(claim);
    meter.increment(&PROVISION_TOTAL, &labels);
    meter.record(&PROVISION_DURATION, &labels, took.as_secs_f64());
}

/// An attempt to create a volume for a claim has failed.
pub(super) fn not_provisioned(meter: &Meter, claim: &PersistentVolumeClaim) {
    meter.increment(&PROVISION_FAILED, &class_and_source(claim));
}

fn class_and_source(claim: &PersistentVolumeClaim) -> [&str; 2] {
    let source = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
    [class_name(claim), source.map_or("", |source| source.kind.as_str())]
}

/// An attempt with this duration to delete a volume has ended.
pub(super) fn deleted(meter: &Meter, volume: &PersistentVolume, took: Duration, success: bool) {
    let labels = [volume_class(volume)];
    if success {
        meter.increment(&DELETE_TOTAL, &labels);
        meter.record(&DELETE_DURATION, &labels, took.as_secs_f64());
    } else {
        meter.increment(&DELETE_FAILED, &labels);
    }
}
