//! Preflight checks before a cluster is created: each decision, from facts.

use std::fmt;

use super::{
    answers::Info,
    engine::EngineError,
    owned::Standing,
    program::ProgramError,
    version::{OLDEST_KIND, Version},
};

/// Free space that a cluster requires in the engine's data directory, in bytes: a node image of a gigabyte, what
/// two or three nodes unpack from it, and the images of their workloads.
const NEEDED_SPACE: u64 = 5 << 30;

const ROOTLESS: &str = "https://kind.sigs.k8s.io/docs/user/rootless/";

/// A failed check and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// All failed checks, in the order in which to fix them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot create a kind cluster on this machine{}", .0.iter().map(|one| format!("\n  {one}")).collect::<String>())]
pub struct Preflight(pub Vec<Finding>);

/// The existing holder of the requested cluster name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A cluster that claimcheck did not create.
    Other,
    /// A cluster that claimcheck created, with its number of containers.
    Claimcheck { standing: Standing, containers: usize },
}

fn finding(what: String, remedy: impl Into<String>) -> Finding {
    Finding { what, remedy: remedy.into() }
}

/// No usable engine.
pub(super) fn no_engine(error: &EngineError) -> Finding {
    match error {
        EngineError::Program(error) => unusable("the engine", error),
        EngineError::Unknown(name) => finding(
            format!("KIND_EXPERIMENTAL_PROVIDER={name} is not supported"),
            "use docker, podman, nerdctl or finch",
        ),
    }
}

/// A program is missing, or does not work.
pub(super) fn unusable(name: &str, error: &ProgramError) -> Finding {
    match error {
        ProgramError::Missing { program, remedy } => {
            finding(format!("{program} is not on the PATH"), *remedy)
        }
        other => {
            let remedy =
                other.remedy().map_or_else(|| format!("check that `{name}` works on its own"), str::to_owned);
            finding(format!("{name} does not respond ({})", other.gist()), remedy)
        }
    }
}

/// Whether this version of `kind` is too old.
pub(super) fn age(version: Version) -> Option<Finding> {
    let remedy = format!("install {OLDEST_KIND} or newer from https://kind.sigs.k8s.io");
    (version < OLDEST_KIND).then(|| finding(format!("kind {version} is too old"), remedy))
}

/// kind's own conditions (`validateProvider` in `pkg/cluster/internal/create/create.go`).
pub(super) fn limits(engine: &str, info: &Info) -> Option<Finding> {
    let rootless = info.rootless.then_some(info)?;
    if !rootless.cgroup_v2 {
        let remedy = format!("boot with systemd.unified_cgroup_hierarchy=1: {ROOTLESS}");
        return Some(finding(format!("{engine} is rootless and the host has no cgroup v2"), remedy));
    }
    let missing = &rootless.missing_limits;
    let remedy = format!("configure systemd to delegate them (Delegate=yes): {ROOTLESS}");
    let what = || format!("{engine} is rootless and cannot limit {}", missing.join(", "));
    (!missing.is_empty()).then(|| finding(what(), remedy))
}

/// Whether there is too little space in the engine's data directory; unknown if that is not on this
/// machine.
pub(super) fn space(engine: &str, free: Option<u64>) -> Option<Finding> {
    let free = free.filter(|free| *free < NEEDED_SPACE)?;
    let remedy = format!("free {:.0} GiB: `{engine} system df` shows the usage", gibibytes(NEEDED_SPACE));
    Some(finding(format!("{engine} has {:.1} GiB free", gibibytes(free)), remedy))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// Whether the name is in use.
pub(super) fn name(name: &str, holder: Option<Holder>, reuse: bool) -> Option<Finding> {
    let other = "choose another --name";
    let down = format!("`claimcheck cluster down {name}`");
    let (what, remedy) = match holder? {
        Holder::Other => ("already exists and was not created by claimcheck", other.to_owned()),
        Holder::Claimcheck { standing: Standing::InUse, .. } => {
            ("is in use by an active run", other.to_owned())
        }
        Holder::Claimcheck { standing: Standing::Abandoned, .. } => {
            ("was left by a run that was killed", "`claimcheck cluster prune` deletes it".to_owned())
        }
        Holder::Claimcheck { standing: Standing::Kept | Standing::Elsewhere, containers: 0 } => {
            ("was kept, but its nodes no longer exist", format!("{down} removes its record"))
        }
        Holder::Claimcheck { standing: Standing::Kept | Standing::Elsewhere, .. } if reuse => return None,
        Holder::Claimcheck { standing: Standing::Kept | Standing::Elsewhere, .. } => {
            ("exists from an earlier run", format!("use it with --reuse, or {down}"))
        }
    };
    Some(finding(format!("cluster {name} {what}"), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_age_and_limits_have_a_threshold() {
        assert_eq!(space("docker", None), None);
        assert_eq!(space("docker", Some(NEEDED_SPACE)), None);
        assert_eq!(
            space("docker", Some(1 << 29)).unwrap().to_string(),
            "docker has 0.5 GiB free: free 5 GiB: `docker system df` shows the usage"
        );
        assert_eq!(age(OLDEST_KIND), None);
        assert!(age("0.20.0".parse().unwrap()).is_some());
        // A rootless engine depends on systemd for limits; with root, kind does not require them.
        let info = Info { missing_limits: vec!["cpu"], cgroup_v2: true, ..Info::default() };
        assert_eq!(limits("podman", &info), None);
        let info = Info { rootless: true, ..info };
        assert!(limits("podman", &info).unwrap().what.ends_with("cannot limit cpu"));
        let info = Info { cgroup_v2: false, ..info };
        assert!(limits("podman", &info).unwrap().what.ends_with("no cgroup v2"));
    }

    #[test]
    fn a_name_is_free_or_in_use() {
        let claimcheck = |standing, containers| Some(Holder::Claimcheck { standing, containers });
        let table = [
            (None, false, None),
            (Some(Holder::Other), true, Some("not created by claimcheck")),
            (claimcheck(Standing::InUse, 3), true, Some("in use by an active run")),
            (claimcheck(Standing::Abandoned, 1), true, Some("was killed")),
            (claimcheck(Standing::Kept, 3), false, Some("from an earlier run")),
            (claimcheck(Standing::Kept, 3), true, None),
            (claimcheck(Standing::Kept, 0), true, Some("nodes no longer exist")),
            (claimcheck(Standing::Elsewhere, 3), false, Some("from an earlier run")),
        ];
        for (holder, reuse, expected) in table {
            let found = name("claimcheck-a", holder, reuse);
            let as_expected = match (&found, expected) {
                (None, None) => true,
                (Some(found), Some(part)) => found.what.ends_with(part),
                (Some(_), None) | (None, Some(_)) => false,
            };
            assert!(as_expected, "{holder:?}, reuse {reuse}: {found:?}");
        }
    }
}
