//! Counts attached, staged and mounted volumes by successful CSI calls, and checks the ordering rules
//! of calls. Attach and mount are *transitions* of the sets; calls, retries and errors
//! are counted separately.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_csi::tap::TapRecord;
use claimcheck_model::{CsiMethod, Event, Rule, Stamp, Transition, TransitionKind};

use super::calls::{Handle, handle_of};

/// The number of transitions of each kind.
pub type Counts = BTreeMap<TransitionKind, u64>;

/// The kind of an entry of the sets, its volume and node; of a mount also its target path.
type EntryKey = (TransitionKind, Handle, String, String);

/// The sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// Volume and node id.
    pub attached: BTreeSet<(Handle, String)>,
    /// Volume and node.
    pub staged: BTreeSet<(Handle, String)>,
    /// Volume, node and target path.
    pub mounted: BTreeSet<(Handle, String, String)>,
    /// Transitions so far, by volume.
    pub counts: BTreeMap<Handle, Counts>,
    /// Entries that a failed call may have undone: repeating the call is permitted, regardless of the sets.
    doubts: BTreeSet<EntryKey>,
    /// The process that made an entry. Another one, such as a restarted node agent, may repeat the call: it cannot know
    /// whether all that follows the call was done.
    callers: BTreeMap<EntryKey, u32>,
    /// Drivers with STAGE_UNSTAGE_VOLUME.
    stagers: BTreeSet<String>,
    /// Calls that may be repeated although the first one succeeded.
    pub repeatable: &'static [Rule],
    /// Drivers with `requiresRepublish`: nodes repeat NodePublishVolume periodically.
    pub republished: BTreeSet<String>,
    suspects: Vec<Suspect>,
}

/// A call that seems out of order. The record of the call that it should have followed may still be in
/// transit from another process, so the decision is deferred to the end.
#[derive(Debug)]
struct Suspect {
    rule: Rule,
    volume: Handle,
    /// The node; any if empty.
    node: String,
    /// The start of the call.
    at: Stamp,
    /// The transition that would justify it, had it happened before.
    cleared_by: TransitionKind,
}

impl Sets {
    /// Records a call. `node` is the name of its node, while the call itself has the driver's node id; `lost`: it
    /// cannot unmount its volumes.
    pub fn apply(&mut self, rpc: &TapRecord, node: &str, lost: bool) -> Vec<Event> {
        let Some(when) = rpc.succeeded() else {
            self.doubt(rpc);
            return Vec::new();
        };
        let mut step = Step { rpc, when, volume: handle_of(rpc), events: Vec::new() };
        match rpc.method.csi() {
            Some(CsiMethod::ControllerPublishVolume) => {
                let entered = self.attached.insert((step.volume.clone(), rpc.node().to_owned()));
                self.entered(&mut step, entered, TransitionKind::Attach, Rule::AttachTwice);
            }
            Some(CsiMethod::NodeStageVolume) => {
                self.stagers.insert(rpc.driver().to_owned());
                let entered = self.staged.insert((step.volume.clone(), rpc.node().to_owned()));
                self.entered(&mut step, entered, TransitionKind::Stage, Rule::StageTwice);
            }
            Some(CsiMethod::NodePublishVolume) => {
                let staged = self.staged.contains(&(step.volume.clone(), rpc.node().to_owned()));
                if !staged && self.stagers.contains(rpc.driver()) && !is_inline(rpc.volume()) {
                    step.broke(Rule::PublishBeforeStage);
                }
                let entered = self.mounted.insert((
                    step.volume.clone(),
                    rpc.node().to_owned(),
                    rpc.target().to_owned(),
                ));
                self.entered(&mut step, entered, TransitionKind::Mount, Rule::PublishTwice);
            }
            Some(CsiMethod::NodeUnpublishVolume) => {
                let left = self.mounted.remove(&(
                    step.volume.clone(),
                    rpc.node().to_owned(),
                    rpc.target().to_owned(),
                ));
                self.left(&mut step, left, TransitionKind::Unmount, rpc.node());
            }
            Some(CsiMethod::NodeUnstageVolume) => {
                let first = (step.volume.clone(), rpc.node().to_owned(), String::new());
                let next = self.mounted.range(first..).next();
                if next.is_some_and(|(volume, node, _)| *volume == step.volume && node == rpc.node()) {
                    step.broke(Rule::UnstageBeforeUnpublish);
                }
                let left = self.staged.remove(&(step.volume.clone(), rpc.node().to_owned()));
                self.left(&mut step, left, TransitionKind::Unstage, rpc.node());
            }
            Some(CsiMethod::ControllerUnpublishVolume) => self.detached(&mut step, node, lost),
            Some(CsiMethod::DeleteVolume) => {
                let next = self.attached.range((step.volume.clone(), String::new())..).next();
                if next.is_some_and(|(volume, _)| *volume == step.volume) {
                    self.suspect(&step, Rule::DeleteBeforeDetach, "", TransitionKind::Detach);
                }
            }
            _ => {}
        }
        step.events
    }

    /// Without a node the call detaches from all of them (CSI specification, ControllerUnpublishVolume).
    fn detached(&mut self, step: &mut Step<'_>, node: &str, lost: bool) {
        let id = step.rpc.node();
        if !lost && self.staged.contains(&(step.volume.clone(), node.to_owned())) {
            self.suspect(step, Rule::DetachBeforeUnstage, node, TransitionKind::Unstage);
        }
        let all = self.attached.range((step.volume.clone(), String::new())..);
        let of_volume = all.take_while(|(volume, _)| *volume == step.volume);
        let left: Vec<_> = of_volume.filter(|(_, node)| id.is_empty() || node == id).cloned().collect();
        for entry in left {
            self.attached.remove(&entry);
            self.left(step, true, TransitionKind::Detach, &entry.1);
        }
    }

    fn entered(&mut self, step: &mut Step<'_>, entered: bool, kind: TransitionKind, twice: Rule) {
        let key = entry_key(kind, step.rpc);
        let doubted = self.doubts.remove(&key);
        let caller = step.rpc.id.pid;
        let by_another = self.callers.insert(key, caller).is_some_and(|before| before != caller);
        if entered {
            let node = step.rpc.node();
            self.transition(step, kind, node);
        } else if !doubted && !by_another && !self.repeatable.contains(&twice) {
            let republished = twice == Rule::PublishTwice && self.republished.contains(step.rpc.driver());
            if !republished {
                step.broke(twice);
            }
        }
    }

    /// A failed call may nevertheless have taken effect.
    fn doubt(&mut self, rpc: &TapRecord) {
        let undone = match rpc.method.csi() {
            Some(CsiMethod::ControllerUnpublishVolume) => TransitionKind::Attach,
            Some(CsiMethod::NodeUnstageVolume) => TransitionKind::Stage,
            Some(CsiMethod::NodeUnpublishVolume) => TransitionKind::Mount,
            _ => return,
        };
        self.doubts.insert(entry_key(undone, rpc));
    }

    fn left(&mut self, step: &mut Step<'_>, left: bool, kind: TransitionKind, node: &str) {
        if left {
            if let Some(done) = kind.undoes() {
                let key = entry_key(done, step.rpc);
                self.doubts.remove(&key);
                self.callers.remove(&key);
            }
            self.transition(step, kind, node);
            let clears = |suspect: &Suspect| {
                suspect.cleared_by == kind
                    && suspect.volume == step.volume
                    && (suspect.node.is_empty() || suspect.node == node)
                    && step.when <= suspect.at
            };
            self.suspects.retain(|suspect| !clears(suspect));
        }
    }

    fn transition(&mut self, step: &mut Step<'_>, kind: TransitionKind, node: &str) {
        let event = self.count(kind, step.volume.clone(), step.when, node, step.rpc.target());
        step.events.push(event);
    }

    fn count(
        &mut self,
        kind: TransitionKind,
        volume: Handle,
        when: Stamp,
        node: &str,
        target: &str,
    ) -> Event {
        *self.counts.entry(volume.clone()).or_default().entry(kind).or_default() += 1;
        let (driver, volume) = volume;
        Event::Transition(Transition {
            kind,
            when,
            driver,
            volume,
            node: node.to_owned(),
            target: target.to_owned(),
        })
    }

    fn suspect(&mut self, step: &Step<'_>, rule: Rule, node: &str, cleared_by: TransitionKind) {
        let (volume, at) = (step.volume.clone(), step.rpc.start);
        self.suspects.push(Suspect { rule, volume, node: node.to_owned(), at, cleared_by });
    }

    /// Records the attachment or detachment of a VolumeAttachment, if no calls are recorded.
    pub fn watched(
        &mut self,
        kind: TransitionKind,
        volume: Handle,
        node: &str,
        when: Stamp,
    ) -> Option<Event> {
        let entry = (volume.clone(), node.to_owned());
        let changed = match kind {
            TransitionKind::Attach => self.attached.insert(entry),
            _ => self.attached.remove(&entry),
        };
        changed.then(|| self.count(kind, volume, when, node, ""))
    }

    /// Removes the attachments of a volume, without an event.
    pub fn unload(&mut self, volume: &Handle) {
        let attached = self.attached.range((volume.clone(), String::new())..);
        let of_volume: Vec<_> = attached.take_while(|(other, _)| other == volume).cloned().collect();
        for entry in of_volume {
            self.attached.remove(&entry);
        }
    }

    /// Removes the suspects, since evidence is missing.
    pub fn dismiss_suspects(&mut self) {
        self.suspects.clear();
    }

    /// Decides the remaining suspects: no more evidence will arrive.
    pub fn finish(&mut self) -> Vec<Event> {
        let judged =
            self.suspects.drain(..).map(|Suspect { rule, volume: (driver, handle), node, .. }| {
                let on = if node.is_empty() { String::new() } else { format!(" on node {node}") };
                Event::Violation { rule, detail: format!("volume {handle} of {driver}{on}") }
            });
        judged.collect()
    }
}

/// Whether a volume is an inline ephemeral one: it is published and never staged. Kubelets name such volumes after pod
/// and volume (`makeVolumeHandle` in upstream's `pkg/volume/csi/csi_mounter.go`).
fn is_inline(volume: &str) -> bool {
    let digest = volume.strip_prefix("csi-");
    digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The entry of a call.
fn entry_key(kind: TransitionKind, rpc: &TapRecord) -> EntryKey {
    let target = if kind == TransitionKind::Mount { rpc.target().to_owned() } else { String::new() };
    (kind, handle_of(rpc), rpc.node().to_owned(), target)
}

/// One call being applied to the sets.
struct Step<'a> {
    rpc: &'a TapRecord,
    when: Stamp,
    volume: Handle,
    events: Vec<Event>,
}

impl Step<'_> {
    fn broke(&mut self, rule: Rule) {
        let (method, volume, node) = (&self.rpc.method, self.rpc.volume(), self.rpc.node());
        self.events
            .push(Event::Violation { rule, detail: format!("{method} of volume {volume} on node {node}") });
    }
}
