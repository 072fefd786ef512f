//! The calls to the driver, and what its responses must have.

use std::{collections::BTreeMap, error::Error};

use claimcheck_csi::{
    Driver,
    v1::{Snapshot, VolumeGroupSnapshot},
};
use claimcheck_model::group_snapshot::VolumeSnapshotInfo;

use crate::{
    rpc::RpcFailure,
    snapshotter::{
        creation_time::{OutOfRange, created, nanoseconds},
        requests::{Deletion, Found, Question},
    },
};

/// The error of a call, or of what precedes it.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// A driver's response that is not a snapshot or group.
#[derive(Debug, thiserror::Error)]
pub enum BadAnswer {
    /// None.
    #[error("the driver's answer has no {0}, or one without id")]
    Nothing(&'static str),
    /// A list without it.
    #[error("can not find snapshot for snapshotID {0}")]
    NotListed(String),
    /// A new group without snapshots.
    #[error("the driver's answer has a group snapshot without snapshots")]
    NoMembers { handle: String },
    /// A snapshot of a new group cannot be used.
    #[error("the driver's answer has a snapshot without id or without source volume")]
    Member { handle: String },
    /// See the error.
    #[error("{cause}")]
    Time { handle: String, members: Vec<VolumeSnapshotInfo>, cause: OutOfRange },
}

impl BadAnswer {
    /// The snapshot or group that exists, and can be deleted, although it is not usable; with its members as far as they
    /// are usable.
    pub fn existing(&self) -> Option<(&str, &[VolumeSnapshotInfo])> {
        match self {
            Self::Nothing(_) | Self::NotListed(_) => None,
            Self::NoMembers { handle } | Self::Member { handle } => Some((handle.as_str(), &[])),
            Self::Time { handle, members, .. } => Some((handle.as_str(), members.as_slice())),
        }
    }
}

/// Creates or polls a snapshot or group. As upstream, an existing one keeps the id of the request: another one would be
/// deleted later.
pub async fn ask(
    driver: &Driver,
    question: Question,
    secrets: BTreeMap<String, String>,
) -> Result<Found, AnyError> {
    let mut controller = driver.controller();
    let snapshot = match question {
        Question::Create(mut request) => {
            request.secrets = secrets;
            let response = controller.create_snapshot(*request).await.map_err(RpcFailure::from)?;
            // Upstream reads the group of existing snapshots only.
            let group_snapshot_id = String::new();
            response.into_inner().snapshot.map(|snapshot| Snapshot { group_snapshot_id, ..snapshot })
        }
        Question::Get(mut request) => {
            request.secrets = secrets;
            let snapshot_id = request.snapshot_id.clone();
            let response = controller.get_snapshot(request).await.map_err(RpcFailure::from)?;
            response.into_inner().snapshot.map(|snapshot| Snapshot { snapshot_id, ..snapshot })
        }
        Question::List(mut request) => {
            request.secrets = secrets;
            let snapshot_id = request.snapshot_id.clone();
            let list = controller.list_snapshots(request).await.map_err(RpcFailure::from)?.into_inner();
            let entry = list.entries.into_iter().next();
            let entry = entry.ok_or_else(|| BadAnswer::NotListed(snapshot_id.clone()))?;
            entry.snapshot.map(|snapshot| Snapshot { snapshot_id, ..snapshot })
        }
        Question::Trust(handle) => {
            Some(Snapshot { snapshot_id: handle, ready_to_use: true, ..Snapshot::default() })
        }
        Question::CreateGroup(mut request) => {
            request.secrets = secrets;
            let response = driver.group_controller().create_volume_group_snapshot(*request).await;
            return Ok(found_group(response.map_err(RpcFailure::from)?.into_inner().group_snapshot, true)?);
        }
        Question::GetGroup(mut request) => {
            request.secrets = secrets;
            let group_snapshot_id = request.group_snapshot_id.clone();
            let response = driver.group_controller().get_volume_group_snapshot(request).await;
            let group = response.map_err(RpcFailure::from)?.into_inner().group_snapshot;
            let group = group.map(|group| VolumeGroupSnapshot { group_snapshot_id, ..group });
            return Ok(found_group(group, false)?);
        }
    };
    Ok(found_snapshot(snapshot)?)
}

/// Deletes a snapshot or group.
pub async fn delete(driver: &Driver, deletion: Deletion) -> Result<(), RpcFailure> {
    match deletion {
        Deletion::Snapshot(request) => driver.controller().delete_snapshot(request).await.map(drop)?,
        Deletion::Group(request) => {
            driver.group_controller().delete_volume_group_snapshot(request).await.map(drop)?;
        }
    }
    Ok(())
}

fn found_snapshot(snapshot: Option<Snapshot>) -> Result<Found, BadAnswer> {
    let snapshot = snapshot.filter(|snapshot| !snapshot.snapshot_id.is_empty());
    let snapshot = snapshot.ok_or(BadAnswer::Nothing("snapshot"))?;
    let (handle, ready, size) = (snapshot.snapshot_id, snapshot.ready_to_use, snapshot.size_bytes);
    let group = Some(snapshot.group_snapshot_id).filter(|group| !group.is_empty());
    match created(snapshot.creation_time) {
        Ok(created) => Ok(Found { handle, ready, created: Some(created), size, group, members: Vec::new() }),
        Err(cause) => Err(BadAnswer::Time { handle, members: Vec::new(), cause }),
    }
}

/// Members are created from the snapshots of a new group only; those of an existing one are imported one by one.
fn found_group(group: Option<VolumeGroupSnapshot>, creates: bool) -> Result<Found, BadAnswer> {
    let group = group.filter(|group| !group.group_snapshot_id.is_empty());
    let group = group.ok_or(BadAnswer::Nothing("group snapshot"))?;
    let (handle, ready) = (group.group_snapshot_id, group.ready_to_use);
    let members = match creates {
        true => group.snapshots.into_iter().map(member).collect::<Option<Vec<_>>>(),
        false => Some(Vec::new()),
    };
    let Some(members) = members else { return Err(BadAnswer::Member { handle }) };
    if creates && members.is_empty() {
        return Err(BadAnswer::NoMembers { handle });
    }
    match created(group.creation_time) {
        Ok(created) => Ok(Found { handle, ready, created: Some(created), members, ..Found::default() }),
        Err(cause) => Err(BadAnswer::Time { handle, members, cause }),
    }
}

/// A snapshot of a new group; none without its id or volume.
fn member(snapshot: Snapshot) -> Option<VolumeSnapshotInfo> {
    if snapshot.snapshot_id.is_empty() || snapshot.source_volume_id.is_empty() {
        return None;
    }
    let time = snapshot.creation_time.filter(|time| time.seconds > 0);
    Some(VolumeSnapshotInfo {
        creation_time: time.and_then(|time| nanoseconds(&time)),
        ready_to_use: Some(snapshot.ready_to_use),
        restore_size: Some(snapshot.size_bytes).filter(|size| *size > 0),
        snapshot_handle: snapshot.snapshot_id,
        volume_handle: snapshot.source_volume_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_of_range_is_an_error_that_names_it() {
        let of = |seconds: i64, nanos: i32| {
            let mut snapshot = Snapshot { snapshot_id: "s".into(), ..Snapshot::default() };
            let time = snapshot.creation_time.get_or_insert_default();
            (time.seconds, time.nanos) = (seconds, nanos);
            found_snapshot(Some(snapshot)).map(|found| found.created.unwrap())
        };
        assert_eq!(of(1_700_000_000, 999_999_999).unwrap(), 1_700_000_000_999_999_999);
        // The last second of 64 bits, milliseconds in place of seconds, and nanoseconds that are none.
        let last = i64::MAX / 1_000_000_000;
        assert_eq!(of(last, 854_775_807).unwrap(), i64::MAX);
        let out_of_range = [
            (last, 854_775_808),
            (1_700_000_000_000, 0),
            (i64::MAX, 0),
            (1, 1_000_000_000),
            (1, -1),
            (1, i32::MIN),
        ];
        for (seconds, nanos) in out_of_range {
            let error = of(seconds, nanos).unwrap_err().to_string();
            assert!(error.contains(&format!("out of range: {seconds} s and {nanos} ns")), "{error}");
        }
        assert!(of(0, 0).unwrap() > 1_700_000_000_000_000_000, "now");
    }

    #[test]
    fn a_response_without_usable_snapshots_is_an_error() {
        let snapshot = |id: &str, volume: &str| Snapshot {
            snapshot_id: id.into(),
            source_volume_id: volume.into(),
            size_bytes: 7,
            ready_to_use: true,
            ..Snapshot::default()
        };
        let of = |snapshots: Vec<Snapshot>, creates| {
            let group = VolumeGroupSnapshot {
                group_snapshot_id: "g".into(),
                snapshots,
                ready_to_use: true,
                ..VolumeGroupSnapshot::default()
            };
            found_group(Some(group), creates)
        };
        for snapshots in [Vec::new(), vec![snapshot("", "v")], vec![snapshot("s", "")]] {
            let error = of(snapshots, true).unwrap_err();
            let existing = error.existing().map(|(handle, members)| (handle, members.len()));
            assert_eq!(existing, Some(("g", 0)), "it can be deleted: {error}");
        }
        assert!(of(Vec::new(), false).unwrap().members.is_empty(), "an existing one");
        let members = of(vec![snapshot("s", "v")], true).unwrap().members;
        assert_eq!((members[0].snapshot_handle.as_str(), members[0].restore_size), ("s", Some(7)));
    }
}
