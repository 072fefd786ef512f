//! Secrets in errors, contexts and the output of the driver, and the form of errors.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_csi::{tap::Disclosure, v1};
use claimcheck_engine::skip;

use crate::fixture::Fixture;

pub(super) async fn words(f: &Fixture) -> Result<()> {
    let silent: Vec<String> = f.driver().known().silent.iter().cloned().collect();
    ensure!(silent.is_empty(), "errors of these calls had no message: {}", silent.join(", "));
    Ok(())
}

pub(super) async fn contexts(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let contexts =
        [("volume_context", &placed.volume.volume_context), ("publish_context", &placed.publish_context)];
    for (name, context) in contexts {
        let secret = context.iter().find(|(_, value)| value.contains(&f.driver().marker));
        ensure!(
            secret.is_none(),
            "the {name} contains the value of a secret, as {:?}",
            secret.map(|(key, _)| key)
        );
    }
    Ok(())
}

pub(super) async fn failing_secrets(f: &Fixture) -> Result<()> {
    let before = f.driver().known().leaked_secrets.clone();
    // Calls with secrets that fail, each for a different reason.
    let mut request = f.create_request();
    request.volume_capabilities.clear();
    let _ = f.create_volume(request).await;
    let mut request = f.create_request();
    request.parameters.insert("claimcheck-unknown-parameter".to_owned(), "x".to_owned());
    let _ = f.create_volume(request).await;
    let unknown = v1::Volume { volume_id: f.unknown_volume(), ..Default::default() };
    let _ = f.controller_publish_volume(f.attach_request(&unknown, f.access())).await;
    let _ = f.controller_expand_volume(f.expand_request(&unknown.volume_id)).await;
    let _ = f.create_snapshot(f.snapshot_request(&unknown.volume_id)).await;
    let placed = f.place(unknown).await?;
    let _ = f.node_stage_volume(f.stage_request(&placed)).await;
    let _ = f.node_publish_volume(f.publish_request(&placed)).await;
    let _ = f.node_expand_volume(f.node_expand_request(&placed)).await;
    let leaking: Vec<String> = f.driver().known().leaked_secrets.difference(&before).cloned().collect();
    ensure!(
        leaking.is_empty(),
        "errors of these calls contain the value of a secret: {}",
        leaking.join(", ")
    );
    Ok(())
}

pub(super) async fn no_secrets(f: &Fixture) -> Result<()> {
    let leaking = f.driver().known().leaked_secrets.clone();
    let leaking: Vec<String> = leaking.into_iter().collect();
    ensure!(
        leaking.is_empty(),
        "errors of these calls contained the value of a secret: {}",
        leaking.join(", ")
    );
    Ok(())
}

pub(super) async fn output(f: &Fixture) -> Result<()> {
    let Some(log) = &f.config().output else {
        let reason = "not observed: the output of a driver that claimcheck did not start cannot be read: let --driver \
                      start it";
        return Err(skip(reason.to_owned()));
    };
    let bytes =
        fs::read(log).with_context(|| format!("cannot read the driver's output {}", log.display()))?;
    let found = Disclosure::all(f.driver().known_secrets(), &String::from_utf8_lossy(&bytes));
    if let Some(first) = found.first() {
        let name = log.file_name().unwrap_or_default().display();
        bail!(
            "{} lines of {name} contain a secret or token that was passed to the driver, {first}",
            found.len()
        );
    }
    if f.driver().not_searched > 0 {
        f.warn(format!(
            "the output was not searched for {} configured values, which are shorter than 8 characters, or of which the \
             key does not name something confidential",
            f.driver().not_searched
        ));
    }
    Ok(())
}

pub(super) async fn no_details(f: &Fixture) -> Result<()> {
    let detailed: Vec<String> = f.driver().known().details.iter().cloned().collect();
    ensure!(detailed.is_empty(), "errors of these calls had details: {}", detailed.join(", "));
    Ok(())
}
