//! Names, paths, parameters and file system types that callers must not send.

use std::fs;

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{Code, Status, tap::code_name, v1};

use super::{
    HUGE, UP, rejected,
    traversal::{sentinel, untouched},
};
use crate::{
    effect::Effect,
    expect::{Answer, INVALID},
    fixture::{Fixture, Step, text},
    need::Need,
};

/// Those that a name must not have: a line break is permitted in it.
const NO_NAME: [&str; 3] = ["vertical\u{b}tab", "nul\0byte", "escape\u{1b}[2J"];

/// Checks the result of a call with a text that callers must not send. A driver may accept it, but must not fail.
fn too_long<T>(f: &Fixture, what: &str, answer: Result<T, Status>) -> Result<()> {
    match answer {
        Ok(_) => {
            f.warn(format!("{what} returns OK"));
            Ok(())
        }
        // The text is no id: the cause is not that of objects that do not exist.
        answer => rejected(f, what, answer, INVALID),
    }
}

/// Names with path traversal: one of an unknown directory, and those that lead to a directory of this case, if they are not
/// too long.
async fn names_elsewhere(f: &Fixture) -> Result<Vec<String>> {
    let root = text(&sentinel(f).await?);
    let mut names = vec![format!("../../{}", f.name())];
    let absolute = format!("{root}/{}", f.unique());
    let room = f.config().name_length.saturating_sub(absolute.len());
    if absolute.len() <= f.config().name_length {
        names.push(absolute);
    }
    let up = "../".repeat(UP.min(room / "../".len()));
    if !up.is_empty() {
        names.push(format!("{}{root}/{}", up.trim_end_matches('/'), f.unique()));
    }
    Ok(names)
}

pub(super) async fn name_traversal(f: &Fixture) -> Result<()> {
    for name in names_elsewhere(f).await? {
        let request = v1::CreateVolumeRequest { name, ..f.create_request() };
        let made = f.create_volume(request).await;
        untouched(f).await?;
        match made {
            // Any text is a valid name: the volume must work like any other.
            Ok(made) => {
                let volume = made.volume.unwrap_or_default();
                ensure!(!volume.volume_id.is_empty(), "CreateVolume returned OK with an empty volume_id");
                let placed = f.publish_all(volume).await?;
                f.withdraw(&placed).await?;
            }
            refused => {
                let refused =
                    refused.refused("CreateVolume with path traversal in the name", &[Code::InvalidArgument]);
                refused.map_err(|error| f.or_reported(Effect::AnyName, error))?;
            }
        }
        untouched(f).await?;
    }
    Ok(())
}

/// One row for both: a driver that validates names validates all of a name.
pub(super) async fn no_name(f: &Fixture) -> Result<()> {
    let controls = NO_NAME.map(|control| (format!("{}{control}", f.name()), format!("with {control:?}")));
    let huge = (format!("{}{}", f.name(), "x".repeat(HUGE)), "of 1 MiB".to_owned());
    for (name, what) in controls.into_iter().chain([huge]) {
        let mut request = f.create_request();
        request.name = name;
        too_long(f, &format!("CreateVolume with a name {what}"), f.create_volume(request).await)
            .map_err(|error| f.or_reported(Effect::AnyName, error))?;
    }
    Ok(())
}

pub(super) async fn snapshot_name(f: &Fixture) -> Result<()> {
    let mut request = f.snapshot_request(&f.volume().await?.volume_id);
    request.name = "x".repeat(HUGE);
    too_long(f, "CreateSnapshot with a name of 1 MiB", f.create_snapshot(request).await)
}

pub(super) async fn relative_target(f: &Fixture) -> Result<()> {
    let placed = f.staged().await?;
    let mut request = f.publish_request(&placed);
    request.target_path = format!("claimcheck-relative-{}", f.unique());
    let target = request.target_path.clone();
    let checked = refuses_relative_target(f, request).await;
    // A driver that creates the target before it fails leaves it in its working directory, which is ours if the driver
    // was started here. A mounted directory is not removed.
    let _ = fs::remove_dir(target);
    checked
}

async fn refuses_relative_target(f: &Fixture, request: v1::NodePublishVolumeRequest) -> Result<()> {
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume of a relative target_path")?;
            bail!("NodePublishVolume at a relative target_path returned OK, expected InvalidArgument")
        }
        Err(status) => {
            let code = status.code();
            if code != Code::InvalidArgument {
                f.warn(format!(
                    "NodePublishVolume at a relative target_path returns {}; InvalidArgument is recommended",
                    code_name(code)
                ));
            }
            Ok(())
        }
    }
}

pub(super) async fn target_detour(f: &Fixture) -> Result<()> {
    f.builds_on(Step::Publish)?;
    let placed = f.staged().await?;
    let parent = placed.target.parent().expect("it is below the root of the targets");
    let mut request = f.publish_request(&placed);
    // The same path with a `..` component.
    request.target_path =
        text(&parent.join("..").join(parent.file_name().expect("it has a name of its own")).join("mount"));
    match f.node_publish_volume(request.clone()).await {
        Ok(_) => {
            if f.has(Need::Files) {
                f.must_be_mounted_once(&placed, "after NodePublishVolume with .. in target_path")?;
            }
            let undo = v1::NodeUnpublishVolumeRequest {
                volume_id: request.volume_id,
                target_path: request.target_path,
            };
            f.node_unpublish_volume(undo).await.works("NodeUnpublishVolume with .. in target_path")?;
            Ok(())
        }
        refused => refused.refused("NodePublishVolume with .. in target_path", &[Code::InvalidArgument]),
    }
}

pub(super) async fn staging_huge(f: &Fixture) -> Result<()> {
    let mut request = f.stage_request(&f.attached().await?);
    request.staging_target_path = format!("/{}", "x".repeat(HUGE));
    match f.node_stage_volume(request).await {
        Err(status) if status.code() != Code::InvalidArgument && status.code() != Code::NotFound => {
            // An error of the file system is acceptable; a later case checks that the driver still runs.
            f.warn(format!(
                "NodeStageVolume with a staging_target_path of 1 MiB returns {}",
                code_name(status.code())
            ));
            Ok(())
        }
        answer => too_long(f, "NodeStageVolume with a staging_target_path of 1 MiB", answer),
    }
}

pub(super) async fn parameters_huge(f: &Fixture) -> Result<()> {
    let mut request = f.create_request();
    request.parameters.insert("claimcheck".to_owned(), "x".repeat(HUGE));
    match f.create_volume(request).await {
        Ok(_) => {
            f.warn("parameters larger than 4 KiB are accepted");
            Ok(())
        }
        refused => refused.refused("CreateVolume with parameters of 1 MiB", &[Code::InvalidArgument]),
    }
}

pub(super) async fn fs_injection(f: &Fixture) -> Result<()> {
    let file = text(&sentinel(f).await?.join("injected"));
    for fs_type in ["../../bin/sh -c".to_owned(), format!("ext4; touch {file}"), format!("$(touch {file})")] {
        let outcome = used_with(f, &fs_type).await;
        untouched(f).await?;
        outcome?;
    }
    Ok(())
}

/// Creates a volume with an fs_type, and publishes it: a driver may validate it in any of these calls, and formats the
/// volume in the last ones.
async fn used_with(f: &Fixture, fs_type: &str) -> Result<()> {
    let mut request = f.create_request();
    for capability in &mut request.volume_capabilities {
        if let Some(v1::volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
            fs_type.clone_into(&mut mount.fs_type);
        }
    }
    let capability = request.volume_capabilities.first().cloned();
    let volume = match f.create_volume(request).await {
        Ok(made) => made.volume.unwrap_or_default(),
        refused => {
            return refused
                .refused(&format!("CreateVolume with fs_type {fs_type:?}"), &[Code::InvalidArgument]);
        }
    };
    let mut placed = f.place(volume).await?;
    f.attach(&mut placed).await?;
    // Another row checks how an unknown fs_type is rejected.
    if placed.staging.is_some() {
        let mut request = f.stage_request(&placed);
        request.volume_capability.clone_from(&capability);
        if f.node_stage_volume(request).await.is_err() {
            return Ok(());
        }
    }
    let mut request = f.publish_request(&placed);
    request.volume_capability = capability;
    if f.node_publish_volume(request).await.is_ok() {
        f.warn("a volume with a shell command as fs_type was published: the driver ignores fs_type");
        f.withdraw(&placed).await?;
    }
    Ok(())
}
