//! Driver and node agent with health and metrics endpoints, like the controllers.

use anyhow::{Context, Result};
use claimcheck_csi::tap::Tap;
use claimcheck_model::metric::{CSI_OPERATIONS, CSI_PLUGIN_OPERATIONS};
use claimcheck_telemetry::serve::Site;
use clap::Args;

use super::{ApiArgs, HttpEndpoint, endpoint::Served, meters::Meters, termination};

/// The health and metrics endpoint of a component.
#[derive(Debug, Args)]
pub struct HttpArgs {
    /// Serve /healthz, /livez, /readyz and /metrics on this address, for example :8080
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<HttpEndpoint>,
    /// The earlier name of --http-endpoint
    #[arg(long, value_name = "ADDRESS", conflicts_with = "http_endpoint")]
    metrics_address: Option<HttpEndpoint>,
}

impl HttpArgs {
    /// The address, if one is set.
    pub(super) fn address(&self) -> Option<&HttpEndpoint> {
        self.http_endpoint.as_ref().or(self.metrics_address.as_ref())
    }

    /// Serves this site there, if an address is set.
    pub(super) async fn serve(&self, site: impl Site) -> Result<Option<Served>> {
        Ok(match self.address() {
            Some(endpoint) => Some(endpoint.serve(site).await?),
            None => None,
        })
    }
}

/// `claimcheck driver`: the arguments of the driver and of its health endpoint.
#[derive(Debug, Args)]
pub struct DriverArgs {
    #[command(flatten)]
    driver: claimcheck_driver::Args,
    #[command(flatten)]
    http: HttpArgs,
}

impl DriverArgs {
    pub(super) async fn run(self) -> Result<()> {
        let ended = termination()?;
        let meters = Meters::new();
        let _served = self.http.serve(meters.clone()).await?;
        let calls = self.http.address().is_some().then(|| {
            let (tap, records) = Tap::channel();
            meters.follow(records, &CSI_PLUGIN_OPERATIONS);
            tap
        });
        let ready = |newest| {
            meters.records_lines(newest);
            meters.meter().ready();
        };
        claimcheck_driver::run_measured(self.driver, calls, ready, ended.cancelled_owned())
            .await
            .context("the driver failed")
    }
}

/// `claimcheck node`: the same for the node agent.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    node: claimcheck_node::Args,
    #[command(flatten)]
    http: HttpArgs,
}

impl NodeArgs {
    pub(super) async fn run(self) -> Result<()> {
        let ended = termination()?.cancelled_owned();
        let meters = Meters::new();
        let _served = self.http.serve(meters.clone()).await?;
        let meter = meters.meter();
        let api = ApiArgs { kubeconfig: self.node.kubeconfig.clone(), master: None };
        let client = api.client("node", &meter).await?;
        let mut tap = Tap::from_env()?;
        if self.http.address().is_some() {
            let (teed, records) = tap.tee();
            meters.follow(records, &CSI_OPERATIONS);
            tap = teed;
        }
        claimcheck_node::run(self.node, client, tap, meter, ended).await.context("the node agent failed")
    }
}
