//! Checks that a storage class is suitable for a load, before the first claim would wait forever.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client, api::ListParams};

use super::Spec;

/// The reason why a storage class is not suitable.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    /// No class has this name.
    #[error("storage class {name} does not exist: set --class to one of {there}")]
    Unknown {
        /// The name.
        name: String,
        /// The existing classes.
        there: String,
    },
    /// No class was named, and the cluster has no default.
    #[error("the cluster has no default storage class: set --class to one of {there}")]
    NoDefault {
        /// The existing classes.
        there: String,
    },
    /// Its volumes are kept when their claims are deleted.
    #[error(
        "storage class {name} has reclaimPolicy {policy}, so the load would leak its volumes: set --class to one with reclaimPolicy Delete"
    )]
    Keeps {
        /// The class.
        name: String,
        /// Its reclaim policy.
        policy: String,
    },
    /// Its volumeBindingMode is WaitForFirstConsumer, and the load has no pods.
    #[error(
        "storage class {name} has volumeBindingMode WaitForFirstConsumer: set --class to one with Immediate, or omit --no-pods"
    )]
    Late {
        /// The class.
        name: String,
    },
    /// The API server rejects the list request.
    #[error("storage classes cannot be listed")]
    List(#[source] kube::Error),
}

/// Checks the class that a load names, or the default one.
pub(super) async fn check(client: &Client, spec: &Spec) -> Result<(), ClassError> {
    let classes = Api::<StorageClass>::all(client.clone()).list(&ListParams::default()).await;
    judge(&classes.map_err(ClassError::List)?.items, spec)
}

fn judge(classes: &[StorageClass], spec: &Spec) -> Result<(), ClassError> {
    let name = |class: &StorageClass| class.metadata.name.clone().unwrap_or_default();
    let there = || classes.iter().map(name).collect::<Vec<_>>().join(", ");
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        let value = annotations.and_then(|annotations| annotations.get(claimcheck_model::DEFAULT_CLASS));
        value.is_some_and(|value| value == "true")
    };
    let class = match &spec.class {
        Some(wanted) => classes
            .iter()
            .find(|class| name(class) == *wanted)
            .ok_or_else(|| ClassError::Unknown { name: wanted.clone(), there: there() })?,
        None => classes.iter().find(is_default).ok_or_else(|| ClassError::NoDefault { there: there() })?,
    };
    match class.reclaim_policy.as_deref() {
        None | Some("Delete") => {}
        Some(policy) => return Err(ClassError::Keeps { name: name(class), policy: policy.to_owned() }),
    }
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    if late && spec.pods_per_volume == 0 {
        return Err(ClassError::Late { name: name(class) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_that_will_not_do_is_told_at_once() {
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
        ];
        let table = [
            (&classes[..], None, 1, ""),
            (&classes[..], None, 0, "volumeBindingMode WaitForFirstConsumer"),
            (&classes[1..], None, 1, "no default storage class: set --class to one of now, kept"),
            (&classes[..], Some("now"), 0, ""),
            (&classes[..], Some("kept"), 1, "reclaimPolicy Retain"),
            (
                &classes[..],
                Some("nwo"),
                1,
                "storage class nwo does not exist: set --class to one of late, now, kept",
            ),
        ];
        for (classes, class, pods_per_volume, expected) in table {
            let spec =
                Spec { class: class.map(str::to_owned), pods_per_volume, ..super::super::tests::spec() };
            let told = judge(classes, &spec).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{class:?}: {told}");
        }
    }
}
