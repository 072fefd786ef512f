//! CreateVolume.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, ensure};
use claimcheck_csi::{
    Code, Status,
    tap::code_name,
    v1::{
        CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement, Volume, VolumeContentSource,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_engine::skip;

use super::{
    ANY_NAME, CLONE, CREATE, CREATE_AGAIN, IF_MOUNTED, IF_PERSISTS, MODIFY, MOUNTS, PERSISTS, SIZE, SNAPSHOT,
    SNAPSHOT_USED, TOPOLOGY, VOLUME_USED, case,
};
use crate::{
    alone::Alone,
    case::{Access, Row},
    effect::Effect,
    expect::{Answer, INVALID, NO_SUCH, NOT_FOUND, both, status_text},
    fixture::{Fixture, Step, from_snapshot, from_volume, with_mode},
    need::Need,
    spec,
    verdict::{Breaks, breaking},
};

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateVolume without a name returns InvalidArgument", spec::MISSING, case!(no_name))
        .also(&[spec::CONDITIONS])
        .needs(&[CREATE])
        .alone(Alone::MayBreak)
        .upstream("Controller Service [Controller Server] CreateVolume should fail when no name is provided"),
    Row::new("CreateVolume without volume_capabilities returns InvalidArgument", spec::MISSING, case!(no_capabilities))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] CreateVolume should fail when no volume capabilities are provided"),
    Row::new("CreateVolume with a supported and an unsupported volume capability returns InvalidArgument", spec::BAD_ACCESS, case!(one_unsupported))
        .also(&[spec::ALL_ACCESS])
        .needs(&[CREATE]),
    Row::new("CreateVolume without a capacity_range succeeds", spec::NO_SIZE, case!(no_size))
        .also(&[spec::CAPACITY_SIGN])
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] CreateVolume should return appropriate values SingleNodeWriter NoCapacity"),
    Row::new("CreateVolume returns a volume of at least the requested size", spec::SIZE_LEAST, case!(with_size))
        .also(&[spec::SIZE_MOST, spec::SIZE_HONORED])
        .needs(&[CREATE, IF_MOUNTED])
        .establishes(&[Effect::SizeHonored])
        .each()
        .upstream("Controller Service [Controller Server] CreateVolume should return appropriate values SingleNodeWriter WithCapacity 1Gi"),
    Row::new("CreateVolume with a size of no whole MiB returns a volume of at least that size", spec::SIZE_LEAST, case!(with_odd_size))
        .needs(&[CREATE, IF_MOUNTED, Need::Follows(Effect::SizeHonored)])
        .each(),
    Row::new("CreateVolume with a size beyond 32 bits returns a volume of at least that size", spec::SIZE_LEAST, case!(with_large_size))
        .needs(&[CREATE, IF_MOUNTED, Need::Follows(Effect::SizeHonored)]),
    Row::new("CreateVolume called twice with the same name and size returns the same volume", spec::CREATE_SAME, case!(same_id))
        .also(&[spec::CREATE_ONCE])
        .needs(&[CREATE])
        .establishes(&[Effect::CreateAgain])
        .each()
        .upstream("Controller Service [Controller Server] CreateVolume should not fail when requesting to create a volume with already existing name and same capacity"),
    Row::new("CreateVolume called twice returns the same fields of the volume", spec::CREATE_SAME, case!(same_again))
        .also(&[spec::CONTEXT_SAME, spec::CONTEXT_FIXED])
        .needs(&[CREATE, CREATE_AGAIN])
        .each(),
    Row::new("CreateVolume with an existing name and a different size returns AlreadyExists", spec::EXISTS, case!(other_size))
        .needs(&[CREATE, CREATE_AGAIN, IF_MOUNTED, IF_PERSISTS])
        .upstream("Controller Service [Controller Server] CreateVolume should fail when requesting to create a volume with already existing name and different capacity"),
    Row::new("CreateVolume with an existing name and a different access type creates no second volume", spec::EXISTS, case!(other_access))
        .needs(&[CREATE, Need::Access(Access::Mount), Need::Access(Access::Block), CREATE_AGAIN, IF_MOUNTED, IF_PERSISTS]),
    Row::new("CreateVolume with an existing name and a different source returns AlreadyExists", spec::EXISTS, case!(other_source)).needs(&[CREATE, CLONE, CREATE_AGAIN, VOLUME_USED, IF_MOUNTED, IF_PERSISTS]),
    Row::new("CreateVolume with the longest allowed name succeeds", spec::ANY_NAME, case!(longest))
        .needs(&[CREATE, CREATE_AGAIN])
        .establishes(&[Effect::AnyName])
        .upstream("Controller Service [Controller Server] CreateVolume should not fail when creating volume with maximum-length name"),
    Row::new("CreateVolume with the longest allowed names that differ in one letter creates two volumes", spec::VOLUME_UNIQUE, case!(last_letter))
        .needs(&[CREATE, IF_MOUNTED, IF_PERSISTS]),
    Row::new("CreateVolume with names that differ only in case creates two volumes", spec::VOLUME_UNIQUE, case!(letter_case)).needs(&[CREATE, ANY_NAME, IF_MOUNTED, IF_PERSISTS]),
    Row::new("CreateVolume with a non-ASCII name succeeds or returns InvalidArgument", spec::ANY_NAME, case!(scripts))
        .also(&[spec::VOLUME_UNIQUE])
        .needs(&[CREATE, CREATE_AGAIN, ANY_NAME])
        .alone(Alone::MayBreak),
    Row::new("CreateVolume with spaces and quotes in the name succeeds or returns InvalidArgument", spec::ANY_NAME, case!(punctuation))
        .also(&[spec::VOLUME_UNIQUE])
        .needs(&[CREATE, CREATE_AGAIN, ANY_NAME])
        .alone(Alone::MayBreak),
    Row::new("CreateVolume returns a volume_id and volume_context within the size limits", spec::LIMITS, case!(short_ids))
        .also(&[spec::VOLUME_ID])
        .needs(&[CREATE]),
    Row::new("CreateVolume with an invalid capacity_range returns OutOfRange", spec::CREATE_RANGE, case!(no_sense))
        .also(&[spec::SIZE_SIGN, spec::CREATE_CODES])
        .needs(&[CREATE]),
    Row::new("CreateVolume with a negative limit_bytes returns OutOfRange", spec::SIZE_SIGN, case!(negative_limit))
        .also(&[spec::CREATE_RANGE])
        .needs(&[CREATE]),
    Row::new("CreateVolume with equal required_bytes and limit_bytes creates a volume of that size or returns OutOfRange", spec::SIZE_MOST, case!(exact))
        .also(&[spec::SIZE_HONORED])
        .needs(&[CREATE, SIZE, IF_MOUNTED]),
    Row::new("CreateVolume with limit_bytes alone creates a volume within it or returns OutOfRange", spec::SIZE_MOST, case!(limit_alone))
        .needs(&[CREATE]),
    Row::new("CreateVolume with an impossible size returns OutOfRange", spec::CREATE_RANGE, case!(impossible)).needs(&[CREATE]),
    Row::new("CreateVolume from a kind of source that is not declared returns InvalidArgument", spec::SOURCE_UNUSABLE, case!(undeclared_source))
        .needs(&[CREATE, MOUNTS, PERSISTS])
        .establishes(&[Effect::CloneCopies]),
    Row::new("CreateVolume with an empty volume_content_source succeeds or returns InvalidArgument", spec::INVALID, case!(no_kind_of_source)).needs(&[CREATE]),
    Row::new("CreateVolume from a nonexistent snapshot returns NotFound", spec::SOURCE_GONE, case!(missing_snapshot))
        .needs(&[CREATE, SNAPSHOT, SNAPSHOT_USED])
        .upstream("Controller Service [Controller Server] CreateVolume should fail when the volume source snapshot is not found"),
    Row::new("CreateVolume from a nonexistent volume returns NotFound", spec::SOURCE_GONE, case!(missing_volume))
        .needs(&[CREATE, CLONE, VOLUME_USED])
        .upstream("Controller Service [Controller Server] CreateVolume should fail when the volume source volume is not found"),
    Row::new("CreateVolume with mutable parameters succeeds", spec::MUTABLE, case!(mutable))
        .needs(&[CREATE, MODIFY, Need::MutableParameters])
        .upstream("Controller Service [Controller Server] CreateVolume should create volume with a volume attribute class"),
    Row::new("CreateVolume with invalid mutable parameters returns InvalidArgument", spec::INVALID, case!(invalid_mutable))
        .needs(&[CREATE, MODIFY, Need::InvalidMutableParameters])
        .upstream("Controller Service [Controller Server] CreateVolume should not create volume with an invalid volume attribute class"),
    Row::new("CreateVolume returns a volume accessible from the requested topology", spec::REQUISITE, case!(topology))
        .also(&[spec::REACHABLE, spec::REQUISITE_ALL])
        .needs(&[CREATE, TOPOLOGY]),
    Row::new("CreateVolume without accessibility_requirements succeeds", spec::TOPOLOGY_CHOSEN, case!(chosen_topology)).needs(&[CREATE, TOPOLOGY]),
    Row::new("CreateVolume returns no accessible_topology if topology is not declared", spec::VOLUME_TOPOLOGY, case!(no_topology)).needs(&[CREATE]),
    Row::new("CreateVolume in a nonexistent topology returns ResourceExhausted", spec::NOWHERE, case!(no_such_place))
        .also(&[spec::NO_PLACE])
        .needs(&[CREATE, TOPOLOGY]),
    Row::new("CreateVolume that returns an error creates no volume", spec::FAILS, case!(refused_is_absent)).needs(&[CREATE, super::LIST]),
];

async fn no_name(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.name.clear();
    f.create_volume(request).await.refused("CreateVolume without a name", INVALID)
}

async fn no_capabilities(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.volume_capabilities.clear();
    f.create_volume(request).await.refused("CreateVolume without volume_capabilities", INVALID)
}

async fn no_size(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.capacity_range = None;
    let volume = f.make(request).await?;
    ensure!(volume.capacity_bytes >= 0, "CreateVolume returned the capacity {}", volume.capacity_bytes);
    Ok(())
}

async fn with_size(f: &Fixture) -> Result<()> {
    is_large(f, f.volume().await?, f.config().volume_size).await
}

async fn with_odd_size(f: &Fixture) -> Result<()> {
    let (request, odd) = odd_size(f);
    match f.create_volume(request).await {
        Ok(made) => is_large(f, made.volume.unwrap_or_default(), odd).await,
        // The driver may support other sizes only.
        refused => refused.refused(&format!("CreateVolume of {odd} bytes"), OUT_OF_RANGE),
    }
}

/// The size that remains of 10 GiB in a number of 32 bits is 2 GiB. Drivers with volumes of certain sizes have this one.
async fn with_large_size(f: &Fixture) -> Result<()> {
    const LARGE: i64 = 10 << 30;
    let limit = f.config().volume_limit;
    if limit != 0 && limit < LARGE {
        return Err(skip(format!("volumes may have at most {limit} bytes")));
    }
    let request = CreateVolumeRequest { capacity_range: Some(f.driver().range(LARGE)), ..f.create_request() };
    match f.create_volume(request).await {
        Ok(made) => is_large(f, made.volume.unwrap_or_default(), LARGE).await,
        // The storage may have no room for it.
        Err(status) => Err(skip(format!("CreateVolume of {LARGE} bytes returns {}", status_text(&status)))),
    }
}

/// A request for a size that is a multiple of no unit of a back end, and this size: a driver rounds it up.
fn odd_size(f: &Fixture) -> (CreateVolumeRequest, i64) {
    let odd = f.config().volume_size.saturating_add(1);
    (CreateVolumeRequest { capacity_range: Some(f.driver().range(odd)), ..f.create_request() }, odd)
}

/// Checks that a new volume has the requested size, in the response and for its workload.
async fn is_large(f: &Fixture, volume: Volume, asked: i64) -> Result<()> {
    let got = volume.capacity_bytes;
    if got == 0 {
        f.warn("CreateVolume returned no capacity: Kubernetes uses the requested size as the capacity");
        return has_size(f, volume, asked).await;
    }
    ensure!(
        got >= asked,
        "a volume of at least {asked} bytes was requested, and CreateVolume returned {got}"
    );
    let limit = f.config().volume_limit;
    if limit != 0 && got > limit {
        let larger =
            anyhow!("a volume of at most {limit} bytes was requested, and CreateVolume returned {got}");
        return Err(breaking(larger, spec::SIZE_MOST));
    }
    has_size(f, volume, asked).await
}

/// Checks the size that the workload of a volume has, whatever CreateVolume returned.
async fn has_size(f: &Fixture, volume: Volume, asked: i64) -> Result<()> {
    if !f.has(Need::Files) {
        return Ok(());
    }
    let checked = async {
        let placed = f.publish_all(volume).await?;
        f.must_be_mounted(&placed)?;
        f.must_have_size(&placed, asked, "CreateVolume with a capacity_range").await?;
        f.withdraw(&placed).await
    };
    checked.await.map_err(|error| f.or_reported(Effect::PublishMounts, error))
}

async fn same_id(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let (first, again) = (f.make(request.clone()).await?, f.make(request).await?);
    one_volume(&first, &again)
}

async fn same_again(f: &Fixture) -> Result<()> {
    f.makes_again(f.create_request(), async || Ok(())).await?;
    // A driver that compares the rounded size of the volume with the requested one finds that they differ.
    let (request, odd) = odd_size(f);
    // The driver may support other sizes only.
    let Ok(first) = f.create_volume(request.clone()).await else { return Ok(()) };
    let again = f.create_volume(request).await.works(&format!("CreateVolume of {odd} bytes called again"))?;
    same_volume(&first.volume.unwrap_or_default(), &again.volume.unwrap_or_default())
}

impl Fixture {
    /// Checks that CreateVolume called twice returns the same volume, with something done between the calls.
    pub(super) async fn makes_again(
        &self,
        request: CreateVolumeRequest,
        between: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let first = self.make(request.clone()).await?;
        between().await?;
        let again = self.create_volume(request).await.works("CreateVolume called again")?;
        same_volume(&first, &again.volume.unwrap_or_default())
    }
}

/// Checks that the answers of two calls with one name describe one volume. Its capacity may become known later.
pub(super) fn same_volume(first: &Volume, again: &Volume) -> Result<()> {
    one_volume(first, again)?;
    same_capacity(first.capacity_bytes, again.capacity_bytes, "CreateVolume called again")?;
    ensure!(
        first.volume_context == again.volume_context,
        "CreateVolume called twice returned two volume_contexts for volume {:?}",
        first.volume_id
    );
    ensure!(
        first.content_source == again.content_source,
        "CreateVolume called twice returned two content_sources for volume {:?}: {:?} and {:?}",
        first.volume_id,
        first.content_source,
        again.content_source
    );
    ensure!(
        segments(first) == segments(again),
        "CreateVolume called twice returned two accessible_topologies for volume {:?}: {:?} and {:?}",
        first.volume_id,
        segments(first),
        segments(again)
    );
    Ok(())
}

/// Checks that the answers of two calls with one name have one id.
pub(super) fn one_volume(first: &Volume, again: &Volume) -> Result<()> {
    ensure!(
        first.volume_id == again.volume_id,
        "CreateVolume called twice with one name created two volumes: {:?} and {:?}",
        first.volume_id,
        again.volume_id
    );
    Ok(())
}

/// The topologies of a volume, of which the order has no meaning.
fn segments(volume: &Volume) -> BTreeSet<&BTreeMap<String, String>> {
    volume.accessible_topology.iter().map(|topology| &topology.segments).collect()
}

/// Either may be unknown; a size may also become known after the volume is created.
pub(super) fn same_capacity(made: i64, found: i64, call: &str) -> Result<()> {
    ensure!(
        made == 0 || found == 0 || found == made,
        "CreateVolume returned the capacity {made}, {call} returned {found}"
    );
    Ok(())
}

async fn other_size(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    let first = with_text(f, f.make(request.clone()).await?).await?;
    let size = first.capacity_bytes;
    let what = "CreateVolume with an existing name and a different size";
    refused_larger(f, request.clone(), size, what).await?;
    let less = f.config().volume_size / 2;
    if size > less {
        request.capacity_range = Some(CapacityRange { required_bytes: less, limit_bytes: less });
        // The driver may reject the size before it looks for the name.
        let codes = [Code::AlreadyExists, Code::OutOfRange, Code::InvalidArgument];
        let what = "CreateVolume with an existing name and limit_bytes below the size of the volume";
        let answer = f.create_volume(request).await;
        f.warn_of_other_code(&answer, what, Code::OutOfRange);
        answer.refused(what, &codes)?;
    }
    keeps_text(f, &first, what).await?;
    if f.has(CLONE) && f.builds_on(Step::Clone).is_ok() {
        let request = f.create_from(from_volume(&first.volume_id));
        let clone = f.make(request.clone()).await?;
        let what = "CreateVolume from a volume with an existing name and a different size";
        refused_larger(f, request, clone.capacity_bytes, what).await?;
    }
    Ok(())
}

/// Checks that a request for a volume of `size` bytes is rejected if it is repeated with a larger size.
async fn refused_larger(f: &Fixture, mut request: CreateVolumeRequest, size: i64, what: &str) -> Result<()> {
    let grown = f.config().grown();
    request.capacity_range = Some(f.driver().range(grown));
    match f.create_volume(request).await {
        Ok(_) if size == 0 => f.warn("volumes have no size: an existing name matches any requested size"),
        // The driver has rounded up the smaller size, so that the volume has the larger one, too.
        Ok(_) if size >= grown => {}
        answer => answer.refused(what, &[Code::AlreadyExists])?,
    }
    Ok(())
}

/// What a volume holds to which a second request with its name must do nothing.
const TEXT: &str = "written before the second request";

/// The volume with a text, if cases can write to it.
pub(super) async fn with_text(f: &Fixture, volume: Volume) -> Result<Volume> {
    if !f.writes() {
        return Ok(volume);
    }
    f.put(volume, TEXT).await.map_err(|error| f.unless_data_fails(error))
}

/// Checks that such a volume still holds its text.
pub(super) async fn keeps_text(f: &Fixture, volume: &Volume, what: &str) -> Result<()> {
    if !f.writes() {
        return Ok(());
    }
    let kept = f.must_still_hold(volume, TEXT, &format!("in the existing volume, after {what}")).await;
    kept.map_err(|error| f.unless_data_fails(error))
}

async fn other_access(f: &Fixture) -> Result<()> {
    let name = f.name();
    let (one, other) = match f.access() {
        one @ Access::Mount => (one, Access::Block),
        one @ Access::Block => (one, Access::Mount),
    };
    let first = with_text(f, f.make(f.driver().create_request(name.clone(), one)).await?).await?;
    let what = "CreateVolume with an existing name and a different access type";
    match f.create_volume(f.driver().create_request(name, other)).await {
        Ok(again) => {
            let (first, again) = (&first.volume_id, again.volume.unwrap_or_default().volume_id);
            ensure!(
                again == *first,
                "one name created two volumes, {first:?} for {one} access and {again:?} for {other} access"
            );
        }
        refused => refused.refused(what, &[Code::AlreadyExists])?,
    }
    keeps_text(f, &first, what).await
}

async fn other_source(f: &Fixture) -> Result<()> {
    let source = f.volume().await?;
    let mut request = f.create_request();
    let first = with_text(f, f.make(request.clone()).await?).await?;
    request.volume_content_source =
        Some(VolumeContentSource { r#type: Some(from_volume(&source.volume_id)) });
    let what = "CreateVolume with an existing name and a different content source";
    f.create_volume(request).await.refused(what, &[Code::AlreadyExists])?;
    keeps_text(f, &first, what).await?;
    if f.builds_on(Step::Clone).is_ok() {
        no_source(f, &source).await?;
    }
    Ok(())
}

/// The specification has a code for a volume that is incompatible with the specified source, and does not say whether a
/// request for an empty volume specifies one.
async fn no_source(f: &Fixture, source: &Volume) -> Result<()> {
    let mut request = f.create_from(from_volume(&source.volume_id));
    let clone = f.make(request.clone()).await?;
    request.volume_content_source = None;
    match f.create_volume(request).await {
        Ok(again) => {
            let (clone, again) = (clone.volume_id, again.volume.unwrap_or_default().volume_id);
            ensure!(
                clone == again,
                "one name created two volumes, the clone {clone:?} and {again:?} without a source"
            );
            f.warn("CreateVolume without a content source returns an existing clone, which is not empty");
            Ok(())
        }
        refused => {
            let what = "CreateVolume with the name of a clone and without a content source";
            refused.refused(what, &[Code::AlreadyExists])
        }
    }
}

async fn longest(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.name = f.longest_name();
    let length = request.name.len();
    let made = f
        .create_volume(request.clone())
        .await
        .works(&format!("CreateVolume with a name of {length} bytes"))?;
    let again = f.create_volume(request).await.works("CreateVolume with a long name called again")?;
    let id = |answer: claimcheck_csi::v1::CreateVolumeResponse| answer.volume.unwrap_or_default().volume_id;
    let (made, again) = (id(made), id(again));
    ensure!(
        made == again,
        "CreateVolume called twice with one long name created two volumes: {made:?} and {again:?}"
    );
    Ok(())
}

async fn two_names(f: &Fixture, a: String, b: String, what: &str) -> Result<()> {
    let mut made = Vec::new();
    for name in [&a, &b] {
        let mut request = f.create_request();
        request.name.clone_from(name);
        made.push(f.make(request).await.map_err(|error| f.or_reported(Effect::AnyName, error))?);
    }
    let id = &made[0].volume_id;
    ensure!(*id != made[1].volume_id, "{what} map to one volume, {id:?}: {a:?} and {b:?}");
    f.must_be_apart(made, what).await
}

async fn last_letter(f: &Fixture) -> Result<()> {
    let name = f.longest_name();
    let mut request = f.create_request();
    request.name.clone_from(&name);
    if f.create_volume(request).await.is_err() {
        return Err(skip(
            "the longest allowed names are rejected: see controller_create::CreateVolume with the longest \
             allowed name succeeds",
        ));
    }
    let stem = &name[..name.len() - 1];
    two_names(f, format!("{stem}a"), format!("{stem}b"), "names that differ in their last letter").await
}

async fn letter_case(f: &Fixture) -> Result<()> {
    let name = f.name();
    two_names(f, format!("{name}-a"), format!("{name}-A"), "names that differ in case").await
}

async fn scripts(f: &Fixture) -> Result<()> {
    unusual(f, "größe-体积", "a non-ASCII name").await
}

async fn punctuation(f: &Fixture) -> Result<()> {
    unusual(f, " 'a b' \"c\"", "spaces and quotes in the name").await
}

/// The specification allows any Unicode text, and recommends that callers use a subset.
async fn unusual(f: &Fixture, end: &str, what: &str) -> Result<()> {
    let name = format!("{}-{end}", f.name());
    let request = CreateVolumeRequest { name: name.clone(), ..f.create_request() };
    let id = |answer: claimcheck_csi::v1::CreateVolumeResponse| answer.volume.unwrap_or_default().volume_id;
    match f.create_volume(request.clone()).await {
        Ok(first) => {
            let again = f.create_volume(request).await;
            let again = id(again.works(&format!("CreateVolume with {what} called again"))?);
            let first = id(first);
            ensure!(first == again, "CreateVolume with {what} created two volumes: {first:?} and {again:?}");
            is_not_replaced(f, &name, &first).await.breaks(spec::VOLUME_UNIQUE)
        }
        Err(status) if status.code() == Code::InvalidArgument => {
            f.warn(format!("CreateVolume with {what} is rejected, although the specification allows it"));
            Ok(())
        }
        Err(status) => {
            let text = status_text(&status);
            let error = anyhow!("CreateVolume with {what} returned {text}");
            Err(f.or_reported(Effect::AnyName, error))
        }
    }
}

/// Checks that a volume is not that of a name in which its unusual letters are replaced or left out.
async fn is_not_replaced(f: &Fixture, name: &str, volume_id: &str) -> Result<()> {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    for by in ["_", "-", ""] {
        let replaced = |letter: char| if is_usual(letter) { letter.to_string() } else { by.to_owned() };
        let replaced: String = name.chars().map(replaced).collect();
        let request = CreateVolumeRequest { name: replaced.clone(), ..f.create_request() };
        // The driver may reject this one.
        let Ok(made) = f.create_volume(request).await else { continue };
        let other = made.volume.unwrap_or_default().volume_id;
        ensure!(other != volume_id, "two names map to one volume, {other:?}: {name:?} and {replaced:?}");
    }
    Ok(())
}

async fn short_ids(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let length = volume.volume_id.len();
    ensure!(length <= 128, "CreateVolume returned a volume_id of {length} bytes, at most 128 are allowed");
    let context: usize = volume.volume_context.iter().map(|(key, value)| key.len() + value.len()).sum();
    ensure!(
        context <= 4096,
        "CreateVolume returned a volume_context of {context} bytes, at most 4096 are allowed"
    );
    Ok(())
}

const OUT_OF_RANGE: &[Code] = &[Code::OutOfRange, Code::InvalidArgument];

fn sized(f: &Fixture, required_bytes: i64, limit_bytes: i64) -> CreateVolumeRequest {
    let capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
    CreateVolumeRequest { capacity_range, ..f.create_request() }
}

async fn refused_range(f: &Fixture, required: i64, limit: i64, what: &str) -> Result<()> {
    let answer = f.create_volume(sized(f, required, limit)).await;
    f.warn_of_other_code(&answer, what, Code::OutOfRange);
    answer.refused(what, OUT_OF_RANGE)
}

impl Fixture {
    /// Warns about InvalidArgument in place of a code that the specification defines for the condition. Both are codes of
    /// requests that cannot succeed, and the condition of InvalidArgument ("required fields are omitted or values are
    /// invalid") includes most others.
    pub(super) fn warn_of_other_code<T>(&self, answer: &Result<T, Status>, what: &str, due: Code) {
        if answer.as_ref().is_err_and(|status| status.code() == Code::InvalidArgument) {
            self.warn(format!("{what} returned InvalidArgument, for which CSI defines {}", code_name(due)));
        }
    }
}

async fn negative_limit(f: &Fixture) -> Result<()> {
    let size = f.config().volume_size;
    let (crossed, negative) =
        (f.create_volume(sized(f, size, size / 2)).await, f.create_volume(sized(f, -1, 0)).await);
    if both(crossed.refused("", OUT_OF_RANGE), negative.refused("", OUT_OF_RANGE)).is_err() {
        return Err(skip(
            "CreateVolume does not validate capacity_range: see controller_create::CreateVolume with an \
             invalid capacity_range returns OutOfRange",
        ));
    }
    refused_range(f, size, -1, "CreateVolume with limit_bytes -1").await
}

async fn exact(f: &Fixture) -> Result<()> {
    let size = f.config().volume_size;
    let mut request = f.create_request();
    request.capacity_range = Some(CapacityRange { required_bytes: size, limit_bytes: size });
    match f.create_volume(request).await {
        Ok(made) => {
            let volume = made.volume.unwrap_or_default();
            let got = volume.capacity_bytes;
            ensure!(
                got == 0 || got == size,
                "a volume of exactly {size} bytes was requested, and CreateVolume returned {got}"
            );
            has_size(f, volume, size).await
        }
        // The driver may support other sizes only.
        refused => {
            let what = "CreateVolume with equal required_bytes and limit_bytes";
            f.warn_of_other_code(&refused, what, Code::OutOfRange);
            refused.refused(what, OUT_OF_RANGE)
        }
    }
}

/// The size is left to the driver, and its default may be above the limit.
async fn limit_alone(f: &Fixture) -> Result<()> {
    let limit = f.config().volume_size;
    match f.create_volume(sized(f, 0, limit)).await {
        Ok(made) => {
            let got = made.volume.unwrap_or_default().capacity_bytes;
            ensure!(
                got <= limit,
                "a volume of at most {limit} bytes was requested, and CreateVolume returned {got}"
            );
            Ok(())
        }
        // The driver may support larger volumes only.
        refused => {
            let what = "CreateVolume with limit_bytes alone";
            f.warn_of_other_code(&refused, what, Code::OutOfRange);
            refused.refused(what, OUT_OF_RANGE)
        }
    }
}

/// A driver may support one access mode and not the other, but an unknown one is never supported.
async fn one_unsupported(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.volume_capabilities = vec![with_mode(f.capability(), Mode::Unknown)];
    if f.create_volume(request).await.is_ok() {
        return Err(skip(
            "CreateVolume accepts an unsupported capability on its own: see capabilities::access mode \
             UNKNOWN is rejected by every call",
        ));
    }
    let mut request = f.create_request();
    request.volume_capabilities.push(with_mode(f.capability(), Mode::Unknown));
    f.create_volume(request)
        .await
        .refused("CreateVolume with a supported and an unsupported volume capability", INVALID)
}

/// One row for both: a driver that validates ranges validates all of a range.
async fn no_sense(f: &Fixture) -> Result<()> {
    let size = f.config().volume_size;
    let limit = "CreateVolume with limit_bytes below required_bytes";
    both(
        refused_range(f, size, size / 2, limit).await,
        refused_range(f, -1, 0, "CreateVolume with required_bytes -1").await,
    )
}

async fn impossible(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    let impossible = i64::MAX - 1;
    request.capacity_range = Some(CapacityRange { required_bytes: impossible, limit_bytes: 0 });
    match f.create_volume(request).await {
        Ok(made) => {
            let got = made.volume.unwrap_or_default().capacity_bytes;
            ensure!(
                got == 0 || got >= impossible,
                "a volume of {impossible} bytes was requested, and CreateVolume returned {got}"
            );
            f.warn("the driver creates volumes of 8 EiB: it does not validate sizes");
            Ok(())
        }
        refused => {
            let codes = [Code::OutOfRange, Code::InvalidArgument, Code::ResourceExhausted];
            f.warn_of_other_code(&refused, "CreateVolume of 8 EiB", Code::OutOfRange);
            refused.refused("CreateVolume of 8 EiB", &codes)
        }
    }
}

async fn undeclared_source(f: &Fixture) -> Result<()> {
    let (volumes, snapshots) = (f.has(CLONE), f.has(SNAPSHOT));
    if volumes && snapshots {
        return Err(skip("the driver declares all kinds of sources"));
    }
    if !volumes {
        undeclared_clone(f).await?;
    }
    if !snapshots {
        undeclared_snapshot(f).await?;
    }
    Ok(())
}

/// A driver may copy a volume although it does not declare that.
async fn undeclared_clone(f: &Fixture) -> Result<()> {
    const TEXT: &str = "of the source";
    let what = "CreateVolume from a volume, without CLONE_VOLUME,";
    let source = f.volume().await?;
    let made = match f.create_volume(f.create_from(from_volume(&source.volume_id))).await {
        Ok(made) => made.volume.unwrap_or_default(),
        refused => return refused.refused(what, INVALID),
    };
    let (is_copy, sign) = if f.has(Need::Files) {
        let source = f.put(source, TEXT).await?;
        let copy = f.publish_all(f.make(f.create_from(from_volume(&source.volume_id))).await?).await?;
        (f.must_hold_throughout(&copy, TEXT, "in a clone").await.is_ok(), "the data of the source")
    } else {
        (made.content_source.is_some(), "a content_source")
    };
    ensure!(
        is_copy,
        "{what} returned OK and a volume without {sign}, expected InvalidArgument: \
         volume_content_source is ignored"
    );
    f.warn(
        "CreateVolume copies volumes, but the controller does not declare CLONE_VOLUME: no caller uses it",
    );
    Ok(())
}

async fn undeclared_snapshot(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_snapshot(&f.unknown_snapshot()));
    f.create_volume(request)
        .await
        .refused("CreateVolume from a snapshot, without CREATE_DELETE_SNAPSHOT,", NO_SUCH)
}

async fn no_kind_of_source(f: &Fixture) -> Result<()> {
    if f.create_volume(f.create_from(from_volume(&f.unknown_volume()))).await.is_ok() {
        let case = match f.has(CLONE) {
            true => "a nonexistent volume returns NotFound",
            false => "a kind of source that is not declared returns InvalidArgument",
        };
        return Err(skip(format!(
            "CreateVolume ignores volume_content_source: see controller_create::CreateVolume from {case}"
        )));
    }
    let mut request = f.create_request();
    request.volume_content_source = Some(VolumeContentSource { r#type: None });
    match f.create_volume(request).await {
        // The kinds of sources are alternatives, none of which is required.
        Ok(_) => {
            f.warn("CreateVolume with an empty volume_content_source creates an empty volume");
            Ok(())
        }
        refused => refused.refused("CreateVolume with an empty volume_content_source", INVALID),
    }
}

async fn missing_snapshot(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_snapshot(&f.unknown_snapshot()));
    f.create_volume(request).await.refused("CreateVolume from a snapshot that does not exist", NOT_FOUND)
}

async fn missing_volume(f: &Fixture) -> Result<()> {
    let request = f.create_from(from_volume(&f.unknown_volume()));
    f.create_volume(request).await.refused("CreateVolume from a volume that does not exist", NOT_FOUND)
}

async fn mutable(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.mutable_parameters = f.mutable();
    f.create_volume(request).await.works("CreateVolume with mutable parameters")?;
    Ok(())
}

async fn invalid_mutable(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.mutable_parameters.clone_from(&f.config().invalid_mutable_parameters);
    f.create_volume(request).await.refused("CreateVolume with invalid mutable parameters", INVALID)
}

async fn topology(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let Some(asked) = f.driver().topology() else {
        return Err(skip("NodeGetInfo returns no accessible_topology, and no --topology is set"));
    };
    // "This field is OPTIONAL": the volume is accessible from all nodes.
    if volume.accessible_topology.is_empty() {
        f.warn(
            "CreateVolume returned no accessible_topology, although the plugin declares \
             VOLUME_ACCESSIBILITY_CONSTRAINTS: Kubernetes schedules the volume's pods to any node",
        );
        return Ok(());
    }
    accessible(&asked, &volume.accessible_topology)
}

/// Checks that a volume with these topologies is accessible from the requested one.
fn accessible(asked: &Topology, from: &[Topology]) -> Result<()> {
    let fits = |topology: &Topology| {
        topology.segments.iter().all(|(key, value)| asked.segments.get(key) == Some(value))
    };
    ensure!(
        from.iter().any(fits),
        "the volume was requested in {:?}, and is accessible from {:?} only",
        asked.segments,
        from.iter().map(|topology| &topology.segments).collect::<Vec<_>>()
    );
    Ok(())
}

async fn chosen_topology(f: &Fixture) -> Result<()> {
    let request = CreateVolumeRequest { accessibility_requirements: None, ..f.create_request() };
    f.create_volume(request).await.works("CreateVolume without accessibility_requirements")?;
    Ok(())
}

async fn no_topology(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    ensure!(
        f.has(TOPOLOGY) || volume.accessible_topology.is_empty(),
        "CreateVolume returned an accessible_topology, but the plugin does not declare \
         VOLUME_ACCESSIBILITY_CONSTRAINTS"
    );
    Ok(())
}

async fn no_such_place(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    // A topology without segments is everywhere.
    let Some(topology) = f.driver().topology().filter(|topology| !topology.segments.is_empty()) else {
        return Err(skip("NodeGetInfo returns no accessible_topology, and no --topology is set"));
    };
    let elsewhere = topology.segments.into_keys().map(|key| (key, "claimcheck-nowhere".to_owned())).collect();
    let requisite = vec![Topology { segments: elsewhere }];
    request.accessibility_requirements =
        Some(TopologyRequirement { preferred: requisite.clone(), requisite });
    let (what, codes) =
        ("CreateVolume in a topology that does not exist", [Code::ResourceExhausted, Code::InvalidArgument]);
    let answer = f.create_volume(request).await;
    f.warn_of_other_code(&answer, what, Code::ResourceExhausted);
    answer.refused(what, &codes)
}

/// If a rejected request created a volume, its name would be taken, and that volume would not have the larger size.
async fn refused_is_absent(f: &Fixture) -> Result<()> {
    let mut without = f.create_request();
    without.volume_capabilities.clear();
    f.create_volume(without.clone()).await.refused("CreateVolume without volume_capabilities", NO_SUCH)?;
    let mut others = vec![(without, "without volume_capabilities")];
    // Other rows check these errors.
    let source = |source| CreateVolumeRequest { name: f.name(), ..f.create_from(source) };
    others.push((source(from_snapshot(&f.unknown_snapshot())), "from a nonexistent snapshot"));
    others.push((source(from_volume(&f.unknown_volume())), "from a nonexistent volume"));
    let mut unknown = f.create_request();
    unknown.volume_capabilities = vec![with_mode(f.capability(), Mode::Unknown)];
    others.push((unknown, "with the access mode UNKNOWN"));
    for (request, what) in others {
        if f.create_volume(request.clone()).await.is_ok() {
            continue;
        }
        let mut valid = f.driver().create_request(request.name, f.access());
        valid.capacity_range = Some(f.driver().range(f.config().grown()));
        let what = format!("CreateVolume with the name of a rejected request ({what}) and a larger size");
        let made = f.create_volume(valid).await.works(&what)?.volume.unwrap_or_default();
        let (got, grown) = (made.capacity_bytes, f.config().grown());
        ensure!(
            got == 0 || got >= grown,
            "{what} returned the volume {:?} of {got} bytes, expected one of at least {grown}",
            made.volume_id
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_may_become_known_but_not_change() {
        for (made, found) in [(0, 0), (0, 5), (5, 0), (5, 5)] {
            same_capacity(made, found, "ControllerGetVolume").unwrap();
        }
        let changed = same_capacity(5, 6, "ControllerGetVolume").unwrap_err().to_string();
        assert_eq!(changed, "CreateVolume returned the capacity 5, ControllerGetVolume returned 6");
    }
}
