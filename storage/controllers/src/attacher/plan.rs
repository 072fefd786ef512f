//! The next step of an attachment, and of a volume that is being deleted.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_csi::v1::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::{AttachmentBy, World};
use claimcheck_model::attacher_finalizer;
use k8s_openapi::{
    api::{
        core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, SecretReference},
        storage::v1::{CSINode, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::listing::Published;
use crate::{
    claims,
    rpc::{AccessModeError, DriverInfo, access_mode, volume_capability},
};

/// On an attachment: the driver's node id, for the case that its CSINode has been deleted.
pub const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// What is known of an attachment beyond its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// The driver published the volume and returned this context, which is not written yet.
    Published(BTreeMap<String, String>),
    /// The driver unpublished the volume, which is not written yet.
    Unpublished,
    /// The driver's list of volumes contradicts the status: the call must be repeated.
    Contradicted,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Add finalizers to these objects before a call, so that neither is deleted without the opposite call.
    Hold {
        /// The attachment, if it lacks the finalizer or the node's id.
        attachment: Option<Box<Unheld>>,
        /// The volume, if it lacks the finalizer.
        volume: Option<Arc<PersistentVolume>>,
    },
    /// Call ControllerPublishVolume.
    Publish {
        /// The attachment.
        attachment: Arc<VolumeAttachment>,
        /// The request, without secrets.
        request: Box<ControllerPublishVolumeRequest>,
        /// The secret that the request requires.
        secret: Option<SecretReference>,
    },
    /// Write that it is attached.
    MarkAttached {
        /// The attachment.
        attachment: Arc<VolumeAttachment>,
        /// The publish context.
        metadata: BTreeMap<String, String>,
    },
    /// Call ControllerUnpublishVolume.
    Unpublish {
        /// The attachment.
        attachment: Arc<VolumeAttachment>,
        /// The request, without secrets.
        request: Box<ControllerUnpublishVolumeRequest>,
        /// The secret that the request requires.
        secret: Option<SecretReference>,
    },
    /// Remove the attachment's finalizer.
    Release(Arc<VolumeAttachment>),
    /// Write that it is not attached: another component's finalizer still holds it.
    MarkDetached(Arc<VolumeAttachment>),
    /// Write why no call can be made, and retry later.
    Fail {
        /// The attachment.
        attachment: Arc<VolumeAttachment>,
        /// The reason.
        error: Obstacle,
    },
    /// Remove the volume's finalizer.
    ReleaseVolume(Arc<PersistentVolume>),
    /// Call ListVolumes.
    List,
}

/// An attachment that lacks the finalizer or the node's id.
#[derive(Clone, Debug, PartialEq)]
pub struct Unheld {
    /// The attachment.
    pub attachment: Arc<VolumeAttachment>,
    /// The driver's node id.
    pub node_id: String,
    /// The secret that the call requires: without it the finalizer is not added.
    pub secret: Option<SecretReference>,
}

/// Why a call cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It was force-deleted, or not created yet.
    #[error("persistentvolume {0:?} not found")]
    NoVolume(String),
    /// A volume that is being deleted is not attached any more.
    #[error("PersistentVolume {0:?} is marked for deletion")]
    VolumeGoes(String),
    /// Of another driver.
    #[error("the volume does not belong to driver {0}")]
    Foreign(String),
    /// Not a CSI volume.
    #[error("pv spec contained non-csi source that was not migrated")]
    NotCsi,
    /// Not an inline CSI volume.
    #[error("inline volume spec contains nil CSI source")]
    NotCsiInline,
    /// The attachment names no volume, or two.
    #[error("the attachment must name a PersistentVolume or have an inline volume, not both")]
    BadSource,
    /// No driver is registered on the node, or the node does not exist.
    #[error("csinode.storage.k8s.io {0:?} not found")]
    NoCsiNode(String),
    /// The driver is not on the node, or not yet.
    #[error("CSINode {node} does not contain driver {driver}")]
    NotOnNode {
        /// The node.
        node: String,
        /// The driver.
        driver: String,
    },
    /// See the error.
    #[error(transparent)]
    AccessMode(#[from] AccessModeError),
}

/// Plans the attachment with this name.
pub fn plan_attachment(
    name: &str,
    world: &World,
    driver: &DriverInfo,
    known: Option<&Known>,
) -> Option<Action> {
    let attachment = world.attachments.named(name).filter(|object| object.spec.attacher == driver.name)?;
    let deleting = attachment.metadata.deletion_timestamp.is_some();
    let attached = is_attached(attachment);
    if !driver.can(Rpc::PublishUnpublishVolume) {
        let attachment = attachment.clone();
        return (!deleting && !attached)
            .then(|| Action::MarkAttached { attachment, metadata: BTreeMap::new() });
    }
    let contradicted = known == Some(&Known::Contradicted);
    let step = match (deleting, attached) {
        (false, true) if known.is_none() => return None,
        (false, _) => attach(attachment, world, driver, known),
        (true, _) if contradicted || has_finalizer(&attachment.metadata, driver) => {
            detach(attachment, world, driver, known)
        }
        // Without the finalizer it counts as detached, whatever its status says, unless this attacher has just
        // detached it and has not written so (`syncDetach` in `csi_handler.go`).
        (true, _) if known == Some(&Known::Unpublished) && !is_marked_detached(attachment) => {
            return Some(Action::MarkDetached(attachment.clone()));
        }
        (true, _) => return None,
    };
    Some(step.unwrap_or_else(|error| Action::Fail { attachment: attachment.clone(), error }))
}

/// Whether the driver's list of volumes contradicts the attachment's status. Upstream: `ReconcileVA` in
/// `csi_handler.go`.
pub fn is_contradicted(
    attachment: &Arc<VolumeAttachment>,
    world: &World,
    driver: &DriverInfo,
    published: &Published,
) -> bool {
    let Ok(source) = Source::of(attachment, world, driver) else { return false };
    let Some(node_id) = last_node_id(attachment, world, driver) else { return false };
    let listed = published.get(&source.csi.volume_handle).is_some_and(|nodes| nodes.contains(&node_id));
    attachment.spec.attacher == driver.name && listed != is_attached(attachment)
}

/// Plans the volume with this name: the finalizer stays until the volume is deleted, since it may be attached
/// again before.
///
/// Unlike upstream the finalizer is removed as soon as the volume is released with policy Delete, not when its
/// object is being deleted. So this write happens while the driver deletes the volume, instead of afterwards
/// and in conflict with all other components that remove their finalizers then.
pub fn plan_volume(name: &str, world: &World, driver: &DriverInfo) -> Option<Action> {
    let volume = world.volumes.named(name)?;
    let goes = volume.metadata.deletion_timestamp.is_some() || is_released_to_be_deleted(volume);
    let attached = world.attachments.count(AttachmentBy::Volume, name) > 0;
    (goes && !attached && has_finalizer(&volume.metadata, driver))
        .then(|| Action::ReleaseVolume(volume.clone()))
}

fn is_released_to_be_deleted(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    phase == Some("Released") && policy == Some("Delete")
}

/// Everything that can be checked is checked before the attachment's finalizer is added, which would hold it until a
/// detach succeeds. The volume's is added first. Upstream: `csiAttach` in `csi_handler.go`.
fn attach(
    attachment: &Arc<VolumeAttachment>,
    world: &World,
    driver: &DriverInfo,
    known: Option<&Known>,
) -> Result<Action, Obstacle> {
    if let Some(Known::Published(metadata)) = known {
        return Ok(Action::MarkAttached { attachment: attachment.clone(), metadata: metadata.clone() });
    }
    let volume = named_volume(attachment, world)?;
    if let Some(volume) = volume
        && volume.metadata.deletion_timestamp.is_some()
    {
        return Err(Obstacle::VolumeGoes(volume.metadata.name.clone().unwrap_or_default()));
    }
    let unheld = volume.filter(|volume| !has_finalizer(&volume.metadata, driver)).cloned();
    let (request, secret) = match publish_request(attachment, world, driver) {
        Ok(call) => call,
        Err(_) if unheld.is_some() => return Ok(Action::Hold { attachment: None, volume: unheld }),
        Err(obstacle) => return Err(obstacle),
    };
    let held = has_finalizer(&attachment.metadata, driver)
        && annotated_id(attachment).is_some_and(|id| *id == request.node_id);
    if !held || unheld.is_some() {
        let attachment = attachment.clone();
        let attachment = (!held).then(|| Box::new(Unheld { attachment, node_id: request.node_id, secret }));
        return Ok(Action::Hold { attachment, volume: unheld });
    }
    Ok(Action::Publish { attachment: attachment.clone(), request: Box::new(request), secret })
}

/// The request of ControllerPublishVolume, without secrets, and the secret that it requires.
fn publish_request(
    attachment: &Arc<VolumeAttachment>,
    world: &World,
    driver: &DriverInfo,
) -> Result<(ControllerPublishVolumeRequest, Option<SecretReference>), Obstacle> {
    let source = Source::of(attachment, world, driver)?;
    let modes = source.spec.access_modes.as_deref().unwrap_or_default();
    let mode = access_mode(modes, driver.can(Rpc::SingleNodeMultiWriter))?;
    let block = source.spec.volume_mode.as_deref() == Some("Block");
    let fs_type = source.csi.fs_type.as_deref().unwrap_or_default();
    let mount_options = source.spec.mount_options.as_deref().unwrap_or_default();
    let node_id = node_id(attachment, world, driver).ok_or_else(|| no_node_id(attachment, world, driver))?;
    let request = ControllerPublishVolumeRequest {
        volume_id: source.csi.volume_handle.clone(),
        node_id,
        volume_capability: Some(volume_capability(mode, block, fs_type, mount_options)),
        readonly: source.csi.read_only.unwrap_or(false) && driver.can(Rpc::PublishReadonly),
        volume_context: source.csi.volume_attributes.clone().unwrap_or_default(),
        ..ControllerPublishVolumeRequest::default()
    };
    Ok((request, source.csi.controller_publish_secret_ref.clone()))
}

fn detach(
    attachment: &Arc<VolumeAttachment>,
    world: &World,
    driver: &DriverInfo,
    known: Option<&Known>,
) -> Result<Action, Obstacle> {
    if known == Some(&Known::Unpublished) {
        return Ok(Action::Release(attachment.clone()));
    }
    let source = Source::of(attachment, world, driver)?;
    let node_id =
        last_node_id(attachment, world, driver).ok_or_else(|| no_node_id(attachment, world, driver))?;
    let request = ControllerUnpublishVolumeRequest {
        volume_id: source.csi.volume_handle.clone(),
        node_id,
        ..ControllerUnpublishVolumeRequest::default()
    };
    let secret = source.csi.controller_publish_secret_ref.clone();
    Ok(Action::Unpublish { attachment: attachment.clone(), request: Box::new(request), secret })
}

/// The volume of an attachment.
struct Source<'w> {
    spec: &'w PersistentVolumeSpec,
    csi: &'w CSIPersistentVolumeSource,
}

impl<'w> Source<'w> {
    fn of(attachment: &'w VolumeAttachment, world: &'w World, driver: &DriverInfo) -> Result<Self, Obstacle> {
        let (spec, not_csi) = match named_volume(attachment, world)? {
            Some(volume) => (volume.spec.as_ref(), Obstacle::NotCsi),
            None => (attachment.spec.source.inline_volume_spec.as_ref(), Obstacle::NotCsiInline),
        };
        let Some((spec, csi)) = spec.and_then(|spec| Some((spec, spec.csi.as_ref()?))) else {
            return Err(not_csi);
        };
        if csi.driver != driver.name {
            return Err(Obstacle::Foreign(driver.name.clone()));
        }
        Ok(Self { spec, csi })
    }
}

/// The volume that the attachment names; `None` if it has an inline volume.
fn named_volume<'w>(
    attachment: &VolumeAttachment,
    world: &'w World,
) -> Result<Option<&'w Arc<PersistentVolume>>, Obstacle> {
    let source = &attachment.spec.source;
    match (&source.persistent_volume_name, &source.inline_volume_spec) {
        (Some(name), None) => {
            world.volumes.named(name).map(Some).ok_or_else(|| Obstacle::NoVolume(name.clone()))
        }
        (None, Some(_)) => Ok(None),
        (Some(_), Some(_)) | (None, None) => Err(Obstacle::BadSource),
    }
}

/// Whether the status has nothing that a detach removes. Upstream: `markAsDetached` in `pkg/controller/util.go`.
fn is_marked_detached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_none_or(|status| {
        !status.attached && status.detach_error.is_none() && status.attachment_metadata.is_none()
    })
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

/// Whether the object has this driver's attacher finalizer.
fn has_finalizer(meta: &ObjectMeta, driver: &DriverInfo) -> bool {
    claims::has_finalizer(meta, &attacher_finalizer(&driver.name))
}

fn node_id(attachment: &VolumeAttachment, world: &World, driver: &DriverInfo) -> Option<String> {
    registered_id(world.csi_nodes.named(&attachment.spec.node_name)?, driver).cloned()
}

/// The driver's node id, even if its CSINode has been deleted.
fn last_node_id(attachment: &VolumeAttachment, world: &World, driver: &DriverInfo) -> Option<String> {
    node_id(attachment, world, driver).or_else(|| annotated_id(attachment).cloned())
}

/// The driver's id of a node.
pub fn registered_id<'n>(node: &'n CSINode, driver: &DriverInfo) -> Option<&'n String> {
    let registered = node.spec.drivers.iter().find(|registered| registered.name == driver.name);
    registered.map(|registered| &registered.node_id)
}

fn annotated_id(attachment: &VolumeAttachment) -> Option<&String> {
    attachment.metadata.annotations.as_ref()?.get(NODE_ID)
}

/// Why the driver's node id is unknown. Upstream: `getNodeID` in `csi_handler.go`.
fn no_node_id(attachment: &VolumeAttachment, world: &World, driver: &DriverInfo) -> Obstacle {
    let node = attachment.spec.node_name.clone();
    match world.csi_nodes.named(&node) {
        None => Obstacle::NoCsiNode(node),
        Some(_) => Obstacle::NotOnNode { node, driver: driver.name.clone() },
    }
}
