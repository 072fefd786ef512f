//! Metrics of the resizer: `storage_operation_duration_seconds` of `expand_volume`, see
//! [`StorageOperation::Expand`].

use claimcheck_model::{Meter, StorageOperation, csi_plugin};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::run::uid;
use crate::under_way::UnderWay;

/// Measures each attempt to expand a volume.
pub(super) struct Measured {
    meter: Meter,
    plugin: String,
    /// By the claim's uid.
    under_way: UnderWay<String>,
}

impl Measured {
    pub(super) fn new(meter: Meter, driver: &str) -> Self {
        Self { meter, plugin: csi_plugin(driver), under_way: UnderWay::default() }
    }

    /// The driver is about to be called.
    pub(super) fn begins(&self, claim: &PersistentVolumeClaim) {
        self.under_way.begin(uid(claim).to_owned());
    }

    /// It failed, or the claim shows the next step: nothing, or expansion on the node.
    pub(super) fn ended(&self, claim: &PersistentVolumeClaim, success: bool) {
        if let Some(took) = self.under_way.end(&uid(claim).to_owned()) {
            StorageOperation::Expand.ended(&self.meter, &self.plugin, success, took);
        }
    }

    /// The claim was deleted.
    pub(super) fn forget(&self, claim: &PersistentVolumeClaim) {
        self.under_way.end(&uid(claim).to_owned());
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::{testing, testing::Notes};

    use super::*;

    #[test]
    fn each_attempt_is_recorded_once_with_its_result() {
        let notes = Notes::default();
        let measured = Measured::new(Meter::new(notes.clone()), "csi.test");
        let claims = ["a", "b"].map(|name| testing::claim(name, "fast", "1Gi"));
        // A claim that was marked before this process began, and is only marked now.
        measured.ended(&claims[0], true);
        for success in [false, true] {
            claims.iter().for_each(|claim| measured.begins(claim));
            measured.ended(&claims[0], success);
            measured.ended(&claims[0], success);
        }
        measured.forget(&claims[1]);
        measured.ended(&claims[1], true);
        let recorded: Vec<String> = notes.recorded().into_iter().map(|(_, labels, _)| labels).collect();
        let line = |status: &str| format!("kubernetes.io/csi:csi.test expand_volume {status} false");
        assert_eq!(recorded, [line("fail-unknown"), line("success")]);
    }
}
