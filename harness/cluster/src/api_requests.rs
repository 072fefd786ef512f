//! How many requests a real API server has served: the sum of its counter `apiserver_request_total`.
//!
//! Upstream: `k8s.io/apiserver/pkg/endpoints/metrics/metrics.go`. A watch is counted when it ends.

use http::Request;
use kube::Client;

const COUNTER: &str = "apiserver_request_total";

/// The requests that the API server has served since its start; none if its metrics cannot be read.
///
/// The answer has a few hundred kilobytes: not for every sample of a load.
pub(crate) async fn served(client: &Client) -> Option<u64> {
    let request = Request::get("/metrics").body(Vec::new()).expect("a request without parts from outside");
    match client.request_text(request).await {
        Ok(text) => sum(&text),
        Err(error) => {
            tracing::debug!(error = %error, "the API server's requests cannot be counted");
            None
        }
    }
}

/// The sum over all series of the counter; none if there are none.
fn sum(text: &str) -> Option<u64> {
    let series =
        text.lines().filter_map(|line| line.strip_prefix(COUNTER)).filter(|line| line.starts_with('{'));
    // The value follows the last brace; a timestamp may follow it.
    let values = series.filter_map(|line| line.rsplit_once('}')?.1.split_ascii_whitespace().next());
    // Prometheus writes large counters as floating-point numbers.
    values
        .filter_map(|value| value.parse::<f64>().ok())
        .map(|value| value as u64)
        .reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_of_the_counter_are_added() {
        let text = "# HELP apiserver_request_total [STABLE] Counter of apiserver requests\n\
                    # TYPE apiserver_request_total counter\n\
                    apiserver_request_total{code=\"200\",resource=\"pods\",verb=\"GET\"} 12\n\
                    apiserver_request_total{code=\"201\",resource=\"a}b\",verb=\"POST\"} 1.5e+06 1700000000000\n\
                    apiserver_request_total_of_another{code=\"200\"} 7\n\
                    apiserver_request_terminations_total{code=\"200\"} 7\n";
        assert_eq!(sum(text), Some(1_500_012));
        assert_eq!(sum("apiserver_request_terminations_total{code=\"200\"} 7\n"), None);
    }
}
