//! Connects to this process's driver.

use std::time::Duration;

use claimcheck_csi::{
    Driver, Endpoint,
    tap::{Tap, TapError},
};
use tracing::{info, warn};

use super::DriverInfo;
use crate::Options;

/// Interval of log messages about a driver that does not respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why no driver can be called.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The options contain no address.
    #[error("no CSI driver is configured; set --csi-address to the path of its socket")]
    NoAddress,
    /// Its calls could not be recorded.
    #[error(transparent)]
    Tap(#[from] TapError),
}

/// The driver at the address in the options, for `component`, with its info. If it does not respond yet, this
/// waits: it is another process, and may start later.
pub async fn connect(options: &Options, component: &str) -> Result<(Driver, DriverInfo), ConnectError> {
    let address = options.csi_address.clone().ok_or(ConnectError::NoAddress)?;
    let tap = match &options.tap {
        Some(tap) => tap.clone(),
        None => Tap::from_env()?,
    };
    let driver = Driver::new(Endpoint::Unix(address), tap, component).stripping_secrets();
    let driver = match options.calls.timeout {
        Some(timeout) => driver.with_deadline(timeout),
        None => driver,
    };
    loop {
        if let Err(error) = driver.wait_ready(TIMEOUT).await {
            warn!(%error, "waiting for the driver");
            continue;
        }
        match DriverInfo::query(&driver).await {
            Ok(info) => {
                info!(driver = info.name, component, "connected to the driver");
                return Ok((driver, info));
            }
            // It went away in between, or is no driver at all: a pause keeps this from spinning.
            Err(error) => {
                warn!(%error, "the driver does not return its info; retrying");
                tokio::time::sleep(TIMEOUT / 10).await;
            }
        }
    }
}
