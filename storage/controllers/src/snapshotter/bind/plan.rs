//! The next step of a snapshot, of a content, and of a claim that is held for snapshots.
//!
//! ```text
//! class ──> finalizers ──> claim held ──> content made (or found, and bound) ──> status follows the content's
//! ```
//!
//! Upstream: `syncSnapshot` and `syncContent` in `pkg/common-controller/snapshot_controller.go`. Unlike there a
//! snapshot whose content was lost is not made again: it would be one of other data.

use std::sync::Arc;

use claimcheck_informer::{SnapshotBy, World, quantity};
use claimcheck_model::{
    ObjectKey, SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_CLAIM_PROTECTION, SNAPSHOT_CONTENT_PROTECTION,
    SNAPSHOT_SOURCE_PROTECTION,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotStatus},
    snapshot_content_name,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::{plan_deletion::plan_deletion, source, trouble::Trouble};
use crate::claims::{is_deleting, name};

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the default class into the snapshot.
    SetClass {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// The class.
        class: String,
    },
    /// Have the snapshot held, or let go of it.
    SetFinalizers {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// All of its finalizers.
        finalizers: Vec<String>,
    },
    /// Hold the claim until the snapshot is made.
    HoldClaim(Arc<PersistentVolumeClaim>),
    /// Let go of the claim.
    ReleaseClaim(Arc<PersistentVolumeClaim>),
    /// Ask the driver for the snapshot.
    CreateContent {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// What is asked for.
        content: Box<VolumeSnapshotContent>,
    },
    /// Bind a content that was there before the snapshot.
    BindContent {
        /// The content.
        content: Arc<VolumeSnapshotContent>,
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
    },
    /// Hold the content until the driver has deleted the snapshot.
    HoldContent(Arc<VolumeSnapshotContent>),
    /// Write what is known of the snapshot.
    Report {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// What is known.
        status: Box<VolumeSnapshotStatus>,
    },
    /// Write what is wrong.
    Fail {
        /// The snapshot.
        snapshot: Arc<VolumeSnapshot>,
        /// What is wrong.
        trouble: Trouble,
    },
    /// Tell that the snapshot stays until the claims that are made from it have their volumes.
    TellInUse(Arc<VolumeSnapshot>),
    /// Tell the driver's snapshotter that the snapshot is being deleted.
    Announce(Arc<VolumeSnapshotContent>),
    /// Delete the content, which goes when the driver has deleted the snapshot.
    DeleteContent(Arc<VolumeSnapshotContent>),
}

/// Plans the snapshot of this key.
pub fn plan_snapshot(key: &ObjectKey, world: &World) -> Option<Action> {
    let snapshot = world.snapshots.get(key)?;
    let step = if is_deleting(&**snapshot) {
        return plan_deletion(key, snapshot, world);
    } else if let Some(content) = snapshot.content() {
        follow(snapshot, world.snapshot_contents.named(content))
    } else if let Some(content) = &snapshot.spec.source.volume_snapshot_content_name {
        find(snapshot, content, world)
    } else {
        make(snapshot, world)
    };
    step.unwrap_or_else(|trouble| fail(snapshot, trouble))
}

/// Plans the content of this name.
pub fn plan_content(content: &str, world: &World) -> Option<Action> {
    let content = world.snapshot_contents.named(content)?;
    let bound = content.spec.volume_snapshot_ref.uid.as_ref().is_some_and(|uid| !uid.is_empty());
    let held = has(&content.metadata, SNAPSHOT_CONTENT_PROTECTION);
    (bound && !held && !is_deleting(&**content)).then(|| Action::HoldContent(content.clone()))
}

/// Plans the claim of this key: it is held as long as a snapshot of it is not ready.
pub fn plan_claim(key: &ObjectKey, world: &World) -> Option<Action> {
    let claim = world.claims.get(key)?;
    let wanted = || world.snapshots.by(SnapshotBy::Claim, &key.to_string()).any(|one| !one.is_ready());
    let held = has(&claim.metadata, SNAPSHOT_CLAIM_PROTECTION);
    (held && !wanted()).then(|| Action::ReleaseClaim(claim.clone()))
}

type Step = Result<Option<Action>, Trouble>;

/// A snapshot that is bound.
fn follow(snapshot: &Arc<VolumeSnapshot>, content: Option<&Arc<VolumeSnapshotContent>>) -> Step {
    let content = content.ok_or(Trouble::ContentMissing)?;
    if !content.is_bound_to(snapshot) {
        return Err(Trouble::Unbound);
    }
    Ok(hold(snapshot, content.is_deleted_with_snapshot()).or_else(|| report(snapshot, content)))
}

/// A snapshot that asks for a content that is there already.
fn find(snapshot: &Arc<VolumeSnapshot>, content: &str, world: &World) -> Step {
    let content = world.snapshot_contents.named(content).ok_or(Trouble::ContentMissing)?;
    if content.spec.source.snapshot_handle.is_none() {
        return Err(Trouble::NotPreProvisioned);
    }
    let (meant, meta) = (&content.spec.volume_snapshot_ref, &snapshot.metadata);
    let uid = meant.uid.as_ref().filter(|uid| !uid.is_empty());
    let is_other = uid.is_some() && uid != meta.uid.as_ref();
    if meant.name != meta.name || meant.namespace != meta.namespace || is_other {
        return Err(Trouble::Misbound(name(&**content).to_owned()));
    }
    if let Some(hold) = hold(snapshot, content.is_deleted_with_snapshot()) {
        return Ok(Some(hold));
    }
    let classless = content.spec.volume_snapshot_class_name.is_none();
    if uid.is_none() || (classless && snapshot.spec.volume_snapshot_class_name.is_some()) {
        let (content, snapshot) = (content.clone(), snapshot.clone());
        return Ok(Some(Action::BindContent { content, snapshot }));
    }
    Ok(report(snapshot, content))
}

/// A snapshot that is to be made.
fn make(snapshot: &Arc<VolumeSnapshot>, world: &World) -> Step {
    let Some(class_name) = &snapshot.spec.volume_snapshot_class_name else {
        let class = source::default_class(snapshot, world).map_err(Trouble::DefaultClass)?;
        return Ok(Some(Action::SetClass { snapshot: snapshot.clone(), class }));
    };
    let content = snapshot_content_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
    if let Some(content) = world.snapshot_contents.named(&content) {
        if content.spec.source.volume_handle.is_none() {
            return Err(Trouble::NotDynamic(name(&**content).to_owned()));
        }
        if !content.is_bound_to(snapshot) {
            return Err(Trouble::Misbound(name(&**content).to_owned()));
        }
        return Ok(hold(snapshot, content.is_deleted_with_snapshot()).or_else(|| report(snapshot, content)));
    }
    let class = world.snapshot_classes.named(class_name);
    let class = class.ok_or_else(|| Trouble::NoClass(class_name.clone()))?;
    if let Some(hold) = hold(snapshot, class.deletion_policy == "Delete") {
        return Ok(Some(hold));
    }
    let (claim, held) = source::held_claim(snapshot, world, SNAPSHOT_CLAIM_PROTECTION)?;
    if !held {
        return Ok(Some(Action::HoldClaim(claim.clone())));
    }
    let content = Box::new(source::content(snapshot, claim, class, world)?);
    Ok(Some(Action::CreateContent { snapshot: snapshot.clone(), content }))
}

/// Whether an object has a finalizer.
pub(super) fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|held| held == finalizer)
}

/// Has the snapshot held as a source of claims and, if it goes with its content, for that.
fn hold(snapshot: &Arc<VolumeSnapshot>, with_content: bool) -> Option<Action> {
    let mut finalizers = snapshot.metadata.finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    let wanted = [(SNAPSHOT_SOURCE_PROTECTION, true), (SNAPSHOT_BOUND_PROTECTION, with_content)];
    for (finalizer, _) in wanted.iter().filter(|(_, wanted)| *wanted) {
        if !has(&snapshot.metadata, finalizer) {
            finalizers.push((*finalizer).to_owned());
        }
    }
    let snapshot = snapshot.clone();
    (finalizers.len() > before).then_some(Action::SetFinalizers { snapshot, finalizers })
}

/// What the content says of the snapshot, unless the snapshot says so already.
fn report(snapshot: &Arc<VolumeSnapshot>, content: &VolumeSnapshotContent) -> Option<Action> {
    let old = snapshot.status.clone().unwrap_or_default();
    let known = content.status.clone().unwrap_or_default();
    let created = known.creation_time.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    let status = VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: old
            .bound_volume_snapshot_content_name
            .or_else(|| content.metadata.name.clone()),
        creation_time: old.creation_time.or_else(|| created.map(Time)),
        error: known.error,
        ready_to_use: Some(known.ready_to_use.unwrap_or(false)),
        restore_size: old.restore_size.or_else(|| known.restore_size.map(quantity::from_bytes)),
        volume_group_snapshot_name: old.volume_group_snapshot_name,
    };
    let news = snapshot.status.as_ref() != Some(&status);
    news.then(|| Action::Report { snapshot: snapshot.clone(), status: Box::new(status) })
}

/// Says what is wrong, unless the snapshot says so already.
fn fail(snapshot: &Arc<VolumeSnapshot>, trouble: Trouble) -> Option<Action> {
    let said = snapshot.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_deref());
    let news = said != Some(trouble.to_string().as_str());
    news.then(|| Action::Fail { snapshot: snapshot.clone(), trouble })
}
