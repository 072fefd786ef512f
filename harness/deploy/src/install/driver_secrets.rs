//! The Secrets that a driver requires in its calls, and so its sidecars must read.

use std::collections::{BTreeMap, BTreeSet};

/// The Secrets that the sidecars may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DriverSecrets {
    /// None: the driver requires none, like the built-in one.
    #[default]
    None,
    /// Those in these namespaces.
    In(BTreeSet<String>),
    /// Those in all namespaces, for a class with a template like `${pvc.namespace}`.
    Everywhere,
}

impl DriverSecrets {
    /// The Secrets that the parameters of a StorageClass name (`pkg/controller/controller.go` of
    /// external-provisioner: `csi.storage.k8s.io/<purpose>-secret-namespace`, and deprecated `csi<Purpose>SecretNamespace`).
    pub fn of_class(parameters: &BTreeMap<String, String>) -> Self {
        let names_namespace = |key: &str| match key.strip_prefix("csi.storage.k8s.io/") {
            Some(purpose) => purpose.ends_with("-secret-namespace"),
            None => key.starts_with("csi") && key.ends_with("SecretNamespace"),
        };
        let namespaces: BTreeSet<String> = parameters
            .iter()
            .filter(|(key, namespace)| names_namespace(key) && !namespace.is_empty())
            .map(|(_, namespace)| namespace.clone())
            .collect();
        if namespaces.iter().any(|namespace| namespace.contains("${")) {
            Self::Everywhere
        } else if namespaces.is_empty() {
            Self::None
        } else {
            Self::In(namespaces)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_those_that_the_class_names() {
        let of = |parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            DriverSecrets::of_class(&parameters.collect())
        };
        let provisioner = "csi.storage.k8s.io/provisioner-secret-namespace";
        let publish = "csi.storage.k8s.io/node-publish-secret-namespace";
        assert_eq!(of(&[("kind", "image"), ("secretNamespace", "a")]), DriverSecrets::None);
        assert_eq!(of(&[("csi.storage.k8s.io/provisioner-secret-name", "s")]), DriverSecrets::None);
        assert_eq!(
            of(&[(provisioner, "a"), (publish, "b"), ("csiNodeStageSecretNamespace", "a")]),
            DriverSecrets::In(["a", "b"].map(str::to_owned).into())
        );
        assert_eq!(of(&[(provisioner, "a"), (publish, "${pvc.namespace}")]), DriverSecrets::Everywhere);
    }
}
