//! DeleteVolume and ValidateVolumeCapabilities.

use anyhow::{Result, ensure};
use claimcheck_csi::{
    Code,
    v1::{ValidateVolumeCapabilitiesRequest, Volume},
};

use super::{ATTACH, CREATE, STAGE, case};
use crate::{
    case::Row,
    expect::{Answer, INVALID, NOT_FOUND, said, skip},
    fixture::Fixture,
};

const ERRORS: &str = "DeleteVolume Errors";
const VALIDATE: &str = "ValidateVolumeCapabilities";

pub(super) const ROWS: &[Row] = &[
    Row::new("deleting without an id is refused", ERRORS, case!(no_id))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] DeleteVolume should fail when no volume id is provided"),
    Row::new("deleting what is not there works", "DeleteVolume", case!(unknown))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] DeleteVolume should succeed when an invalid volume id is used"),
    Row::new("a volume can be deleted, twice", "DeleteVolume", case!(twice))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] DeleteVolume should return appropriate values (no optional values added)"),
    Row::new("an attached volume is in use", ERRORS, case!(attached)).needs(&[CREATE, ATTACH]),
    Row::new("a staged volume keeps its data from being deleted", ERRORS, case!(staged)).needs(&[CREATE, STAGE]),
    Row::new("deleting one volume leaves another", "DeleteVolume", case!(another)).needs(&[CREATE]),
    Row::new("validating without an id is refused", VALIDATE, case!(validate_no_id))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when no volume id is provided"),
    Row::new("validating no capabilities is refused", VALIDATE, case!(validate_nothing))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when no volume capabilities are provided"),
    Row::new("validating a volume that is not there is refused", VALIDATE, case!(validate_unknown))
        .needs(&[CREATE])
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should fail when the requested volume does not exist"),
    Row::new("what a volume was made with is confirmed", VALIDATE, case!(validated))
        .needs(&[CREATE])
        .each()
        .upstream("Controller Service [Controller Server] ValidateVolumeCapabilities should return appropriate values (no optional values added)"),
    Row::new("a deleted volume is not validated any more", VALIDATE, case!(validate_deleted)).needs(&[CREATE]),
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

async fn attached(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let what = "DeleteVolume of a volume that is attached to a node";
    f.delete_volume(f.delete_request(placed.id())).await.refused(what, &[Code::FailedPrecondition])
}

impl Fixture {
    /// Ends the case as skipped if the driver deletes volumes that are attached also where nothing else happens.
    pub(super) async fn minds_attached(&self) -> Result<()> {
        let placed = self.attached().await?;
        match self.delete_volume(self.delete_request(placed.id())).await {
            Ok(_) => Err(skip(
                "the driver deletes volumes that are attached: see controller_delete::an attached volume is in use",
            )),
            Err(_) => Ok(()),
        }
    }
}

async fn staged(f: &Fixture) -> Result<()> {
    if f.attaches() {
        f.minds_attached().await?;
    }
    let placed = f.staged().await?;
    // A controller need not know what a node has staged; where the volume is attached it does.
    match f.delete_volume(f.delete_request(placed.id())).await {
        Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
        Err(status) => {
            anyhow::bail!(
                "DeleteVolume of a staged volume answered {} where FailedPrecondition is due",
                said(&status)
            )
        }
        Ok(_) if f.attaches() => {
            anyhow::bail!("DeleteVolume of a volume that is staged on a node answered OK")
        }
        Ok(_) => {
            f.remark("DeleteVolume works while the volume is staged on a node");
            Ok(())
        }
    }
}

async fn another(f: &Fixture) -> Result<()> {
    let (gone, stays) = (f.volume().await?, f.volume().await?);
    f.delete_volume(f.delete_request(&gone.volume_id)).await.works("DeleteVolume")?;
    validate(f, &stays).await.works("ValidateVolumeCapabilities of the other volume")?;
    Ok(())
}

fn validate_request(f: &Fixture, volume: &Volume) -> ValidateVolumeCapabilitiesRequest {
    ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id.clone(),
        volume_context: volume.volume_context.clone(),
        volume_capabilities: vec![f.capability()],
        secrets: f.config().secrets.validate_volume_capabilities.clone(),
        ..Default::default()
    }
}

async fn validate(
    f: &Fixture,
    volume: &Volume,
) -> Result<claimcheck_csi::v1::ValidateVolumeCapabilitiesResponse, claimcheck_csi::Status> {
    f.validate_volume_capabilities(validate_request(f, volume)).await
}

async fn validate_no_id(f: &Fixture) -> Result<()> {
    validate(f, &Volume::default()).await.refused("ValidateVolumeCapabilities without a volume_id", INVALID)
}

async fn validate_nothing(f: &Fixture) -> Result<()> {
    let mut request = validate_request(f, &f.volume().await?);
    request.volume_capabilities.clear();
    f.validate_volume_capabilities(request)
        .await
        .refused("ValidateVolumeCapabilities of no capabilities", INVALID)
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
    let Some(confirmed) = answer.confirmed else {
        anyhow::bail!("the capability that the volume was made with is not confirmed: {:?}", answer.message)
    };
    ensure!(
        !confirmed.volume_capabilities.is_empty(),
        "ValidateVolumeCapabilities confirms, and does not say which volume_capabilities"
    );
    Ok(())
}

async fn validate_deleted(f: &Fixture) -> Result<()> {
    let unknown = Volume { volume_id: f.unknown_volume(), ..Volume::default() };
    if validate(f, &unknown).await.is_ok() {
        return Err(skip(
            "volumes that do not exist are validated: see controller_delete::validating a volume that is not there \
             is refused",
        ));
    }
    let volume = f.volume().await?;
    f.delete_volume(f.delete_request(&volume.volume_id)).await.works("DeleteVolume")?;
    validate(f, &volume).await.refused("ValidateVolumeCapabilities of a deleted volume", NOT_FOUND)
}
