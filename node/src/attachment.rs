//! VolumeAttachments of a node that makes them itself, because its agent runs with
//! `--enable-controller-attach-detach=false`; otherwise they are the attach/detach controller's.
//!
//! The driver's attacher acts on the object either way, and the node waits for it through its watch.
//! Upstream: `Attach` and `Detach` in `pkg/volume/csi/csi_attacher.go`.

use claimcheck_informer::Kind;
use claimcheck_model::ObjectKey;
use k8s_openapi::{
    api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};

use crate::{
    effects::Host,
    layout::attachment_name,
    operations::{Executor, OperationError},
    volumes::CsiVolume,
};

/// How the attachment of a volume to this node stands, where the node itself makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnAttachment {
    /// There is none.
    Absent,
    /// There is one; whether it has come about yet is another question.
    Present,
    /// It was deleted, and waits for the driver's attacher.
    Leaving,
}

impl OwnAttachment {
    /// From the object.
    pub fn of(attachment: Option<&VolumeAttachment>) -> Self {
        match attachment.map(|attachment| attachment.metadata.deletion_timestamp.is_some()) {
            None => Self::Absent,
            Some(false) => Self::Present,
            Some(true) => Self::Leaving,
        }
    }
}

/// Makes the attachment, and enters it into the cache, so that it is not made twice.
pub(crate) async fn attach<H: Host>(
    executor: &Executor<H>,
    volume: &CsiVolume,
) -> Result<(), OperationError> {
    let name = attachment_name(&volume.handle, &volume.driver, &executor.node);
    let wanted = VolumeAttachment {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: volume.driver.clone(),
            node_name: executor.node.clone(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(volume.pv.clone()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    };
    let api: Api<VolumeAttachment> = Api::all(executor.client.clone());
    let made = match api.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(&name).await,
        made => made,
    };
    let made = made.map_err(|source| OperationError::Attachment { source: Box::new(source) })?;
    executor.informer.apply(made);
    Ok(())
}

/// Deletes the attachment.
pub(crate) async fn detach<H: Host>(executor: &Executor<H>, name: &str) -> Result<(), OperationError> {
    let api: Api<VolumeAttachment> = Api::all(executor.client.clone());
    let key = ObjectKey::new("", name);
    match api.delete(name, &DeleteParams::default()).await.map(|answer| answer.left()) {
        // A finalizer holds it.
        Ok(Some(leaving)) if leaving.metadata.deletion_timestamp.is_some() => {
            executor.informer.apply(leaving);
        }
        Ok(_) => executor.informer.forget(Kind::Attachment, &key),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            executor.informer.forget(Kind::Attachment, &key);
        }
        Err(source) => return Err(OperationError::Attachment { source: Box::new(source) }),
    }
    Ok(())
}
