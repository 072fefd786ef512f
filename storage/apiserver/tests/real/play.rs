//! Runs a scenario on both servers: the same requests in the same order, each with what that server returned
//! earlier.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::corpus::{Body, Encoding, Scenario, Step};
use crate::normalise::Symbols;
use crate::protobuf;
use crate::side::{Answer, Request, Side};

/// The characters of a title, or of a body, that reports print.
const REMARK: usize = 200;

/// A request with both responses.
pub struct Exchange {
    pub verb: &'static str,
    /// The request as text, with placeholders, and what is special about it.
    pub request: String,
    /// The normalised responses.
    pub stock: Answer,
    pub built_in: Answer,
    /// The request is about an object that one of the servers does not have, because of an earlier
    /// difference.
    pub is_consequence: bool,
}

/// What one server returned.
#[derive(Default)]
struct Memory {
    saved: HashMap<String, Value>,
    symbols: Symbols,
}

/// The names of objects that an earlier write left different.
struct Diverged {
    /// The beginning of the names of the scenario's objects.
    prefix: String,
    names: BTreeSet<String>,
    /// A write to an object of an unknown name.
    any: bool,
}

/// Runs all requests.
pub async fn play(scenario: &Scenario, stock: &Side, built_in: &Side) -> Vec<Exchange> {
    if let Some(namespace) = &scenario.namespace {
        prepare(namespace, stock, built_in).await;
        // The embedded server creates it as the stock controllers do, which do not run.
        if scenario.kind == "pods" {
            create_account(namespace, stock).await;
        }
    }
    let (mut of_stock, mut of_built_in) = (Memory::default(), Memory::default());
    let title = scenario.name.rsplit('/').next().unwrap_or_default();
    let mut diverged = Diverged { prefix: format!("{title}-"), names: BTreeSet::new(), any: false };
    let mut exchanges = Vec::new();
    for step in &scenario.steps {
        let (to_stock, to_built_in) = (of_stock.request(step), of_built_in.request(step));
        let (from_stock, from_built_in) = tokio::join!(stock.send(&to_stock), built_in.send(&to_built_in));
        let is_consequence = diverged.concerns(step);
        diverged.learn(step, &from_stock, &from_built_in);
        exchanges.push(Exchange {
            verb: step.verb,
            request: describe(step),
            stock: of_stock.learn(step, from_stock),
            built_in: of_built_in.learn(step, from_built_in),
            is_consequence,
        });
        of_stock.symbols.align(&mut of_built_in.symbols);
    }
    exchanges
}

/// Creates the namespace.
async fn prepare(namespace: &str, stock: &Side, built_in: &Side) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let create = Request::post("/api/v1/namespaces", &object);
    let (by_stock, by_built_in) = tokio::join!(stock.send(&create), built_in.send(&create));
    // Otherwise both would respond to everything with 404, and be equal.
    let both = by_stock.is_success() && by_built_in.is_success();
    assert!(both, "namespace {namespace}: {}, {}", by_stock.body, by_built_in.body);
}

/// Creates the service account that pods have by default.
async fn create_account(namespace: &str, stock: &Side) {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let created = stock.send(&Request::post(&path, &account)).await;
    assert!(created.is_success(), "{path}: {} {}", created.status, created.body);
}

/// A request for reports: with placeholders, so that it is the same in every run.
fn describe(step: &Step) -> String {
    let mut text = format!("{} {}", step.method, step.path);
    if let Some(content_type) = step.content_type {
        text += &format!(" [{content_type}]");
    }
    if let Some(accept) = &step.accept {
        text += &format!(" accept [{accept}]");
    }
    let body = match &step.body {
        Body::Object(object, _) if step.verb != "create" => object.to_string(),
        Body::Saved(_, patch, _) => patch.to_string(),
        Body::Object(..) | Body::Empty | Body::Raw(_) => String::new(),
    };
    let remark = if step.title.is_empty() { body } else { step.title.escape_debug().to_string() };
    if !remark.is_empty() {
        text += &format!(" ({})", remark.chars().take(REMARK).collect::<String>());
    }
    text
}

impl Diverged {
    fn concerns(&self, step: &Step) -> bool {
        if self.any || (!self.names.is_empty() && ["list", "watch", "deletecollection"].contains(&step.verb))
        {
            return true;
        }
        self.names_in(step).iter().any(|name| self.names.contains(name))
    }

    fn learn(&mut self, step: &Step, stock: &Answer, built_in: &Answer) {
        let is_read = ["get", "list", "watch"].contains(&step.verb);
        let is_dry = step.path.contains("dryRun=All")
            || matches!(&step.body, Body::Object(object, _) if object["dryRun"].is_array());
        if is_read || is_dry || stock.is_success() == built_in.is_success() {
            return;
        }
        let names = self.names_in(step);
        self.any |= step.verb == "deletecollection" || (names.is_empty() && step.verb != "create");
        self.names.extend(names);
    }

    /// The names of the objects that a request is about; a generated name has the key of its response.
    fn names_in(&self, step: &Step) -> Vec<String> {
        let path = step.path.split('?').next().unwrap_or_default();
        let in_path =
            path.split('/').filter(|part| part.starts_with(&self.prefix) || part.starts_with("{name:"));
        let in_body = match &step.body {
            Body::Object(object, _) if step.verb == "create" => object["metadata"]["name"].as_str(),
            Body::Empty | Body::Raw(_) | Body::Object(..) | Body::Saved(..) => None,
        };
        in_path.chain(in_body).map(str::to_owned).collect()
    }
}

impl Memory {
    /// The request to this server.
    fn request(&self, step: &Step) -> Request {
        let body = match &step.body {
            Body::Empty => Vec::new(),
            Body::Raw(bytes) => bytes.clone(),
            Body::Object(object, encoding) => encode(&self.resolved(object), *encoding),
            Body::Saved(key, patch, encoding) => {
                let mut object = self.saved.get(key).cloned().unwrap_or_else(|| json!({}));
                json_patch::merge(&mut object, &self.resolved(patch));
                encode(&object, *encoding)
            }
        };
        Request {
            method: step.method,
            path: self.resolved_text(&step.path),
            content_type: step.content_type,
            accept: step.accept.clone(),
            body,
        }
    }

    /// Saves the response, and returns it normalised.
    fn learn(&mut self, step: &Step, answer: Answer) -> Answer {
        if answer.is_success() && answer.body.is_object() && !step.path.contains("dryRun=All") {
            // Tables and failures have no metadata of the object.
            let is_object = answer.body["metadata"]["uid"].is_string() && answer.body["kind"] != "Status";
            let is_list = answer.body["items"].is_array();
            // Zero values are missing in protobuf, and metadata is only a part.
            let accept = step.accept.as_deref().unwrap_or_default();
            let is_whole = !accept.contains("as=") && !accept.contains(protobuf::MEDIA_TYPE);
            for key in step.saved_as.iter().filter(|_| (is_object && is_whole) || is_list) {
                self.saved.insert(key.clone(), answer.body.clone());
            }
        }
        self.symbols.normalise(answer)
    }

    fn resolved(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.resolved_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.resolved(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.resolved(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A text with the values of its placeholders; those of missing responses are `missing`, and versions 1.
    fn resolved_text(&self, text: &str) -> String {
        let fields = [
            ("{uid:", "uid"),
            ("{version:", "resourceVersion"),
            ("{name:", "name"),
            ("{continue:", "continue"),
        ];
        for (start, field) in fields {
            let Some((before, rest)) = text.split_once(start) else { continue };
            let Some((key, after)) = rest.split_once('}') else { continue };
            let value = self.saved.get(key).and_then(|saved| saved["metadata"][field].as_str());
            let value = value.unwrap_or(if field == "resourceVersion" { "1" } else { "missing" });
            let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            return format!("{}{value}{}", self.resolved_text(before), self.resolved_text(after));
        }
        text.to_owned()
    }
}

fn encode(object: &Value, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => object.to_string().into_bytes(),
        Encoding::Yaml => {
            let mut text = String::from("---");
            write_yaml(object, 0, &mut text);
            text.push('\n');
            text.into_bytes()
        }
        Encoding::Protobuf => protobuf::encode(object).unwrap_or_default(),
    }
}

/// Writes blocks with quoted strings, since parsers differ about the types of plain ones.
fn write_yaml(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                text.push_str(&format!("\n{:indent$}{}:", "", Value::from(name.as_str())));
                write_yaml(value, indent + 2, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&format!("\n{:indent$}-", ""));
                write_yaml(item, indent + 2, text);
            }
        }
        scalar => text.push_str(&format!(" {scalar}")),
    }
}
