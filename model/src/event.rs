//! The events of a run: the only contract between running and reporting.
//!
//! The runner and the timeline emit them; terminal, run folder and metrics consume them. What a report
//! needs and no event carries does not exist. One line of `events.ndjson` is one [`LoggedEvent`].

use serde::{Deserialize, Serialize};

use crate::{
    ApiWrite, CaseId, CaseResult, ComponentEnd, Evidence, LoadEvent, PhaseSample, RunInfo, Stamp,
    StockMetrics,
};

/// An event and when the reporter took it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// When it was logged; what happened when is in the event itself.
    pub at: Stamp,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first event: what runs, on what.
    RunStarted(RunInfo),
    /// The last event.
    RunFinished {
        /// From the process' start to here.
        seconds: f64,
        /// Somebody wanted it to end before all was done.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
    },
    /// A case began.
    CaseStarted {
        /// Which.
        case: CaseId,
        /// The namespace that is its own; empty where it has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        namespace: String,
    },
    /// A case waited for something, and saw it or did not.
    Step {
        /// Which case.
        case: CaseId,
        /// For what: `claim ns/name to be Bound`.
        what: String,
        /// From when.
        start: Stamp,
        /// How long.
        seconds: f64,
        /// What was seen last, where it did not come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A case failed: what there was to see of it then.
    Evidence(Evidence),
    /// A case ended; a skipped one ends without having begun.
    CaseFinished {
        /// Which.
        case: CaseId,
        /// How.
        #[serde(flatten)]
        result: CaseResult,
        /// How long it ran.
        seconds: f64,
    },
    /// A phase ended, or will never end.
    Phase(PhaseSample),
    /// A volume entered or left the set of what is attached, staged or mounted.
    Transition(Transition),
    /// A CSI call ended.
    Rpc(RpcSummary),
    /// A write to the API was answered. Told where traces are wanted and the API server is ours.
    ApiWrite(ApiWrite),
    /// A CSI call came out of order, or twice.
    Violation {
        /// The rule it broke.
        rule: Rule,
        /// Which call, on which volume.
        detail: String,
    },
    /// A case saw something that is allowed, and that whoever reads the report should know.
    Remark {
        /// Which case.
        case: CaseId,
        /// What it saw.
        text: String,
    },
    /// Something was left behind.
    Leak(Leak),
    /// How long a change of a probe object took to reach our own watch.
    WatchLag {
        /// From the write's answer to the watch event.
        seconds: f64,
    },
    /// What a load does.
    Load(LoadEvent),
    /// How a node's clocks stand to ours; told again whenever more is known.
    Clock(NodeClock),
    /// What a stock component measured itself during the run.
    Stock(StockMetrics),
    /// A component ended by itself, and is started again.
    Ended(ComponentEnd),
    /// How fast the machine was on which all this ran; told at the end.
    Pace(Pace),
}

/// What a fixed piece of work cost a machine, done again and again over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Which work it was: 0 where a version of ours did it that did not say.
    #[serde(default)]
    pub work: u32,
    /// How often.
    pub times: u64,
    /// The processor time of all of them together, seconds.
    pub seconds: f64,
}

impl Pace {
    /// What the work cost once; seconds.
    pub fn mean(&self) -> f64 {
        self.seconds / self.times as f64
    }
}

/// Which set a volume entered or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransitionKind {
    /// Entered {(volume, node)}: ControllerPublishVolume succeeded.
    Attach,
    /// Left it: ControllerUnpublishVolume succeeded.
    Detach,
    /// Entered the staged {(volume, node)}.
    Stage,
    /// Left it.
    Unstage,
    /// Entered {(volume, target)}: NodePublishVolume succeeded.
    Mount,
    /// Left it: NodeUnpublishVolume succeeded.
    Unmount,
}

impl TransitionKind {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Attach, Self::Detach, Self::Stage, Self::Unstage, Self::Mount, Self::Unmount];

    /// The name in counts and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Stage => "stage",
            Self::Unstage => "unstage",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
        }
    }

    /// The transition that this one takes back; none for those that enter.
    pub const fn undoes(self) -> Option<Self> {
        match self {
            Self::Attach | Self::Stage | Self::Mount => None,
            Self::Detach => Some(Self::Attach),
            Self::Unstage => Some(Self::Stage),
            Self::Unmount => Some(Self::Mount),
        }
    }
}

/// A volume entered or left a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Which set, in or out.
    pub kind: TransitionKind,
    /// When.
    pub when: Stamp,
    /// The driver's name.
    pub driver: String,
    /// The volume's handle.
    pub volume: String,
    /// The node, as the driver knows it.
    pub node: String,
    /// The target path; empty for attach and stage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
}

/// A CSI call that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RpcSummary {
    /// The driver's name.
    pub driver: String,
    /// The bare method, `NodeStageVolume`.
    pub method: String,
    /// The gRPC status, `OK`; empty where the call never ended.
    pub code: String,
    /// The volume's handle, or its name for CreateVolume.
    pub volume: String,
    /// The node; empty for a controller's call.
    pub node: String,
    /// When it began.
    pub start: Stamp,
    /// How long it took.
    pub seconds: f64,
    /// The previous call of the same method on the same object failed.
    pub retry: bool,
}

/// An order that CSI or Kubernetes demands of calls on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Attached again while attached.
    AttachTwice,
    /// Staged again while staged.
    StageTwice,
    /// Published again at the same target while published.
    PublishTwice,
    /// Published while not staged, by a driver that stages.
    PublishBeforeStage,
    /// Unstaged while published at a target of the node.
    UnstageBeforeUnpublish,
    /// Detached while staged on the node.
    DetachBeforeUnstage,
    /// Deleted while attached somewhere.
    DeleteBeforeDetach,
}

impl Rule {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::AttachTwice,
        Self::StageTwice,
        Self::PublishTwice,
        Self::PublishBeforeStage,
        Self::UnstageBeforeUnpublish,
        Self::DetachBeforeUnstage,
        Self::DeleteBeforeDetach,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttachTwice => "attach_twice",
            Self::StageTwice => "stage_twice",
            Self::PublishTwice => "publish_twice",
            Self::PublishBeforeStage => "publish_before_stage",
            Self::UnstageBeforeUnpublish => "unstage_before_unpublish",
            Self::DetachBeforeUnstage => "detach_before_unstage",
            Self::DeleteBeforeDetach => "delete_before_detach",
        }
    }
}

/// The clocks of a node that is observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeClock {
    /// The node's name.
    pub node: String,
    /// How they stand to ours.
    #[serde(flatten)]
    pub state: ClockState,
}

/// How a node's clocks stand to ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ClockState {
    /// Asked, and answered.
    Known {
        /// How far its wall clock is ahead of ours; negative where it is behind.
        ahead_seconds: f64,
        /// How far off that is at most, and so are the times of what was seen on the node.
        bound_seconds: f64,
    },
    /// Nobody answered: times of what was seen on the node are when it can have been at the latest.
    Unknown {
        /// Why not.
        why: String,
    },
    /// Nobody watches the node's mounts: what only they show is not seen.
    Unobserved {
        /// Why not, and what to do.
        why: String,
    },
}

/// Something left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// What it is.
    pub kind: LeakKind,
    /// Its name, path or id.
    pub name: String,
    /// The case that left it; none where only the end of the run found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
}

/// The kinds of things that can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeakKind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A Pod.
    Pod,
    /// A VolumeAttachment.
    Attachment,
    /// A volume that is attached by the count of calls.
    Attached,
    /// A volume that is staged by the count of calls.
    Staged,
    /// A volume that is mounted by the count of calls.
    Mounted,
    /// An entry of a mount table.
    Mount,
    /// A loop device.
    LoopDevice,
    /// A volume of the driver that no object knows.
    BackendVolume,
    /// A VolumeSnapshot.
    Snapshot,
    /// A VolumeSnapshotContent.
    SnapshotContent,
    /// A snapshot of the driver that nobody has deleted.
    BackendSnapshot,
    /// A process.
    Process,
}

impl LeakKind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Claim,
        Self::Volume,
        Self::Pod,
        Self::Attachment,
        Self::Attached,
        Self::Staged,
        Self::Mounted,
        Self::Mount,
        Self::LoopDevice,
        Self::BackendVolume,
        Self::Snapshot,
        Self::SnapshotContent,
        Self::BackendSnapshot,
        Self::Process,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Volume => "volume",
            Self::Pod => "pod",
            Self::Attachment => "attachment",
            Self::Attached => "attached",
            Self::Staged => "staged",
            Self::Mounted => "mounted",
            Self::Mount => "mount",
            Self::LoopDevice => "loop_device",
            Self::BackendVolume => "backend_volume",
            Self::Snapshot => "snapshot",
            Self::SnapshotContent => "snapshot_content",
            Self::BackendSnapshot => "backend_snapshot",
            Self::Process => "process",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CapabilityPlan, Outcome, Phase, SubjectIds, VolumeMode};

    #[test]
    fn a_line_of_the_log_reads_back() {
        let at = Stamp { mono_ns: 1, wall_ns: 2 };
        let events = [
            Event::RunStarted(RunInfo {
                cases: 3,
                capabilities: vec![CapabilityPlan {
                    capability: crate::Capability::Rwx,
                    declared: Some(true),
                    answered: None,
                    cases: Vec::new(),
                }],
                ..RunInfo::default()
            }),
            Event::CaseFinished {
                case: CaseId::new("volumes", "keeps data[dynamic]"),
                result: CaseResult::Failed { why: "no".into() },
                seconds: 0.5,
            },
            Event::Phase(PhaseSample {
                phase: Phase::Stage,
                subject: SubjectIds { node: "n".into(), ..SubjectIds::default() },
                claim: "ns/c".into(),
                handle: String::new(),
                driver: "d".into(),
                class: String::new(),
                volume_mode: VolumeMode::Block,
                outcome: Outcome::Aborted { start: at },
            }),
            Event::Leak(Leak { kind: LeakKind::LoopDevice, name: "/dev/loop0".into(), case: None }),
        ];
        for event in events {
            let line = serde_json::to_string(&LoggedEvent { at, event: event.clone() }).unwrap();
            assert_eq!(
                serde_json::from_str::<LoggedEvent>(&line).unwrap(),
                LoggedEvent { at, event },
                "{line}"
            );
        }
    }

    #[test]
    fn names_are_what_serde_writes() {
        for rule in Rule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
        }
        for kind in LeakKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for kind in TransitionKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
