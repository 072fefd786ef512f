//! The parts of a scenario: requests, with placeholders for what earlier responses returned.
//!
//! `{uid:KEY}`, `{version:KEY}`, `{name:KEY}` and `{continue:KEY}` in a path or body are replaced by those of
//! the response that was saved under the key, separately for each server.

use serde::Deserialize;
use serde_json::{Value, json};

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// A sample of a kind; see `kinds.yaml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sample {
    pub kind: String,
    pub object: Value,
    pub change: Value,
    pub immutable: Vec<Value>,
    pub invalid: Vec<Value>,
    pub wrong: Vec<Value>,
    pub status: Value,
    pub strategic: Vec<Value>,
    pub selectors: Vec<String>,
    pub freeze: Value,
    pub suffix: String,
    pub orphans: bool,
    pub asynchronous: bool,
}

/// A kind that both servers serve.
#[derive(Clone, Debug)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<String>,
    pub sample: Sample,
}

/// A sequence of requests about its own objects.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The kind and the title, e.g. `deployments.apps/create`.
    pub name: String,
    /// E.g. `deployments.apps`; empty for requests about no kind.
    pub kind: String,
    /// The namespace that has to exist.
    pub namespace: Option<String>,
    pub steps: Vec<Step>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is special about it, if anything.
    pub title: String,
    pub verb: &'static str,
    pub method: &'static str,
    pub path: String,
    pub content_type: Option<&'static str>,
    pub accept: Option<String>,
    pub body: Body,
    /// The keys under which a successful response is saved.
    pub saved_as: Vec<String>,
}

/// A body.
#[derive(Clone, Debug)]
pub enum Body {
    Empty,
    Raw(Vec<u8>),
    Object(Value, Encoding),
    /// A saved response with a merge patch.
    Saved(String, Value, Encoding),
}

/// The encoding of an object in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Kind {
    /// `deployments.apps`, or `pods`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether its objects are stored.
    pub fn is_stored(&self) -> bool {
        self.verbs.iter().any(|verb| verb == "get")
    }

    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    /// Whether the control plane creates objects of this kind in every namespace.
    pub fn is_in_every_namespace(&self) -> bool {
        self.group.is_empty() && ["configmaps", "serviceaccounts", "events"].contains(&self.plural.as_str())
    }
}

impl Step {
    pub fn new(verb: &'static str, method: &'static str, path: String) -> Self {
        Self {
            title: String::new(),
            verb,
            method,
            path,
            content_type: None,
            accept: None,
            body: Body::Empty,
            saved_as: Vec::new(),
        }
    }

    pub fn titled(&mut self, title: &str) -> &mut Self {
        self.title = title.to_owned();
        self
    }

    pub fn accept(&mut self, accept: &str) -> &mut Self {
        self.accept = Some(accept.to_owned());
        self
    }

    pub fn content_type(&mut self, content_type: &'static str) -> &mut Self {
        self.content_type = Some(content_type);
        self
    }

    pub fn saved(&mut self, key: &str) -> &mut Self {
        self.saved_as.push(key.to_owned());
        self
    }

    pub fn raw(&mut self, content_type: &'static str, body: impl Into<Vec<u8>>) -> &mut Self {
        (self.content_type, self.body) = (Some(content_type), Body::Raw(body.into()));
        self
    }

    /// Sends the object in another encoding.
    pub fn encoded(&mut self, encoding: Encoding) -> &mut Self {
        match &mut self.body {
            Body::Object(_, current) | Body::Saved(_, _, current) => *current = encoding,
            Body::Empty | Body::Raw(_) => {}
        }
        self.content_type = Some(match encoding {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        });
        self
    }
}

/// A scenario that is being written.
pub struct Script<'k> {
    pub kind: &'k Kind,
    title: String,
    steps: Vec<Step>,
}

impl<'k> Script<'k> {
    pub fn new(kind: &'k Kind, title: &str) -> Self {
        Self { kind, title: title.to_owned(), steps: Vec::new() }
    }

    /// The scenario. Deletions of kinds that orphan dependents by default get another policy, unless they have one.
    pub fn finish(mut self) -> Scenario {
        if self.kind.sample.orphans {
            self.steps.iter_mut().filter(|step| step.method == "DELETE").for_each(delete_in_background);
        }
        self.finish_as_given()
    }

    pub fn finish_as_given(self) -> Scenario {
        let qualified = self.kind.qualified();
        Scenario {
            name: format!("{qualified}/{}", self.title),
            namespace: self.kind.namespaced.then(|| self.namespace()),
            kind: qualified,
            steps: self.steps,
        }
    }

    pub fn namespace(&self) -> String {
        let group = self.kind.group.split('.').next().unwrap_or_default();
        let group = if group.is_empty() { "core" } else { group };
        format!("{}-{group}-{}", self.kind.plural, self.title)
    }

    /// The name of an object.
    pub fn name(&self, short: &str) -> String {
        format!("{}-{short}{}", self.title, self.kind.sample.suffix)
    }

    /// The path of all namespaces, or of all objects without a namespace.
    pub fn everywhere(&self) -> String {
        let root = if self.kind.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.kind.api_version(), self.kind.plural)
    }

    pub fn collection(&self) -> String {
        if !self.kind.namespaced {
            return self.everywhere();
        }
        let root = if self.kind.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/{}/{}", self.kind.api_version(), self.namespace(), self.kind.plural)
    }

    pub fn path(&self, short: &str) -> String {
        format!("{}/{}", self.collection(), self.name(short))
    }

    /// The selector of the scenario's objects, as a part of a query.
    pub fn selector(&self) -> String {
        format!("labelSelector=suite%3D{}", self.title)
    }

    /// The sample as an object.
    pub fn object(&self, short: &str) -> Value {
        let mut object = json!({ "apiVersion": self.kind.api_version(), "kind": self.kind.kind });
        // Reviews must not have metadata.
        if self.kind.is_stored() {
            object["metadata"] = json!({ "name": self.name(short), "labels": { "suite": self.title } });
        }
        json_patch::merge(&mut object, &self.filled(&self.kind.sample.object, short));
        object
    }

    /// The sample with a merge patch.
    pub fn with(&self, short: &str, patch: &Value) -> Value {
        let mut object = self.object(short);
        json_patch::merge(&mut object, &self.filled(patch, short));
        object
    }

    /// A value of the sample with the names of the scenario.
    pub fn filled(&self, value: &Value, short: &str) -> Value {
        match value {
            Value::String(text) => {
                let base = format!("{}-{short}", self.title);
                let text = text.replace("{namespace}", &self.namespace()).replace("{base}", &base);
                text.replace("{name}", &self.name(short)).into()
            }
            Value::Array(items) => items.iter().map(|item| self.filled(item, short)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.filled(value, short))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    pub fn push(&mut self, step: Step) -> &mut Step {
        self.steps.push(step);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// Creates any object.
    pub fn post(&mut self, query: &str, body: Value) -> &mut Step {
        let path = with_query(self.collection(), query);
        let step = self.push(Step::new("create", "POST", path));
        step.body = Body::Object(body, Encoding::Json);
        step.content_type(JSON)
    }

    /// Creates the sample.
    pub fn create(&mut self, short: &str, query: &str) -> &mut Step {
        let object = self.object(short);
        self.post(query, object).saved(short)
    }

    pub fn get(&mut self, short: &str, query: &str) -> &mut Step {
        let path = with_query(self.path(short), query);
        self.push(Step::new("get", "GET", path)).saved(short)
    }

    /// Lists the objects of the scenario.
    pub fn list(&mut self, query: &str) -> &mut Step {
        let query = if query.contains("labelSelector") {
            query.to_owned()
        } else {
            format!("{}&{query}", self.selector()).trim_end_matches('&').to_owned()
        };
        let path = with_query(self.collection(), &query);
        self.push(Step::new("list", "GET", path))
    }

    /// Watches the objects of the scenario for a second.
    pub fn watch(&mut self, query: &str) -> &mut Step {
        let query = format!("watch=true&timeoutSeconds=1&{}&{query}", self.selector());
        let path = with_query(self.collection(), query.trim_end_matches('&'));
        self.push(Step::new("watch", "GET", path))
    }

    /// Updates with the last response about the object, and a merge patch.
    pub fn update(&mut self, short: &str, query: &str, patch: &Value) -> &mut Step {
        let path = with_query(self.path(short), query);
        let patch = self.filled(patch, short);
        let step = self.push(Step::new("update", "PUT", path));
        step.body = Body::Saved(short.to_owned(), patch, Encoding::Json);
        step.content_type(JSON).saved(short)
    }

    pub fn patch(
        &mut self,
        short: &str,
        query: &str,
        content_type: &'static str,
        patch: &Value,
    ) -> &mut Step {
        let path = with_query(self.path(short), query);
        let patch = self.filled(patch, short);
        let step = self.push(Step::new(if content_type == APPLY { "apply" } else { "patch" }, "PATCH", path));
        step.body = Body::Object(patch, Encoding::Json);
        step.content_type(content_type).saved(short)
    }

    /// Deletes with options; without a body if they are null.
    pub fn delete(&mut self, short: &str, query: &str, options: &Value) -> &mut Step {
        let path = with_query(self.path(short), query);
        let step = self.push(Step::new("delete", "DELETE", path));
        with_options(step, options)
    }

    pub fn delete_collection(&mut self, query: &str, options: &Value) -> &mut Step {
        let path = with_query(self.collection(), query);
        let step = self.push(Step::new("deletecollection", "DELETE", path));
        with_options(step, options)
    }

    /// A request about a subresource of an object.
    pub fn below(
        &mut self,
        short: &str,
        subresource: &str,
        verb: &'static str,
        method: &'static str,
    ) -> &mut Step {
        let path = format!("{}/{subresource}", self.path(short));
        self.push(Step::new(verb, method, path))
    }
}

fn delete_in_background(step: &mut Step) {
    const POLICIES: [&str; 2] = ["propagationPolicy", "orphanDependents"];
    match &mut step.body {
        Body::Object(Value::Object(options), _)
            if !POLICIES.iter().any(|name| options.contains_key(*name)) =>
        {
            options.insert(POLICIES[0].to_owned(), "Background".into());
        }
        Body::Empty if !POLICIES.iter().any(|name| step.path.contains(name)) => {
            let sign = if step.path.contains('?') { '&' } else { '?' };
            step.path.push_str(&format!("{sign}{}=Background", POLICIES[0]));
        }
        Body::Empty | Body::Raw(_) | Body::Object(..) | Body::Saved(..) => {}
    }
}

fn with_options<'s>(step: &'s mut Step, options: &Value) -> &'s mut Step {
    if options.is_null() {
        return step;
    }
    step.body = Body::Object(options.clone(), Encoding::Json);
    step.content_type(JSON)
}

fn with_query(path: String, query: &str) -> String {
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// A value in a query.
pub fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
