//! Feature gates of kube-controller-manager and external-provisioner that built-in controllers have, with their flag
//! and their defaults in Kubernetes 1.36. Upstream: `pkg/features/kube_features.go`, `pkg/features/features.go` of
//! external-provisioner, `MapStringBool` in component-base's `cli/flag`.

use super::go;

/// Off by default, alpha.
const UNUSED_SINCE_TIME: &str = "PersistentVolumeClaimUnusedSinceTime";
/// Of the provisioner. Off by default, alpha.
const CROSS_NAMESPACE: &str = "CrossNamespaceVolumeDataSource";
/// On by default, and locked: generally available.
const SELINUX_CHANGE_POLICY: &str = "SELinuxChangePolicy";

/// A gate with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// The condition `Unused` of claims.
    UnusedSinceTime(bool),
    /// Volumes from data sources in other namespaces.
    CrossNamespace(bool),
    /// The controller selinux-warning requires it.
    SelinuxChangePolicy,
}

/// The value of the gate of the condition `Unused`; the last one counts.
pub(super) fn unused_since_time(gates: &[Gate]) -> bool {
    let value = gates.iter().rev().find_map(|gate| match gate {
        Gate::UnusedSinceTime(value) => Some(*value),
        Gate::CrossNamespace(_) | Gate::SelinuxChangePolicy => None,
    });
    value.unwrap_or(false)
}

/// The value of the gate of data sources in other namespaces; the last one counts.
pub(super) fn cross_namespace(gates: &[Gate]) -> bool {
    let value = gates.iter().rev().find_map(|gate| match gate {
        Gate::CrossNamespace(value) => Some(*value),
        Gate::UnusedSinceTime(_) | Gate::SelinuxChangePolicy => None,
    });
    value.unwrap_or(false)
}

/// One `name=value` of the flag.
pub(super) fn gate(text: &str) -> Result<Gate, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("write the gate with its value, such as {UNUSED_SINCE_TIME}=true"))?;
    let value = go::boolean(value.trim())?;
    match name.trim() {
        UNUSED_SINCE_TIME => Ok(Gate::UnusedSinceTime(value)),
        CROSS_NAMESPACE => Ok(Gate::CrossNamespace(value)),
        SELINUX_CHANGE_POLICY if value => Ok(Gate::SelinuxChangePolicy),
        SELINUX_CHANGE_POLICY => Err(format!(
            "cannot set feature gate {SELINUX_CHANGE_POLICY} to false, feature is locked to true"
        )),
        unknown => Err(format!(
            "unrecognized feature gate: {unknown}; the built-in controllers have {UNUSED_SINCE_TIME}, \
             {CROSS_NAMESPACE} and {SELINUX_CHANGE_POLICY}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_as_by_upstream() {
        assert!(!unused_since_time(&[]));
        for (texts, expected) in [
            (&["PersistentVolumeClaimUnusedSinceTime=true"][..], true),
            (&["PersistentVolumeClaimUnusedSinceTime = True "], true),
            (&["PersistentVolumeClaimUnusedSinceTime=false"], false),
            (&["PersistentVolumeClaimUnusedSinceTime=true", "PersistentVolumeClaimUnusedSinceTime=f"], false),
            (&["PersistentVolumeClaimUnusedSinceTime=1", "SELinuxChangePolicy=true"], true),
        ] {
            let gates: Result<Vec<Gate>, String> = texts.iter().map(|text| gate(text)).collect();
            assert_eq!(gates.map(|gates| unused_since_time(&gates)), Ok(expected), "{texts:?}");
        }
    }

    #[test]
    fn gates_are_independent() {
        let texts = ["CrossNamespaceVolumeDataSource=true", "PersistentVolumeClaimUnusedSinceTime=false"];
        let gates: Result<Vec<Gate>, String> = texts.iter().map(|text| gate(text)).collect();
        let values = gates.map(|gates| (cross_namespace(&gates), unused_since_time(&gates)));
        assert_eq!(values, Ok((true, false)));
        assert!(!cross_namespace(&[]), "the default");
        assert!(!cross_namespace(&[Gate::CrossNamespace(true), Gate::CrossNamespace(false)]), "the last one");
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, remedy) in [
            ("PersistentVolumeClaimUnusedSinceTime", "such as PersistentVolumeClaimUnusedSinceTime=true"),
            ("PersistentVolumeClaimUnusedSinceTime=on", "write true or false"),
            ("SELinuxChangePolicy=false", "feature is locked to true"),
            ("AllAlpha=true", "CrossNamespaceVolumeDataSource and SELinuxChangePolicy"),
        ] {
            let error = gate(text).expect_err(text);
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
