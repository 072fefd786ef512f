//! DeleteVolume and ValidateVolumeCapabilities.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    tap::code_name,
    v1::{
        CreateVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
        volume_capability::{AccessType, access_mode::Mode},
    },
};
use claimcheck_engine::skip;

use super::{ATTACH, CREATE, DELETE_AGAIN, MOUNTS, PERSISTS, STAGE, case};
use crate::{
    alone::Alone,
    case::Row,
    effect::Effect,
    expect::{Answer, INVALID, NOT_FOUND},
    fixture::{Fixture, VolumeOnNode, with_mode},
    need::Need,
    spec,
    verdict::Breaks,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("DeleteVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(no_id))
        .needs(&[CREATE])
        .alone(Alone::MayBreak)
        .upstream("Controller Service [Controller Server] DeleteVolume should fail when no volume id is provided"),
    Row::new("DeleteVolume of a nonexistent volume succeeds", spec::DELETE_GONE, case!(unknown))
        .needs(&[CREATE, DELETE_AGAIN])
        .upstream("Controller Service [Controller Server] DeleteVolume should succeed when an invalid volume id is used"),
    Row::new("DeleteVolume called twice succeeds", spec::DELETE_TWICE, case!(twice))
        .also(&[spec::DELETE_GONE])
        .needs(&[CREATE])
        .establishes(&[Effect::DeleteAgain])
        .upstream("Controller Service [Controller Server] DeleteVolume should return appropriate values (no optional values added)"),
    Row::new("DeleteVolume of an attached volume succeeds or returns FailedPrecondition", spec::DELETE_IN_USE, case!(attached)).needs(&[CREATE, ATTACH, MOUNTS, PERSISTS]),
    Row::new("DeleteVolume of a staged volume returns FailedPrecondition", spec::DELETE_IN_USE, case!(staged)).needs(&[CREATE, STAGE, MOUNTS, PERSISTS]),
    Row::new("DeleteVolume of a published volume keeps its data or returns FailedPrecondition", spec::DELETE_MOUNTED, case!(published))
        .also(&[spec::DELETE_IN_USE])
        .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS])
        .each(),
    Row::new("DeleteVolume leaves other volumes unchanged", spec::VOLUME_UNIQUE, case!(another)).needs(&[CREATE, MOUNTS, PERSISTS]).each(),
    Row::new("ValidateVolumeCapabilities without a volume_id returns InvalidArgument", spec::MISSING, case!(validate_no_id))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when no volume id is provided"),
    Row::new("ValidateVolumeCapabilities without volume_capabilities returns InvalidArgument", spec::MISSING, case!(validate_nothing))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when no volume capabilities are provided"),
    Row::new("ValidateVolumeCapabilities of a nonexistent volume returns NotFound", spec::VALIDATE_GONE, case!(validate_unknown))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when the requested volume does not exist"),
    Row::new("ValidateVolumeCapabilities confirms the capability that a volume was created with", spec::CONFIRMED, case!(validated))
        .also(&[spec::ELEMENTS])
        .needs(&[CREATE])
        .each()
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should return appropriate values (no optional values added)"),
    Row::new("ValidateVolumeCapabilities called twice returns the same result", spec::VALIDATE_TWICE, case!(validated_twice))
        .also(&[spec::VALIDATE])
        .needs(&[CREATE]),
    Row::new("ValidateVolumeCapabilities with a supported and an unsupported capability confirms nothing", spec::VALIDATE_ALL, case!(validated_in_part))
        .also(&[spec::CONFIRMED_ONLY])
        .needs(&[CREATE]),
    Row::new("ValidateVolumeCapabilities of a deleted volume returns NotFound", spec::VALIDATE_GONE, case!(validate_deleted)).needs(&[CREATE]),
];

async fn no_id(f: &Fixture) -> Result<()> {
    f.delete_volume(f.delete_request("")).await.refused("DeleteVolume without a volume_id", INVALID)
}

async fn unknown(f: &Fixture) -> Result<()> {
    let request = f.delete_request(&f.unknown_volume());
    f.delete_volume(request).await.works("DeleteVolume of a volume that does not exist")?;
    Ok(())
}

async fn twice(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    for time in ["DeleteVolume", "DeleteVolume called again"] {
        f.delete_volume(f.delete_request(&volume.volume_id)).await.works(time)?;
    }
    Ok(())
}

const TEXT: &str = "in use";

/// A new volume, attached, that contains a text where data can be checked.
async fn attached_with_text(f: &Fixture) -> Result<VolumeOnNode> {
    let volume = if f.writes() { f.holding(TEXT).await? } else { f.volume().await? };
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    Ok(placed)
}

/// Checks that a volume that could not be deleted still contains its text, after it is released.
async fn unharmed(f: &Fixture, placed: &VolumeOnNode, what: &str) -> Result<()> {
    f.detach(placed).await?;
    if f.writes() {
        let what = format!("after {what} returned FailedPrecondition");
        f.must_still_hold(&placed.volume, TEXT, &what).await?;
    }
    Ok(())
}

async fn attached(f: &Fixture) -> Result<()> {
    let placed = attached_with_text(f).await?;
    let what = "DeleteVolume of a volume that is attached to a node";
    match f.delete_volume(f.delete_request(placed.id())).await {
        // The code is that of a volume that "could not be deleted because it is in use": a driver may detach it instead.
        Ok(_) => {
            f.warn("DeleteVolume succeeds while the volume is attached to a node");
            Ok(())
        }
        refused => {
            refused.refused(what, &[Code::FailedPrecondition])?;
            unharmed(f, &placed, what).await
        }
    }
}

impl Fixture {
    /// Skips the case if the driver deletes attached volumes even without concurrent calls.
    pub(super) async fn skip_if_attached_is_deletable(&self) -> Result<()> {
        let placed = self.attached().await?;
        match self.delete_volume(self.delete_request(placed.id())).await {
            Ok(_) => Err(skip("the driver deletes attached volumes, which the specification permits")),
            Err(_) => Ok(()),
        }
    }
}

async fn staged(f: &Fixture) -> Result<()> {
    let placed = attached_with_text(f).await?;
    f.stage(&placed).await?;
    // A controller need not know what a node has staged, but it knows where the volume is attached.
    match f.delete_volume(f.delete_request(placed.id())).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            f.unstage(&placed).await?;
            unharmed(f, &placed, "DeleteVolume of a staged volume").await
        }
        Err(status) => {
            if f.attaches() {
                // It is attached, too: the same error is about that.
                let attached = f.attached().await?;
                let answer = f.delete_volume(f.delete_request(attached.id())).await;
                if answer.is_err_and(|other| other.code() == status.code()) {
                    return Err(skip(format!(
                        "{} is returned for all attached volumes: see controller_delete::DeleteVolume of an attached \
                         volume succeeds or returns FailedPrecondition",
                        code_name(status.code())
                    )));
                }
            }
            Err::<(), _>(status).refused("DeleteVolume of a staged volume", &[Code::FailedPrecondition])
        }
        Ok(_) if f.attaches() => {
            anyhow::bail!(
                "DeleteVolume of a volume that is staged on a node returned OK, expected FailedPrecondition"
            )
        }
        Ok(_) => {
            f.warn("DeleteVolume succeeds while the volume is staged on a node");
            Ok(())
        }
    }
}

/// The specification has a code for a volume in use, but a controller that neither attaches nor stages may not know what
/// nodes have mounted: only a driver that attaches volumes must return it.
async fn published(f: &Fixture) -> Result<()> {
    let placed = f.up_with(TEXT).await?;
    let what = "DeleteVolume of a published volume";
    let reported = |state| {
        Err(skip(format!(
            "volumes in use are not handled as required: see controller_delete::DeleteVolume of {state}"
        )))
    };
    let staged = "a staged volume returns FailedPrecondition";
    match f.delete_volume(f.delete_request(placed.id())).await {
        Ok(_) => {
            let remains = f.holds(&placed, 0, TEXT).await.unwrap_or(false);
            f.abandon(&placed).await;
            if f.attaches() && placed.staging.is_some() {
                return reported(staged);
            }
            let lost =
                ensure_that(remains, &format!("{what} returned OK and deletes its data while it is mounted"));
            if f.attaches() { lost.breaks(spec::DELETE_IN_USE) } else { lost }
        }
        Err(status) if status.code() == Code::FailedPrecondition => {
            f.withdraw(&placed).await?;
            let what = format!("after {what} returned FailedPrecondition");
            f.must_still_hold(&placed.volume, TEXT, &what).await.breaks(spec::DELETE_IN_USE)
        }
        Err(_) if f.attaches() => reported("an attached volume succeeds or returns FailedPrecondition"),
        Err(_) if placed.staging.is_some() => reported(staged),
        refused => refused.refused(what, &[Code::FailedPrecondition]).breaks(spec::DELETE_IN_USE),
    }
}

fn ensure_that(holds: bool, error: &str) -> Result<()> {
    ensure!(holds, "{error}");
    Ok(())
}

/// A driver that deletes what a pattern, or the beginning of a path, matches deletes more than one volume.
async fn another(f: &Fixture) -> Result<()> {
    let name = f.name();
    let request = CreateVolumeRequest { name: format!("{name}-a"), ..f.create_request() };
    let deleted = f.make(request).await?;
    let mut others = Vec::new();
    for name in [f.name(), name.clone(), format!("{name}-a1")] {
        let volume = f.make(CreateVolumeRequest { name: name.clone(), ..f.create_request() }).await?;
        others.push(if f.has(Need::Files) { (f.put(volume, &name).await?, name) } else { (volume, name) });
    }
    f.delete_volume(f.delete_request(&deleted.volume_id)).await.works("DeleteVolume")?;
    // The longest name first: the call that withdraws one volume may affect others, too, which another row reports.
    for (volume, name) in others.iter().rev() {
        if f.has(Need::Files) {
            let what = format!("in the volume {name:?}, after DeleteVolume of another one");
            f.must_still_hold(volume, name, &what).await?;
        } else {
            still_valid(f, volume).await?;
        }
    }
    Ok(())
}

async fn still_valid(f: &Fixture, volume: &Volume) -> Result<()> {
    match validate(f, volume).await {
        Err(status) if status.code() == Code::Unimplemented => {
            Err(skip("the driver does not implement ValidateVolumeCapabilities, which another case reports"))
        }
        answer => {
            answer.works("ValidateVolumeCapabilities of the other volume")?;
            Ok(())
        }
    }
}

pub(super) fn validate_request(f: &Fixture, volume: &Volume) -> ValidateVolumeCapabilitiesRequest {
    ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id.clone(),
        volume_context: volume.volume_context.clone(),
        volume_capabilities: vec![f.capability()],
        secrets: f.config().secrets.validate_volume_capabilities.clone(),
        ..Default::default()
    }
}

pub(super) async fn validate(
    f: &Fixture,
    volume: &Volume,
) -> Result<claimcheck_csi::v1::ValidateVolumeCapabilitiesResponse, claimcheck_csi::Status> {
    f.validate_volume_capabilities(validate_request(f, volume)).await
}

/// Checks that a volume no longer exists, if the driver finds out that about one that never was.
pub(super) async fn must_be_deleted(f: &Fixture, volume: &Volume, what: &str) -> Result<()> {
    let unknown = Volume { volume_id: f.unknown_volume(), ..Volume::default() };
    let exists = validate(f, volume).await.is_ok();
    if exists && validate(f, &unknown).await.is_err_and(|status| status.code() == Code::NotFound) {
        anyhow::bail!(
            "{what}, volume {:?} still exists: ValidateVolumeCapabilities returned OK, expected NotFound",
            volume.volume_id
        );
    }
    Ok(())
}

/// Writes a text to a volume that is on no node, where data can be checked.
pub(super) async fn with_text(f: &Fixture, volume: Volume, text: &str) -> Result<Volume> {
    if f.writes() {
        let placed = f.publish_all(volume.clone()).await?;
        f.write(&placed, 0, text).await?;
        f.withdraw(&placed).await?;
    }
    Ok(volume)
}

async fn validate_no_id(f: &Fixture) -> Result<()> {
    validate(f, &Volume::default()).await.refused("ValidateVolumeCapabilities without a volume_id", INVALID)
}

async fn validate_nothing(f: &Fixture) -> Result<()> {
    let mut request = validate_request(f, &f.volume().await?);
    request.volume_capabilities.clear();
    f.validate_volume_capabilities(request)
        .await
        .refused("ValidateVolumeCapabilities without volume_capabilities", INVALID)
}

async fn validate_unknown(f: &Fixture) -> Result<()> {
    let volume = Volume { volume_id: f.unknown_volume(), ..Volume::default() };
    validate(f, &volume)
        .await
        .refused("ValidateVolumeCapabilities of a volume that does not exist", NOT_FOUND)
}

async fn validated(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let answer = validate(f, &volume).await.works("ValidateVolumeCapabilities")?;
    let confirmed = match answer.confirmed {
        Some(confirmed) => confirmed,
        None => {
            // They are optional, but no sentence prevents a driver from comparing the volume with its defaults.
            let parameters = f.create_request().parameters;
            let request = ValidateVolumeCapabilitiesRequest { parameters, ..validate_request(f, &volume) };
            let again = f.validate_volume_capabilities(request).await;
            let Some(confirmed) = again.ok().and_then(|again| again.confirmed) else {
                anyhow::bail!(
                    "the capability that the volume was created with is not confirmed: {:?}",
                    answer.message
                )
            };
            f.warn(
                "ValidateVolumeCapabilities confirms the capability only if the parameters are passed, too",
            );
            confirmed
        }
    };
    ensure!(
        confirmed.volume_context.is_empty() || confirmed.volume_context == volume.volume_context,
        "ValidateVolumeCapabilities of volume {:?} with the volume_context {:?} confirms {:?}",
        volume.volume_id,
        volume.volume_context,
        confirmed.volume_context
    );
    contains(&confirmed.volume_capabilities, &f.capability(), &volume)
}

/// A capability in the words of the specification, such as `SINGLE_NODE_WRITER mount of "ext4"`.
fn described(capability: &VolumeCapability) -> String {
    let mode = capability.access_mode.map(|mode| mode.mode().as_str_name()).unwrap_or("no access mode");
    let kind = match &capability.access_type {
        Some(AccessType::Mount(mount)) if mount.fs_type.is_empty() => "mount".to_owned(),
        Some(AccessType::Mount(mount)) => format!("mount of {:?}", mount.fs_type),
        Some(AccessType::Block(_)) => "block".to_owned(),
        None => "without an access type".to_owned(),
    };
    format!("{mode} {kind}")
}

/// Checks that the confirmed capabilities contain the requested one. A driver may have chosen the file system, if none was
/// requested.
fn contains(confirmed: &[VolumeCapability], requested: &VolumeCapability, volume: &Volume) -> Result<()> {
    let fs_type = |capability: &VolumeCapability| match &capability.access_type {
        Some(AccessType::Mount(mount)) => Some(mount.fs_type.clone()),
        Some(AccessType::Block(_)) | None => None,
    };
    let is_it = |it: &VolumeCapability| {
        let same_kind = match (&it.access_type, &requested.access_type) {
            (Some(it), Some(requested)) => std::mem::discriminant(it) == std::mem::discriminant(requested),
            (it, requested) => it.is_none() && requested.is_none(),
        };
        let same_fs = fs_type(requested).is_none_or(|fs| fs.is_empty() || fs_type(it) == Some(fs));
        same_kind && same_fs && it.access_mode == requested.access_mode
    };
    ensure!(
        confirmed.iter().any(is_it),
        "ValidateVolumeCapabilities of volume {:?} confirms [{}], expected {}",
        volume.volume_id,
        confirmed.iter().map(described).collect::<Vec<_>>().join(", "),
        described(requested)
    );
    Ok(())
}

async fn validated_twice(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let first = validate(f, &volume).await.works("ValidateVolumeCapabilities")?;
    let again = validate(f, &volume).await.works("ValidateVolumeCapabilities called again")?;
    let (Some(first), Some(again)) = (&first.confirmed, &again.confirmed) else {
        let answer =
            |confirmed: bool| if confirmed { "confirmed the capability" } else { "confirmed nothing" };
        let (first, again) = (first.confirmed.is_some(), again.confirmed.is_some());
        ensure!(
            first == again,
            "ValidateVolumeCapabilities {}, and called again {}",
            answer(first),
            answer(again)
        );
        return Ok(());
    };
    for (field, differs) in [
        ("volume_context", first.volume_context != again.volume_context),
        ("volume_capabilities", first.volume_capabilities != again.volume_capabilities),
        ("parameters", first.parameters != again.parameters),
        ("mutable_parameters", first.mutable_parameters != again.mutable_parameters),
    ] {
        ensure!(!differs, "ValidateVolumeCapabilities called twice with one request confirmed two {field}");
    }
    Ok(())
}

async fn validated_in_part(f: &Fixture) -> Result<()> {
    let mut request = validate_request(f, &f.volume().await?);
    request.volume_capabilities = vec![with_mode(f.capability(), Mode::Unknown)];
    if f.validate_volume_capabilities(request.clone()).await.is_ok_and(|answer| answer.confirmed.is_some()) {
        return Err(skip(
            "an unsupported capability is confirmed on its own: see capabilities::access mode UNKNOWN is \
             rejected by every call",
        ));
    }
    request.volume_capabilities.insert(0, f.capability());
    let what = "ValidateVolumeCapabilities with a supported and an unsupported capability";
    match f.validate_volume_capabilities(request.clone()).await {
        Ok(answer) => ensure!(answer.confirmed.is_none(), "{what} returns confirmed"),
        refused => refused.refused(what, INVALID)?,
    }
    let Some(mode) = refused_mode(f).await else { return Ok(()) };
    request.volume_capabilities = vec![with_mode(f.capability(), mode)];
    let is_confirmed = f.validate_volume_capabilities(request).await.is_ok_and(|it| it.confirmed.is_some());
    let mode = mode.as_str_name();
    let confirmed = format!(
        "ValidateVolumeCapabilities confirms {mode}, which CreateVolume rejects with InvalidArgument"
    );
    ensure_that(!is_confirmed, &confirmed).breaks(spec::CONFIRMED_ONLY)
}

/// The first access mode for which the driver creates no volumes.
async fn refused_mode(f: &Fixture) -> Option<Mode> {
    let modes = [
        Mode::MultiNodeMultiWriter,
        Mode::MultiNodeSingleWriter,
        Mode::MultiNodeReaderOnly,
        Mode::SingleNodeReaderOnly,
    ];
    for mode in modes {
        let volume_capabilities = vec![with_mode(f.capability(), mode)];
        let request = CreateVolumeRequest { volume_capabilities, ..f.create_request() };
        if f.create_volume(request).await.is_err_and(|status| status.code() == Code::InvalidArgument) {
            return Some(mode);
        }
    }
    None
}

async fn validate_deleted(f: &Fixture) -> Result<()> {
    let unknown = Volume { volume_id: f.unknown_volume(), ..Volume::default() };
    if validate(f, &unknown).await.is_ok() {
        return Err(skip(
            "volumes that do not exist are validated: see controller_delete::ValidateVolumeCapabilities of a \
             nonexistent volume returns NotFound",
        ));
    }
    let volume = f.volume().await?;
    f.delete_volume(f.delete_request(&volume.volume_id)).await.works("DeleteVolume")?;
    validate(f, &volume).await.refused("ValidateVolumeCapabilities of a deleted volume", NOT_FOUND)
}
