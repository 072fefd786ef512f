//! Volumes created from volumes.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{CapacityRange, Volume, VolumeContentSource},
};
use claimcheck_engine::Schedule;

use super::{CLONE, CLONES, CREATE, CREATE_AGAIN, MOUNTS, PERSISTS, SAME_DATA, case};
use crate::{
    case::Row,
    effect::Effect,
    expect::Answer,
    fixture::{Fixture, Step, VolumeOnNode, from_volume},
    need::Need,
    spec,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolume from a volume succeeds", spec::CLONE, case!(made))
        .needs(&[CLONE, CREATE])
        .each()
        .schedule(Schedule::First)
        .upstream("Controller Service [Controller Server] CreateVolume should create volume from an existing source volume"),
    Row::new("CreateVolume from a volume called twice with the same name returns the same clone", spec::CREATE_SAME, case!(same_again)).needs(&[CLONE, CREATE, CREATE_AGAIN]),
    Row::new("CreateVolume from a volume copies its data", spec::CLONE, case!(content)).needs(&[CLONE, CREATE, Need::Files, MOUNTS, PERSISTS]).establishes(&[Effect::CloneCopies]).each(),
    Row::new("a write to a clone or to its source does not change the other", spec::CLONE, case!(no_alias)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("a clone keeps its data after its source is deleted", spec::CLONE, case!(outlives)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("DeleteVolume of a clone leaves its source unchanged", spec::VOLUME_UNIQUE, case!(deleted)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume called again keeps the data of the clone", spec::CREATE_SAME, case!(created_again))
        .also(&[spec::CREATE_TWICE])
        .needs(&[CLONE, CREATE, Need::Files, CLONES, CREATE_AGAIN, SAME_DATA])
        .each(),
    Row::new("CreateVolume from a clone copies its data", spec::CLONE, case!(of_a_clone)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume with a larger size succeeds or returns OutOfRange", spec::LARGER_COPY, case!(larger)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume with a smaller size succeeds or returns OutOfRange", spec::CREATE_RANGE, case!(smaller)).needs(&[CLONE, CREATE]),
];

async fn made(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_volume(&f.volume().await?.volume_id));
    let source = request.volume_content_source.clone();
    f.check_content_source(f.make(request).await?, source)
}

impl Fixture {
    /// Checks that the content_source of a volume is its source. CSI allows a volume without a content_source, which
    /// Kubernetes' external-provisioner treats as an error.
    pub(super) fn check_content_source(
        &self,
        made: Volume,
        source: Option<VolumeContentSource>,
    ) -> Result<()> {
        if made.content_source.is_none() {
            self.warn("CreateVolume returned no content_source: Kubernetes treats such a volume as empty");
        } else {
            ensure!(
                made.content_source == source,
                "a volume was created from {source:?}, but CreateVolume returned the content_source {:?}",
                made.content_source
            );
        }
        Ok(())
    }
}

async fn same_again(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_volume(&f.volume().await?.volume_id));
    let (first, again) = (f.make(request.clone()).await?.volume_id, f.make(request).await?.volume_id);
    ensure!(
        first == again,
        "CreateVolume from a volume called twice created two volumes: {first:?} and {again:?}"
    );
    Ok(())
}

async fn cloned(f: &Fixture, source: &str) -> Result<VolumeOnNode> {
    f.publish_all(f.make(f.create_from(from_volume(source))).await?).await
}

async fn content(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    f.must_hold(&cloned(f, &source.volume_id).await?, 0, "of the source", "in a clone").await
}

async fn no_alias(f: &Fixture) -> Result<()> {
    let source = f.holding("shared").await?;
    let clone = cloned(f, &source.volume_id).await?;
    f.write(&clone, 0, "of the clone").await?;
    let source = f.publish_all(source).await?;
    f.must_hold(&source, 0, "shared", "in the source, after a write to its clone").await?;
    f.write(&source, 0, "of the source").await?;
    f.must_hold(&clone, 0, "of the clone", "in the clone, after a write to its source").await
}

async fn outlives(f: &Fixture) -> Result<()> {
    let source = f.holding("outlives").await?;
    let clone = f.make(f.create_from(from_volume(&source.volume_id))).await?;
    let deleted = f.delete_volume(f.delete_request(&source.volume_id)).await;
    // "in use by another resource"
    if matches!(&deleted, Err(status) if status.code() == Code::FailedPrecondition) {
        f.warn("volumes cannot be deleted while clones of them exist");
        return Ok(());
    }
    deleted.works("DeleteVolume of a cloned volume")?;
    f.must_still_hold(&clone, "outlives", "in the clone, after its source was deleted").await
}

async fn deleted(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    let clone = f.make(f.create_from(from_volume(&source.volume_id))).await?;
    f.delete_volume(f.delete_request(&clone.volume_id)).await.works("DeleteVolume of a clone")?;
    f.must_still_hold(&source, "of the source", "in the source, after its clone was deleted").await
}

async fn created_again(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    let request = f.create_from(from_volume(&source.volume_id));
    f.keeps_its_data(request).await
}

async fn of_a_clone(f: &Fixture) -> Result<()> {
    let source = f.holding("handed on").await?;
    let clone = f.make(f.create_from(from_volume(&source.volume_id))).await?;
    f.must_hold(&cloned(f, &clone.volume_id).await?, 0, "handed on", "in a clone of a clone").await
}

async fn larger(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    let source = f.holding("in a larger one").await?;
    let mut request = f.create_from(from_volume(&source.volume_id));
    request.capacity_range = Some(f.driver().range(f.config().grown()));
    match f.create_volume(request).await {
        Err(status) if status.code() == Code::OutOfRange => {
            f.warn("clones cannot be larger than their source");
            Ok(())
        }
        made => {
            let made =
                made.works("CreateVolume from a volume with a larger size")?.volume.unwrap_or_default();
            let clone = f.publish_all(made).await?;
            f.must_hold(&clone, 0, "in a larger one", "in a clone that is larger than its source").await
        }
    }
}

async fn smaller(f: &Fixture) -> Result<()> {
    let source = f.volume().await?;
    let mut request = f.create_from(from_volume(&source.volume_id));
    let less = f.config().volume_size / 2;
    request.capacity_range = Some(CapacityRange { required_bytes: less, limit_bytes: less });
    let codes = [Code::OutOfRange, Code::InvalidArgument];
    match f.create_volume(request).await {
        // The driver decides which sizes are allowed.
        Ok(_) => f.warn("a clone may be smaller than its source"),
        answer => answer.refused("CreateVolume from a volume with a smaller size", &codes)?,
    }
    Ok(())
}
