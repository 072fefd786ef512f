//! ControllerExpandVolume and ControllerModifyVolume.

use anyhow::{Context as _, Result, anyhow, ensure};
use claimcheck_csi::{
    Code, Status,
    tap::code_name,
    v1::{
        CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest,
        ControllerModifyVolumeResponse, CreateVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume,
        plugin_capability::volume_expansion::Type as ExpansionType,
    },
};
use claimcheck_engine::{Schedule, skip};

use super::{
    CHECKS_PARAMETERS, CREATE, CREATE_AGAIN, EXPAND, EXPANDS, GET, IF_MOUNTED, IF_PERSISTS, MODIFY, MOUNTS,
    PERSISTS, case,
    clones::ensure_that,
    controller_create::{keeps_text, one_volume, same_capacity, with_text},
    controller_delete, node_expand,
};
use crate::{
    case::Row,
    config::Map,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND, both},
    fixture::{Fixture, Step},
    need::Need,
    spec,
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("ControllerExpandVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_id))
        .needs(&[EXPAND])
        .upstream("ExpandVolume [Controller Server] should fail if no volume id is given"),
    Row::new("ControllerExpandVolume without a capacity_range returns InvalidArgument", spec::MISSING, case!(no_range))
        .needs(&[EXPAND, CREATE])
        .upstream("ExpandVolume [Controller Server] should fail if no capacity range is given"),
    Row::new("ControllerExpandVolume of a nonexistent volume returns NotFound", spec::EXPAND_GONE, case!(unknown)).needs(&[EXPAND]),
    Row::new("ControllerExpandVolume returns at least the requested size", spec::SIZE_LEAST, case!(grows))
        .also(&[spec::EXPANDED])
        .needs(&[EXPAND, CREATE])
        .each()
        .schedule(Schedule::First)
        .upstream("ExpandVolume [Controller Server] should work"),
    Row::new("ControllerExpandVolume without a volume_capability succeeds", spec::EXPAND, case!(no_capability))
        .needs(&[EXPAND, CREATE, EXPANDS]),
    Row::new("ControllerExpandVolume called twice succeeds", spec::EXPAND_TWICE, case!(twice))
        .also(&[spec::EXPANDED_NODE])
        .needs(&[EXPAND, CREATE])
        .each(),
    Row::new("ControllerExpandVolume to a smaller size succeeds and keeps the size", spec::EXPAND_LARGER, case!(no_shrinking))
        .also(&[spec::EXPAND_KEEPS])
        .needs(&[EXPAND, CREATE, EXPANDS, MOUNTS, PERSISTS]),
    Row::new("ControllerExpandVolume with an invalid capacity_range returns OutOfRange", spec::EXPAND_RANGE, case!(no_sense))
        .also(&[spec::SIZE_SIGN])
        .needs(&[EXPAND, CREATE, EXPANDS, IF_MOUNTED, IF_PERSISTS]),
    Row::new("ControllerExpandVolume with a negative limit_bytes returns OutOfRange", spec::SIZE_SIGN, case!(negative_limit))
        .also(&[spec::EXPAND_RANGE])
        .needs(&[EXPAND, CREATE, EXPANDS]),
    Row::new(
        "ControllerExpandVolume with equal required_bytes and limit_bytes expands to that size or returns OutOfRange",
        spec::SIZE_MOST,
        case!(exact),
    )
    .also(&[spec::EXPAND_RANGE])
    .needs(&[EXPAND, CREATE]),
    Row::new("ControllerExpandVolume to an impossible size returns OutOfRange", spec::EXPAND_RANGE, case!(impossible))
        .needs(&[EXPAND, CREATE, EXPANDS, IF_MOUNTED, IF_PERSISTS]),
    Row::new("ControllerGetVolume after ControllerExpandVolume returns the new size", spec::SIZE_LEAST, case!(reported_size)).needs(&[EXPAND, CREATE, GET]).establishes(&[Effect::Expands]),
    Row::new("ControllerExpandVolume preserves data", spec::EXPAND_KEEPS, case!(data)).needs(&[EXPAND, CREATE, Need::Files, MOUNTS, PERSISTS]).each(),
    Row::new("CreateVolume called again after ControllerExpandVolume keeps the size and the data of the volume", spec::CREATE_SAME, case!(created_again))
        .needs(&[EXPAND, CREATE, EXPANDS, CREATE_AGAIN, MOUNTS, PERSISTS])
        .each(),
    Row::new("ControllerExpandVolume of a published volume without ONLINE returns FailedPrecondition", spec::EXPAND_IN_USE, case!(offline_only))
        .also(&[spec::OFFLINE])
        .needs(&[EXPAND, CREATE, Need::Expansion(ExpansionType::Offline), IF_MOUNTED, IF_PERSISTS]),
    Row::new("ControllerModifyVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(modify_no_id))
        .needs(&[MODIFY])
        .upstream("ModifyVolume [Controller Server] should fail if no volume id is given"),
    Row::new("ControllerModifyVolume of a nonexistent volume returns NotFound", spec::MODIFY_GONE, case!(modify_unknown))
        .needs(&[MODIFY, Need::MutableParameters])
        .upstream("ModifyVolume [Controller Server] should fail if volume does not exist"),
    Row::new("ControllerModifyVolume of a volume without mutable parameters called twice succeeds", spec::MODIFY_TWICE, case!(modify_plain))
        .needs(&[MODIFY, CREATE, Need::MutableParameters])
        .upstream("ModifyVolume [Controller Server] should modify a volume created without a volume attribute class"),
    Row::new("ControllerModifyVolume of a volume with mutable parameters succeeds", spec::MODIFY, case!(modify_made))
        .needs(&[MODIFY, CREATE, Need::MutableParameters])
        .upstream("ModifyVolume [Controller Server] should modify a volume created with a volume attribute class"),
    Row::new("ControllerModifyVolume with one of the mutable parameters of a volume keeps the others", spec::MODIFY_KEYS, case!(modify_one))
        .needs(&[MODIFY, CREATE, Need::MutableParameters]),
    Row::new("ControllerModifyVolume preserves data", spec::MODIFY, case!(modify_keeps))
        .needs(&[MODIFY, CREATE, Need::MutableParameters, Need::Files, MOUNTS, PERSISTS])
        .each(),
    Row::new("ControllerModifyVolume with invalid mutable parameters returns InvalidArgument", spec::MODIFY_BAD, case!(modify_invalid))
        .needs(&[MODIFY, CREATE, Need::InvalidMutableParameters])
        .establishes(&[Effect::ParametersChecked])
        .upstream("ModifyVolume [Controller Server] should fail if specified mutable parameters are not supported by the volume"),
    Row::new("ControllerModifyVolume that returns an error leaves the volume unchanged", spec::MODIFY_UNTOUCHED, case!(modify_unchanged))
        .needs(&[MODIFY, CREATE, Need::MutableParameters, Need::InvalidMutableParameters, CHECKS_PARAMETERS, CREATE_AGAIN])
        .upstream("ModifyVolume [Controller Server] should fail to modify a volume created with a volume attribute class if new mutable parameters are not supported by volume"),
];

async fn no_id(f: &Fixture) -> Result<()> {
    let answer = f.controller_expand_volume(f.expand_request("")).await;
    answer.refused("ControllerExpandVolume without a volume_id", INVALID)
}

async fn no_range(f: &Fixture) -> Result<()> {
    let mut request = f.expand_request(&f.volume().await?.volume_id);
    request.capacity_range = None;
    let answer = f.controller_expand_volume(request).await;
    answer.refused("ControllerExpandVolume without a capacity_range", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    let answer = f.controller_expand_volume(f.expand_request(&f.unknown_volume())).await;
    answer.refused("ControllerExpandVolume of a volume that does not exist", NOT_FOUND)
}

impl Fixture {
    /// Calls ControllerExpandVolume with the configured size, and returns node_expansion_required.
    pub(super) async fn grow(&self, volume_id: &str) -> Result<bool> {
        self.builds_on(Step::Expand)?;
        let answer = self.controller_expand_volume(self.expand_request(volume_id)).await;
        let answer = answer.map_err(|status| self.unusable(Step::Expand, &status))?;
        has_grown("a volume", self.config().grown(), answer.capacity_bytes).breaks(spec::SIZE_LEAST)?;
        Ok(answer.node_expansion_required)
    }

    /// Expands an expanded volume once more, to a size that is a multiple of no unit of a back end: a driver rounds it up.
    /// None if it returns an error, since it may limit sizes, and also how often a volume is expanded.
    pub(super) async fn grow_further(&self, volume_id: &str) -> Option<Grown> {
        let grown = self.config().grown();
        let asked = grown.saturating_add(grown - self.config().volume_size).saturating_add(1);
        let capacity_range = Some(self.driver().range(asked));
        let request = ControllerExpandVolumeRequest { capacity_range, ..self.expand_request(volume_id) };
        let answer = self.controller_expand_volume(request).await.ok()?;
        let (size, on_node) = (answer.capacity_bytes, answer.node_expansion_required);
        Some(Grown { asked, size, on_node })
    }
}

/// What ControllerExpandVolume returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grown {
    /// The requested size.
    pub asked: i64,
    /// The returned one.
    pub size: i64,
    /// Whether NodeExpandVolume is required.
    pub on_node: bool,
}

async fn grows(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    f.grow(&volume).await?;
    let Some(Grown { asked, size, .. }) = f.grow_further(&volume).await else { return Ok(()) };
    has_grown("an expanded volume", asked, size)
}

/// An error if ControllerExpandVolume returned less than the requested size.
fn has_grown(what: &str, asked: i64, got: i64) -> Result<()> {
    ensure!(
        got >= asked,
        "{what} was to be expanded to {asked} bytes, and ControllerExpandVolume returned {got}"
    );
    Ok(())
}

/// "This is an OPTIONAL field."
async fn no_capability(f: &Fixture) -> Result<()> {
    let mut request = f.expand_request(&f.volume().await?.volume_id);
    request.volume_capability = None;
    let answer = f.controller_expand_volume(request).await;
    let got = answer.works("ControllerExpandVolume without a volume_capability")?.capacity_bytes;
    has_grown("without a volume_capability, a volume", f.config().grown(), got)
}

async fn twice(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let (first, again) = (f.grow(&volume).await?, f.grow(&volume).await?);
    // The caller may not have received the first response, and no node has expanded the volume since.
    let lost = anyhow!(
        "ControllerExpandVolume returned node_expansion_required true, and called again false, although NodeExpandVolume \
         was not called"
    );
    ensure_that(again || !first, lost).breaks(spec::EXPANDED_NODE)
}

/// What is written to a volume up to its new end.
const TEXT: &str = "up to the new end";

/// A new volume, expanded, with data up to its new end where cases can write to it.
async fn grown_with_text(f: &Fixture, request: CreateVolumeRequest) -> Result<Volume> {
    let volume = f.make(request).await?;
    let on_node = f.grow(&volume.volume_id).await?;
    if f.writes() {
        let placed = f.publish_all(volume.clone()).await?;
        node_expand::finish(f, &placed, on_node).await?;
        f.write_throughout(&placed, TEXT).await?;
        f.withdraw(&placed).await?;
    }
    Ok(volume)
}

async fn created_again(f: &Fixture) -> Result<()> {
    let request = f.create_request();
    let volume = grown_with_text(f, request.clone()).await?;
    let what = "CreateVolume called again after ControllerExpandVolume";
    let again = f.create_volume(request).await.works(what)?;
    one_volume(&volume, &again.volume.unwrap_or_default())?;
    if f.has(GET) {
        still_reports(f, &volume.volume_id, f.config().grown()).await.context(what)?;
    }
    match f.writes() {
        true => f.must_still_hold(&volume, TEXT, &format!("after {what}")).await,
        false => Ok(()),
    }
}

async fn no_shrinking(f: &Fixture) -> Result<()> {
    let volume = grown_with_text(f, f.create_request()).await?;
    let mut request = f.expand_request(&volume.volume_id);
    request.capacity_range = Some(f.driver().range(f.config().volume_size));
    let answer = f.controller_expand_volume(request).await;
    if f.writes() {
        let what = "after ControllerExpandVolume to less than the current size";
        f.must_still_hold(&volume, TEXT, what).await.breaks(spec::EXPAND_KEEPS)?;
    }
    let answer = answer.works("ControllerExpandVolume to less than the current size")?;
    is_allowed(f.config().grown(), f.config().volume_size, answer.capacity_bytes).breaks(spec::EXPAND_KEEPS)
}

/// Checks that the returned capacity is not smaller than that of the volume.
fn is_allowed(grown: i64, asked: i64, got: i64) -> Result<()> {
    ensure!(
        got >= grown,
        "ControllerExpandVolume to at least {asked} bytes of a volume of {grown} bytes returned a capacity of {got}"
    );
    Ok(())
}

async fn negative_limit(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    if refuses_nonsense(f, &volume).await.is_err() {
        return Err(skip(
            "ControllerExpandVolume does not validate capacity_range: see \
             controller_expand::ControllerExpandVolume with an invalid capacity_range returns OutOfRange",
        ));
    }
    let what = "ControllerExpandVolume with limit_bytes -1";
    refused_range(f, &volume, (f.config().grown(), -1), what).await
}

async fn refused_range(
    f: &Fixture,
    volume: &Volume,
    (required_bytes, limit_bytes): (i64, i64),
    what: &str,
) -> Result<()> {
    let mut request = f.expand_request(&volume.volume_id);
    request.capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
    let answer = f.controller_expand_volume(request).await;
    f.warn_of_other_code(&answer, what, Code::OutOfRange);
    answer.refused(what, &[Code::OutOfRange, Code::InvalidArgument])
}

async fn exact(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    if volume.capacity_bytes == 0 {
        return Err(skip("CreateVolume returns no capacity: the volume may be larger already"));
    }
    let size = f.config().grown().max(volume.capacity_bytes);
    let mut request = f.expand_request(&volume.volume_id);
    request.capacity_range = Some(CapacityRange { required_bytes: size, limit_bytes: size });
    match f.controller_expand_volume(request).await {
        Ok(grown) => {
            let got = grown.capacity_bytes;
            ensure!(
                got == size,
                "a volume was to be expanded to exactly {size} bytes, and ControllerExpandVolume returned {got}"
            );
            Ok(())
        }
        // The driver may support other sizes only.
        refused => {
            let what = "ControllerExpandVolume with equal required_bytes and limit_bytes";
            f.warn_of_other_code(&refused, what, Code::OutOfRange);
            refused.refused(what, &[Code::OutOfRange, Code::InvalidArgument])
        }
    }
}

async fn no_sense(f: &Fixture) -> Result<()> {
    let volume = with_text(f, f.volume().await?).await?;
    refuses_nonsense(f, &volume).await?;
    keeps_text(f, &volume, "ControllerExpandVolume with an invalid capacity_range").await
}

/// One row for both: a driver that validates ranges validates all of a range.
async fn refuses_nonsense(f: &Fixture, volume: &Volume) -> Result<()> {
    let size = f.config().grown();
    let limit = "ControllerExpandVolume with limit_bytes below required_bytes";
    both(
        refused_range(f, volume, (size, size / 4), limit).await,
        refused_range(f, volume, (-1, 0), "ControllerExpandVolume with required_bytes -1").await,
    )
}

async fn impossible(f: &Fixture) -> Result<()> {
    let volume = with_text(f, f.volume().await?).await?;
    let mut request = f.expand_request(&volume.volume_id);
    request.capacity_range = Some(CapacityRange { required_bytes: IMPOSSIBLE, limit_bytes: 0 });
    let answer = f.controller_expand_volume(request).await;
    match answer.map(|grown| grown.capacity_bytes) {
        Ok(size) if is_impossible(size) => {
            f.warn("volumes can be expanded to 8 EiB");
            Ok(())
        }
        answer => {
            let (what, due) = ("ControllerExpandVolume to 8 EiB", Code::OutOfRange);
            f.warn_of_other_code(&answer, what, due);
            answer.refused(what, &[due, Code::InvalidArgument, Code::ResourceExhausted])?;
            keeps_text(f, &volume, what).await
        }
    }
}

const IMPOSSIBLE: i64 = i64::MAX - 1;

/// Whether a volume was expanded to the impossible size: a driver that does so, or rounds it up, meets the request.
fn is_impossible(size: i64) -> bool {
    size >= IMPOSSIBLE
}

async fn reported_size(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    f.grow(&volume).await?;
    still_reports(f, &volume, f.config().grown()).await?;
    match f.grow_further(&volume).await {
        Some(grown) => still_reports(f, &volume, grown.size).await,
        None => Ok(()),
    }
}

/// Checks that ControllerGetVolume returns at least the size that a volume was expanded to, or none.
async fn still_reports(f: &Fixture, volume_id: &str, grown: i64) -> Result<()> {
    let reported = f.get(volume_id).await?.volume.unwrap_or_default().capacity_bytes;
    ensure!(
        reported == 0 || reported >= grown,
        "a volume was expanded to {grown} bytes, but ControllerGetVolume returns {reported}"
    );
    Ok(())
}

async fn data(f: &Fixture) -> Result<()> {
    const TEXT: &str = "before the expansion";
    let placed = f.up_with(TEXT).await?;
    f.withdraw(&placed).await?;
    let placed = node_expand::published_grown(f, placed.volume).await?;
    node_expand::keeps(f, &placed, TEXT, "after ControllerExpandVolume").await
}

async fn offline_only(f: &Fixture) -> Result<()> {
    if f.has(Need::Expansion(ExpansionType::Online)) {
        return Err(skip("the plugin declares ONLINE expansion, too"));
    }
    let placed = f.publish_all(with_text(f, f.volume().await?).await?).await?;
    let what = "ControllerExpandVolume of a published volume";
    let answer = f.controller_expand_volume(f.expand_request(placed.id())).await;
    if answer.is_ok() && !f.attaches() {
        // A controller that does not attach volumes may be unable to know what nodes have published.
        f.warn(format!("{what} returned OK, but the plugin declares only OFFLINE expansion"));
        return Ok(());
    }
    let accepted = answer.is_ok();
    let refused = answer.refused(what, &[Code::FailedPrecondition]);
    if accepted { refused.breaks(spec::OFFLINE) } else { refused }?;
    f.withdraw(&placed).await?;
    keeps_text(f, &placed.volume, what).await
}

async fn modify(
    f: &Fixture,
    volume: &str,
    parameters: Map,
) -> Result<ControllerModifyVolumeResponse, Status> {
    f.controller_modify_volume(ControllerModifyVolumeRequest {
        volume_id: volume.to_owned(),
        secrets: f.config().secrets.controller_modify_volume.clone(),
        mutable_parameters: parameters,
    })
    .await
}

async fn modify_no_id(f: &Fixture) -> Result<()> {
    modify(f, "", f.mutable()).await.refused("ControllerModifyVolume without a volume_id", INVALID)
}

async fn modify_unknown(f: &Fixture) -> Result<()> {
    let answer = modify(f, &f.unknown_volume(), f.mutable()).await;
    answer.refused("ControllerModifyVolume of a volume that does not exist", NOT_FOUND)
}

async fn modify_plain(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    for time in ["ControllerModifyVolume", "ControllerModifyVolume called again"] {
        modify(f, &volume, f.mutable()).await.works(time)?;
    }
    Ok(())
}

async fn modify_made(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.mutable_parameters = f.mutable();
    let volume = f.make(request).await?.volume_id;
    modify(f, &volume, f.mutable()).await.works("ControllerModifyVolume")?;
    Ok(())
}

async fn modify_one(f: &Fixture) -> Result<()> {
    let all = f.mutable();
    let Some((key, value)) = all.iter().next().filter(|_| all.len() > 1) else {
        return Err(skip("one --mutable-parameter is set, and the case requires two"));
    };
    let volume = f.volume().await?;
    let unset = confirms_mutable(f, &volume).await;
    modify(f, &volume.volume_id, all.clone()).await.works("ControllerModifyVolume")?;
    if unset || !confirms_mutable(f, &volume).await {
        return Err(skip(
            "ValidateVolumeCapabilities does not compare mutable_parameters with those of volumes",
        ));
    }
    let one = Map::from([(key.clone(), value.clone())]);
    modify(f, &volume.volume_id, one).await.works("ControllerModifyVolume with one mutable parameter")?;
    ensure!(
        confirms_mutable(f, &volume).await,
        "after ControllerModifyVolume with {key:?} alone, ValidateVolumeCapabilities of volume {:?} no longer confirms the \
         other mutable_parameters, which were set before",
        volume.volume_id
    );
    Ok(())
}

async fn modify_keeps(f: &Fixture) -> Result<()> {
    const TEXT: &str = "before the modification";
    let placed = f.up_with(TEXT).await?;
    if let Err(status) = modify(f, placed.id(), f.mutable()).await {
        let code = code_name(status.code());
        f.warn(format!(
            "ControllerModifyVolume of a published volume returns {code}: volumes in use cannot be modified"
        ));
        f.withdraw(&placed).await?;
        modify(f, placed.id(), f.mutable()).await.works("ControllerModifyVolume")?;
    } else {
        let what = "in a published volume, after ControllerModifyVolume";
        f.must_hold_throughout(&placed, TEXT, what).await?;
        f.withdraw(&placed).await?;
    }
    f.must_still_hold(&placed.volume, TEXT, "after ControllerModifyVolume").await
}

async fn modify_invalid(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    let answer = modify(f, &volume, f.config().invalid_mutable_parameters.clone()).await;
    answer.refused("ControllerModifyVolume with invalid mutable parameters", INVALID)
}

async fn modify_unchanged(f: &Fixture) -> Result<()> {
    // Without the valid parameters, so that a volume differs to which they were applied.
    let request = f.create_request();
    let before = f.make(request.clone()).await?;
    let validated = confirms_mutable(f, &before).await;
    // Invalid parameters with other keys leave all valid ones as they are.
    let (valid, mut invalid) = (f.mutable(), f.config().invalid_mutable_parameters.clone());
    if invalid.keys().any(|key| !valid.contains_key(key)) {
        invalid.retain(|key, _| !valid.contains_key(key));
    }
    let mixed = valid.into_iter().chain(invalid).collect();
    let answer = modify(f, &before.volume_id, mixed).await;
    answer.refused("ControllerModifyVolume with valid and invalid mutable parameters", INVALID)?;
    let id = &before.volume_id;
    ensure!(
        confirms_mutable(f, &before).await == validated,
        "after a rejected ControllerModifyVolume, ValidateVolumeCapabilities of volume {id:?} with the valid half of its \
         mutable_parameters returned another result than before"
    );
    // The volume is unchanged: CreateVolume with its name returns the same volume.
    let after = f.create_volume(request).await;
    let after = after.works("CreateVolume called again after a rejected ControllerModifyVolume")?;
    let after = after.volume.unwrap_or_default();
    ensure!(
        *id == after.volume_id && before.volume_context == after.volume_context,
        "a rejected ControllerModifyVolume changed the volume {before:?}: CreateVolume called again returned {after:?}"
    );
    let what = "and after a rejected ControllerModifyVolume CreateVolume called again";
    same_capacity(before.capacity_bytes, after.capacity_bytes, what)
}

/// Whether the driver confirms that a volume has the mutable parameters.
async fn confirms_mutable(f: &Fixture, volume: &Volume) -> bool {
    let mutable_parameters = f.mutable();
    let request = ValidateVolumeCapabilitiesRequest {
        mutable_parameters,
        ..controller_delete::validate_request(f, volume)
    };
    f.validate_volume_capabilities(request).await.is_ok_and(|answer| answer.confirmed.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_size_may_be_rounded_up_but_not_cut() {
        assert!(is_impossible(i64::MAX) && is_impossible(i64::MAX - 1));
        assert!(!is_impossible(1 << 30) && !is_impossible(0));
    }
}
