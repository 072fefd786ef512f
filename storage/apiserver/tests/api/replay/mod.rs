//! Replays the requests that a stock kube-apiserver 1.36 received: the embedded server's responses must equal the
//! recorded ones, except for the differences that `expected.rs` lists with a reason. A difference that is not
//! listed fails the test, and so does a listed one that no longer occurs.

mod compare;
mod expected;
mod writes;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::client::Body;
use kube::runtime::wait::await_condition;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{Fixture, TIMEOUT, client};

const RECORDING: &[u8] = include_bytes!("../../data/api.ndjson.gz");
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// One exchange of the recording.
#[derive(Deserialize)]
struct Exchange {
    note: String,
    request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Deserialize)]
struct RecordedRequest {
    method: String,
    path: String,
    content_type: Option<String>,
    accept: Option<String>,
    body: Option<Value>,
}

/// An answer, whoever gave it; a watch's is the list of its events.
#[derive(Deserialize)]
pub struct RecordedResponse {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Value,
}

fn recording() -> Vec<Exchange> {
    let lines = BufReader::new(GzDecoder::new(RECORDING)).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn stock_answers_are_reproduced() {
    let fixture = Fixture::start().await;
    let anonymous = client(&fixture.server, false).await;
    let exchanges = recording();
    bootstrap(&fixture, &exchanges).await;
    let mut names = Names::default();
    let mut differences = Vec::new();
    for exchange in &exchanges {
        play_controllers(&fixture, &exchange.note).await;
        let caller = if exchange.note.starts_with("anonymous") { &anonymous } else { &fixture.client };
        let returned = send(caller, &exchange.request, &names).await;
        names.learn(&exchange.response.body, &returned.body);
        for difference in compare::compare(&exchange.response, &returned) {
            differences.push((exchange.note.as_str(), difference));
        }
    }
    let notes: Vec<&str> = exchanges.iter().map(|exchange| exchange.note.as_str()).collect();
    expected::check(&notes, &differences);
    fixture.server.shutdown().await;
}

/// What the recorded cluster held before the first request.
async fn bootstrap(fixture: &Fixture, exchanges: &[Exchange]) {
    let rows = |note: &str| {
        let exchange = exchanges.iter().find(|exchange| exchange.note == note).unwrap();
        exchange.response.body["rows"].as_array().unwrap().clone()
    };
    for row in rows("classes as table").iter().filter(|row| row["cells"][0] != "k") {
        let cells = &row["cells"];
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": cells[0], "annotations": row["object"]["metadata"]["annotations"] },
            "provisioner": cells[1], "reclaimPolicy": cells[2], "volumeBindingMode": cells[3],
            "allowVolumeExpansion": cells[4],
        });
        fixture.accept("POST", "/apis/storage.k8s.io/v1/storageclasses", JSON, &class).await;
    }
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "rec" } });
    fixture.accept("POST", "/api/v1/namespaces", JSON, &namespace).await;
    let event = |name: &Value, cells: &Value| {
        let (kind, object) = cells[3].as_str().unwrap_or("pod/x").split_once('/').unwrap();
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name },
            "type": cells[1], "reason": cells[2], "message": cells[6], "count": cells[8],
            "involvedObject": { "kind": kind, "name": object, "namespace": "rec" },
            "source": { "component": cells[5] }, "reportingComponent": cells[5],
            "firstTimestamp": "2026-11-20T21:06:30Z", "lastTimestamp": "2026-11-20T21:06:30Z",
        })
    };
    let mut events: Vec<Value> =
        rows("events as table").iter().map(|row| event(&row["cells"][9], &row["cells"])).collect();
    // The page of three was followed by 49 more.
    events.extend((0..49).map(|index| event(&json!(format!("z-{index}")), &Value::Null)));
    for event in events {
        fixture.accept("POST", "/api/v1/namespaces/rec/events", JSON, &event).await;
    }
}

/// What stock controllers had written before a request.
async fn play_controllers(fixture: &Fixture, before: &str) {
    let claims = "/api/v1/namespaces/api/persistentvolumeclaims";
    match before {
        "volumes as table" => {
            let available = json!({ "status": { "phase": "Available" } });
            fixture.accept("PATCH", "/api/v1/persistentvolumes/v/status", MERGE, &available).await;
        }
        "terminating namespace" => {
            let namespaces = fixture.cluster::<Namespace>();
            let conditions_set = await_condition(namespaces, "api", |namespace: Option<&Namespace>| {
                namespace.is_some_and(|namespace| {
                    namespace.status.as_ref().is_some_and(|status| status.conditions.is_some())
                })
            });
            tokio::time::timeout(TIMEOUT, conditions_set).await.expect("conditions").unwrap();
        }
        "deletecollection" => {
            let annotations = json!({
                "volume.beta.kubernetes.io/storage-provisioner": "d",
                "volume.kubernetes.io/storage-provisioner": "d",
            });
            let patch = json!({ "metadata": { "annotations": annotations } });
            fixture.accept("PATCH", &format!("{claims}/dflt"), MERGE, &patch).await;
        }
        _ => {}
    }
}

async fn send(client: &Client, asked: &RecordedRequest, names: &Names) -> RecordedResponse {
    let path = names.exchange(&asked.path);
    let body = match &asked.body {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => names.exchange_in("", value).to_string(),
    };
    let mut request = Request::builder().method(asked.method.as_str()).uri(&path);
    for (name, value) in [("content-type", &asked.content_type), ("accept", &asked.accept)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let response = client.send(request.body(Body::from(body.into_bytes())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let headers =
        response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let headers = headers.collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let body = if path.contains("watch=1") && status == 200 {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect()
    } else {
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    RecordedResponse { status, headers, body }
}

/// The embedded server's uids, versions, generated names and tokens for the recorded ones.
#[derive(Default)]
struct Names {
    words: HashMap<String, String>,
    versions: HashMap<String, String>,
}

impl Names {
    fn learn(&mut self, recorded: &Value, returned: &Value) {
        let (recorded, returned) = (&recorded["metadata"], &returned["metadata"]);
        for field in ["uid", "name", "continue", "resourceVersion"] {
            if let (Some(recorded), Some(returned)) = (recorded[field].as_str(), returned[field].as_str())
                && recorded != returned
            {
                let known = if field == "resourceVersion" { &mut self.versions } else { &mut self.words };
                known.insert(recorded.to_owned(), returned.to_owned());
            }
        }
    }

    /// `text` with all words exchanged; uids occur within longer names too.
    fn exchange(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (recorded, returned)| text.replace(recorded, returned))
    }

    fn exchange_in(&self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) if name == "resourceVersion" => {
                self.versions.get(text).unwrap_or(text).as_str().into()
            }
            Value::String(text) => self.exchange(text).into(),
            Value::Array(items) => items.iter().map(|item| self.exchange_in(name, item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.exchange_in(name, value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}
