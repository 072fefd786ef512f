//! A Prometheus Pushgateway: keeps the last pushed metrics of a run for scraping.

use claimcheck_model::RunInfo;
use reqwest::{Method, header::HeaderMap};

use super::{send::PushRequest, target::PushUrl};

/// As on the command line.
const FLAG: &str = "--push-gateway";

/// The group of a run: the next run of the same driver on the same kind of cluster from the same machine replaces
/// it, so that the number of groups is bounded.
fn group(base: &PushUrl, run: &RunInfo, instance: &str) -> PushUrl {
    let mut to = base.clone();
    let labels = [
        ("job", "claimcheck"),
        ("cluster_kind", run.cluster.name()),
        ("driver", &run.driver),
        ("instance", instance),
    ];
    // Addresses of HTTP have a path.
    if let Ok(mut path) = to.url.path_segments_mut() {
        path.pop_if_empty().push("metrics");
        for (label, value) in labels {
            // An empty segment would be lost: `=` is the empty string in base64, which the gateway accepts.
            match value {
                "" => path.extend([&format!("{label}@base64"), "="]),
                value => path.extend([label, value]),
            };
        }
    }
    to
}

/// Replaces the content of the group.
pub(super) fn put(base: &PushUrl, run: &RunInfo, instance: &str, text: String) -> PushRequest {
    let (to, headers) = (group(base, run, instance), HeaderMap::new());
    PushRequest { flag: FLAG, method: Method::PUT, to, headers, body: text.into_bytes() }
}

/// Deletes the group.
pub(super) fn delete(base: &PushUrl, run: &RunInfo, instance: &str) -> PushRequest {
    let (to, headers) = (group(base, run, instance), HeaderMap::new());
    PushRequest { flag: FLAG, method: Method::DELETE, to, headers, body: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_by_the_run() {
        let path = |base: &str, driver: &str| {
            let run = RunInfo { driver: driver.into(), ..RunInfo::default() };
            let group = group(&base.parse().unwrap(), &run, "a host");
            group.url.path().to_owned()
        };
        let cluster = RunInfo::default().cluster.name();
        let expected =
            format!("/metrics/job/claimcheck/cluster_kind/{cluster}/driver/d.io/instance/a%20host");
        assert_eq!(path("http://h:9091", "d.io"), expected);
        assert_eq!(path("http://h:9091/gate/", "d.io"), format!("/gate{expected}"));
        assert!(path("http://h", "").contains("/driver@base64/=/instance"));
    }
}
