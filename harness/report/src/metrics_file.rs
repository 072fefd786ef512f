//! The metrics of a run: fed with its events, and written to `metrics.prom` at its end.

use claimcheck_telemetry::metrics::Metrics;

use super::outputs::{End, Output, Seen, Sink, started};
use super::unwritten::ReportError;

const FILE: &str = "metrics.prom";

pub(crate) const OUTPUT: Output =
    Output { file: Some(FILE), start: |setup| started(MetricsFile(setup.metrics.clone())) };

struct MetricsFile(Metrics);

impl Sink for MetricsFile {
    fn observe(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        self.0.observe(&seen.logged.event);
        Ok(())
    }

    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        end.folder.write(FILE, self.0.text().as_bytes())
    }
}
