//! Traces of a run (`--otlp`), sent to a collector while it lasts.

use std::io::{self, Write as _};

use claimcheck_telemetry::trace::Exporter;

use super::outputs::{Closing, Output, Seen, Setup, Sink, Started, started};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: None, start };

struct Traces(Exporter);

fn start(setup: &Setup) -> Started {
    setup.collector.clone().map_or(Ok(None), |collector| started(Traces(Exporter::start(collector))))
}

impl Sink for Traces {
    fn observe(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        self.0.observe(&seen.logged.event, seen.logged.at);
        Ok(())
    }

    fn close(self: Box<Self>) -> Closing {
        Box::pin(async {
            if let Some(missing) = self.0.finish().await {
                // Independent of the log level, since traces were requested.
                let _ = writeln!(io::stderr(), "warning: {missing}");
            }
        })
    }
}
