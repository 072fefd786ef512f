//! What stands against creating a cluster: each decision, from facts.

use std::fmt;

use super::{
    answers::Info,
    engine::EngineError,
    owned::Standing,
    program::ProgramError,
    version::{OLDEST_KIND, Version},
};

/// Free space that a cluster needs where the engine keeps its data, in bytes: a node image of a gigabyte, what
/// two or three nodes unpack from it, and the images of what runs there.
const NEEDED_SPACE: u64 = 5 << 30;

const ROOTLESS: &str = "https://kind.sigs.k8s.io/docs/user/rootless/";

/// One thing that stands against it, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// All that stands against it, in the order in which one would set it right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cluster of kind can be created here{}", .0.iter().map(|one| format!("\n  {one}")).collect::<String>())]
pub struct Preflight(pub Vec<Finding>);

/// Who has the name that a cluster shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A cluster that is not ours.
    Other,
    /// One of ours, with as many containers.
    Ours { standing: Standing, containers: usize },
}

fn finding(what: String, remedy: impl Into<String>) -> Finding {
    Finding { what, remedy: remedy.into() }
}

/// There is no engine.
pub(super) fn no_engine(error: &EngineError) -> Finding {
    match error {
        EngineError::Program(error) => unusable("the engine", error),
        EngineError::Unknown(name) => finding(
            format!("KIND_EXPERIMENTAL_PROVIDER={name} is not known"),
            "use docker, podman, nerdctl or finch",
        ),
    }
}

/// A program is missing, or does not do what it should.
pub(super) fn unusable(name: &str, error: &ProgramError) -> Finding {
    match error {
        ProgramError::Missing { program, remedy } => {
            finding(format!("{program} is not on the PATH"), *remedy)
        }
        other => {
            let remedy =
                other.remedy().map_or_else(|| format!("see that `{name}` works by itself"), str::to_owned);
            finding(format!("{name} does not answer ({})", other.gist()), remedy)
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
        return Some(finding(format!("{engine} runs without root and without cgroup v2"), remedy));
    }
    let missing = &rootless.missing_limits;
    let remedy = format!("let systemd delegate them (Delegate=yes): {ROOTLESS}");
    let what = || format!("{engine} runs without root and cannot limit {}", missing.join(", "));
    (!missing.is_empty()).then(|| finding(what(), remedy))
}

/// Whether there is too little space where the engine keeps its data; not known where that is no place of this
/// machine.
pub(super) fn space(engine: &str, free: Option<u64>) -> Option<Finding> {
    let free = free.filter(|free| *free < NEEDED_SPACE)?;
    let remedy = format!("free {:.0} GiB: `{engine} system df` shows what is used", gibibytes(NEEDED_SPACE));
    Some(finding(format!("{engine} has {:.1} GiB free", gibibytes(free)), remedy))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

/// Whether the name is somebody's.
pub(super) fn name(name: &str, holder: Option<Holder>, reuse: bool) -> Option<Finding> {
    let other = "choose another --name";
    let down = format!("`claimcheck cluster down {name}`");
    let (what, remedy) = match holder? {
        Holder::Other => ("is there, and not ours", other.to_owned()),
        Holder::Ours { standing: Standing::Living, .. } => ("belongs to a run that lives", other.to_owned()),
        Holder::Ours { standing: Standing::Gone, .. } => {
            ("was left by a run that was killed", "`claimcheck cluster prune` deletes it".to_owned())
        }
        Holder::Ours { standing: Standing::Kept | Standing::Elsewhere, containers: 0 } => {
            ("was kept, but its nodes are gone", format!("{down} forgets it"))
        }
        Holder::Ours { standing: Standing::Kept | Standing::Elsewhere, .. } if reuse => return None,
        Holder::Ours { standing: Standing::Kept | Standing::Elsewhere, .. } => {
            ("is there from an earlier run", format!("use it with --reuse, or {down}"))
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
            "docker has 0.5 GiB free: free 5 GiB: `docker system df` shows what is used"
        );
        assert_eq!(age(OLDEST_KIND), None);
        assert!(age("0.20.0".parse().unwrap()).is_some());
        // Without root, limits are systemd's to give; with root, kind does without.
        let info = Info { missing_limits: vec!["cpu"], cgroup_v2: true, ..Info::default() };
        assert_eq!(limits("podman", &info), None);
        let info = Info { rootless: true, ..info };
        assert!(limits("podman", &info).unwrap().what.ends_with("cannot limit cpu"));
        let info = Info { cgroup_v2: false, ..info };
        assert!(limits("podman", &info).unwrap().what.ends_with("without cgroup v2"));
    }

    #[test]
    fn a_name_is_free_or_somebody_s() {
        let ours = |standing, containers| Some(Holder::Ours { standing, containers });
        let table = [
            (None, false, None),
            (Some(Holder::Other), true, Some("not ours")),
            (ours(Standing::Living, 3), true, Some("a run that lives")),
            (ours(Standing::Gone, 1), true, Some("was killed")),
            (ours(Standing::Kept, 3), false, Some("from an earlier run")),
            (ours(Standing::Kept, 3), true, None),
            (ours(Standing::Kept, 0), true, Some("nodes are gone")),
            (ours(Standing::Elsewhere, 3), false, Some("from an earlier run")),
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
