//! The content of a snapshot.
//!
//! Upstream: `checkandUpdateContentStatusOperation` and `createSnapshotWrapper` in
//! `pkg/sidecar-controller/snapshot_controller.go`. Unlike there a pre-provisioned snapshot is queried with GetSnapshot
//! where the driver has it, instead of ListSnapshots.

use std::{collections::BTreeMap, error::Error};

use claimcheck_csi::v1::{
    CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::ContentBy;
use claimcheck_model::{
    DEFAULT_SNAPSHOT_CLASS, SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED, SNAPSHOT_CONTENT_PROTECTION,
    SNAPSHOT_GROUP, SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE,
    snapshot::{
        VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotContentStatus, VolumeSnapshotError,
    },
};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use super::{
    Settings,
    content::{Class, Content, SNAPSHOT, Words},
    parameters::Purpose,
    requests::{Cause, Deletion, Found, Origin, Question},
};
use crate::claims::{annotation, name};

impl Class for VolumeSnapshotClass {
    const DEFAULT: &'static str = DEFAULT_SNAPSHOT_CLASS;

    fn driver(&self) -> &str {
        &self.driver
    }

    fn parameters(&self) -> Option<&BTreeMap<String, String>> {
        self.parameters.as_ref()
    }
}

impl Content for VolumeSnapshotContent {
    type Class = VolumeSnapshotClass;

    const WORDS: &'static Words = &SNAPSHOT;
    const BY_CLASS: ContentBy = ContentBy::Class;
    const PURPOSES: [Purpose; 2] = [Purpose::Snapshot, Purpose::List];
    const HANDLE: &'static str = "snapshotHandle";
    const BEING_CREATED: &'static str = SNAPSHOT_BEING_CREATED;
    const BEING_DELETED: &'static str = SNAPSHOT_BEING_DELETED;
    const PROTECTION: &'static str = SNAPSHOT_CONTENT_PROTECTION;
    const SECRET: [&'static str; 2] = [SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE];

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn handle(&self) -> Option<&str> {
        self.handle()
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn is_pre_provisioned(&self) -> bool {
        self.spec.source.snapshot_handle.is_some()
    }

    fn bound_to(&self) -> &ObjectReference {
        &self.spec.volume_snapshot_ref
    }

    fn is_deleted_with_object(&self) -> bool {
        self.is_deleted_with_snapshot()
    }

    /// The driver deletes what is part of a group with the group.
    fn is_deleted_by_driver(&self) -> bool {
        self.is_deleted_with_snapshot() && !is_of_group(self)
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
        self.status = self.status.take().filter(|status| *status != VolumeSnapshotContentStatus::default());
    }

    /// The driver creates what is part of a group with the group, unless it is imported.
    fn origin(&self, settings: &Settings) -> Origin {
        let source = &self.spec.source;
        match (self.handle(), &source.snapshot_handle, &source.volume_handle) {
            (Some(handle), ..) if is_of_group(self) => Origin::WithGroup(Some(by_handle(handle, settings))),
            (None, None, _) if is_of_group(self) => Origin::WithGroup(None),
            (_, _, Some(_)) => Origin::Created,
            (_, existing, None) => {
                Origin::Existing(by_handle(existing.as_deref().unwrap_or_default(), settings))
            }
        }
    }

    fn creation(&self, name: String, parameters: BTreeMap<String, String>) -> Question {
        Question::Create(Box::new(CreateSnapshotRequest {
            source_volume_id: self.spec.source.volume_handle.clone().unwrap_or_default(),
            name,
            parameters,
            ..CreateSnapshotRequest::default()
        }))
    }

    fn deletion(&self, snapshot_id: String, secrets: BTreeMap<String, String>) -> Deletion {
        Deletion::Snapshot(DeleteSnapshotRequest { snapshot_id, secrets })
    }

    fn has_related(&self, found: &Found) -> bool {
        let group = self.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
        group.is_some() || found.group.is_none()
    }

    /// As upstream, the first values stay: a driver that cannot be asked for a member of a group returns none
    /// (`updateSnapshotContentStatus`).
    fn additions(&self, found: &Found) -> Value {
        let known = self.status.clone().unwrap_or_default();
        let mut status = json!({});
        if known.creation_time.is_none()
            && let Some(created) = found.created
        {
            status["creationTime"] = json!(created);
        }
        if known.restore_size.is_none() && found.size > 0 {
            status["restoreSize"] = json!(found.size);
        }
        if let Some(group) = &found.group {
            status["volumeGroupSnapshotHandle"] = json!(group);
        }
        status
    }

    fn obstacle(&self, cause: &Cause) -> String {
        match cause {
            Cause::NoClass { .. } => {
                format!(
                    "failed to get input parameters to create snapshot for content {}: {cause}",
                    name(self)
                )
            }
            Cause::Parameter(_) | Cause::Secret(_) => cause.to_string(),
        }
    }

    fn is_obstacle_to_creation(&self) -> bool {
        true
    }

    fn call_error(&self, creates: bool, error: &(dyn Error + Send + Sync + 'static)) -> String {
        if creates {
            let volume = self.spec.source.volume_handle.as_deref().unwrap_or_default();
            format!("failed to take snapshot of the volume {volume}: \"{error}\"")
        } else {
            format!("failed to list snapshot for content {}: \"{error}\"", name(self))
        }
    }
}

/// Whether the snapshot is part of a group, with which the driver creates and deletes it.
fn is_of_group(content: &VolumeSnapshotContent) -> bool {
    let status = content.status.as_ref();
    annotation(content, SNAPSHOT_GROUP).is_some()
        || status.is_some_and(|status| status.volume_group_snapshot_handle.is_some())
}

/// The call for a snapshot with this id.
fn by_handle(handle: &str, settings: &Settings) -> Question {
    let snapshot_id = handle.to_owned();
    if settings.driver.can(Rpc::GetSnapshot) {
        Question::Get(GetSnapshotRequest { snapshot_id, ..GetSnapshotRequest::default() })
    } else if settings.driver.can(Rpc::ListSnapshots) {
        Question::List(ListSnapshotsRequest { snapshot_id, ..ListSnapshotsRequest::default() })
    } else {
        Question::Trust(snapshot_id)
    }
}
