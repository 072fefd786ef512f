//! Finds the driver of this process.

use std::time::Duration;

use claimcheck_csi::{
    Driver, Endpoint,
    tap::{Tap, TapError},
};
use tracing::{info, warn};

use super::DriverInfo;
use crate::Options;

/// How often a driver that does not answer is told of in the log.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no driver to speak to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The options name none.
    #[error("no CSI driver to speak to; give the address of its socket")]
    NoAddress,
    /// Its calls would go unrecorded.
    #[error(transparent)]
    Tap(#[from] TapError),
}

/// The driver at the address in the options, for `component`, and what it says of itself. One that does
/// not answer yet is waited for: it is another process, and may start later.
pub async fn connect(options: &Options, component: &str) -> Result<(Driver, DriverInfo), ConnectError> {
    let address = options.csi_address.clone().ok_or(ConnectError::NoAddress)?;
    let tap = match &options.tap {
        Some(tap) => tap.clone(),
        None => Tap::from_env()?,
    };
    let driver = Driver::new(Endpoint::Unix(address), tap, component);
    loop {
        if let Err(error) = driver.wait_ready(PATIENCE).await {
            warn!(%error, "waiting for the driver");
            continue;
        }
        match DriverInfo::ask(&driver).await {
            Ok(info) => {
                info!(driver = info.name, component, "the driver answers");
                return Ok((driver, info));
            }
            // It went away in between, or is no driver at all: a pause keeps this from spinning.
            Err(error) => {
                warn!(%error, "the driver does not say what it is; asking again");
                tokio::time::sleep(PATIENCE / 10).await;
            }
        }
    }
}
