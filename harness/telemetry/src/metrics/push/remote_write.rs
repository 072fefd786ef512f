//! Prometheus' remote write protocol 1.0: every series as a message of protobuf, compressed with snappy.
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>

use prometheus::proto::{LabelPair, MetricFamily, MetricType};
use prost::Message;

/// `prometheus.WriteRequest`, without metadata.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`.
#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

/// `prometheus.Label`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `prometheus.Sample`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// The current values of all series; `target` are labels of those that have none of this name, as a scrape would add them.
pub(super) fn body(families: &[MetricFamily], target: &[(&str, &str)], now_ms: i64) -> Vec<u8> {
    let request = WriteRequest { timeseries: series(families, target, now_ms) };
    let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
    body.expect("a registry is far smaller than 4 GiB")
}

fn series(families: &[MetricFamily], target: &[(&str, &str)], timestamp: i64) -> Vec<TimeSeries> {
    let mut all = Vec::new();
    for family in families {
        for metric in family.get_metric() {
            let mut add = |suffix: &str, le: Option<String>, value: f64| {
                let name = ("__name__", format!("{}{suffix}", family.name()));
                let le = le.map(|le| ("le", le));
                let own =
                    metric.get_label().iter().map(|pair: &LabelPair| (pair.name(), pair.value().to_owned()));
                let has = |name: &str| metric.get_label().iter().any(|pair| pair.name() == name);
                let target = target.iter().filter(|(name, _)| !has(name));
                let target = target.map(|(name, value)| (*name, (*value).to_owned()));
                let labels = own.chain(target).chain([name]).chain(le);
                // An empty label value equals a missing label.
                let labels = labels.filter(|(_, value)| !value.is_empty());
                let labels = labels.map(|(name, value)| Label { name: name.to_owned(), value });
                let mut labels: Vec<Label> = labels.collect();
                labels.sort();
                all.push(TimeSeries { labels, samples: vec![Sample { value, timestamp }] });
            };
            match family.get_field_type() {
                MetricType::COUNTER => add("", None, metric.get_counter().get_value()),
                MetricType::GAUGE => add("", None, metric.get_gauge().get_value()),
                MetricType::HISTOGRAM => {
                    let histogram = metric.get_histogram();
                    let count = histogram.get_sample_count() as f64;
                    for bucket in histogram.get_bucket() {
                        let bound = bucket.upper_bound();
                        if bound.is_finite() {
                            add("_bucket", Some(bound.to_string()), bucket.cumulative_count() as f64);
                        }
                    }
                    add("_bucket", Some("+Inf".to_owned()), count);
                    add("_sum", None, histogram.get_sample_sum());
                    add("_count", None, count);
                }
                MetricType::SUMMARY | MetricType::UNTYPED => unreachable!("nothing declares such a metric"),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use claimcheck_model::metric;
    use prometheus::Registry;

    use super::*;
    use crate::metrics::Register;

    #[test]
    fn each_series_has_sorted_labels_and_its_value_at_one_time() {
        let registry = Registry::new();
        let register = Register(&registry);
        register.counter(&metric::MOUNT).with_label_values(&["d"]).inc_by(3);
        let cases = register.histogram(&metric::CASE_DURATION);
        cases.with_label_values(&["volumes", "passed"]).observe(0.003);
        cases.with_label_values(&["", "passed"]);
        let target = [("job", "claimcheck"), ("suite", "of the run")];
        let body = body(&registry.gather(), &target, 7);
        let body = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let request = WriteRequest::decode(body.as_slice()).unwrap();
        let lines: Vec<String> = request
            .timeseries
            .iter()
            .map(|series| {
                assert!(series.labels.is_sorted_by_key(|label| label.name.clone()));
                assert_eq!((series.samples.len(), series.samples[0].timestamp), (1, 7));
                let labels: Vec<_> =
                    series.labels.iter().map(|label| format!("{}={}", label.name, label.value)).collect();
                format!("{} {}", labels.join(","), series.samples[0].value)
            })
            .collect();
        for line in [
            "__name__=claimcheck_mount_total,driver_name=d,job=claimcheck,suite=of the run 3",
            "__name__=claimcheck_case_duration_seconds_bucket,job=claimcheck,le=0.0025,result=passed,suite=volumes 0",
            "__name__=claimcheck_case_duration_seconds_bucket,job=claimcheck,le=0.005,result=passed,suite=volumes 1",
            "__name__=claimcheck_case_duration_seconds_bucket,job=claimcheck,le=+Inf,result=passed,suite=volumes 1",
            "__name__=claimcheck_case_duration_seconds_sum,job=claimcheck,result=passed,suite=volumes 0.003",
            "__name__=claimcheck_case_duration_seconds_count,job=claimcheck,result=passed 0",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
        }
    }
}
