//! Every write of the stock controllers, scheduler, kubelet and CSI sidecars during six life cycles, sent
//! again in order: each must be accepted or refused as it was, and leave the object as it was left.

use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::{self, Difference};
use super::{JSON, Names, RecordedRequest, RecordedResponse, send};
use crate::harness::Fixture;

const RECORDING: &[u8] = include_bytes!("../../data/writes.ndjson.gz");

/// One write of the recording. What type a patch was of is not recorded.
#[derive(Deserialize)]
struct Write {
    /// Seconds since the epoch when it began.
    wall: f64,
    ms: f64,
    who: String,
    verb: String,
    uri: String,
    code: u16,
    request: Option<Value>,
    response: Option<Value>,
}

impl Write {
    fn method(&self) -> &'static str {
        match self.verb.as_str() {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            other => panic!("no write: {other}"),
        }
    }

    /// Attacher and kubectl patch by merge, in-tree components by strategic merge; JSON patches are lists.
    fn content_type(&self) -> &'static str {
        match (&self.request, self.verb.as_str()) {
            (Some(Value::Array(_)), _) => "application/json-patch+json",
            (_, "patch") if self.who.starts_with("csi-attacher") => "application/merge-patch+json",
            (_, "patch") => "application/strategic-merge-patch+json",
            _ => JSON,
        }
    }
}

#[tokio::test]
async fn stock_components_could_work_here() {
    let fixture = Fixture::start().await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "rec" } });
    fixture.accept("POST", "/api/v1/namespaces", JSON, &namespace).await;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } });
    fixture.accept("POST", "/api/v1/nodes", JSON, &node).await;
    for name in ["hp-immediate", "hp-wffc", "hp-retain"] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
            "provisioner": "hostpath.csi.k8s.io", "allowVolumeExpansion": true,
        });
        fixture.accept("POST", "/apis/storage.k8s.io/v1/storageclasses", JSON, &class).await;
    }
    let mut names = Names::default();
    let mut failures = Vec::new();
    let lines = BufReader::new(GzDecoder::new(RECORDING)).lines();
    let mut writes: Vec<Write> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    // Some raced. What counts is when they were done, and a refusal is known sooner than a write that has
    // to reach the disk: it may have seen one that was answered a little later.
    let done = |write: &Write| write.wall + write.ms / 1e3 + if write.code < 400 { 0.0 } else { 0.002 };
    writes.sort_by(|a, b| done(a).total_cmp(&done(b)));
    for (index, write) in writes.iter().enumerate() {
        let asked = RecordedRequest {
            method: write.method().to_owned(),
            path: write.uri.clone(),
            content_type: Some(write.content_type().to_owned()),
            accept: None,
            body: write.request.clone(),
        };
        let returned = send(&fixture.client, &asked, &names).await;
        // Answers about nodes were too long to be kept.
        let body = if write.uri.starts_with("/api/v1/nodes/") {
            &returned.body
        } else {
            write.response.as_ref().unwrap()
        };
        let recorded =
            RecordedResponse { status: write.code, headers: returned.headers.clone(), body: body.clone() };
        names.learn(&recorded.body, &returned.body);
        // No token is issued here, so none is mounted into pods.
        let token = |difference: &Difference| {
            difference.path.contains("kube-api-access")
                || difference.recorded.to_string().contains("kube-api-access")
        };
        for difference in
            compare::compare(&recorded, &returned).into_iter().filter(|difference| !token(difference))
        {
            failures.push(format!("{index} {} {} {}: {difference}", write.who, write.verb, write.uri));
        }
    }
    println!("{} writes", writes.len());
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}
