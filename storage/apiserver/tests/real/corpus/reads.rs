//! Lists and watches: selectors, pages, versions.

use serde_json::{Value, json};

use super::script::{Kind, MERGE, Scenario, Script, encode};

/// The options of a list or a watch about versions; `{version:..}` are those of the scenario.
const VERSIONS: [&str; 14] = [
    "resourceVersion=0",
    "resourceVersion={version:first}",
    "resourceVersion={version:last}",
    "resourceVersion=nope",
    "resourceVersion=-1",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersion={version:last}&resourceVersionMatch=Exact",
    "resourceVersion={version:first}&resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "resourceVersion=1&resourceVersionMatch=Nope",
    "sendInitialEvents=true",
    "sendInitialEvents=nope",
];

pub fn scenarios(kind: &Kind) -> Vec<Scenario> {
    vec![selectors(kind), pages(kind), versions(kind), watch(kind), watch_selected(kind)]
}

/// Creates objects with labels, and waits until caches have them: a list without a version does.
fn populate(script: &mut Script<'_>, shorts: &[&str]) {
    for (number, short) in shorts.iter().enumerate() {
        let labels =
            json!({ "each": short, "number": number.to_string(), "app": if number < 2 { "x" } else { "y" } });
        let body = script.with(short, &json!({ "metadata": { "labels": labels } }));
        let step = script.post("", body).saved(short);
        if number == 0 {
            step.saved("first");
        }
        if number + 1 == shorts.len() {
            step.saved("last");
        }
    }
    script.list("");
}

fn selectors(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "selectors");
    populate(&mut script, &["a", "b", "c"]);
    for selector in [
        "app=x",
        "app==x",
        "app!=x",
        "app in (x,y)",
        "app in (x, z),each!=a",
        "app notin (x)",
        "app",
        "!app",
        "nope",
        "!nope",
        "number>0",
        "number<1",
        "number>x",
        "app=",
        "app in ()",
        "app in (",
        "=x",
        "a==b==c",
        "bad key!=x",
        "app=bad value!",
        "app = x , each = a",
        ",",
        "example.com/k=v",
        "a/b/c=v",
    ] {
        let all = encode(&format!("suite=selectors,{selector}"));
        script.list(&format!("labelSelector={all}")).titled(selector);
    }
    let name = script.name("a");
    let own = [
        format!("metadata.name={name}"),
        format!("metadata.name=={name}"),
        format!("metadata.name!={name}"),
        format!("metadata.name={name},metadata.name!={name}"),
        format!("metadata.namespace={}", script.namespace()),
        "metadata.namespace!=other".to_owned(),
        "metadata.namespace=other".to_owned(),
        "metadata.uid=u".to_owned(),
        "metadata.labels.app=x".to_owned(),
        "nope=1".to_owned(),
        "nope".to_owned(),
        "metadata.name in (a)".to_owned(),
        "metadata.name=a\\,b".to_owned(),
        "metadata.name=a\\".to_owned(),
        ",".to_owned(),
        "=".to_owned(),
        "spec.nope=1".to_owned(),
        "status.nope=1".to_owned(),
    ];
    for selector in own.iter().chain(&kind.sample.selectors) {
        script.list(&format!("fieldSelector={}", encode(selector))).titled(selector);
        // Each valid one costs a second.
        if selector.contains("nope") || *selector == own[0] || kind.sample.selectors.contains(selector) {
            script.watch(&format!("fieldSelector={}", encode(selector))).titled(selector);
        }
    }
    if kind.namespaced {
        let everywhere = format!("{}?{}", script.everywhere(), script.selector());
        script.list("").titled("all namespaces").path = everywhere;
        let missing = script.collection().replace(&script.namespace(), "missing");
        script.list("").titled("a missing namespace").path = missing;
        if !kind.is_in_every_namespace() {
            let everything = script.collection();
            script.list("").titled("without a selector").path = everything;
        }
    }
    script.finish()
}

fn pages(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "pages");
    populate(&mut script, &["a", "b", "c", "d", "e"]);
    script.list("limit=2").saved("one");
    script.list("limit=2&continue={continue:one}").saved("two");
    script.list("limit=2&continue={continue:two}").saved("three");
    script.list("continue={continue:one}").titled("the rest");
    script.list("limit=1&continue={continue:one}&resourceVersion=1").titled("with a version");
    script.list("limit=1&continue={continue:one}&resourceVersion=0");
    script.list("limit=2&continue={continue:one}&resourceVersionMatch=Exact&resourceVersion=1");
    script.list("limit=5").titled("all fit");
    script.list("limit=500");
    script.list("limit=0");
    script.list("limit=-1");
    script.list("limit=nope");
    script.list("limit=1.5");
    script.list("continue=nope");
    script.list("continue=");
    script.list("limit=2&resourceVersion=0").titled("from the cache");
    script.list("limit=2&resourceVersion=0&resourceVersionMatch=NotOlderThan");
    script.list("limit=2&resourceVersion={version:last}&resourceVersionMatch=Exact");
    script.list("limit=2&resourceVersion={version:last}&resourceVersionMatch=NotOlderThan");
    script.list("timeoutSeconds=5");
    script.list("timeoutSeconds=nope");
    script.delete("b", "", &Value::Null);
    script.list("limit=2&continue={continue:one}").titled("after a deletion");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    script.list("limit=2").accept(accept).titled("a table");
    script.finish()
}

fn versions(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "versions");
    populate(&mut script, &["a", "b"]);
    for query in VERSIONS {
        script.list(query);
    }
    for query in
        ["resourceVersion=0", "resourceVersion={version:a}", "resourceVersion=nope", "resourceVersion=-1"]
    {
        script.get("a", query);
    }
    script.list("watch=false");
    script.list("watch=nope&timeoutSeconds=1");
    script.list("watch=true&timeoutSeconds=nope");
    if kind.plural == "configmaps" {
        // Both servers wait for it for seconds.
        script.list("resourceVersion=9000000000000000000").titled("a version of the future");
        script.get("a", "resourceVersion=9000000000000000000").titled("a version of the future");
    }
    script.finish()
}

fn watch(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "watch");
    populate(&mut script, &["a", "b"]);
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "k": "v" } } })).saved("changed");
    script.patch("b", "", MERGE, &kind.sample.change);
    script.delete("b", "", &Value::Null);
    // Caches have it all then.
    script.list("");
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{}?watch=true&timeoutSeconds=1", script.collection());
    let name = script.name("a");
    script.watch("resourceVersion={version:first}").titled("since the first version");
    script.watch("resourceVersion={version:changed}").titled("since the change");
    script.watch("resourceVersion=0").titled("from the cache");
    script.watch("").titled("without a version");
    script.watch(&format!("{initial}&allowWatchBookmarks=true"));
    script.watch(initial).titled("without bookmarks");
    script.watch(&format!("{initial}&resourceVersion=0&allowWatchBookmarks=true"));
    script.watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    script.watch("sendInitialEvents=true");
    script.watch("resourceVersionMatch=NotOlderThan");
    script.watch("resourceVersionMatch=Exact&sendInitialEvents=true");
    script.watch("resourceVersion=nope");
    script.watch("resourceVersion=-1");
    script.watch("limit=1&resourceVersion=0");
    script.watch("continue=nope");
    script.watch("").titled("one object").path =
        format!("{path}&resourceVersion=0&fieldSelector=metadata.name%3D{name}");
    script.watch("").titled("a path with a name").path =
        format!("{}?watch=true&timeoutSeconds=1&resourceVersion=0", script.path("a"));
    for accept in [
        "application/json;stream=watch",
        "application/json;stream=nope",
        "application/vnd.kubernetes.protobuf",
        "application/vnd.kubernetes.protobuf;stream=watch",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/yaml",
        "text/plain",
    ] {
        script.watch("resourceVersion={version:first}").accept(accept);
    }
    script
        .watch(&format!("{initial}&allowWatchBookmarks=true"))
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    script.watch(&format!("{initial}&allowWatchBookmarks=true")).accept(partial);
    script
        .watch(&format!("{initial}&allowWatchBookmarks=true"))
        .accept("application/vnd.kubernetes.protobuf");
    script.finish()
}

/// Objects that begin or cease to match a selector.
fn watch_selected(kind: &Kind) -> Scenario {
    let mut script = Script::new(kind, "selected");
    populate(&mut script, &["a"]);
    for value in ["x", "z", "x", "x"] {
        script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "app": value } } }));
    }
    script.patch("a", "", MERGE, &json!({ "metadata": { "annotations": { "k": "v" } } }));
    script.patch("a", "", MERGE, &json!({ "metadata": { "labels": { "app": null } } }));
    script.delete("a", "", &Value::Null);
    script.list("");
    let path =
        format!("{}?watch=true&timeoutSeconds=1&resourceVersion={{version:first}}", script.collection());
    for selector in ["suite=selected,app=x", "suite=selected,app!=x", "suite=selected,!app", "suite=selected"]
    {
        script.watch("").titled(selector).path = format!("{path}&labelSelector={}", encode(selector));
    }
    script.finish()
}
