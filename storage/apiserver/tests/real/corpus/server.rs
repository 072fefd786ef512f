//! Requests about no kind: discovery, versions, health, unknown paths; and those of single kinds.

use serde_json::{Value, json};

use super::script::{APPLY, Body, Encoding, JSON, Kind, MERGE, Scenario, Script, Step, YAML};

/// Larger than the limit of a body (3 MiB), by less than what Go reads before it closes a connection.
const TOO_LARGE: usize = (3 << 20) + 4096;

/// The scenarios about no kind.
pub fn scenarios(kinds: &[Kind]) -> Vec<Scenario> {
    let mut groups: Vec<(String, String)> =
        kinds.iter().map(|kind| (kind.group.clone(), kind.version.clone())).collect();
    groups.sort();
    groups.dedup();
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
    for (group, version) in groups {
        if group.is_empty() {
            paths.push(format!("/api/{version}"));
        } else {
            paths.push(format!("/apis/{group}"));
            paths.push(format!("/apis/{group}/{version}"));
        }
    }
    let discovery = paths.into_iter().flat_map(|path| {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        [
            None,
            Some(aggregated),
            Some("application/yaml"),
            Some("application/vnd.kubernetes.protobuf"),
            Some("text/html"),
        ]
        .map(|accept| {
            let mut step = get(&path);
            step.accept = accept.map(str::to_owned);
            step
        })
    });
    let plain = [
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/healthz/ping",
        "/readyz/nope",
        "/nope",
        "/api/v2",
        "/api/v1/nopes",
        "/api/v1/nopes/x",
        "/api/v1/namespaces/default/nopes",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/nodes",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/nope/v1/nopes",
        "/apis/storage.k8s.io/v2",
        "/apis/storage.k8s.io/v1/nopes",
        "/apis/storage.k8s.io/v1/nopes/x/status",
        "//api//v1//pods",
        "/api/v1/",
        "/api/v1/namespaces/",
        "/api/v1/namespaces/default/pods/x/log/y/z",
        "/api/v1/namespaces/%64efault/pods?labelSelector=suite%3Dnope",
        "/api/v1/namespaces/default/pods/%2e%2e",
        "/openapi/v3/nope",
        "/version/",
    ];
    let mut unknown: Vec<Step> = plain.iter().map(|path| get(path)).collect();
    for (verb, method) in [("create", "POST"), ("update", "PUT"), ("patch", "PATCH"), ("delete", "DELETE")] {
        for path in ["/nope", "/api/v1/nopes", "/apis/nope/v1/nopes/x", "/version", "/api", "/apis"] {
            let mut step = Step::new(verb, method, path.to_owned());
            if verb != "delete" {
                step.raw(if verb == "patch" { MERGE } else { JSON }, "{}");
            }
            unknown.push(step);
        }
    }
    vec![scenario("discovery", discovery.collect()), scenario("paths", unknown)]
}

fn get(path: &str) -> Step {
    Step::new("get", "GET", path.to_owned())
}

fn scenario(title: &str, steps: Vec<Step>) -> Scenario {
    Scenario { name: format!("server/{title}"), kind: String::new(), namespace: None, steps }
}

/// The scenarios that single kinds have in addition.
pub fn special(kind: &Kind) -> Vec<Scenario> {
    match kind.qualified().as_str() {
        "configmaps" => vec![scalars(kind), sizes(kind)],
        "pods" => vec![pods(kind)],
        "namespaces" => vec![namespaces(kind)],
        "serviceaccounts" => vec![tokens(kind)],
        "persistentvolumeclaims" => vec![expansion(kind)],
        _ => Vec::new(),
    }
}

/// Scalars that YAML parsers read differently.
fn scalars(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "scalars");
    for scalar in [
        "yes",
        "no",
        "y",
        "n",
        "on",
        "off",
        "True",
        "TRUE",
        "true",
        "~",
        "null",
        "Null",
        "NULL",
        "",
        "1",
        "01",
        "0o7",
        "0x1f",
        "0b1",
        "1_000",
        "1e3",
        "1.5",
        ".5",
        "1.",
        "+1",
        ".inf",
        ".NaN",
        "12:30",
        "2020-01-01",
        "!!str 1",
        "!!binary aGk=",
        "\"\\u0041\"",
        "'it''s'",
        "|\n    a\n    b",
        ">-\n    a\n    b",
        "[a",
        "@a",
        "`a",
        "%a",
        "\"a\\q\"",
        "a: b",
        "*x",
        "&x a",
        "- a",
        "9223372036854775808",
        "-0",
        "0.1e-400",
    ] {
        let body = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: scalars-x\n  labels: {{suite: scalars}}\ndata:\n  a: {scalar}\n"
        );
        script.post("dryRun=All", Value::Null).titled(scalar).raw(YAML, body.clone());
        script.patch("x", "dryRun=All&fieldManager=m", APPLY, &Value::Null).titled(scalar).raw(APPLY, body);
    }
    script.finish()
}

/// Objects and bodies at the limits.
fn sizes(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "sizes");
    for (title, length) in [("1 MiB", 1 << 20), ("more than 1 MiB", (1 << 20) + 1), ("2 MiB", 2 << 20)] {
        let body = script.with("x", &json!({ "data": { "a": "x".repeat(length) }, "binaryData": null }));
        script.post("dryRun=All", body).titled(title);
    }
    let large = vec![b' '; TOO_LARGE];
    script.post("dryRun=All", Value::Null).titled("more than 3 MiB").raw(JSON, large.clone());
    script.create("a", "");
    script.patch("a", "dryRun=All", MERGE, &Value::Null).titled("more than 3 MiB").raw(MERGE, large.clone());
    script
        .patch("a", "fieldManager=m", APPLY, &Value::Null)
        .titled("more than 3 MiB")
        .raw(APPLY, large.clone());
    script.delete("a", "dryRun=All", &Value::Null).titled("more than 3 MiB").raw(JSON, large);
    let deep = format!("{}{}", "{\"a\":".repeat(10_001), "}".repeat(10_001));
    script.post("dryRun=All", Value::Null).titled("10001 levels").raw(JSON, deep);
    let long = "k".repeat(4000);
    script.list(&format!("labelSelector={long}")).titled("a long selector");
    script.finish()
}

/// Bindings and evictions.
fn pods(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "subresources");
    script.create("a", "");
    let name = script.name("a");
    let binding = |target: Value| {
        let metadata = json!({ "name": name });
        json!({ "apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target })
    };
    let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" });
    for (target, query) in [
        (json!({}), ""),
        (json!({ "kind": "Pod", "name": "n1" }), ""),
        (json!({ "kind": "Node", "name": "" }), ""),
        (node.clone(), "?dryRun=All"),
        (node.clone(), ""),
        (node, ""),
        (json!({ "kind": "Node", "name": "n2" }), ""),
    ] {
        let step = script.below("a", &format!("binding{query}"), "create", "POST");
        step.body = Body::Object(binding(target), Encoding::Json);
        step.content_type(JSON);
    }
    script.get("a", "");
    script.list("fieldSelector=spec.nodeName%3Dn1");
    let eviction =
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": script.name("a") } });
    for (short, query, body) in [
        ("missing", "", eviction.clone()),
        ("a", "?dryRun=All", eviction.clone()),
        ("a", "", json!({})),
        ("a", "", eviction),
    ] {
        let step = script.below(short, &format!("eviction{query}"), "create", "POST");
        step.body = Body::Object(body, Encoding::Json);
        step.content_type(JSON);
    }
    script.get("a", "");
    script.delete("a", "gracePeriodSeconds=60", &Value::Null).titled("longer");
    script.delete("a", "gracePeriodSeconds=1", &Value::Null).titled("shorter");
    script.below("a", "log", "get", "GET");
    script.delete("a", "gracePeriodSeconds=0", &Value::Null);
    script.get("a", "");
    script.below("missing", "log", "get", "GET");
    script.finish()
}

fn namespaces(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "finalize");
    script.create("a", "");
    let path = format!("{}/finalize", script.path("a"));
    script
        .update("a", "", &json!({ "spec": { "finalizers": ["example.com/f", "kubernetes"] } }))
        .path
        .clone_from(&path);
    script
        .update("a", "", &json!({ "spec": { "finalizers": ["kubernetes"] } }))
        .titled("not through the object");
    script.update("a", "", &json!({ "spec": { "finalizers": ["nope"] } })).path.clone_from(&path);
    script.update("a", "", &json!({ "metadata": { "labels": { "k": "v" } } })).path.clone_from(&path);
    script.below("a", "finalize", "get", "GET");
    script.get("a", "");
    // Immortal ones.
    for name in ["default", "kube-system"] {
        script.delete("x", "dryRun=All", &Value::Null).path = format!("/api/v1/namespaces/{name}?dryRun=All");
    }
    let label = json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "other" } } });
    script.patch("a", "", MERGE, &label);
    script.finish()
}

/// Requests for tokens that are rejected; those that are issued are compared without the token.
fn tokens(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "token");
    script.create("a", "");
    for (short, spec) in [
        ("a", json!({ "audiences": ["a"], "expirationSeconds": 600 })),
        ("a", json!({ "audiences": ["a"], "expirationSeconds": 1 })),
        ("a", json!({ "audiences": ["a"], "expirationSeconds": 99_999_999_999_i64 })),
        ("a", json!({ "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "missing" } })),
        ("a", json!({ "boundObjectRef": { "kind": "Nope", "apiVersion": "v1", "name": "x" } })),
        ("a", json!({ "audiences": "a" })),
        ("missing", json!({ "audiences": ["a"] })),
    ] {
        let step = script.below(short, "token", "create", "POST");
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        step.body = Body::Object(body, Encoding::Json);
        step.content_type(JSON).titled(&spec.to_string());
    }
    script.finish()
}

/// A bound claim, which may be expanded if its class permits that.
fn expansion(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "expansion");
    script.create("a", "");
    let path = format!("{}/status", script.path("a"));
    let bound = json!({ "status": {
        "phase": "Bound", "capacity": { "storage": "64Mi" }, "accessModes": ["ReadWriteOnce"],
    } });
    script.patch("a", "", MERGE, &json!({ "spec": { "volumeName": "v" } }));
    script.patch("a", "", MERGE, &bound).path = path;
    for storage in ["64Mi", "65536Ki", "128Mi", "32Mi", "0.125Gi", "nope", "-1"] {
        let patch = json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
        script.patch("a", "", MERGE, &patch);
    }
    script.patch("a", "", MERGE, &json!({ "spec": { "volumeName": "w" } }));
    script.patch("a", "", MERGE, &json!({ "spec": { "volumeName": null } }));
    script.finish()
}
