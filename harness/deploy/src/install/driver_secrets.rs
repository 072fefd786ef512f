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
    /// The Secrets that the parameters of a StorageClass name.
    pub fn from_class(parameters: &BTreeMap<String, String>) -> Self {
        let namespaces: BTreeSet<String> = parameters
            .keys()
            .filter_map(|key| parameters.get(&namespace_parameter(key)?))
            .filter(|namespace| !namespace.is_empty())
            .cloned()
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

/// The parameter with the namespace of a Secret, for the parameter of a StorageClass with its name; None for other
/// parameters (`pkg/controller/controller.go` of external-provisioner: `csi.storage.k8s.io/<purpose>-secret-name`, and
/// deprecated `csi<Purpose>SecretName`).
pub fn namespace_parameter(name: &str) -> Option<String> {
    const ENDS: [(&str, &str, &str); 2] = [
        ("csi.storage.k8s.io/", "-secret-name", "-secret-namespace"),
        ("csi", "SecretName", "SecretNamespace"),
    ];
    ENDS.iter().find_map(|(start, of_name, of_namespace)| {
        let base = name.strip_suffix(of_name).filter(|base| base.starts_with(start))?;
        Some(format!("{base}{of_namespace}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_namespaces(names: &[&str]) -> DriverSecrets {
        DriverSecrets::In(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn secrets_are_those_that_the_class_names() {
        let of = |parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            DriverSecrets::from_class(&parameters.collect())
        };
        let name = "csi.storage.k8s.io/provisioner-secret-name";
        let namespace = "csi.storage.k8s.io/provisioner-secret-namespace";
        let (old_name, old_namespace) = ("csiNodeStageSecretName", "csiNodeStageSecretNamespace");
        for (parameters, expected) in [
            (&[("kind", "image"), ("secretName", "s"), ("secretNamespace", "a")][..], DriverSecrets::None),
            (&[(name, "s")], DriverSecrets::None),
            (&[(name, "s"), (namespace, "a")], in_namespaces(&["a"])),
            (
                &[(name, "s"), (namespace, "a"), (old_name, "s"), (old_namespace, "b")],
                in_namespaces(&["a", "b"]),
            ),
            (
                &[(name, "s"), (namespace, "${pvc.namespace}"), (old_name, "s"), (old_namespace, "b")],
                DriverSecrets::Everywhere,
            ),
        ] {
            assert_eq!(of(parameters), expected, "{parameters:?}");
        }
    }
}
