//! The content of a group.
//!
//! Upstream: `createGroupSnapshotWrapper` and `checkandUpdateGroupSnapshotContentStatusOperation` in
//! `pkg/sidecar-controller/groupsnapshot_helper.go`.

use std::{collections::BTreeMap, error::Error};

use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest,
};
use claimcheck_informer::GroupContentBy;
use claimcheck_model::{
    DEFAULT_GROUP_SNAPSHOT_CLASS, GROUP_SNAPSHOT_BEING_CREATED, GROUP_SNAPSHOT_BEING_DELETED,
    GROUP_SNAPSHOT_CONTENT_PROTECTION, GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE,
    group_snapshot::{
        VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeGroupSnapshotContentStatus,
    },
    snapshot::VolumeSnapshotError,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::{
    Settings,
    content::{Class, Content, GROUP, Words},
    parameters::Purpose,
    requests::{Cause, Deletion, Found, Origin, Question},
};
use crate::{claims::name, rpc::SecretError};

impl Class for VolumeGroupSnapshotClass {
    const DEFAULT: &'static str = DEFAULT_GROUP_SNAPSHOT_CLASS;

    fn driver(&self) -> &str {
        &self.driver
    }

    fn parameters(&self) -> Option<&BTreeMap<String, String>> {
        self.parameters.as_ref()
    }
}

impl Content for VolumeGroupSnapshotContent {
    type Class = VolumeGroupSnapshotClass;

    const WORDS: &'static Words = &GROUP;
    const BY_CLASS: GroupContentBy = GroupContentBy::Class;
    const PURPOSES: [Purpose; 2] = [Purpose::Group, Purpose::GroupGet];
    const HANDLE: &'static str = "volumeGroupSnapshotHandle";
    const BEING_CREATED: &'static str = GROUP_SNAPSHOT_BEING_CREATED;
    const BEING_DELETED: &'static str = GROUP_SNAPSHOT_BEING_DELETED;
    const PROTECTION: &'static str = GROUP_SNAPSHOT_CONTENT_PROTECTION;
    const SECRET: [&'static str; 2] = [GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE];

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn handle(&self) -> Option<&str> {
        self.handle()
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn is_pre_provisioned(&self) -> bool {
        self.spec.source.group_snapshot_handles.is_some()
    }

    fn bound_to(&self) -> &ObjectReference {
        &self.spec.volume_group_snapshot_ref
    }

    fn is_deleted_with_object(&self) -> bool {
        self.is_deleted_with_group()
    }

    fn is_deleted_by_driver(&self) -> bool {
        self.is_deleted_with_group()
    }

    fn has_status(&self) -> bool {
        self.status.is_some()
    }

    fn error(&self) -> Option<&VolumeSnapshotError> {
        self.status.as_ref()?.error.as_ref()
    }

    fn clear_failure(&mut self) {
        if let Some(status) = &mut self.status {
            status.error = None;
            status.ready_to_use = status.ready_to_use.filter(|ready| *ready);
        }
        self.status =
            self.status.take().filter(|status| *status != VolumeGroupSnapshotContentStatus::default());
    }

    fn origin(&self, _: &Settings) -> Origin {
        let Some(existing) = &self.spec.source.group_snapshot_handles else { return Origin::Created };
        Origin::Existing(Question::GetGroup(GetVolumeGroupSnapshotRequest {
            group_snapshot_id: existing.volume_group_snapshot_handle.clone(),
            snapshot_ids: existing.volume_snapshot_handles.clone(),
            ..GetVolumeGroupSnapshotRequest::default()
        }))
    }

    fn creation(&self, name: String, parameters: BTreeMap<String, String>) -> Question {
        Question::CreateGroup(Box::new(CreateVolumeGroupSnapshotRequest {
            name,
            source_volume_ids: self.spec.source.volume_handles.clone().unwrap_or_default(),
            parameters,
            ..CreateVolumeGroupSnapshotRequest::default()
        }))
    }

    fn deletion(&self, group_snapshot_id: String, secrets: BTreeMap<String, String>) -> Deletion {
        let snapshot_ids = self.snapshot_handles();
        Deletion::Group(DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets })
    }

    fn has_related(&self, found: &Found) -> bool {
        found.members.is_empty() || !self.members().is_empty()
    }

    /// As upstream, the members of the first response are final: each is polled by itself.
    fn additions(&self, found: &Found) -> Value {
        let mut status = json!({});
        let was_created = self.status.as_ref().is_some_and(|status| status.creation_time.is_some());
        let created = found.created.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
        if !was_created && let Some(created) = created {
            status["creationTime"] = json!(Time(created));
        }
        if self.members().is_empty() && !found.members.is_empty() {
            status["volumeSnapshotInfoList"] = json!(found.members);
        }
        status
    }

    fn obstacle(&self, cause: &Cause) -> String {
        let content = name(self);
        match cause {
            Cause::NoClass { class, .. } if self.is_pre_provisioned() => {
                format!(
                    "failed to get group snapshot class {class} for group snapshot content {content}: {cause}"
                )
            }
            Cause::NoClass { .. } => {
                let quoted = cause.to_string();
                format!(
                    "failed to get input parameters to create group snapshot for group snapshot content {content}: \
                     {quoted:?}"
                )
            }
            Cause::Parameter(_) => format!("failed to remove CSI Parameters of prefixed keys: {cause}"),
            Cause::Secret(_) => {
                format!("failed to get secret reference for group snapshot content {content}: {cause}")
            }
        }
    }

    fn is_obstacle_to_creation(&self) -> bool {
        !self.is_pre_provisioned() && self.status.is_none()
    }

    /// Upstream: `createGroupSnapshotWrapper`, `GetCredentialsFromAnnotationForGroupSnapshot`, which hides the cause, and
    /// `checkandUpdateGroupSnapshotContentStatusOperation`.
    fn call_error(&self, creates: bool, error: &(dyn Error + Send + Sync + 'static)) -> String {
        let name = name(self);
        let quoted = error.to_string();
        match (creates, error.is::<SecretError>()) {
            (true, true) => {
                let hidden = format!("cannot get credentials for group snapshot content {name:?}");
                format!(
                    "failed to get input parameters to create group snapshot for group snapshot content {name}: \
                     {hidden:?}"
                )
            }
            (true, false) => {
                let volumes = self.spec.source.volume_handles.as_deref().unwrap_or_default().join(" ");
                format!("failed to take group snapshot of the volumes [{volumes}]: {quoted:?}")
            }
            (false, true) => format!("failed to get credentials for group snapshot content {name}: {quoted}"),
            (false, false) => {
                format!("failed to list group snapshot for group snapshot content {name}: {quoted:?}")
            }
        }
    }
}
