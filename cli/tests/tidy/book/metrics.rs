//! The page `docs/reference/metrics.md`, made of the declarations in `model`.

use claimcheck_model::metric::{ALL, Metric, MetricKind, Unit};

use super::{cell, page};
use crate::workspace;

const HEAD: &str = "\
# Metrics

Made of `model/src/metric.rs` by `ci/docs --write`. Names without the prefix `claimcheck_` are Kubernetes' own, with the
labels that its components use. No object's name is a label of a `claimcheck_*` metric. Which part of a volume's life cycle
a `phase` is, is in `model/src/phase.rs`.
";

fn section(title: &str, metrics: impl Iterator<Item = &'static Metric>) -> String {
    let rows: String = metrics
        .map(|metric| {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram(_) => "histogram",
            };
            let unit = match metric.unit {
                Unit::Seconds => ", seconds",
                Unit::Bytes => ", bytes",
                Unit::Count => "",
            };
            let labels: Vec<String> = metric.label_names().iter().map(|name| format!("`{name}`")).collect();
            format!("| `{}` | {kind}{unit} | {} | {} |\n", metric.name, labels.join(" "), cell(metric.help))
        })
        .collect();
    format!("\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}")
}

#[test]
fn metrics_page_is_up_to_date() {
    let own = |metric: &&Metric| metric.name.starts_with("claimcheck_");
    let fresh = [
        HEAD.to_owned(),
        section("Of claimcheck", ALL.iter().filter(own)),
        section("As Kubernetes' components have them", ALL.iter().filter(|metric| !own(metric))),
    ];
    page::check(workspace(), "docs/reference/metrics.md", &fresh.concat());
}
