//! Effects of calls that many cases depend on. If one is absent, the case that checks it fails, and those that depend
//! on it are skipped with a reason that names that case: a defect is reported once.
//!
//! ```text
//! Row::establishes(effect) ── violates its sentence ──> absent (AbsentEffects) ──┬─> Need::Effect(effect): skipped
//!                                                                                └─> what it leaves behind: a warning
//! ```

use std::{collections::BTreeMap, fmt};

use claimcheck_model::CaseId;
use serde::Deserialize;

use crate::{case::Access, need::Need};

/// Whether the effects of node calls on this machine are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeEffects {
    /// Mounts, target paths and data are checked.
    #[default]
    Checked,
    /// They are not: the node service is a fake, which mounts nothing.
    None,
}

impl NodeEffects {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::None => "none",
        }
    }
}

/// An effect of a call that many cases depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// CreateVolume called again returns the same volume.
    CreateAgain,
    /// CreateVolume called again keeps the data of the volume.
    CreateKeepsData,
    /// DeleteVolume called again succeeds.
    DeleteAgain,
    /// ControllerPublishVolume called again returns the same publish_context.
    AttachAgain,
    /// NodeStageVolume called again changes nothing.
    StageAgain,
    /// NodeUnstageVolume called again succeeds.
    UnstageAgain,
    /// NodePublishVolume called again changes nothing.
    PublishAgain,
    /// NodeUnpublishVolume called again succeeds.
    UnpublishAgain,
    /// NodePublishVolume makes the volume available at the target.
    PublishMounts,
    /// NodeUnpublishVolume unmounts and removes the target.
    UnpublishUnmounts,
    /// NodeUnstageVolume leaves nothing mounted.
    UnstageUnmounts,
    /// NodePublishVolume with the readonly flag prevents writes.
    ReadOnly,
    /// Data survives unpublishing and publishing the volume again.
    DataPersists,
    /// A volume from a snapshot contains the data of the snapshot.
    RestoreCopies,
    /// A snapshot does not change with its source.
    SnapshotKeeps,
    /// A volume from a volume contains the data of its source.
    CloneCopies,
    /// A group snapshot contains a snapshot of each volume.
    GroupComplete,
    /// ControllerExpandVolume expands the volume.
    Expands,
    /// GetMetadataDelta returns all changed blocks.
    DeltaComplete,
    /// CreateVolume returns a volume of at least the requested size.
    SizeHonored,
    /// NodeUnstageVolume detaches the volume's loop device.
    LoopsDetached,
    /// ListSnapshots returns only snapshots of the requested source.
    SnapshotFilter,
    /// ControllerPublishVolume to a nonexistent node returns NotFound.
    NodeChecked,
    /// ControllerModifyVolume with invalid mutable parameters returns InvalidArgument.
    ParametersChecked,
    /// CreateVolume accepts names of any permitted length and alphabet.
    AnyName,
    /// CreateSnapshot called again returns the same snapshot.
    SnapshotAgain,
    /// CreateVolume from a volume called again returns the same clone.
    CloneAgain,
    /// Concurrent calls for one snapshot return OK or Aborted.
    SnapshotsAtOnce,
    /// Concurrent NodePublishVolume calls mount the volume once.
    PublishAtOnce,
    /// Volumes still exist after a restart of the driver.
    VolumesSurvive,
}

impl Effect {
    #[cfg(test)]
    const ALL: [Self; 30] = [
        Self::CreateAgain,
        Self::CreateKeepsData,
        Self::DeleteAgain,
        Self::AttachAgain,
        Self::StageAgain,
        Self::UnstageAgain,
        Self::PublishAgain,
        Self::UnpublishAgain,
        Self::PublishMounts,
        Self::UnpublishUnmounts,
        Self::UnstageUnmounts,
        Self::ReadOnly,
        Self::DataPersists,
        Self::RestoreCopies,
        Self::SnapshotKeeps,
        Self::CloneCopies,
        Self::GroupComplete,
        Self::Expands,
        Self::DeltaComplete,
        Self::SizeHonored,
        Self::LoopsDetached,
        Self::SnapshotFilter,
        Self::NodeChecked,
        Self::ParametersChecked,
        Self::AnyName,
        Self::SnapshotAgain,
        Self::CloneAgain,
        Self::SnapshotsAtOnce,
        Self::PublishAtOnce,
        Self::VolumesSurvive,
    ];

    /// What holds for a driver without the effect.
    const fn absence(self) -> &'static str {
        match self {
            Self::CreateAgain => "CreateVolume called again does not return the same volume",
            Self::CreateKeepsData => "CreateVolume called again loses the data of the volume",
            Self::DeleteAgain => "DeleteVolume called again fails",
            Self::AttachAgain => "ControllerPublishVolume called again fails, or changes the publish_context",
            Self::StageAgain => "NodeStageVolume called again fails, or mounts again",
            Self::UnstageAgain => "NodeUnstageVolume called again fails",
            Self::PublishAgain => "NodePublishVolume called again fails, or mounts again",
            Self::UnpublishAgain => "NodeUnpublishVolume called again fails",
            Self::PublishMounts => "NodePublishVolume does not make the volume available at the target",
            Self::UnpublishUnmounts => "NodeUnpublishVolume does not unmount and remove the target",
            Self::UnstageUnmounts => "NodeUnstageVolume leaves mounts",
            Self::ReadOnly => "volumes that are published read-only can be written to",
            Self::DataPersists => "data does not survive unpublishing and publishing the volume again",
            Self::RestoreCopies => "volumes from a snapshot lack its data",
            Self::SnapshotKeeps => "snapshots change with their source",
            Self::CloneCopies => "volumes from a volume lack its data",
            Self::GroupComplete => "group snapshots lack a volume",
            Self::Expands => "ControllerExpandVolume does not expand volumes",
            Self::DeltaComplete => "GetMetadataDelta omits changed blocks",
            Self::SizeHonored => "CreateVolume returns volumes smaller than requested",
            Self::LoopsDetached => "NodeUnstageVolume leaves loop devices attached",
            Self::SnapshotFilter => "ListSnapshots of a source_volume_id returns other snapshots",
            Self::NodeChecked => "ControllerPublishVolume to a nonexistent node does not return NotFound",
            Self::ParametersChecked => "invalid mutable parameters are not rejected with InvalidArgument",
            Self::AnyName => "CreateVolume fails for names that the specification allows",
            Self::SnapshotAgain => "CreateSnapshot called again does not return the same snapshot",
            Self::CloneAgain => "CreateVolume from a volume called again does not return the same clone",
            Self::SnapshotsAtOnce => "concurrent calls for one snapshot fail, other than with Aborted",
            Self::PublishAtOnce => "concurrent NodePublishVolume calls fail, or mount several times",
            Self::VolumesSurvive => "the driver forgets its volumes at a restart",
        }
    }

    /// As text, for lists.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CreateAgain => "repeatable CreateVolume",
            Self::CreateKeepsData => "data of volumes that are created again",
            Self::DeleteAgain => "repeatable DeleteVolume",
            Self::AttachAgain => "repeatable ControllerPublishVolume",
            Self::StageAgain => "repeatable NodeStageVolume",
            Self::UnstageAgain => "repeatable NodeUnstageVolume",
            Self::PublishAgain => "repeatable NodePublishVolume",
            Self::UnpublishAgain => "repeatable NodeUnpublishVolume",
            Self::PublishMounts => "mounts at target paths",
            Self::UnpublishUnmounts => "unmounted target paths",
            Self::UnstageUnmounts => "unmounted staging paths",
            Self::ReadOnly => "read-only volumes",
            Self::DataPersists => "data that survives unpublishing",
            Self::RestoreCopies => "data in restored volumes",
            Self::SnapshotKeeps => "data in snapshots",
            Self::CloneCopies => "data in clones",
            Self::GroupComplete => "complete group snapshots",
            Self::Expands => "expanded volumes",
            Self::DeltaComplete => "complete changed blocks",
            Self::SizeHonored => "volumes of the requested size",
            Self::LoopsDetached => "detached loop devices",
            Self::SnapshotFilter => "filtered snapshots",
            Self::NodeChecked => "rejected nodes",
            Self::ParametersChecked => "rejected mutable parameters",
            Self::AnyName => "volumes of any name",
            Self::SnapshotAgain => "repeatable CreateSnapshot",
            Self::CloneAgain => "repeatable CreateVolume from a volume",
            Self::SnapshotsAtOnce => "concurrent calls for one snapshot",
            Self::PublishAtOnce => "concurrent NodePublishVolume calls",
            Self::VolumesSurvive => "volumes that survive a restart",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an effect is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    /// The effect that is absent: the same one, or one without which the other cannot be checked.
    effect: Effect,
    /// The case that reports it.
    pub case: CaseId,
}

impl Absence {
    /// Whether a case with this requirement would report the same again.
    pub fn concerns(&self, need: Need) -> bool {
        match need {
            Need::SameCause(effect) => effect == self.effect,
            // The case decides by its own error.
            Need::Follows(_) => false,
            _ => true,
        }
    }
}

/// The reason for which a case that depends on the effect is skipped.
impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.effect.absence(), self.case.reference())
    }
}

/// The effects that this driver lacks, and the case that reports each.
#[derive(Debug, Default)]
pub(crate) struct AbsentEffects(BTreeMap<(Effect, Access), Absence>);

impl AbsentEffects {
    /// Records that a case reports effects as absent.
    pub fn report(&mut self, effects: &[Effect], access: Option<Access>, case: &CaseId) {
        for &effect in effects {
            self.insert(effect, access, &Absence { effect, case: case.clone() });
        }
    }

    /// Records that the case which establishes effects was skipped because of an absent one: what depends on them
    /// depends on that one.
    pub fn imply(&mut self, effects: &[Effect], access: Option<Access>, absence: &Absence) {
        for &effect in effects {
            self.insert(effect, access, absence);
        }
    }

    /// Records an absence; for any access type, if the case does not depend on it. The first one counts.
    fn insert(&mut self, effect: Effect, access: Option<Access>, absence: &Absence) {
        let accesses = access.map_or_else(|| vec![Access::Mount, Access::Block], |access| vec![access]);
        for access in accesses {
            self.0.entry((effect, access)).or_insert_with(|| absence.clone());
        }
    }

    /// Why the effect is absent, if it is.
    pub fn get(&self, effect: Effect, access: Access) -> Option<&Absence> {
        self.0.get(&(effect, access))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use claimcheck_engine::{Case as _, Schedule};

    use super::*;
    use crate::{case::Case, catalogue};

    fn needs(case: &Case, effect: Effect) -> bool {
        case.needs().any(|need| need.effect() == Some(effect))
    }

    #[test]
    fn the_first_case_that_reports_an_absent_effect_is_the_finding() {
        let case = |name: &str| CaseId::new("node_publish", name);
        let (first, second) = (case("mounts"), case("creates"));
        let mut absent = AbsentEffects::default();
        absent.report(&[Effect::PublishMounts], Some(Access::Mount), &first);
        absent.report(&[Effect::PublishMounts, Effect::ReadOnly], None, &second);
        let by = |effect, access| absent.get(effect, access).map(|absence| &absence.case);
        assert_eq!(by(Effect::PublishMounts, Access::Mount), Some(&first));
        assert_eq!(by(Effect::PublishMounts, Access::Block), Some(&second));
        assert_eq!(by(Effect::ReadOnly, Access::Mount), Some(&second));
        assert_eq!(by(Effect::Expands, Access::Mount), None);
    }

    #[test]
    fn what_cannot_be_checked_is_attributed_to_the_effect_that_is_absent() {
        let (case, mut absent) = (CaseId::new("node_publish", "mounts"), AbsentEffects::default());
        absent.report(&[Effect::PublishMounts], Some(Access::Mount), &case);
        let mounts = absent.get(Effect::PublishMounts, Access::Mount).unwrap().clone();
        absent.imply(&[Effect::DataPersists], Some(Access::Mount), &mounts);
        let persists = absent.get(Effect::DataPersists, Access::Mount).unwrap().clone();
        absent.imply(&[Effect::RestoreCopies], Some(Access::Mount), &persists);
        let restores = absent.get(Effect::RestoreCopies, Access::Mount).unwrap();
        assert_eq!(
            restores.to_string(),
            "NodePublishVolume does not make the volume available at the target: see node_publish::mounts"
        );
        assert_eq!(absent.get(Effect::RestoreCopies, Access::Block), None);
        // Whether snapshots are used at all is not known.
        assert!(restores.concerns(Need::Effect(Effect::RestoreCopies)));
        assert!(!restores.concerns(Need::SameCause(Effect::RestoreCopies)));
        absent.report(&[Effect::CloneCopies], None, &case);
        let clones = absent.get(Effect::CloneCopies, Access::Mount).unwrap();
        assert!(clones.concerns(Need::SameCause(Effect::CloneCopies)));
        assert!(!clones.concerns(Need::Follows(Effect::CloneCopies)));
    }

    #[test]
    fn each_effect_is_established_before_the_cases_that_depend_on_it() {
        let cases = catalogue();
        for effect in Effect::ALL {
            let establishes = |case: &&Case| case.row.establishes.contains(&effect);
            let mut establishing = cases.iter().filter(establishes).peekable();
            assert!(establishing.peek().is_some(), "no case establishes {effect}");
            for case in establishing {
                let early = matches!(case.row.schedule, Schedule::First | Schedule::Parallel);
                // Those of a serial phase wait for it.
                let mut dependent = cases.iter().filter(|case| needs(case, effect));
                let late = |case: &Case| matches!(case.row.schedule, Schedule::Serial | Schedule::Last);
                assert!(
                    early || dependent.all(late),
                    "{} runs too late for the cases that depend on it",
                    case.id()
                );
                // A violated SHOULD would be a warning, to which skip reasons cannot refer.
                assert!(case.row.rule.strength.fails(false), "{}", case.id());
            }
            let mut dependent = cases.iter().filter(|case| needs(case, effect)).peekable();
            assert!(dependent.peek().is_some(), "no case depends on {effect}");
            for case in dependent {
                assert_ne!(case.row.schedule, Schedule::First, "{}: nothing has been established", case.id());
            }
        }
    }

    #[test]
    fn no_cases_wait_for_each_other() {
        let cases = catalogue();
        let mut ended = BTreeSet::new();
        let mut waiting: Vec<&Case> = cases.iter().collect();
        loop {
            let is_free = |case: &&Case| {
                let mut others = cases.iter().filter(|other| case.waits_for(other));
                others.all(|other| ended.contains(&other.id()))
            };
            let (free, blocked): (Vec<&Case>, Vec<&Case>) = waiting.into_iter().partition(is_free);
            if free.is_empty() {
                let names: Vec<String> = blocked.iter().map(|case| case.id().to_string()).collect();
                assert_eq!(names, [] as [&str; 0], "these cases wait for each other");
                return;
            }
            ended.extend(free.iter().map(|case| case.id()));
            waiting = blocked;
        }
    }

    #[test]
    fn a_case_waits_for_those_that_establish_what_it_depends_on() {
        let cases = catalogue();
        let named = |name: &str| {
            let mut found = cases.iter().filter(|case| case.id().to_string() == name);
            found.next().expect("it is in the catalogue")
        };
        let writes = named("node_publish::NodePublishVolume makes the volume writable [mount]");
        let mounts = named("node_publish::NodePublishVolume mounts the volume before it returns");
        let block = named("node_publish::NodePublishVolume makes the volume writable [block]");
        assert!(writes.waits_for(mounts));
        assert!(!mounts.waits_for(writes) && !mounts.waits_for(mounts));
        assert!(!block.waits_for(mounts), "it is about another access type");
    }
}
