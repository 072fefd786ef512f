//! Audit: request counters in memory, and one JSON line per request in a file if configured.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use claimcheck_files::append_private;
use serde_json::json;

/// Number of requests of one client, verb and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// The first word of the client's user agent.
    pub agent: String,
    /// The Kubernetes verb, e.g. `create` or `watch`.
    pub verb: &'static str,
    /// The resource with its subresource, e.g. `pods/status`, or the path of a non-resource request.
    pub resource: String,
    /// Number of requests.
    pub count: u64,
}

/// A request with its response.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The first word of the client's user agent.
    pub agent: &'a str,
    /// The name of the user, or empty for invalid credentials.
    pub user: &'a str,
    /// Whether RBAC does not permit the request; other 403s are of admission.
    pub is_denied: bool,
    /// The Kubernetes verb.
    pub verb: &'static str,
    /// See [`RequestCount::resource`].
    pub resource: &'a str,
    /// Path and query.
    pub uri: &'a str,
    /// The HTTP status.
    pub code: u16,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body; 0 for a stream.
    pub response_bytes: u64,
    /// Time until the response was ready; for a watch, until it began.
    pub took: Duration,
}

/// Counters and log.
pub struct Audit {
    counts: Mutex<BTreeMap<(String, &'static str, String), u64>>,
    log: Option<Mutex<BufWriter<File>>>,
}

impl Audit {
    /// Counters at zero; lines are appended to `path`, if any.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let log = path.map(append_private).transpose()?.map(|file| Mutex::new(BufWriter::new(file)));
        Ok(Self { counts: Mutex::default(), log })
    }

    /// Counts one request, before its response: a client that sees its effect finds it counted.
    pub fn count(&self, agent: &str, verb: &'static str, resource: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((agent.to_owned(), verb, resource.to_owned())).or_default() += 1;
    }

    /// Logs one request with its response.
    pub fn log(&self, entry: Entry<'_>) {
        let Some(log) = &self.log else { return };
        let mut line = json!({
            "wall": jiff::Timestamp::now().to_string(),
            "who": entry.agent,
            "user": entry.user,
            "verb": entry.verb,
            "resource": entry.resource,
            "uri": entry.uri,
            "code": entry.code,
            "request_bytes": entry.request_bytes,
            "response_bytes": entry.response_bytes,
            "ms": entry.took.as_secs_f64() * 1e3,
        });
        if entry.is_denied {
            line["denied"] = true.into();
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        // Each line is complete on disk, so that the log of a killed run can be read.
        if let Err(error) = writeln!(log, "{line}").and_then(|()| log.flush()) {
            tracing::warn!(%error, "cannot write to the audit log");
        }
    }

    /// The counters, ordered by client, verb and resource.
    pub fn counts(&self) -> Vec<RequestCount> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((agent, verb, resource), &count)| RequestCount {
                agent: agent.clone(),
                verb,
                resource: resource.clone(),
                count,
            })
            .collect()
    }
}
