//! The metrics of a run, pushed to a remote write endpoint (`--remote-write`).

use claimcheck_telemetry::metrics::push::Push;

use super::outputs::{Closing, Output, Setup, Sink, Started, started};

pub(crate) const OUTPUT: Output = Output { file: None, start };

fn start(setup: &Setup) -> Started {
    let push = setup.push.as_ref().map(|options| Push::start(options, &setup.metrics));
    push.map_or(Ok(None), started)
}

impl Sink for Push {
    fn close(self: Box<Self>) -> Closing {
        Box::pin(async {
            if let Err(error) = self.finish().await {
                // A failed push of metrics does not change the result of the run.
                tracing::error!("{error}");
            }
        })
    }
}
