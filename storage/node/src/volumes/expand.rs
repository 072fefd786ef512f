//! Expansion of a mounted volume: NodeExpandVolume, and the claim's status before and after.
//!
//! Upstream: `pkg/volume/util/operationexecutor/node_expander.go`, `pkg/volume/csi/expander.go`,
//! `pkg/volume/util/resize_util.go`.

use std::{collections::BTreeMap, path::Path};

use claimcheck_csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, node_service_capability::rpc::Type as Capability,
};
use claimcheck_informer::{
    growth::{Condition, Old, Progress, with_condition},
    quantity::from_bytes,
};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::csi::{capability, text, timed};
use crate::{
    actual::Outcome,
    drivers::RegisteredDriver,
    effects::Host,
    operations::{Executor, OperationError},
    reconciler::{Growth, Part, part},
    volumes::CsiVolume,
};

/// Result of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expanded {
    /// It was expanded to this size in bytes.
    To(i64),
    /// The driver supports offline expansion only. The volume stays usable.
    Refused,
    /// It is not this node's turn: the claim has changed since the expansion was planned.
    NotNow,
}

/// Expands the volume that is published at `path`.
///
/// # Errors
/// If the driver fails (a final error is written to the claim's status, if that records the expansion), or if the claim cannot be updated.
pub(crate) async fn expand<H: Host>(
    executor: &Executor<H>,
    driver: &RegisteredDriver,
    volume: &CsiVolume,
    growth: &Growth,
    path: &Path,
    secrets: BTreeMap<String, String>,
) -> Result<Expanded, OperationError> {
    let writer = ClaimStatusWriter { executor, key: &growth.claim };
    let mut claim = writer.read().await?;
    // Upstream: `runPreCheck`, of the claim that was read just before.
    let Some(Part { written, unrecorded }) = part(&claim, growth.bytes) else {
        executor.informer.apply(claim);
        return Ok(Expanded::NotNow);
    };
    let growth = &Growth { written, unrecorded, ..growth.clone() };
    let records = !growth.written && !growth.unrecorded;
    if records && Progress::of(&claim) != Progress::NodeAtWork {
        claim = writer
            .write(&claim, json!({"allocatedResourceStatuses": status_patch(Progress::NodeAtWork)}))
            .await?;
    }
    let staged = driver.capabilities.has(Capability::StageUnstageVolume);
    let staging = executor.layout.staged(&volume.driver, &volume.handle, &volume.form).target;
    let request = NodeExpandVolumeRequest {
        volume_id: volume.handle.clone(),
        volume_path: text(path),
        capacity_range: Some(CapacityRange { required_bytes: growth.bytes, limit_bytes: 0 }),
        staging_target_path: if staged { text(&staging) } else { String::new() },
        volume_capability: Some(capability(&driver.capabilities, volume, None)),
        secrets,
    };
    let answer = driver.driver.node().node_expand_volume(timed(request)).await;
    if let Err(status) = answer {
        let error = Failed::new(status);
        // Upstream: `legacyCallNodeExpandOnPlugin` writes no error.
        if error.is_final() && !growth.unrecorded {
            writer.write(&claim, error.status(&claim, growth)).await?;
        }
        return if error.is_refusal() { Ok(Expanded::Refused) } else { Err(OperationError::Expand(error)) };
    }
    if !growth.written {
        let status = json!({
            "capacity": { "storage": from_bytes(growth.bytes) },
            "allocatedResourceStatuses": null,
            "conditions": with_condition(&claim, Old::Dropped, None, Timestamp::now()),
        });
        writer.write(&claim, status).await?;
    }
    Ok(Expanded::To(growth.bytes))
}

/// The driver's failure. The text is upstream's.
#[derive(Debug, thiserror::Error)]
#[error("Expander.NodeExpand failed to expand the volume : {0}")]
pub struct Failed(Box<OperationError>);

impl Failed {
    fn new(status: Status) -> Self {
        Self(Box::new(status.into()))
    }

    fn code(&self) -> Option<Code> {
        match &*self.0 {
            OperationError::Rpc(status) => Some(status.code()),
            _ => None,
        }
    }

    /// Whether the driver's error is final, so that no expansion is in progress.
    pub fn is_final(&self) -> bool {
        self.0.outcome() == Outcome::Failed
    }

    /// Whether the volume is in use. Upstream: `inUseError`.
    fn is_refusal(&self) -> bool {
        self.is_final() && self.code() == Some(Code::FailedPrecondition)
    }

    /// The claim's status: infeasible, or only the error.
    fn status(&self, claim: &PersistentVolumeClaim, growth: &Growth) -> Value {
        let message = format!("failed to expand pvc with {self}");
        let condition = Some((Condition::NodeResizeError, message.as_str()));
        let mut status =
            json!({"conditions": with_condition(claim, Old::Retained, condition, Timestamp::now())});
        let never = matches!(self.code(), Some(Code::InvalidArgument | Code::NotFound | Code::OutOfRange));
        if (never || growth.outdated) && !growth.written {
            status["allocatedResourceStatuses"] = status_patch(Progress::NodeInfeasible);
        }
        status
    }
}

fn status_patch(progress: Progress) -> Value {
    json!({ "storage": progress.name() })
}

/// The current claim. It is read again, since it may have changed while the volume was being mounted.
struct ClaimStatusWriter<'a, H> {
    executor: &'a Executor<H>,
    key: &'a ObjectKey,
}

impl<H: Host> ClaimStatusWriter<'_, H> {
    fn api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.executor.client.clone(), &self.key.namespace)
    }

    async fn read(&self) -> Result<PersistentVolumeClaim, OperationError> {
        self.api().get(&self.key.name).await.map_err(|source| self.failed(source))
    }

    /// Writes the status if the claim is still the one that was read.
    async fn write(
        &self,
        claim: &PersistentVolumeClaim,
        status: Value,
    ) -> Result<PersistentVolumeClaim, OperationError> {
        let version = &claim.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
        let written = self.api().patch_status(&self.key.name, &PatchParams::default(), &patch).await;
        let written = written.map_err(|source| self.failed(source))?;
        self.executor.informer.apply(written.clone());
        Ok(written)
    }

    fn failed(&self, source: kube::Error) -> OperationError {
        OperationError::Claim { claim: self.key.clone(), source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_failures_are_written_to_the_claim() {
        let growth = |outdated, written| Growth {
            claim: ObjectKey::new("ns", "c"),
            bytes: 1,
            written,
            unrecorded: false,
            outdated,
        };
        // (code, outdated, written, final, never)
        let rows = [
            (Code::Internal, false, false, true, false),
            (Code::Internal, true, false, true, true),
            (Code::OutOfRange, false, false, true, true),
            (Code::OutOfRange, false, true, true, false),
            (Code::FailedPrecondition, false, false, true, false),
            (Code::DeadlineExceeded, false, false, false, false),
        ];
        for (code, outdated, written, is_final, never) in rows {
            let failed = Failed::new(Status::new(code, "no"));
            assert_eq!(failed.is_final(), is_final, "{code:?}");
            assert_eq!(failed.is_refusal(), code == Code::FailedPrecondition);
            let status = failed.status(&PersistentVolumeClaim::default(), &growth(outdated, written));
            let is_infeasible = status["allocatedResourceStatuses"]["storage"] == "NodeResizeInfeasible";
            assert_eq!(is_infeasible, never, "{code:?} {outdated} {written}");
            assert_eq!(status["conditions"][0]["type"], "NodeResizeError");
        }
        let words = Failed::new(Status::internal("boom")).to_string();
        assert_eq!(
            words,
            "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = boom"
        );
    }
}
