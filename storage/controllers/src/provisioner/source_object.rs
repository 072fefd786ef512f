//! The objects that volumes are created from, each with the finalizer that protects it meanwhile.
//!
//! Upstream: `setCloneFinalizer` and `setSnapshotFinalizer` in external-provisioner `pkg/controller/controller.go`.

use std::sync::Arc;

use claimcheck_informer::DataSource;
use claimcheck_model::{CLONE_PROTECTION, RESTORE_PROTECTION, snapshot::VolumeSnapshot};
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};

/// An object that volumes are created from.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceObject {
    /// A claim, which is cloned.
    Claim(Arc<PersistentVolumeClaim>),
    /// A snapshot, which is restored.
    Snapshot(Arc<VolumeSnapshot>),
}

impl SourceObject {
    /// The finalizer of its kind.
    pub fn finalizer(&self) -> &'static str {
        match self {
            Self::Claim(_) => CLONE_PROTECTION,
            Self::Snapshot(_) => RESTORE_PROTECTION,
        }
    }

    /// All finalizers that it has.
    pub fn finalizers(&self) -> &[String] {
        self.metadata().finalizers.as_deref().unwrap_or_default()
    }

    /// Whether it has the finalizer.
    pub fn is_protected(&self) -> bool {
        self.finalizers().iter().any(|found| found == self.finalizer())
    }

    /// Whether it can have the finalizer and does not: nothing can be added to an object that is being deleted.
    pub fn lacks_protection(&self) -> bool {
        !self.is_protected() && self.metadata().deletion_timestamp.is_none()
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Claim(claim) => &claim.metadata,
            Self::Snapshot(snapshot) => &snapshot.metadata,
        }
    }
}

/// The object that may have a finalizer, wherever it is.
pub fn object(source: DataSource) -> Option<DataSource> {
    match source {
        DataSource::Claim(_) | DataSource::Snapshot(_) => Some(source),
        DataSource::Elsewhere { source, .. } => object(*source),
        DataSource::Other { .. } => None,
    }
}
