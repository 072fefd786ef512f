//! GetSnapshot.

use anyhow::{Context, Result, anyhow};
use claimcheck_csi::v1::{GetSnapshotRequest, Snapshot};

use super::{
    super::{GET_SNAPSHOT, LIST_SNAPSHOTS},
    list::listed,
};
use crate::{
    creation_time::is_same,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::Fixture,
    spec::{self, Sentence},
    verdict::breaking,
};

fn get_request(f: &Fixture, snapshot_id: String) -> GetSnapshotRequest {
    GetSnapshotRequest { snapshot_id, secrets: f.config().secrets.get_snapshot.clone() }
}

pub(super) async fn get_no_id(f: &Fixture) -> Result<()> {
    let answer = f.get_snapshot(get_request(f, String::new())).await;
    answer.refused("GetSnapshot without a snapshot_id", INVALID)
}

/// The snapshot with this id, as GetSnapshot describes it.
pub(in crate::rows) async fn found(f: &Fixture, snapshot_id: &str) -> Result<Snapshot> {
    let found = f.get_snapshot(get_request(f, snapshot_id.to_owned())).await.works("GetSnapshot")?;
    found.snapshot.context("GetSnapshot returned OK without a snapshot")
}

/// A snapshot as the calls describe it that look up snapshots, of those that the driver supports: with the name of the call,
/// and the sentence about what it returns.
pub(in crate::rows) async fn looked_up(
    f: &Fixture,
    snapshot_id: &str,
) -> Result<Vec<(&'static str, &'static Sentence, Snapshot)>> {
    let mut described = Vec::new();
    if f.has(LIST_SNAPSHOTS) {
        described.push(("ListSnapshots", spec::SNAPSHOTS_CURRENT, listed(f, snapshot_id).await?));
    }
    if f.has(GET_SNAPSHOT) {
        described.push(("GetSnapshot", spec::FETCH_CURRENT, found(f, snapshot_id).await?));
    }
    Ok(described)
}

pub(super) async fn get(f: &Fixture) -> Result<()> {
    let taken = f.snapshot(&f.volume().await?.volume_id).await?;
    let found = found(f, &taken.snapshot_id).await?;
    same_snapshot(&taken, &found, "GetSnapshot", spec::FETCH_CURRENT)?;
    if taken.ready_to_use && !found.ready_to_use {
        let late = anyhow!("CreateSnapshot returns ready_to_use, but GetSnapshot does not");
        return Err(breaking(late, spec::FETCH_CURRENT));
    }
    Ok(())
}

/// Checks that a message of `call` describes the snapshot that was created. Its size may become known
/// later (0 is unknown), and its time may be stored in whole seconds. `current` is the sentence about both.
pub(in crate::rows) fn same_snapshot(
    taken: &Snapshot,
    found: &Snapshot,
    call: &str,
    current: &'static Sentence,
) -> Result<()> {
    let time = |it: &Snapshot| it.creation_time.map(|time| (time.seconds, time.nanos));
    let mut other = Vec::new();
    for (field, was, is) in [
        ("snapshot_id", &taken.snapshot_id, &found.snapshot_id),
        ("source_volume_id", &taken.source_volume_id, &found.source_volume_id),
        ("group_snapshot_id", &taken.group_snapshot_id, &found.group_snapshot_id),
    ] {
        if was != is {
            other.push(format!("{field} {is:?} in place of {was:?}"));
        }
    }
    let is_another = !other.is_empty();
    if taken.size_bytes != 0 && found.size_bytes != 0 && taken.size_bytes != found.size_bytes {
        other.push(format!("size_bytes {} in place of {}", found.size_bytes, taken.size_bytes));
    }
    if !is_same(time(taken), time(found)) {
        let text = |it| match time(it) {
            Some((seconds, nanos)) => format!("{seconds}.{nanos:09}"),
            None => "unset".to_owned(),
        };
        other.push(format!("creation_time {} in place of {}", text(found), text(taken)));
    }
    if other.is_empty() {
        return Ok(());
    }
    let other = anyhow!("{call} returned another snapshot than CreateSnapshot: {}", other.join(", "));
    if is_another {
        return Err(other);
    }
    Err(breaking(other, current))
}

pub(super) async fn get_unknown(f: &Fixture) -> Result<()> {
    let answer = f.get_snapshot(get_request(f, f.unknown_snapshot())).await;
    answer.refused("GetSnapshot of a snapshot that does not exist", NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CaseResult;

    use super::*;
    use crate::verdict::verdict;

    /// The result of a comparison, with the snapshot changed by `change`.
    fn compared(change: impl FnOnce(&mut Snapshot)) -> CaseResult {
        let taken = Snapshot {
            snapshot_id: "snap".to_owned(),
            source_volume_id: "vol".to_owned(),
            size_bytes: 4096,
            creation_time: Some(std::time::SystemTime::UNIX_EPOCH.into()),
            ready_to_use: true,
            ..Snapshot::default()
        };
        let mut found = taken.clone();
        change(&mut found);
        verdict(spec::FETCHED, same_snapshot(&taken, &found, "GetSnapshot", spec::FETCH_CURRENT), &[], true).0
    }

    #[test]
    fn a_snapshot_may_be_described_with_less_precision() {
        let nanos = |found: &mut Snapshot| found.creation_time.as_mut().unwrap().nanos = 999_999_999;
        let changes: [fn(&mut Snapshot); 2] = [|_| {}, |found| found.size_bytes = 0];
        for change in changes {
            assert_eq!(compared(change), CaseResult::Passed);
        }
        assert_eq!(compared(nanos), CaseResult::Passed);
    }

    #[test]
    fn another_snapshot_is_not_the_same() {
        let seconds = |found: &mut Snapshot| found.creation_time.as_mut().unwrap().seconds = 1_000;
        let failed = |result| matches!(result, CaseResult::Failed { .. });
        assert!(failed(compared(|found| found.snapshot_id.push('2'))));
        assert!(failed(compared(|found| found.source_volume_id.push('2'))));
        assert!(failed(compared(|found| found.group_snapshot_id.push('2'))));
        assert!(failed(compared(|found| found.size_bytes = 1)));
        assert!(failed(compared(seconds)));
    }
}
