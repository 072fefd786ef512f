//! Feature gates of upstream's programs that the built-in controllers have, with their flag and their defaults in
//! Kubernetes 1.36. Upstream: `pkg/features/kube_features.go`, `pkg/features/features.go` of kubernetes-csi's sidecars,
//! `MapStringBool` in component-base's `cli/flag`.

use claimcheck_controllers::Name;

use super::{go, scope};

/// Off by default, alpha: the condition `Unused` of claims.
pub(super) const UNUSED_SINCE_TIME: &str = "PersistentVolumeClaimUnusedSinceTime";
/// Off by default, alpha: volumes from data sources in other namespaces.
pub(super) const CROSS_NAMESPACE: &str = "CrossNamespaceVolumeDataSource";
/// Off by default, alpha; on since 1.37: the scheduler prefers nodes with more storage capacity.
pub(super) const CAPACITY_SCORING: &str = "StorageCapacityScoring";
/// On by default, generally available, and not locked: manifests of vendors switch it off. Without it the resizer records
/// neither size nor state of an expansion.
pub(super) const RECOVERY: &str = "RecoverVolumeExpansionFailure";
/// Alpha. Off by default upstream, and on here: a leader gives its lease up when it exits.
pub(super) const RELEASE_ON_EXIT: &str = "ReleaseLeaderElectionOnExit";

/// The controllers of kube-controller-manager.
const MANAGER: &[Name] = &[
    Name::Binder,
    Name::AttachDetach,
    Name::Expander,
    Name::Protection,
    Name::Ephemeral,
    Name::Garbage,
    Name::NodeLifecycle,
];

/// A gate that controllers have.
struct Known {
    name: &'static str,
    /// The controllers of the programs that have it upstream.
    of: &'static [Name],
    /// Its values.
    values: Values,
}

enum Values {
    /// Either.
    Both,
    /// Upstream accepts true alone: generally available, and locked.
    Locked,
    /// On by default upstream. Here the feature cannot be switched off.
    AlwaysOn,
}

const KNOWN: &[Known] = &[
    Known { name: UNUSED_SINCE_TIME, of: MANAGER, values: Values::Both },
    Known { name: "SELinuxChangePolicy", of: MANAGER, values: Values::Locked },
    Known { name: CAPACITY_SCORING, of: &[Name::Scheduler], values: Values::Both },
    Known { name: CROSS_NAMESPACE, of: &[Name::Provisioner], values: Values::Both },
    Known { name: "Topology", of: &[Name::Provisioner], values: Values::AlwaysOn },
    Known {
        name: "VolumeAttributesClass",
        of: &[Name::Provisioner, Name::Resizer],
        values: Values::AlwaysOn,
    },
    Known { name: RECOVERY, of: &[Name::Resizer], values: Values::Both },
    Known { name: "AnnotateFsResize", of: &[Name::Resizer], values: Values::AlwaysOn },
    Known { name: "MutableCSINodeAllocatableCount", of: &[Name::Attacher], values: Values::AlwaysOn },
    Known {
        name: "CSIVolumeGroupSnapshot",
        of: &[Name::Snapshotter, Name::SnapshotController],
        values: Values::AlwaysOn,
    },
    Known { name: RELEASE_ON_EXIT, of: scope::SIDECARS, values: Values::Both },
];

/// A gate with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    name: &'static str,
    value: bool,
}

/// The gates of one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gates(Vec<Gate>);

/// The value of the gate with this name, if one is given; the last one counts.
pub(super) fn value(gates: &[Gates], name: &str) -> Option<bool> {
    let mut given = gates.iter().flat_map(|gates| &gates.0).rev();
    given.find(|gate| gate.name == name).map(|gate| gate.value)
}

/// The gates that controllers with these names have.
pub(super) fn feature_gates(names: &[Name]) -> Vec<&'static str> {
    let known = KNOWN.iter().filter(|known| known.of.iter().any(|name| names.contains(name)));
    known.map(|known| known.name).collect()
}

/// A gate that none of the controllers has.
pub(super) fn foreign(gates: &[Gates], names: &[Name]) -> Option<String> {
    let known = feature_gates(names);
    let mut given = gates.iter().flat_map(|gates| &gates.0);
    let foreign = given.find(|gate| !known.contains(&gate.name))?;
    let named: Vec<String> = names.iter().map(ToString::to_string).collect();
    let has = match &known[..] {
        [] => "has no gates".to_owned(),
        known => format!("has {}", known.join(", ")),
    };
    Some(format!("unrecognized feature gate: {}; {} {has}", foreign.name, scope::words(&named)))
}

/// The value of the flag: `name=value,..`.
pub(super) fn gates(text: &str) -> Result<Gates, String> {
    let gates = text.split(',').filter(|gate| !gate.is_empty()).map(gate);
    Ok(Gates(gates.collect::<Result<_, _>>()?))
}

fn gate(text: &str) -> Result<Gate, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("write the gate with its value, such as {UNUSED_SINCE_TIME}=true"))?;
    let (name, value) = (name.trim(), go::boolean(value.trim())?);
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let all: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        return Err(format!(
            "unrecognized feature gate: {name}; the built-in controllers have {}",
            all.join(", ")
        ));
    };
    match known.values {
        Values::Locked if !value => {
            Err(format!("cannot set feature gate {name} to false, feature is locked to true"))
        }
        Values::AlwaysOn if !value => Err(format!(
            "cannot set feature gate {name} to false: the built-in controllers always have this feature; remove it"
        )),
        Values::Both | Values::Locked | Values::AlwaysOn => Ok(Gate { name: known.name, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Vec<Gates> {
        texts.iter().map(|text| gates(text).expect(text)).collect()
    }

    #[test]
    fn gates_are_read_as_by_upstream() {
        let unused = |texts: &[&str]| value(&parse(texts), UNUSED_SINCE_TIME);
        for (texts, expected) in [
            (&[][..], None),
            (&["PersistentVolumeClaimUnusedSinceTime=true"][..], Some(true)),
            (&["PersistentVolumeClaimUnusedSinceTime = True ,"], Some(true)),
            (&["PersistentVolumeClaimUnusedSinceTime=false"], Some(false)),
            (
                &["PersistentVolumeClaimUnusedSinceTime=true,PersistentVolumeClaimUnusedSinceTime=f"],
                Some(false),
            ),
            (
                &["PersistentVolumeClaimUnusedSinceTime=true", "PersistentVolumeClaimUnusedSinceTime=f"],
                Some(false),
            ),
            (&["PersistentVolumeClaimUnusedSinceTime=1", "SELinuxChangePolicy=true"], Some(true)),
            (&["CrossNamespaceVolumeDataSource=true"], None),
        ] {
            assert_eq!(unused(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_gate_belongs_to_a_program() {
        let topology = parse(&["Topology=true"]);
        assert_eq!(foreign(&topology, &[Name::Provisioner]), None);
        assert_eq!(foreign(&topology, &[Name::Attacher, Name::Provisioner]), None);
        let refused = foreign(&topology, &[Name::Attacher]).expect("it has no topology");
        assert_eq!(
            refused,
            "unrecognized feature gate: Topology; attacher has MutableCSINodeAllocatableCount, \
             ReleaseLeaderElectionOnExit"
        );
        let of_manager = parse(&["SELinuxChangePolicy=true"]);
        assert_eq!(foreign(&of_manager, &[Name::Binder]), None, "one program upstream");
        assert!(
            foreign(&of_manager, &[Name::DataSourceValidator]).is_some_and(|text| text.contains("no gates"))
        );
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, remedy) in [
            ("PersistentVolumeClaimUnusedSinceTime", "such as PersistentVolumeClaimUnusedSinceTime=true"),
            ("PersistentVolumeClaimUnusedSinceTime=on", "write true or false"),
            ("SELinuxChangePolicy=false", "feature is locked to true"),
            ("AnnotateFsResize=false", "always have this feature"),
            ("AllAlpha=true", "CrossNamespaceVolumeDataSource, Topology"),
        ] {
            let error = gates(text).expect_err(text);
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
