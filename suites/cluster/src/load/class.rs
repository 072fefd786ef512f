//! Checks that a storage class is suitable for a load, before the first claim would wait forever.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client, api::ListParams};

use super::Spec;

/// The reason why a storage class is not suitable.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    /// No class has this name.
    #[error("storage class {name} does not exist: set --class to one of {present}")]
    Unknown {
        /// The name.
        name: String,
        /// The existing classes.
        present: String,
    },
    /// No class was named, and the driver has none.
    #[error("driver {driver} has no storage class: set --class to one of {present}")]
    NoneOfDriver {
        /// The driver under test.
        driver: String,
        /// The existing classes.
        present: String,
    },
    /// Its volumes are kept when their claims are deleted.
    #[error(
        "storage class {name} has reclaimPolicy {policy}, so the load would leak its volumes: set --class to one with reclaimPolicy Delete"
    )]
    Retains {
        /// The class.
        name: String,
        /// Its reclaim policy.
        policy: String,
    },
    /// Its volumeBindingMode is WaitForFirstConsumer, and the load has no pods.
    #[error(
        "storage class {name} has volumeBindingMode WaitForFirstConsumer: set --class to one with Immediate, or omit --no-pods"
    )]
    WaitForFirstConsumer {
        /// The class.
        name: String,
    },
    /// The API server rejects the list request.
    #[error("storage classes cannot be listed")]
    List(#[source] kube::Error),
}

/// The name of the class that a load names, or else of one of the driver's; checks that it is suitable.
pub(super) async fn choose(client: &Client, spec: &Spec, driver: &str) -> Result<String, ClassError> {
    let classes = Api::<StorageClass>::all(client.clone()).list(&ListParams::default()).await;
    judge(&classes.map_err(ClassError::List)?.items, spec, driver)
}

fn judge(classes: &[StorageClass], spec: &Spec, driver: &str) -> Result<String, ClassError> {
    let name = |class: &StorageClass| class.metadata.name.clone().unwrap_or_default();
    let present = || classes.iter().map(name).collect::<Vec<_>>().join(", ");
    let is_default = |class: &StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        let value = annotations.and_then(|annotations| annotations.get(claimcheck_model::DEFAULT_CLASS));
        value.is_some_and(|value| value == "true")
    };
    let keeps =
        |class: &StorageClass| class.reclaim_policy.as_deref().is_some_and(|policy| policy != "Delete");
    let late = |class: &StorageClass| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let class = match &spec.class {
        Some(expected) => classes
            .iter()
            .find(|class| name(class) == *expected)
            .ok_or_else(|| ClassError::Unknown { name: expected.clone(), present: present() })?,
        // The default class may belong to another driver, as on kind. A suitable one first, then the default.
        None => {
            let of_driver = classes.iter().filter(|class| class.provisioner == driver);
            let unsuitable =
                |class: &StorageClass| keeps(class) || (late(class) && spec.pods_per_volume == 0);
            of_driver
                .min_by_key(|class| (unsuitable(class), !is_default(class), name(class)))
                .ok_or_else(|| ClassError::NoneOfDriver { driver: driver.to_owned(), present: present() })?
        }
    };
    if keeps(class) {
        let policy = class.reclaim_policy.clone().unwrap_or_default();
        return Err(ClassError::Retains { name: name(class), policy });
    }
    if late(class) && spec.pods_per_volume == 0 {
        return Err(ClassError::WaitForFirstConsumer { name: name(class) });
    }
    Ok(name(class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unsuitable_class_is_rejected_and_a_suitable_one_chosen() {
        let class = |name: &str, default: bool, policy: &str, binding: &str| -> StorageClass {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name,
                    "annotations": { claimcheck_model::DEFAULT_CLASS: default.to_string() },
                },
                "provisioner": "d",
                "reclaimPolicy": policy,
                "volumeBindingMode": binding,
            }))
            .expect("a StorageClass")
        };
        let classes = [
            class("late", true, "Delete", "WaitForFirstConsumer"),
            class("now", false, "Delete", "Immediate"),
            class("kept", false, "Retain", "Immediate"),
            // As on kind.
            StorageClass { provisioner: "other".into(), ..class("standard", true, "Delete", "Immediate") },
        ];
        let table = [
            (&classes[..], None, 1, "late"),
            (&classes[..], None, 0, "now"),
            (&classes[1..], None, 1, "now"),
            (&classes[2..3], None, 1, "reclaimPolicy Retain"),
            (&classes[3..], None, 1, "driver d has no storage class: set --class to one of standard"),
            (&classes[..], Some("now"), 0, "now"),
            (&classes[..], Some("late"), 0, "volumeBindingMode WaitForFirstConsumer"),
            (&classes[..], Some("kept"), 1, "reclaimPolicy Retain"),
            (
                &classes[..],
                Some("nwo"),
                1,
                "storage class nwo does not exist: set --class to one of late, now, kept, standard",
            ),
        ];
        for (classes, class, pods_per_volume, expected) in table {
            let spec =
                Spec { class: class.map(str::to_owned), pods_per_volume, ..super::super::tests::spec() };
            let chosen = judge(classes, &spec, "d").unwrap_or_else(|error| error.to_string());
            assert!(chosen.contains(expected), "{class:?}: {chosen}");
        }
    }
}
