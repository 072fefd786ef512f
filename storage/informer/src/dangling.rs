//! The attachments of PersistentVolumes that do not exist. This relates two kinds, so it is no index of one store: the
//! terms of an index depend on the object alone.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::VolumeAttachment};

use crate::{
    index::AttachmentBy,
    store::Store,
    world::{Change, Kind},
};

/// The names of these attachments, by attacher. A world that does not watch PersistentVolumes has all attachments here.
#[derive(Debug, Default)]
pub(crate) struct Dangling(HashMap<String, BTreeSet<String>>);

impl Dangling {
    /// Enters a change that these stores already contain. The cost is proportional to the attachments of one volume.
    pub fn follow(
        &mut self,
        change: &Change,
        volumes: &Store<PersistentVolume>,
        attachments: &Store<VolumeAttachment>,
    ) {
        if change.kind == Kind::Attachment {
            let (old, new) = change.both::<VolumeAttachment>();
            if let Some(old) = old {
                self.remove(old);
            }
            if let Some(new) = new.filter(|new| is_dangling(new, volumes)) {
                self.insert(new);
            }
        } else if change.kind == Kind::Volume && change.old.is_some() != change.new.is_some() {
            for attachment in attachments.by(AttachmentBy::Volume, &change.key.name) {
                if change.new.is_some() {
                    self.remove(attachment);
                } else {
                    self.insert(attachment);
                }
            }
        }
    }

    /// The names of the attachments with this attacher.
    pub fn of<'d>(&'d self, attacher: &str) -> impl Iterator<Item = &'d str> + use<'d> {
        self.0.get(attacher).into_iter().flatten().map(String::as_str)
    }

    fn insert(&mut self, attachment: &VolumeAttachment) {
        if let Some(name) = &attachment.metadata.name {
            self.0.entry(attachment.spec.attacher.clone()).or_default().insert(name.clone());
        }
    }

    fn remove(&mut self, attachment: &VolumeAttachment) {
        let (attacher, name) = (&attachment.spec.attacher, &attachment.metadata.name);
        if let (Some(names), Some(name)) = (self.0.get_mut(attacher), name) {
            names.remove(name);
            if names.is_empty() {
                self.0.remove(attacher);
            }
        }
    }
}

/// Whether the attachment names a PersistentVolume that does not exist. One of an inline volume names none.
pub(crate) fn is_dangling(attachment: &VolumeAttachment, volumes: &Store<PersistentVolume>) -> bool {
    let volume = attachment.spec.source.persistent_volume_name.as_deref();
    volume.is_some_and(|volume| volumes.named(volume).is_none())
}
