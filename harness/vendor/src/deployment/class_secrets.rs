//! The Secrets that a storage class names: a volume waits without end for one that does not exist.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_deploy::install::namespace_parameter;

use super::manifests::Key;

/// A Secret that a class names and no file has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingSecret {
    /// It is in no file.
    #[error(
        "the storage class has {parameter}, but no file has Secret {secret}: add it with --deployment FILE, which may \
         contain Secrets alone"
    )]
    Absent {
        /// The parameter with its name.
        parameter: String,
        /// Its namespace and name.
        secret: String,
    },
    /// Its namespace is not given, which the provisioner refuses.
    #[error("the storage class has {parameter} without {namespace}: add it, or remove both")]
    NoNamespace {
        /// The parameter with its name.
        parameter: String,
        /// The parameter that is missing.
        namespace: String,
    },
}

/// The first Secret that these parameters name and that is not among `given`. One with a template, such as
/// `${pvc.namespace}`, is only known once there is a claim.
pub(super) fn missing(
    parameters: &BTreeMap<String, String>,
    given: &BTreeSet<Key>,
) -> Result<(), MissingSecret> {
    for (parameter, name) in parameters {
        let Some(key) = namespace_parameter(parameter) else { continue };
        let Some(namespace) = parameters.get(&key) else {
            return Err(MissingSecret::NoNamespace { parameter: parameter.clone(), namespace: key });
        };
        let is_template = name.contains("${") || namespace.contains("${");
        if !is_template && !given.contains(&(namespace.clone(), name.clone())) {
            let secret = format!("{namespace}/{name}");
            return Err(MissingSecret::Absent { parameter: parameter.clone(), secret });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_class_are_in_the_files() {
        let of = |parameters: &[(&str, &str)]| {
            let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let given = BTreeSet::from([("ns".to_owned(), "s".to_owned())]);
            missing(&parameters.collect(), &given).map_err(|error| error.to_string())
        };
        let (name, namespace) =
            ("csi.storage.k8s.io/node-stage-secret-name", "csi.storage.k8s.io/node-stage-secret-namespace");
        let (old_name, old_namespace) = ("csiProvisionerSecretName", "csiProvisionerSecretNamespace");
        for parameters in [
            &[("secretName", "x"), ("tier", "fast")][..],
            &[(name, "s"), (namespace, "ns")],
            &[(name, "${pvc.name}"), (namespace, "ns")],
            &[(name, "x"), (namespace, "${pvc.namespace}")],
            &[(old_name, "s"), (old_namespace, "ns")],
        ] {
            assert_eq!(of(parameters), Ok(()), "{parameters:?}");
        }
        for (parameters, expected) in [
            (&[(name, "x"), (namespace, "ns")][..], "no file has Secret ns/x"),
            (&[(old_name, "s"), (old_namespace, "other")], "no file has Secret other/s"),
            (&[(name, "s")], "without csi.storage.k8s.io/node-stage-secret-namespace: add it"),
        ] {
            let error = of(parameters).unwrap_err();
            assert!(error.contains(expected) && error.contains(parameters[0].0), "{error}");
        }
    }
}
