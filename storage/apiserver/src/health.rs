//! `/healthz`, `/livez` and `/readyz`, and the checks below them.
//!
//! Mirrors apiserver pkg/server/healthz/healthz.go. A server that answers is healthy, since the store is a part of it; so
//! there are those of upstream's checks that every API server has, and none for the hooks of a start.

use std::fmt::Write as _;

use http::StatusCode;

use crate::request::Query;
use crate::response::{self, Answer};

/// The checks of each path, in upstream's order.
const PATHS: [(&str, &[&str]); 3] = [
    ("healthz", &["ping", "log", "etcd"]),
    ("livez", &["ping", "log", "etcd"]),
    ("readyz", &["ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"]),
];

/// The answer of a path. One of a check that does not exist is not found.
pub fn answer(path: &str, query: &Query) -> Answer {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let known = |name: &str| PATHS.iter().find(|(path, _)| *path == name);
    match segments[..] {
        [name] if known(name).is_some() => {
            let checks = known(name).map_or(&[][..], |(_, checks)| *checks);
            response::text(StatusCode::OK, whole(name, checks, query))
        }
        [name, check] if known(name).is_some_and(|(_, checks)| checks.contains(&check)) => {
            response::text(StatusCode::OK, "ok")
        }
        _ => response::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// The text of all checks, without those that the query excludes.
fn whole(name: &str, checks: &[&str], query: &Query) -> String {
    if query.all("verbose").next().is_none() {
        return "ok".to_owned();
    }
    let mut text = String::new();
    for check in checks {
        let excluded = query.all("exclude").any(|excluded| excluded == *check);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[+]{check} {}ok", if excluded { "excluded: " } else { "" });
    }
    let unknown: Vec<String> = query
        .all("exclude")
        .filter(|excluded| !excluded.is_empty() && !checks.contains(excluded))
        .map(|excluded| format!("{excluded:?}"))
        .collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {unknown}");
    }
    let _ = writeln!(text, "{name} check passed");
    text
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::{BodyExt, Either};

    use super::*;

    #[test]
    fn paths_and_their_checks() {
        let all = "[+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n";
        let excluded = "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\nwarn: some health checks cannot be excluded: no \
                        matches for \"nope\"\nhealthz check passed\n";
        for (path, query, code, expected) in [
            ("/healthz", "", 200, "ok"),
            ("/readyz/", "exclude=nope", 200, "ok"),
            ("/livez", "verbose", 200, all),
            ("/livez", "verbose=1", 200, all),
            ("/healthz", "verbose&exclude=etcd&exclude=nope", 200, excluded),
            ("/livez/ping", "", 200, "ok"),
            ("/readyz/shutdown", "", 200, "ok"),
            ("/livez/shutdown", "", 404, "404 page not found\n"),
            ("/livez/nope", "", 404, "404 page not found\n"),
            ("/livez/ping/more", "", 404, "404 page not found\n"),
        ] {
            let answer = answer(path, &Query::parse(Some(query)));
            assert_eq!(answer.status().as_u16(), code, "{path}?{query}");
            let Either::Left(body) = answer.into_body() else { panic!("a stream") };
            let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
            assert_eq!(body, expected, "{path}?{query}");
        }
    }
}
