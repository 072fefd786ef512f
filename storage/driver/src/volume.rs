//! The record of a volume, one per volume and the only source of truth about it.
//!
//! The record is always at least as pessimistic as the machine: a use is recorded before its effect and removed
//! after the effect is undone. So a volume without recorded uses may be deleted, whatever crashed.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use crate::id::VolumeId;
use crate::{
    access::{Access, Mode, VolumeMode},
    error::{Error, Result},
    filesystem::FsType,
    id::SnapshotId,
    mutable::Mutable,
    parameters::Kind,
    store::Record,
    topology::Segment,
};

/// Identity of a node: letters, digits, `-`, `_` and `.`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(String);

impl NodeId {
    /// The maximum length of a node id in bytes: it is part of `CSINode` and of file names.
    pub const MAX: usize = 192;

    /// Checks length and characters.
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let fine =
            (1..=Self::MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed);
        fine.then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The record of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Identity, also the name of the volume's directory.
    pub id: VolumeId,
    /// The name under which it was created.
    pub name: String,
    /// Its content type.
    pub kind: Kind,
    /// Size in bytes: enforced for images, only recorded for directories.
    pub capacity_bytes: u64,
    /// The requested file system, used when staging names none.
    pub fs_type: Option<FsType>,
    /// The topology segment from which it is accessible; empty for all.
    #[serde(default, skip_serializing_if = "Segment::is_empty")]
    pub topology: Segment,
    /// The parameters that ControllerModifyVolume changes.
    #[serde(default, skip_serializing_if = "Mutable::is_empty")]
    pub mutable: Mutable,
    /// Whether it is an inline ephemeral volume: created by NodePublishVolume, deleted by NodeUnpublishVolume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// The source of its initial content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Its uses by node; unused nodes have no entry.
    #[serde(default)]
    pub nodes: BTreeMap<NodeId, Usage>,
}

/// The source of a volume's initial content. It may have been deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Another volume.
    Volume(VolumeId),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::Volume(id) => write!(f, "volume {id}"),
        }
    }
}

impl Record for Volume {
    type Id = VolumeId;
    const FILE: &'static str = "volume.json";

    fn id(&self) -> &VolumeId {
        &self.id
    }
}

/// The uses of a volume by one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Attached by ControllerPublishVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Grant>,
    /// Staged by NodeStageVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<Staging>,
    /// Published by NodePublishVolume, by target path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<PathBuf, Grant>,
}

/// Access to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// How it is accessed.
    #[serde(flatten)]
    pub access: Access,
    /// Whether the caller requested read-only in addition to the access mode.
    pub read_only: bool,
}

impl Grant {
    /// Whether the access is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.access.mode.read_only()
    }
}

/// A staged volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// The staging path.
    pub path: PathBuf,
    /// How it is accessed.
    #[serde(flatten)]
    pub access: Access,
}

impl Usage {
    fn is_empty(&self) -> bool {
        self.attached.is_none() && self.staged.is_none() && self.published.is_empty()
    }

    /// The access to the volume at `path`, if that is the staging path or a target of this use.
    pub fn volume_mode_at(&self, path: &Path) -> Option<VolumeMode> {
        let published = self.published.get(path).map(|grant| &grant.access);
        let staged = self.staged.as_ref().filter(|staging| staging.path == path).map(|it| &it.access);
        published.or(staged).map(|access| access.volume_mode)
    }
}

impl Volume {
    /// The use by `node`, created if it does not exist.
    pub fn usage_mut(&mut self, node: &NodeId) -> &mut Usage {
        self.nodes.entry(node.clone()).or_default()
    }

    /// The use by `node`.
    pub fn usage(&self, node: &NodeId) -> Option<&Usage> {
        self.nodes.get(node)
    }

    /// Drops entries of nodes that no longer use the volume.
    pub fn prune(&mut self) {
        self.nodes.retain(|_, usage| !usage.is_empty());
    }

    /// Nodes to which the volume is attached, with the access mode of each.
    pub fn attached_nodes(&self) -> impl Iterator<Item = (&NodeId, &Grant)> {
        self.nodes.iter().filter_map(|(node, usage)| Some((node, usage.attached.as_ref()?)))
    }

    /// Rejects a node outside the volume's segment.
    pub fn check_reach(&self, node: &NodeId, segment: &Segment) -> Result<()> {
        if self.topology.is_empty() || self.topology == *segment {
            return Ok(());
        }
        Err(Error::Precondition(format!(
            "volume {} is accessible from {} only, and node {node} is in {}; run the pod there",
            self.id,
            self.topology,
            if segment.is_empty() { "no segment".to_owned() } else { segment.to_string() }
        )))
    }

    /// Whether some node needs the raw device: the writable one, or the read-only one.
    pub fn needs_raw(&self, read_only: bool) -> bool {
        self.nodes.values().any(|usage| {
            let staged = usage.staged.as_ref().is_some_and(|staging| {
                staging.access.is_block() && staging.access.mode.read_only() == read_only
            });
            let shows = |grant: &Grant| grant.access.is_block() && grant.is_read_only() == read_only;
            staged || usage.published.values().any(shows)
        })
    }

    /// Whether the volume may have a writer.
    pub fn has_writers(&self) -> bool {
        self.nodes.values().any(|usage| {
            let staged = usage.staged.as_ref().is_some_and(|staging| !staging.access.mode.read_only());
            staged || usage.published.values().any(|grant| !grant.is_read_only())
        })
    }

    /// Why the volume must not be deleted; `None` if it is unused.
    pub fn in_use(&self) -> Option<String> {
        let (node, usage) = self.nodes.iter().find(|(_, usage)| !usage.is_empty())?;
        let (what, undo) = if let Some(target) = usage.published.keys().next() {
            (format!("published at {} on", target.display()), "NodeUnpublishVolume")
        } else if let Some(staging) = &usage.staged {
            (format!("staged at {} on", staging.path.display()), "NodeUnstageVolume")
        } else {
            ("attached to".to_owned(), "ControllerUnpublishVolume")
        };
        Some(format!("volume {} is {what} node {node}; call {undo} first", self.id))
    }

    /// Nodes other than `node` to which the volume is attached: with access mode and whether read-only.
    pub fn attached_elsewhere(&self, node: &NodeId) -> impl Iterator<Item = (&NodeId, Mode, bool)> {
        let others = self.attached_nodes().filter(move |(other, _)| *other != node);
        others.map(|(other, grant)| (other, grant.access.mode, grant.read_only))
    }

    /// Nodes other than `node` that prevent it from staging the volume, as for [`Volume::attached_elsewhere`].
    ///
    /// Where the cluster uses attachments, these decide: a node that has the volume staged without an
    /// attachment lost it by force, which means that the node is dead and must not block others. Where nothing
    /// is attached anywhere, stagings decide.
    pub fn staged_elsewhere(&self, node: &NodeId) -> impl Iterator<Item = (&NodeId, Mode, bool)> {
        let attaching = self.attached_nodes().next().is_some();
        let others = self.nodes.iter().filter(move |(other, _)| !attaching && *other != node);
        let staged =
            others.filter_map(|(other, usage)| Some((other, usage.staged.as_ref()?.access.mode, false)));
        self.attached_elsewhere(node).chain(staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips() {
        let node = NodeId::parse("n1").unwrap();
        let access = Access {
            mode: Mode::SingleNodeWriter,
            volume_mode: VolumeMode::Filesystem,
            fs_type: Some(FsType::Ext4),
            mount_flags: vec!["noatime".into()],
        };
        let grant = Grant { access: access.clone(), read_only: true };
        let mut volume = Volume {
            id: VolumeId::from_name("a"),
            name: "a".into(),
            kind: Kind::Image,
            capacity_bytes: 1 << 30,
            fs_type: None,
            topology: Segment::default(),
            mutable: Mutable::default(),
            ephemeral: false,
            source: Some(Source::Snapshot(SnapshotId::from_name("s"))),
            nodes: BTreeMap::new(),
        };
        assert_eq!(volume.in_use(), None);
        let usage = volume.usage_mut(&node);
        usage.attached = Some(grant.clone());
        usage.staged = Some(Staging { path: "/s".into(), access });
        usage.published.insert("/t".into(), grant);
        let json = serde_json::to_vec(&volume).unwrap();
        assert_eq!(serde_json::from_slice::<Volume>(&json).unwrap(), volume);

        assert!(volume.in_use().unwrap().contains("published at /t on node n1"));
        volume.usage_mut(&node).published.clear();
        assert!(volume.in_use().unwrap().contains("staged at /s on node n1"));
        volume.usage_mut(&node).staged = None;
        assert!(volume.in_use().unwrap().contains("attached to node n1"));
        volume.usage_mut(&node).attached = None;
        assert_eq!(volume.in_use(), None);
        volume.prune();
        assert!(volume.nodes.is_empty());
    }
}
