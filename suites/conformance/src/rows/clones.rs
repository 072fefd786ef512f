//! Volumes created from volumes.

use anyhow::{Result, anyhow, bail, ensure};
use claimcheck_csi::{
    Code, Status,
    v1::{
        CapacityRange, CreateVolumeRequest, Volume, VolumeContentSource,
        volume_content_source::Type as Source,
    },
};
use claimcheck_engine::{Schedule, skip};

use super::{
    CLONE, CLONE_AGAIN, CLONES, CREATE, CREATE_AGAIN, EXPAND, EXPANDS, MOUNTS, PERSISTS, RESTORES, SAME_DATA,
    SNAPSHOT, case,
    node_expand::{keeps, published_grown},
    snapshots::must_restore,
};
use crate::{
    case::{Access, Row},
    effect::Effect,
    expect::{Answer, is_in_use},
    fixture::{Fixture, Step, from_snapshot, from_volume},
    need::Need,
    spec,
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolume from a volume succeeds", spec::CLONE, case!(made))
        .needs(&[CLONE, CREATE])
        .each()
        .schedule(Schedule::First)
        .upstream("Controller Service [Controller Server] CreateVolume should create volume from an existing source volume"),
    Row::new("CreateVolume from a volume called twice with the same name returns the same clone", spec::CREATE_SAME, case!(same_again))
        .needs(&[CLONE, CREATE, CREATE_AGAIN])
        .establishes(&[Effect::CloneAgain]),
    Row::new("CreateVolume from a volume called again after deletion of the source returns the same clone", spec::CREATE_SAME, case!(again_without_source))
        .also(&[spec::CREATE_TWICE])
        .needs(&[CLONE, CREATE, CREATE_AGAIN, CLONE_AGAIN]),
    Row::new("CreateVolume from a volume copies its data", spec::CLONE, case!(content)).needs(&[CLONE, CREATE, Need::Files, MOUNTS, PERSISTS]).establishes(&[Effect::CloneCopies]).each(),
    Row::new("a write to a clone or to its source does not change the other", spec::CLONE, case!(no_alias)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("a clone keeps its data after its source is deleted", spec::CLONE, case!(outlives)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("DeleteVolume of a clone leaves its source unchanged", spec::VOLUME_UNIQUE, case!(deleted)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume called again keeps the data of the clone", spec::CREATE_SAME, case!(created_again))
        .also(&[spec::CREATE_TWICE])
        .needs(&[CLONE, CREATE, Need::Files, CLONES, CREATE_AGAIN, CLONE_AGAIN, SAME_DATA])
        .each(),
    Row::new("CreateVolume from a volume without a capacity_range copies its data", spec::CLONE, case!(no_size))
        .also(&[spec::NO_SIZE])
        .needs(&[CLONE, CREATE, Need::Files, CLONES])
        .each(),
    Row::new("CreateVolume from a volume that has a clone copies its data", spec::CLONE, case!(second)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from an expanded volume copies its data", spec::CLONE, case!(of_expanded)).needs(&[CLONE, EXPAND, CREATE, Need::Files, CLONES, EXPANDS]).each(),
    Row::new("CreateVolume from a clone copies its data", spec::CLONE, case!(clone_of_a_clone)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume copies owners, modes and links of files", spec::CLONE, case!(attributes)).needs(&[CLONE, CREATE, Need::Files, Need::Access(Access::Mount), CLONES]),
    Row::new("CreateVolume from a published volume copies its data", spec::CLONE, case!(in_use)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a restored volume copies its data", spec::CLONE, case!(of_restored)).needs(&[CLONE, SNAPSHOT, CREATE, Need::Files, CLONES, RESTORES]).each(),
    Row::new("CreateVolume from a snapshot of a clone restores its data", spec::RESTORE, case!(snapshotted)).needs(&[CLONE, SNAPSHOT, CREATE, Need::Files, CLONES, RESTORES]).each(),
    Row::new("ControllerExpandVolume of a clone preserves its data and that of its source", spec::EXPAND_KEEPS, case!(expanded))
        .also(&[spec::VOLUME_UNIQUE])
        .needs(&[CLONE, EXPAND, CREATE, Need::Files, CLONES])
        .each(),
    Row::new("ControllerExpandVolume of a volume that has a clone preserves its data and that of the clone", spec::EXPAND_KEEPS, case!(source_expanded))
        .also(&[spec::VOLUME_UNIQUE])
        .needs(&[CLONE, EXPAND, CREATE, Need::Files, CLONES])
        .each(),
    Row::new("CreateVolume from a volume with a larger size succeeds or returns OutOfRange", spec::LARGER_COPY, case!(larger)).needs(&[CLONE, CREATE, Need::Files, CLONES]).each(),
    Row::new("CreateVolume from a volume with a smaller size succeeds or returns OutOfRange", spec::CREATE_RANGE, case!(smaller)).needs(&[CLONE, CREATE, CLONES]),
];

async fn made(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_volume(&f.volume().await?.volume_id));
    let source = request.volume_content_source.clone();
    f.check_content_source(f.make(request).await?, source)
}

impl Fixture {
    /// Checks that the content_source of a volume is its source. CSI allows a volume without a content_source, which
    /// Kubernetes' external-provisioner treats as an error. A storage system may have another id for the source than that of
    /// the request.
    pub(super) fn check_content_source(
        &self,
        made: Volume,
        source: Option<VolumeContentSource>,
    ) -> Result<()> {
        if made.content_source.is_none() {
            self.warn(
                "CreateVolume returned no content_source: Kubernetes' provisioner deletes such a volume, and fails",
            );
        } else {
            let said = |source| {
                kind(source)
                    .map_or("neither a snapshot nor a volume".to_owned(), |(of, id)| format!("{of} {id:?}"))
            };
            let differs = format!(
                "a volume was created from {}, but CreateVolume returned as its content_source {}",
                said(&source),
                said(&made.content_source)
            );
            match (kind(&source), kind(&made.content_source)) {
                (Some((of, id)), Some((other, other_id))) if of == other && !other_id.is_empty() => {
                    if id != other_id {
                        self.warn(&differs);
                    }
                }
                _ => bail!("{differs}"),
            }
        }
        Ok(())
    }
}

/// What a volume was created from, and its id.
fn kind(source: &Option<VolumeContentSource>) -> Option<(&'static str, &str)> {
    match source.as_ref()?.r#type.as_ref()? {
        Source::Snapshot(snapshot) => Some(("snapshot", &snapshot.snapshot_id)),
        Source::Volume(volume) => Some(("volume", &volume.volume_id)),
    }
}

async fn same_again(f: &Fixture) -> Result<()> {
    f.makes_again(f.create_from(from_volume(&f.volume().await?.volume_id)), async || Ok(())).await
}

/// A caller that lost the answer does not know that the source was deleted meanwhile.
async fn again_without_source(f: &Fixture) -> Result<()> {
    let source = f.volume().await?.volume_id;
    let delete = async || {
        let answer = f.delete_volume(f.delete_request(&source)).await;
        is_deleted_unless_used(answer, "DeleteVolume of a cloned volume")
    };
    f.makes_again(f.create_from(from_volume(&source)), delete).await
}

/// Checks that something was deleted; skips the case if the driver keeps it, since a volume or snapshot uses it.
pub(super) fn is_deleted_unless_used<T>(answer: Result<T, Status>, call: &str) -> Result<()> {
    match answer {
        Err(status) if status.code() == Code::FailedPrecondition => {
            Err(skip(format!("{call} returns FailedPrecondition")))
        }
        answer => answer.works(call).map(drop),
    }
}

async fn cloned(f: &Fixture, source: &str) -> Result<Volume> {
    f.make(f.create_from(from_volume(source))).await
}

async fn content(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    f.must_still_hold(&cloned(f, &source.volume_id).await?, "of the source", "in a clone").await
}

/// The clone is read where it was not written to, and after the source: it may read through to its source there.
async fn no_alias(f: &Fixture) -> Result<()> {
    let source = f.holding("shared").await?;
    let clone = cloned(f, &source.volume_id).await?;
    let source = f.put(source, "of the source").await?;
    f.must_still_hold(&clone, "shared", "in the clone, after a write to its source").await?;
    let clone = f.put(clone, "of the clone").await?;
    f.must_still_hold(&source, "of the source", "in the source, after a write to its clone").await?;
    f.must_still_hold(&clone, "of the clone", "in the clone, after its source was published again").await
}

async fn outlives(f: &Fixture) -> Result<()> {
    let source = f.holding("outlives").await?;
    let clone = cloned(f, &source.volume_id).await?;
    let deleted = f.delete_volume(f.delete_request(&source.volume_id)).await;
    // "in use by another resource"
    if is_in_use(&deleted) {
        f.warn("volumes cannot be deleted while clones of them exist");
        let refused = "after DeleteVolume of the source returned FailedPrecondition";
        f.must_still_hold(&source, "outlives", &format!("in the source, {refused}")).await?;
        return f.must_still_hold(&clone, "outlives", &format!("in the clone, {refused}")).await;
    }
    deleted.works("DeleteVolume of a cloned volume")?;
    f.must_still_hold(&clone, "outlives", "in the clone, after its source was deleted").await
}

/// The driver chooses the size, of which the data of the source is a part.
async fn no_size(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    let source = f.holding("of the source").await?;
    let request =
        CreateVolumeRequest { capacity_range: None, ..f.create_from(from_volume(&source.volume_id)) };
    let what = "CreateVolume from a volume without a capacity_range";
    let clone = f.create_volume(request).await.works(what)?.volume.unwrap_or_default();
    f.must_still_hold(&clone, "of the source", &format!("in the clone of {what}")).await
}

async fn deleted(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    let clone = cloned(f, &source.volume_id).await?;
    f.delete_volume(f.delete_request(&clone.volume_id)).await.works("DeleteVolume of a clone")?;
    f.must_still_hold(&source, "of the source", "in the source, after its clone was deleted").await
}

async fn created_again(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    let request = f.create_from(from_volume(&source.volume_id));
    f.keeps_its_data(request, async || Ok(())).await
}

async fn second(f: &Fixture) -> Result<()> {
    let source = f.holding("of the source").await?;
    let first = cloned(f, &source.volume_id).await?;
    f.must_still_hold(&cloned(f, &source.volume_id).await?, "of the source", "in a second clone").await?;
    f.must_still_hold(&first, "of the source", "in the first clone, after the second was created").await
}

/// The clone is requested as large as its source is by then.
async fn of_expanded(f: &Fixture) -> Result<()> {
    const TEXT: &str = "up to the end of the expanded source";
    let source = published_grown(f, f.volume().await?).await?;
    f.write_throughout(&source, TEXT).await?;
    f.withdraw(&source).await?;
    let mut request = f.create_from(from_volume(source.id()));
    request.capacity_range = Some(f.driver().range(f.config().grown()));
    f.must_still_hold(&f.make(request).await?, TEXT, "in a clone of an expanded volume").await
}

async fn clone_of_a_clone(f: &Fixture) -> Result<()> {
    let source = f.holding("handed on").await?;
    let clone = cloned(f, &source.volume_id).await?;
    f.must_still_hold(&cloned(f, &clone.volume_id).await?, "handed on", "in a clone of a clone").await
}

async fn attributes(f: &Fixture) -> Result<()> {
    let (source, written) = f.with_attributes().await?;
    f.must_have_attributes(cloned(f, &source.volume_id).await?, &written, "in a clone").await
}

/// A driver may be unable to copy a volume in use.
async fn in_use(f: &Fixture) -> Result<()> {
    let source = f.up_with("in use").await?;
    let clone = match f.create_volume(f.create_from(from_volume(source.id()))).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            f.warn("CreateVolume from a published volume returns FailedPrecondition: volumes in use have no clones");
            return Ok(());
        }
        made => made.works("CreateVolume from a published volume")?.volume.unwrap_or_default(),
    };
    f.must_still_hold(&clone, "in use", "in a clone of a published volume").await
}

async fn of_restored(f: &Fixture) -> Result<()> {
    let snapshot = f.snapshot(&f.holding("of the source").await?.volume_id).await?;
    let restored = f.make(f.create_from(from_snapshot(&snapshot.snapshot_id))).await?;
    let restored = f.put(restored, "of the restored volume").await?;
    let what = "in a clone of a restored volume";
    f.must_still_hold(&cloned(f, &restored.volume_id).await?, "of the restored volume", what).await
}

async fn snapshotted(f: &Fixture) -> Result<()> {
    let clone = cloned(f, &f.holding("of the source").await?.volume_id).await?;
    let clone = f.put(clone, "of the clone").await?;
    let snapshot = f.snapshot(&clone.volume_id).await?;
    must_restore(f, &snapshot, "of the clone", "in a volume restored from the snapshot of a clone").await
}

async fn expanded(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the source";
    let source = f.holding(TEXT).await?;
    let clone = cloned(f, &source.volume_id).await?;
    let clone = published_grown(f, clone).await?;
    keeps(f, &clone, TEXT, "in the clone, after ControllerExpandVolume").await?;
    f.must_still_hold(&source, TEXT, "in the source, after its clone was expanded").await
}

/// A clone may share blocks with its source until one of them changes.
async fn source_expanded(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the source";
    let source = f.holding(TEXT).await?;
    let clone = cloned(f, &source.volume_id).await?;
    let source = published_grown(f, source).await?;
    keeps(f, &source, TEXT, "in a volume that has a clone, after ControllerExpandVolume").await?;
    f.must_still_hold(&clone, TEXT, "in the clone, after its source was expanded").await
}

async fn larger(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Clone)?;
    let source = f.holding("in a larger one").await?;
    let mut request = f.create_from(from_volume(&source.volume_id));
    let what = "CreateVolume from a volume with a larger size";
    request.capacity_range = Some(f.driver().range(f.config().grown()));
    match f.create_volume(request).await {
        Err(status) if status.code() == Code::OutOfRange => {
            f.warn("clones cannot be larger than their source");
            Ok(())
        }
        made => f.must_be_larger(made.works(what)?.volume.unwrap_or_default(), "in a larger one", what).await,
    }
}

impl Fixture {
    /// Checks a copy for which a larger size was requested: it has that size, and contains the text of its source.
    pub(super) async fn must_be_larger(&self, made: Volume, text: &str, what: &str) -> Result<()> {
        let (got, grown) = (made.capacity_bytes, self.config().grown());
        ensure!(
            got == 0 || got >= grown,
            "{what} returned {got} bytes for the volume {:?}, but {grown} were requested",
            made.volume_id
        );
        let copy = self.publish_all(made).await?;
        self.must_hold_throughout(&copy, text, what).await?;
        self.must_have_size(&copy, grown, what).await
    }
}

async fn smaller(f: &Fixture) -> Result<()> {
    const TEXT: &str = "in a smaller one";
    let source = if f.writes() { f.holding(TEXT).await? } else { f.volume().await? };
    let request = f.create_from(from_volume(&source.volume_id));
    let what = "CreateVolume from a volume with a smaller size";
    if let Some(clone) = f.make_smaller(request, what).await? {
        // The driver decides which sizes are allowed.
        f.warn("a clone may be smaller than its source");
        if f.writes() {
            f.must_still_hold(&clone, TEXT, what).await.breaks(spec::CLONE)?;
        }
    }
    Ok(())
}

impl Fixture {
    /// Creates a copy for which half the size of volumes is requested, unless the driver rejects that.
    pub(super) async fn make_smaller(
        &self,
        mut request: CreateVolumeRequest,
        what: &str,
    ) -> Result<Option<Volume>> {
        let less = self.config().volume_size / 2;
        request.capacity_range = Some(CapacityRange { required_bytes: less, limit_bytes: less });
        match self.create_volume(request).await {
            Ok(made) => {
                let made = made.volume.unwrap_or_default();
                let larger = anyhow!(
                    "{what} returned {} bytes for the volume {:?}, but at most {less} were requested",
                    made.capacity_bytes,
                    made.volume_id
                );
                ensure_that(made.capacity_bytes <= less, larger).breaks(spec::SIZE_MOST)?;
                Ok(Some(made))
            }
            answer => {
                self.warn_of_other_code(&answer, what, Code::OutOfRange);
                answer.refused(what, &[Code::OutOfRange, Code::InvalidArgument])?;
                Ok(None)
            }
        }
    }
}

pub(super) fn ensure_that(holds: bool, error: anyhow::Error) -> Result<()> {
    if holds { Ok(()) } else { Err(error) }
}
