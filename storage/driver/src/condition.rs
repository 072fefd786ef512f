//! The condition of a volume: whether its content matches its record (CSI specification, `VolumeCondition`).

use claimcheck_csi::v1::VolumeCondition;

use crate::{
    capability::Capability,
    driver::Driver,
    error::{Doing, Result},
    host::Entry,
    parameters::Kind,
    volume::Volume,
};

impl Driver {
    /// The condition of a volume; `None` if the driver does not declare VOLUME_CONDITION.
    pub(crate) fn reported_condition(&self, volume: &Volume) -> Result<Option<VolumeCondition>> {
        if !self.config.capabilities.has(Capability::VolumeCondition) {
            return Ok(None);
        }
        let content = self.store.content(&volume.id, volume.kind);
        let found = self.host.entry(&content).doing("look at", &content)?;
        let message = abnormality(volume, found);
        let abnormal = message.is_some();
        let message = message.unwrap_or_else(|| "the volume is healthy".to_owned());
        Ok(Some(VolumeCondition { abnormal, message }))
    }
}

/// The fault of a volume's content; `None` if it is healthy.
fn abnormality(volume: &Volume, found: Option<Entry>) -> Option<String> {
    let id = &volume.id;
    match (volume.kind, found) {
        (Kind::Directory, Some(Entry::Directory)) => None,
        (Kind::Image, Some(Entry::File { bytes })) if bytes >= volume.capacity_bytes => None,
        (Kind::Image, Some(Entry::File { bytes })) => Some(format!(
            "the image of volume {id} has {bytes} bytes instead of {}: its end is lost; restore it",
            volume.capacity_bytes
        )),
        (kind, None) => {
            Some(format!("the {kind} of volume {id} is gone from the state directory; restore it"))
        }
        (kind, Some(_)) => Some(format!("the content of volume {id} is no {kind}; restore it")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{mutable::Mutable, topology::Segment, volume::VolumeId};

    #[test]
    fn names_the_error() {
        let volume = |kind| Volume {
            id: VolumeId::from_name("v"),
            name: "v".into(),
            kind,
            capacity_bytes: 4096,
            fs_type: None,
            topology: Segment::default(),
            mutable: Mutable::default(),
            ephemeral: false,
            source: None,
            nodes: BTreeMap::new(),
        };
        let file = |bytes| Some(Entry::File { bytes });
        let table = [
            (Kind::Directory, Some(Entry::Directory), None),
            (Kind::Directory, None, Some("the directory of volume")),
            (Kind::Directory, Some(Entry::Other), Some("is no directory")),
            (Kind::Image, file(4096), None),
            (Kind::Image, file(8192), None),
            (Kind::Image, file(4095), Some("4095 bytes instead of 4096")),
            (Kind::Image, None, Some("the image of volume")),
            (Kind::Image, Some(Entry::Directory), Some("is no image")),
        ];
        for (kind, found, words) in table {
            let message = abnormality(&volume(kind), found);
            assert_eq!(message.is_some(), words.is_some(), "{kind} {found:?}: {message:?}");
            assert!(message.unwrap_or_default().contains(words.unwrap_or_default()), "{kind} {found:?}");
        }
    }
}
