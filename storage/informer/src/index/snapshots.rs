//! The terms of snapshots, of groups of them, and of ReferenceGrants.

use claimcheck_model::{
    ObjectKey,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent, owning_group},
    reference_grant::ReferenceGrant,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};

use super::{ContentBy, GrantBy, GroupBy, GroupContentBy, Indexed, SnapshotBy, Term, UNREADY};
use crate::by_label::group_label;

impl Indexed for VolumeSnapshot {
    type By = SnapshotBy;

    fn terms(&self) -> Vec<Term<SnapshotBy>> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let source = &self.spec.source;
        let claim = source.persistent_volume_claim_name.as_ref();
        let claim =
            claim.map(|name| Term::new(SnapshotBy::Claim, ObjectKey::new(namespace, name).to_string()));
        let content = self.content().or(source.volume_snapshot_content_name.as_deref());
        let content = content.map(|name| Term::new(SnapshotBy::Content, name));
        let unready = (!self.is_ready()).then(|| Term::new(SnapshotBy::Unready, UNREADY));
        let status = self.status.as_ref();
        let named = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
        let group = owning_group(self).or(named);
        let group =
            group.map(|name| Term::new(SnapshotBy::Group, ObjectKey::new(namespace, name).to_string()));
        [claim, content, unready, group].into_iter().flatten().collect()
    }
}

impl Indexed for VolumeSnapshotContent {
    type By = ContentBy;

    fn terms(&self) -> Vec<Term<ContentBy>> {
        let meant = &self.spec.volume_snapshot_ref;
        let key = ObjectKey::new(
            meant.namespace.clone().unwrap_or_default(),
            meant.name.clone().unwrap_or_default(),
        );
        let snapshot = Term::new(ContentBy::Snapshot, key.to_string());
        let class = self.spec.volume_snapshot_class_name.as_ref().filter(|_| !self.is_ready());
        let class = class.map(|class| Term::new(ContentBy::Class, class));
        let group = self.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
        let group = group.map(|handle| Term::new(ContentBy::Group, handle));
        [Some(snapshot), class, group].into_iter().flatten().collect()
    }
}

impl Indexed for VolumeGroupSnapshot {
    type By = GroupBy;

    fn terms(&self) -> Vec<Term<GroupBy>> {
        let requested = self.spec.source.volume_group_snapshot_content_name.as_deref();
        let content = self.content().or(requested).map(|name| Term::new(GroupBy::Content, name));
        if self.is_ready() {
            return Vec::from_iter(content);
        }
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        // One with a pre-provisioned content selects nothing.
        let selecting = requested.is_none().then(|| {
            Term::new(GroupBy::Selecting, group_label(namespace, self.spec.source.selector.as_ref()))
        });
        content.into_iter().chain([Term::new(GroupBy::Unready, UNREADY)]).chain(selecting).collect()
    }
}

impl Indexed for VolumeGroupSnapshotContent {
    type By = GroupContentBy;

    fn terms(&self) -> Vec<Term<GroupContentBy>> {
        let meant = &self.spec.volume_group_snapshot_ref;
        let key = ObjectKey::new(
            meant.namespace.clone().unwrap_or_default(),
            meant.name.clone().unwrap_or_default(),
        );
        let group = Term::new(GroupContentBy::Group, key.to_string());
        let class = self.spec.volume_group_snapshot_class_name.as_ref().filter(|_| !self.is_ready());
        let class = class.map(|class| Term::new(GroupContentBy::Class, class));
        let handle = self.handle().map(|handle| Term::new(GroupContentBy::Handle, handle));
        [Some(group), class, handle].into_iter().flatten().collect()
    }
}

impl Indexed for ReferenceGrant {
    type By = GrantBy;

    fn terms(&self) -> Vec<Term<GrantBy>> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        vec![Term::new(GrantBy::Namespace, namespace)]
    }
}
