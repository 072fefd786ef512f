//! The content source of a claim for CreateVolume, or upstream's message why there is none.
//!
//! Upstream: `prepareProvision`, `getSnapshotSource` and `getPVCSource` in external-provisioner
//! `pkg/controller/controller.go`. Unlike there a source that is being deleted is used for the claims that existed
//! before its deletion, and a call of unknown outcome is repeated unchanged.

use std::sync::Arc;

use claimcheck_csi::v1::{
    VolumeContentSource,
    controller_service_capability::rpc::Type as Rpc,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use claimcheck_informer::{DataSource, World, data_source, quantity};
use claimcheck_model::{
    ALLOW_MODE_CHANGE, ObjectKey,
    snapshot::{GROUP, VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};

use crate::{
    Provisioning,
    claims::{
        annotation, claim_phase, claim_ref, is_deleting, is_meant_for, name, precedes_deletion, ref_uid,
        requested, volume_mode, volume_name, volume_phase,
    },
    provisioner::{SourceObject, grant},
    rpc::DriverInfo,
};

/// The kind of snapshots in a claim's data source.
pub const SNAPSHOT_KIND: &str = "VolumeSnapshot";

/// Why no volume can be created from a source at present.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The driver lacks the capability.
    #[error("CSI driver does not support {what}: controller {capability} capability is not reported")]
    Incapable {
        /// The feature.
        what: &'static str,
        /// The missing capability.
        capability: &'static str,
    },
    /// In a namespace that the claim names, although the feature is off.
    #[error("dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled")]
    Elsewhere,
    /// In another namespace, without a ReferenceGrant there. Upstream: `IsGranted` in `pkg/controller/util.go`.
    #[error("accessing {object} of {kind} dataSource from {claim} isn't allowed")]
    NotGranted {
        /// The object, as `namespace/name`.
        object: String,
        /// Its kind.
        kind: String,
        /// The claim, as `namespace/name`.
        claim: String,
    },
    /// A snapshot of another API group.
    #[error("the PVC source does not belong to the right APIGroup. Expected {GROUP}, Got {0}")]
    OtherGroup(String),
    /// See the error.
    #[error("error getting handle for DataSource Type VolumeSnapshot by Name {0}: {1}")]
    Snapshot(String, SnapshotError),
    /// See the error.
    #[error("error getting handle for DataSource Type PersistentVolumeClaim by Name {0}: {1}")]
    Claim(String, ClaimError),
}

/// Why no volume can be created from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It does not exist.
    #[error(
        "error getting snapshot {0} from api server: volumesnapshots.snapshot.storage.k8s.io \"{0}\" not found"
    )]
    Missing(String),
    /// It is being deleted.
    #[error("snapshot {0} is being deleted")]
    Goes(String),
    /// It has no content.
    #[error("snapshot {0} not bound")]
    Unbound(String),
    /// Its content does not exist.
    #[error("error getting snapshotcontent {content} for snapshot {snapshot}")]
    NoContent {
        /// The content.
        content: String,
        /// The snapshot.
        snapshot: String,
    },
    /// Its content belongs to another snapshot.
    #[error("snapshotcontent {content} for snapshot {snapshot} is bound to a different snapshot")]
    Misbound {
        /// The content.
        content: String,
        /// The snapshot.
        snapshot: String,
    },
    /// It belongs to another driver.
    #[error(
        "snapshotcontent {content} for snapshot {snapshot} is not handled by CSI driver of StorageClass {class}"
    )]
    OtherDriver {
        /// The content.
        content: String,
        /// The snapshot.
        snapshot: String,
        /// The class.
        class: String,
    },
    /// It is not ready.
    #[error("snapshot {0} is not Ready")]
    NotReady(String),
    /// The driver's snapshot id is unknown.
    #[error("snapshot handle {0} is not available")]
    NoHandle(String),
    /// The claim is too small.
    #[error(
        "requested volume size {expected} is less than the size {least} for the source snapshot {snapshot}"
    )]
    TooSmall {
        /// The requested size in bytes.
        expected: i64,
        /// The minimum size in bytes.
        least: i64,
        /// The snapshot.
        snapshot: String,
    },
    /// Different volume modes, block and file system (KEP-3141).
    #[error(
        "requested volume {claim} modifies the mode of the source volume but does not have permission to do so. \
         {reason}"
    )]
    ModeChange {
        /// The claim.
        claim: String,
        /// Why the content does not permit it.
        reason: String,
    },
}

/// Why a claim cannot be cloned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// It does not exist.
    #[error(
        "error getting PVC {name} (namespace {namespace:?}) from api server: persistentvolumeclaim {name:?} not \
         found"
    )]
    Missing {
        /// The source.
        name: String,
        /// The namespace of the claim, which upstream prints even if the source is in another.
        namespace: String,
    },
    /// It has no volume. Upstream prints the whole status, which has only a phase before the claim is bound.
    #[error(
        "the PVC DataSource {name} must have a status of Bound.  Got {{{phase} [] map[] [] map[] map[] <nil> <nil>}}"
    )]
    NotBound {
        /// The source.
        name: String,
        /// Its phase.
        phase: String,
    },
    /// It is being deleted.
    #[error("the PVC DataSource {0} is currently being deleted")]
    Goes(String),
    /// It names no class.
    #[error("the source PVC ({0}) storageclass cannot be empty")]
    NoClassOfSource(String),
    /// The new claim names no class, other than in the beta annotation.
    #[error("the requested PVC ({0}) storageclass cannot be empty")]
    NoClass(String),
    /// The claim is too small.
    #[error(
        "error, new PVC request must be greater than or equal in size to the specified PVC data source, \
         requested {expected} but source is {least}"
    )]
    TooSmall {
        /// The requested size in bytes.
        expected: i64,
        /// The size requested by the source in bytes.
        least: i64,
    },
    /// It names no volume.
    #[error("volume name is empty in source PVC {0}")]
    NoVolume(String),
    /// Its volume does not exist, or belongs to another claim or driver.
    #[error("claim in dataSource not bound or invalid")]
    Invalid,
    /// Different volume modes, block and file system.
    #[error(
        "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is {source_mode}, \
         but new PVC requested {expected}"
    )]
    OtherMode {
        /// The source's.
        source_mode: String,
        /// The claim's.
        expected: String,
    },
}

/// The source of a new volume's content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The content source of the request; `None` for an empty volume.
    pub source: Option<VolumeContentSource>,
    /// The source, if it still needs the finalizer before the driver is called.
    pub unheld: Option<SourceObject>,
}

impl Content {
    fn new(source: Type, object: SourceObject) -> Self {
        Self {
            source: Some(VolumeContentSource { r#type: Some(source) }),
            unheld: Some(object).filter(SourceObject::lacks_protection),
        }
    }
}

/// The source that the claim may use, wherever it is.
///
/// Upstream: `dataSource` in external-provisioner `pkg/controller/controller.go`.
pub fn resolve(
    claim: &PersistentVolumeClaim,
    world: &World,
    options: Provisioning,
) -> Result<Option<DataSource>, SourceError> {
    let source = match data_source(claim) {
        Some(DataSource::Elsewhere { source, .. }) => *source,
        here @ (Some(DataSource::Snapshot(_) | DataSource::Claim(_) | DataSource::Other { .. }) | None) => {
            return Ok(here);
        }
    };
    if !options.cross_namespace_sources {
        return Err(SourceError::Elsewhere);
    }
    if !grant::is_permitted(claim, world) {
        let reference = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.clone()).unwrap_or_default();
        let object = ObjectKey::new(reference.namespace.unwrap_or_default(), reference.name).to_string();
        let claim = claimcheck_informer::key_of(claim).to_string();
        return Err(SourceError::NotGranted { object, kind: reference.kind, claim });
    }
    Ok(Some(source))
}

/// Checks that the driver can create volumes from this kind of source.
pub fn check(source: &DataSource, driver: &DriverInfo) -> Result<(), SourceError> {
    let able = |rpc, what, capability| match driver.can(rpc) {
        true => Ok(()),
        false => Err(SourceError::Incapable { what, capability }),
    };
    match source {
        DataSource::Snapshot(_) => {
            able(Rpc::CreateDeleteSnapshot, "snapshot restore", "CREATE_DELETE_SNAPSHOT")
        }
        DataSource::Claim(_) => able(Rpc::CloneVolume, "clone operations", "CLONE_VOLUME"),
        DataSource::Elsewhere { .. } => Err(SourceError::Elsewhere),
        DataSource::Other { group, kind } if kind == SNAPSHOT_KIND => {
            Err(SourceError::OtherGroup(group.clone()))
        }
        // A populator creates the volume: it is not provisioned here.
        DataSource::Other { .. } => Ok(()),
    }
}

/// The content source of the request.
pub fn content(
    source: &DataSource,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    world: &World,
    options: Provisioning,
) -> Result<Content, SourceError> {
    match source {
        DataSource::Snapshot(key) => {
            let (source, snapshot_id) = from_snapshot(key, claim, class, world, options)
                .map_err(|error| SourceError::Snapshot(key.name.clone(), error))?;
            let content = Type::Snapshot(SnapshotSource { snapshot_id });
            Ok(Content::new(content, SourceObject::Snapshot(source.clone())))
        }
        DataSource::Claim(key) => {
            let (source, volume_id) = from_claim(key, claim, class, world)
                .map_err(|error| SourceError::Claim(key.name.clone(), error))?;
            let content = Type::Volume(VolumeSource { volume_id });
            Ok(Content::new(content, SourceObject::Claim(source.clone())))
        }
        DataSource::Elsewhere { .. } | DataSource::Other { .. } => Ok(Content::default()),
    }
}

/// The snapshot, and the driver's id of it.
fn from_snapshot<'w>(
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    world: &'w World,
    options: Provisioning,
) -> Result<(&'w Arc<VolumeSnapshot>, String), SnapshotError> {
    let snapshot_name = || key.name.clone();
    let snapshot = world.snapshots.get(key).ok_or_else(|| SnapshotError::Missing(snapshot_name()))?;
    if !precedes_deletion(claim, &**snapshot) {
        return Err(SnapshotError::Goes(snapshot_name()));
    }
    let content = snapshot.content().ok_or_else(|| SnapshotError::Unbound(snapshot_name()))?.to_owned();
    let Some(bound) = world.snapshot_contents.named(&content) else {
        return Err(SnapshotError::NoContent { content, snapshot: snapshot_name() });
    };
    if !bound.is_bound_to(snapshot) {
        return Err(SnapshotError::Misbound { content, snapshot: snapshot_name() });
    }
    if bound.spec.driver != class.provisioner {
        let class = name(class).to_owned();
        return Err(SnapshotError::OtherDriver { content, snapshot: snapshot_name(), class });
    }
    if !snapshot.is_ready() {
        return Err(SnapshotError::NotReady(snapshot_name()));
    }
    let handle = bound.handle().ok_or_else(|| SnapshotError::NoHandle(snapshot_name()))?;
    let least = snapshot.status.as_ref().and_then(|status| status.restore_size.as_ref());
    let (least, expected) = (least.and_then(quantity::bytes).unwrap_or(0), requested(claim));
    if expected < least {
        return Err(SnapshotError::TooSmall { expected, least, snapshot: snapshot_name() });
    }
    if options.prevent_mode_conversion
        && bound.spec.source_volume_mode.as_deref().is_some_and(|mode| mode != mode_of(claim))
        && let Err(reason) = permits_mode_change(bound)
    {
        let claim = claimcheck_informer::key_of(claim).to_string();
        return Err(SnapshotError::ModeChange { claim, reason });
    }
    Ok((snapshot, handle.to_owned()))
}

/// Whether the content permits another volume mode, or upstream's reason why not. The values are those of Go's
/// `strconv.ParseBool`.
fn permits_mode_change(content: &VolumeSnapshotContent) -> Result<(), String> {
    let name = name(content);
    match annotation(content, ALLOW_MODE_CHANGE) {
        Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(()),
        Some("0" | "f" | "F" | "FALSE" | "false" | "False") => {
            Err(format!("{ALLOW_MODE_CHANGE} is set to false on snapshotcontent {name}"))
        }
        Some(other) => Err(format!(
            "failed to convert {ALLOW_MODE_CHANGE} annotation value to boolean with error: \
             strconv.ParseBool: parsing {other:?}: invalid syntax"
        )),
        None => Err(format!("{ALLOW_MODE_CHANGE} annotation is not present on snapshotcontent {name}")),
    }
}

/// The claim, and the driver's id of its volume.
fn from_claim<'w>(
    key: &ObjectKey,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    world: &'w World,
) -> Result<(&'w Arc<PersistentVolumeClaim>, String), ClaimError> {
    let source_name = &key.name;
    let source = world.claims.get(key).ok_or_else(|| ClaimError::Missing {
        name: source_name.clone(),
        namespace: claim.metadata.namespace.clone().unwrap_or_default(),
    })?;
    if claim_phase(source) != "Bound" {
        let phase = claim_phase(source).to_owned();
        return Err(ClaimError::NotBound { name: source_name.clone(), phase });
    }
    if is_deleting(&**source) && !precedes_deletion(claim, &**source) {
        return Err(ClaimError::Goes(source_name.clone()));
    }
    if !names_class(source) {
        return Err(ClaimError::NoClassOfSource(source_name.clone()));
    }
    if !names_class(claim) {
        return Err(ClaimError::NoClass(name(claim).to_owned()));
    }
    let (expected, least) = (requested(claim), requested(source));
    if expected < least {
        return Err(ClaimError::TooSmall { expected, least });
    }
    let volume = volume_name(source).ok_or_else(|| ClaimError::NoVolume(source_name.clone()))?;
    let volume = world.volumes.named(volume).ok_or(ClaimError::Invalid)?;
    let spec = volume.spec.as_ref().ok_or(ClaimError::Invalid)?;
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == class.provisioner).ok_or(ClaimError::Invalid)?;
    let bound =
        claim_ref(volume).is_some_and(|bound| ref_uid(bound).is_some()) && is_meant_for(volume, source);
    if !bound || volume_phase(volume) != "Bound" {
        return Err(ClaimError::Invalid);
    }
    let source_mode = volume_mode(spec.volume_mode.as_deref());
    if source_mode != mode_of(claim) {
        let expected = mode_of(claim).to_owned();
        return Err(ClaimError::OtherMode { source_mode: source_mode.to_owned(), expected });
    }
    Ok((source, csi.volume_handle.clone()))
}

fn names_class(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
}

fn mode_of(claim: &PersistentVolumeClaim) -> &str {
    volume_mode(claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{annotate, snapshot, snapshot_content};

    use super::*;

    #[test]
    fn another_mode_needs_the_permission_of_the_content() {
        let not = |reason: &str| Err(format!("{ALLOW_MODE_CHANGE} {reason} on snapshotcontent content"));
        for (value, expected) in [
            (None, not("annotation is not present")),
            (Some("true"), Ok(())),
            (Some("True"), Ok(())),
            (Some("1"), Ok(())),
            (Some("t"), Ok(())),
            (Some("false"), not("is set to false")),
            (Some("0"), not("is set to false")),
            (
                Some("tRUE"),
                Err(format!(
                    "failed to convert {ALLOW_MODE_CHANGE} annotation value to boolean with error: \
                     strconv.ParseBool: parsing \"tRUE\": invalid syntax"
                )),
            ),
        ] {
            let mut content = snapshot_content("content", &snapshot("snapshot", "data", "class"), "Delete");
            if let Some(value) = value {
                annotate(&mut content.metadata, ALLOW_MODE_CHANGE, value);
            }
            assert_eq!(permits_mode_change(&content), expected, "{value:?}");
        }
    }
}
