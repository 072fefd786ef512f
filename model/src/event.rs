//! The events of a run: the only interface between execution and reporting.
//!
//! The runner and the timeline emit them; terminal, run folder and metrics consume them. Data that
//! no event carries is in no report. One line of `events.ndjson` is one [`LoggedEvent`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApiWrite, CaseId, CaseResult, ComponentEnd, ComponentFault, Denial, FailureDump, LoadEvent, PhaseSample,
    RpcMethod, RunInfo, Stamp, StockMetrics, Unserved,
};

/// An event and the time at which the reporter received it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedEvent {
    /// When it was logged; the event itself has the time at which it happened.
    pub at: Stamp,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first event: the driver, cluster and environment of the run.
    RunStarted(RunInfo),
    /// The last event.
    RunFinished {
        /// Elapsed since the process started.
        seconds: f64,
        /// The run was interrupted before all cases had finished.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
    },
    /// The last event of a run that could not start, or not be completed.
    RunAborted {
        /// The reason.
        reason: String,
    },
    /// A case started.
    CaseStarted {
        /// The case.
        case: CaseId,
        /// Its dedicated namespace; empty if it has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        namespace: String,
    },
    /// A case waited for a condition, which was met or not.
    Step {
        /// The case.
        case: CaseId,
        /// The condition: `claim ns/name to be Bound`.
        what: String,
        /// The start of the wait.
        start: Stamp,
        /// The duration of the wait.
        seconds: f64,
        /// The last observed state, if the condition was not met.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A case failed: its objects, Events and logs at that moment.
    #[serde(alias = "evidence")]
    FailureDump(FailureDump),
    /// A case finished; a skipped one finishes without having started.
    CaseFinished {
        /// The case.
        case: CaseId,
        /// The result.
        #[serde(flatten)]
        result: CaseResult,
        /// How long it ran.
        seconds: f64,
    },
    /// A phase ended, or was aborted.
    Phase(PhaseSample),
    /// A volume entered or left the set of attached, staged or mounted volumes.
    Transition(Transition),
    /// A CSI call ended.
    Rpc(RpcSummary),
    /// An API write completed. Emitted only if traces are requested and the API server is the embedded one.
    ApiWrite(ApiWrite),
    /// A CSI call was made out of order, or twice.
    Violation {
        /// The violated rule.
        rule: Rule,
        /// The call and the volume.
        detail: String,
    },
    /// A case observed behaviour that is permitted, but worth a warning in the report.
    Warning {
        /// The case.
        case: CaseId,
        /// The text of the warning.
        text: String,
    },
    /// RBAC does not permit a verb that a program requested.
    Denied(Denial),
    /// A program requested a resource that the API server does not serve.
    Unserved(Unserved),
    /// An object, mount or device was leaked.
    Leak(Leak),
    /// The time that a change of a probe object took to reach the harness' own watch.
    WatchLag {
        /// From the response to the write to the watch event.
        seconds: f64,
    },
    /// Progress of a load.
    Load(LoadEvent),
    /// The offset of a node's clocks; emitted again whenever the estimate improves.
    Clock(NodeClock),
    /// Metrics that an upstream component recorded itself during the run.
    Stock(StockMetrics),
    /// A component exited unexpectedly and is restarted.
    #[serde(alias = "ended")]
    ComponentExited(ComponentEnd),
    /// A fault of a built-in component.
    ComponentFault(ComponentFault),
}

/// The set that a volume entered or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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

    /// The transition that this one reverses; none for those that enter a set.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transition {
    /// The set, and the direction.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RpcSummary {
    /// The driver's name.
    pub driver: String,
    /// The method.
    pub method: RpcMethod,
    /// The gRPC status code, `OK`; empty if the call never completed.
    pub code: String,
    /// The volume's handle, or its name for CreateVolume.
    pub volume: String,
    /// The node; empty for calls to the controller service.
    pub node: String,
    /// When it began.
    pub start: Stamp,
    /// How long it took.
    pub seconds: f64,
    /// Whether the previous call of the same method on the same object failed.
    pub retry: bool,
}

/// An ordering rule that CSI or Kubernetes imposes on calls for one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Attached again while attached.
    AttachTwice,
    /// Staged again while staged.
    StageTwice,
    /// Published again at the same target while published.
    PublishTwice,
    /// Published while not staged, with a driver that has STAGE_UNSTAGE_VOLUME.
    PublishBeforeStage,
    /// Unstaged while published at a target path on the node.
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

/// The clocks of an observed node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeClock {
    /// The node's name.
    pub node: String,
    /// Their offset.
    #[serde(flatten)]
    pub state: ClockState,
}

/// The offset of a node's clocks from the clocks of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ClockState {
    /// The offset was measured.
    Known {
        /// How far its wall clock is ahead of this machine's; negative if it is behind.
        ahead_seconds: f64,
        /// The error bound of the offset, and thus of the times of observations on the node.
        bound_seconds: f64,
    },
    /// The node did not respond: times of observations on it are upper bounds.
    Unknown {
        /// The reason.
        #[serde(alias = "why")]
        reason: String,
    },
    /// The node's mounts are not watched: what only they show is not observed.
    Unobserved {
        /// The reason, and the remedy.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// A leaked object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leak {
    /// Its kind.
    pub kind: LeakKind,
    /// Its name, path or id.
    pub name: String,
    /// The case that leaked it; none if it was found only at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseId>,
}

/// The kinds of objects that can be leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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
    /// A volume that is attached according to its CSI calls.
    Attached,
    /// A volume that is staged according to its CSI calls.
    Staged,
    /// A volume that is mounted according to its CSI calls.
    Mounted,
    /// An entry of a mount table.
    Mount,
    /// A loop device.
    LoopDevice,
    /// A volume of the driver that no API object refers to.
    BackendVolume,
    /// A VolumeSnapshot.
    Snapshot,
    /// A VolumeSnapshotContent.
    SnapshotContent,
    /// A snapshot of the driver that was not deleted.
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
    use crate::{
        CapabilityPlan, LoadPlan, Outcome, Phase, StockComponent, StockState, SubjectIds, VolumeMode,
    };

    #[test]
    fn a_line_of_the_log_reads_back() {
        let at = Stamp { mono_ns: 1, wall_ns: 2 };
        let events = [
            Event::RunStarted(RunInfo {
                cases: 3,
                capabilities: vec![CapabilityPlan {
                    capability: crate::Capability::Rwx,
                    declared: Some(true),
                    supported: None,
                    cases: Vec::new(),
                }],
                ..RunInfo::default()
            }),
            Event::CaseFinished {
                case: CaseId::new("volumes", "keeps data[dynamic]"),
                result: CaseResult::Failed { reason: "no".into(), cause: Some("it says no".into()) },
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
    fn lines_of_earlier_versions_are_read() {
        let (at, case) = (Stamp { mono_ns: 1, wall_ns: 2 }, CaseId::new("volumes", "keeps data"));
        let reason = || "no".to_owned();
        let capability = CapabilityPlan {
            capability: crate::Capability::Rwx,
            declared: Some(true),
            supported: Some(false),
            cases: Vec::new(),
        };
        let finished = |result| Event::CaseFinished { case: case.clone(), result, seconds: 0.5 };
        let run = Event::RunStarted(RunInfo {
            capabilities: vec![capability],
            environment: [("privilege".to_owned(), "root".to_owned())].into(),
            ..RunInfo::default()
        });
        let stock = StockMetrics {
            component: StockComponent::KubeControllerManager,
            state: StockState::Absent { reason: reason() },
        };
        let clock = |state| Event::Clock(NodeClock { node: "n".into(), state });
        let dump =
            FailureDump { case: case.clone(), objects: Vec::new(), events: Vec::new(), logs: Vec::new() };
        let earlier = [
            (Event::RunStarted(RunInfo::default()), r#""schema":0,"#, ""),
            (Event::ComponentExited(ComponentEnd::default()), r#""component_exited""#, r#""ended""#),
            (Event::FailureDump(dump), r#""failure_dump""#, r#""evidence""#),
            (Event::Load(LoadEvent::Started(LoadPlan::default())), r#""started""#, r#""began""#),
            (
                Event::Load(LoadEvent::Finished { seconds: 1.0, up_seconds: None }),
                r#""finished""#,
                r#""ended""#,
            ),
            (
                Event::Load(LoadEvent::Failed { claims: Vec::new(), reason: reason() }),
                r#""reason""#,
                r#""why""#,
            ),
            (finished(CaseResult::failed(reason())), r#""reason""#, r#""why""#),
            (finished(CaseResult::Skipped { reason: reason() }), r#""reason""#, r#""why""#),
            (clock(ClockState::Unknown { reason: reason() }), r#""reason""#, r#""why""#),
            (clock(ClockState::Unobserved { reason: reason() }), r#""reason""#, r#""why""#),
            (Event::Stock(stock), r#""reason""#, r#""why""#),
            (run.clone(), r#""supported""#, r#""answered""#),
            (run, r#""privilege""#, r#""lane""#),
        ];
        for (event, name, earlier_name) in earlier {
            let line = serde_json::to_string(&LoggedEvent { at, event: event.clone() }).unwrap();
            assert_eq!(line.matches(name).count(), 1, "{line}");
            let line = line.replace(name, earlier_name);
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
