//! `dashboards/`: every expression uses only metrics and labels that are declared, panels are complete and
//! do not overlap, and a Prometheus that scrapes a run has an answer to each of them. Those of the monitor are
//! evaluated with recorded series.
//!
//! Whether the JSON is what Grafana's published schema asks for is for `ci/dashboards`, which needs npm.

mod expressions;
mod files;
mod layout;
mod lint;
mod monitor;
mod names;
mod slo;
