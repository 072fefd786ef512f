//! Groups of snapshots: creation, their members, deletion, and errors.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_informer::Kind;
use claimcheck_model::{Capability, CsiMethod};
use kube::ResourceExt;
use serde_json::json;

use super::{
    case, row,
    snapshottable::{expect, written},
};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, Policy, TestPod, VolumeSource},
    need::Need,
};

const SUITE: &str = "group_snapshots";
const NEEDS: &[Need] =
    &[Need::Capability(Capability::SnapshotDataSource), Need::Capability(Capability::GroupSnapshot)];

const fn group(name: &'static str, run: Run) -> Case {
    row(SUITE, name, "volumegroupsnapshottable", Pattern::IMMEDIATE, NEEDS, run)
}

pub(super) const ROWS: &[Case] = &[
    group("a group snapshot of two PVCs is ready with a restorable member of each PVC", case!(restored)),
    group("members of a group snapshot have the data of one point in time", case!(one_point_in_time)),
    group("a group snapshot is deleted with its members and their contents", case!(deleted)),
    row(
        SUITE,
        "a member of a group snapshot cannot be deleted alone",
        "volumegroupsnapshottable",
        Pattern::IMMEDIATE,
        &[
            Need::LongWait,
            Need::Capability(Capability::SnapshotDataSource),
            Need::Capability(Capability::GroupSnapshot),
        ],
        case!(member_alone),
    ),
    group(
        "a group snapshot with a member that lost its VolumeSnapshotContent is deleted completely",
        case!(member_content_lost),
    ),
    group(
        "a group snapshot with a selector that matches no PVC reports an error until one matches",
        case!(no_claims),
    ),
    group("a group snapshot with a class of another driver reports an error", case!(other_driver)),
    group("a group snapshot without a class uses the default class of the driver", case!(default_class)),
    group(
        "a group snapshot with deletionPolicy Retain is kept when its VolumeGroupSnapshot is deleted",
        case!(retained),
    ),
];

/// The name of the group of a case.
const GROUP: &str = "group";

/// Two bound claims of the group, with their names as the text on their volumes.
async fn two_claims(t: &Fixture) -> Result<[Claim; 2]> {
    let (a, b) = (written(t, "a", "a").await?, written(t, "b", "b").await?);
    t.add_to_group(&a, GROUP).await?;
    t.add_to_group(&b, GROUP).await?;
    Ok([a, b])
}

/// A bound claim of the group without data.
async fn one_claim(t: &Fixture) -> Result<Claim> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    t.add_to_group(&claim, GROUP).await?;
    Ok(claim)
}

async fn restored(t: Arc<Fixture>) -> Result<()> {
    let claims = two_claims(&t).await?;
    // A PVC in the same namespace that is not selected.
    t.claim("other").await?;
    let class = t.group_class(Policy::Delete).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.ready_group(GROUP).await?;
    let status = group.status.clone().context("the group snapshot has no status")?;
    ensure!(status.error.is_none() && status.creation_time.is_some(), "its status is {status:?}");
    let content = t.group_content_of(&group).await?;
    ensure!(
        content.is_bound_to(&group),
        "the content is bound to {:?}",
        content.spec.volume_group_snapshot_ref
    );
    ensure!(content.is_ready() && content.handle().is_some(), "the content's status is {:?}", content.status);
    let message = t.event(GROUP, "GroupSnapshotReady").await?;
    ensure!(message.contains("is ready to use"), "the Event message is {message:?}");
    let members = t.restorable_members(GROUP, claims.len()).await?;
    for (claim, (of, member)) in claims.iter().zip(members) {
        ensure!(of == claim.name, "the source of member {} is {of:?}", member.name_any());
        let named = member.status.as_ref().and_then(|status| status.volume_group_snapshot_name.as_deref());
        ensure!(named == Some(GROUP), "volumeGroupSnapshotName of {} is {named:?}", member.name_any());
        let (name, source) = (format!("restored-{of}"), member.name_any());
        let restored = t.claim_from(&name, VolumeSource::Snapshot(&source), &t.usual_size()).await?;
        expect(&t, &restored, &claim.name).await?;
    }
    Ok(())
}

/// Writes increasing numbers to both volumes in turn, so that at any point in time the first is equal to the second, or
/// greater by one. It pauses, since a driver may refuse what is written without end. Prints each number once
/// both volumes have it.
const IN_TURN: &str = "\
trap 'exit 0' TERM
put() { echo $1 > $2/next && sync && mv $2/next $2/file && sync; }
i=0
while :; do i=$((i + 1)); put $i /data; put $i /data1; echo $i; sleep 0.1; done";
/// The number of groups, one after the other.
const TIMES: usize = 3;

async fn one_point_in_time(t: Arc<Fixture>) -> Result<()> {
    let claims = [t.claim("a").await?, t.claim("b").await?];
    let writer = TestPod::endless("writer", &claims[0], IN_TURN).also(&claims[1]);
    let writer = t.ready_pod(&writer).await?;
    let class = t.group_class(Policy::Delete).await?;
    let mut latest = 0;
    for group in (0..TIMES).map(|number| format!("{GROUP}-{number}")) {
        for claim in &claims {
            t.add_to_group(claim, &group).await?;
        }
        // Later than all of the last group.
        let before = t.number_printed(&writer, latest).await?;
        t.group_snapshot(&group, Some(&class)).await?;
        t.ready_group(&group).await?;
        let numbers = numbers_of(&t, &group).await?;
        ensure!(
            numbers.len() == 2 && (0..=1).contains(&(numbers[0] - numbers[1])),
            "the numbers {numbers:?} of {group} were never on the volumes at the same time"
        );
        ensure!(
            numbers[1] >= before,
            "the members of {group} have the numbers {numbers:?}, although both volumes had {before} before"
        );
        latest = numbers[0];
    }
    t.remove_pod(&writer).await
}

/// The numbers on the volumes of a group snapshot.
async fn numbers_of(t: &Fixture, group: &str) -> Result<Vec<i64>> {
    let mut restored = Vec::new();
    for (of, member) in t.restorable_members(group, 2).await? {
        let (name, source) = (format!("{group}-{of}"), member.name_any());
        restored.push(t.claim_from(&name, VolumeSource::Snapshot(&source), &t.usual_size()).await?);
    }
    let reader = format!("reader-of-{group}");
    let read = TestPod::run_to_completion(&reader, &restored[0], "cat /data/file /data1/file");
    let text = t.output(&read.also(&restored[1])).await?;
    let numbers = text.lines().map(str::parse).collect::<Result<Vec<_>, _>>();
    numbers.with_context(|| format!("the members of {group} contain {text:?} instead of two numbers"))
}

async fn deleted(t: Arc<Fixture>) -> Result<()> {
    let claims = two_claims(&t).await?;
    let class = t.group_class(Policy::Delete).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.ready_group(GROUP).await?;
    t.members(GROUP, claims.len()).await?;
    t.remove_group(&group).await
}

async fn member_alone(t: Arc<Fixture>) -> Result<()> {
    let claim = one_claim(&t).await?;
    let class = t.group_class(Policy::Delete).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.ready_group(GROUP).await?;
    let members = t.members(GROUP, 1).await?;
    let member = members[0].1.name_any();
    t.delete_snapshot(&member).await?;
    let message = t.event(&member, "SnapshotDeletePending").await?;
    ensure!(message.contains("is not allowed as it belongs to group snapshot"), "the Event is {message:?}");
    let alone = t.snapshot_class(Policy::Delete).await?;
    t.snapshot_remains(&member, &claim, &alone).await.context("the member was deleted alone")?;
    t.remove_group(&group).await
}

async fn member_content_lost(t: Arc<Fixture>) -> Result<()> {
    two_claims(&t).await?;
    let class = t.group_class(Policy::Delete).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.ready_group(GROUP).await?;
    let members = t.members(GROUP, 2).await?;
    let lost = &members[0].1;
    t.remove_content_by_force(lost.content().context("the member is not bound")?).await?;
    t.snapshot_reports(&lost.name_any(), "VolumeSnapshotContent is missing").await?;
    t.remove_group(&group).await?;
    for (_, member) in &members {
        t.deleted(Kind::Snapshot, &member.name_any()).await?;
        t.content_deleted(member.content().unwrap_or_default()).await?;
    }
    Ok(())
}

async fn no_claims(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    t.bound(&claim).await?;
    let class = t.group_class(Policy::Delete).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.group_reports(GROUP, "not applied to any PVC").await?;
    ensure!(group.content().is_none(), "a content was created without PVCs");
    t.event(GROUP, "GroupSnapshotContentCreationFailed").await?;
    t.add_to_group(&claim, GROUP).await?;
    let group = t.ready_group(GROUP).await?;
    let error = group.status.and_then(|status| status.error);
    ensure!(error.is_none(), "the group snapshot is ready but reports {error:?}");
    Ok(())
}

async fn other_driver(t: Arc<Fixture>) -> Result<()> {
    one_claim(&t).await?;
    let class = t.group_class_of("other", "other.claimcheck.dev", Policy::Delete, false).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.group_reports(GROUP, "mismatch with VolumeGroupSnapshotClass").await?;
    ensure!(group.content().is_none(), "a content was created for another driver");
    t.event(GROUP, "CreateGroupSnapshotContentFailed").await.map(drop)
}

async fn default_class(t: Arc<Fixture>) -> Result<()> {
    one_claim(&t).await?;
    let class = t.default_group_class().await?;
    t.group_snapshot(GROUP, None).await?;
    let group = t.ready_group(GROUP).await?;
    let used = group.spec.volume_group_snapshot_class_name;
    ensure!(used.as_deref() == Some(class.as_str()), "the class is {used:?} instead of {class}");
    Ok(())
}

async fn retained(t: Arc<Fixture>) -> Result<()> {
    let claim = written(&t, "claim", "kept").await?;
    t.add_to_group(&claim, GROUP).await?;
    let class = t.group_class(Policy::Retain).await?;
    t.group_snapshot(GROUP, Some(&class)).await?;
    let group = t.ready_group(GROUP).await?;
    let members = t.restorable_members(GROUP, 1).await?;
    let member = t.content_of(&members[0].1).await?;
    let member = member.handle().context("the content of the member has no handle")?;
    t.delete_group(GROUP).await?;
    t.deleted(Kind::GroupSnapshot, GROUP).await?;
    let content = t.group_content_of(&group).await.context("the content was deleted")?;
    ensure!(content.metadata.deletion_timestamp.is_none(), "the content is being deleted");
    // With a new content that is retained as well: the group is deleted as a whole at the end.
    let imported = t.content_like("imported", member, "imported", Policy::Retain).await?;
    t.snapshot_like("imported", json!({ "source": { "volumeSnapshotContentName": imported } })).await?;
    t.ready_snapshot("imported").await.context("the member no longer exists in the driver")?;
    let restored = t.claim_from("restored", VolumeSource::Snapshot("imported"), &t.usual_size()).await?;
    expect(&t, &restored, "kept").await?;
    let handle = content.handle().context("the content of the group has no handle")?;
    t.not_called_for(CsiMethod::DeleteVolumeGroupSnapshot, handle).await?;
    // A driver may refuse this for a member of a group, or delete it.
    t.not_called_for(CsiMethod::DeleteSnapshot, member).await
}
