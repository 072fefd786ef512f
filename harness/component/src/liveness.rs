//! `claimcheck livenessprobe`: translates the kubelet's HTTP probe into a Probe call to the driver.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use claimcheck_csi::{Driver, Endpoint, tap::Tap, v1::ProbeRequest};
use clap::Args;

use super::{HttpEndpoint, go, termination};
use claimcheck_telemetry::serve::{Page, PageRequest, Site};

/// Arguments of the probe, with the names of livenessprobe's.
#[derive(Debug, Args)]
pub struct LivenessArgs {
    /// Path of the CSI driver's socket
    #[arg(long, value_name = "ADDRESS", value_parser = go::socket)]
    csi_address: PathBuf,
    /// Serve /healthz on this address
    #[arg(long, value_name = "ADDRESS", default_value = ":9808")]
    http_endpoint: HttpEndpoint,
    /// Timeout of the Probe call, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    probe_timeout: u64,
}

impl LivenessArgs {
    pub(super) async fn run(self) -> Result<()> {
        let ended = termination()?;
        let driver = Driver::new(Endpoint::Unix(self.csi_address), Tap::none(), "livenessprobe")
            .with_deadline(Duration::from_secs(self.probe_timeout));
        let _served = self.http_endpoint.serve(Health(driver)).await?;
        ended.cancelled().await;
        Ok(())
    }
}

/// The health of a driver.
#[derive(Clone)]
struct Health(Driver);

impl Site for Health {
    async fn page(&self, request: PageRequest<'_>) -> Option<Page> {
        if request.path != "/healthz" {
            return None;
        }
        // Ready if unset: the field is optional.
        Some(match self.0.identity().probe(ProbeRequest {}).await {
            Ok(answer) if answer.get_ref().ready.unwrap_or(true) => Page::ok("ok\n"),
            Ok(_) => Page::unavailable("the driver reports that it is not ready\n"),
            Err(status) => {
                let why = format!("the driver failed Probe: {:?}: {}\n", status.code(), status.message());
                tracing::warn!("{}", why.trim());
                Page::unavailable(why)
            }
        })
    }
}
