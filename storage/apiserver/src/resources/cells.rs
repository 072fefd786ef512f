//! The cells of the tables that kubectl shows; one function per row of `columns.rs`, in its order.
//!
//! Mirrors pkg/printers/internalversion/printers.go.

use serde_json::{Value, json};

use crate::time;

pub(super) fn name_and_age(object: &Value) -> Vec<Value> {
    vec![name(object), age(object)]
}

pub(super) fn namespace(namespace: &Value) -> Vec<Value> {
    vec![name(namespace), text(&namespace["status"]["phase"]), age(namespace)]
}

pub(super) fn node(node: &Value) -> Vec<Value> {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    let address = |kind: &str| {
        let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
        addresses
            .clone()
            .find(|address| address["type"] == kind)
            .map_or(json!("<none>"), |a| a["address"].clone())
    };
    let info = |field: &str| or(&node["status"]["nodeInfo"][field], "<unknown>");
    vec![
        name(node),
        status.into(),
        if roles.is_empty() { "<none>".into() } else { roles.join(",").into() },
        age(node),
        text(&node["status"]["nodeInfo"]["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub(super) fn pod(pod: &Value) -> Vec<Value> {
    let status = &pod["status"];
    let total = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let containers = status["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = containers.iter().filter(|container| container["ready"] == true).count();
    let restarts: i64 = containers.iter().filter_map(|container| container["restartCount"].as_i64()).sum();
    let mut reason = text(&status["phase"]);
    if status["reason"].is_string() {
        reason = status["reason"].clone();
    }
    let mut running = false;
    for container in containers.iter().rev() {
        let state = &container["state"];
        if let Some(waiting) = state["waiting"]["reason"].as_str() {
            reason = waiting.into();
        } else if let Some(terminated) = state["terminated"].as_object() {
            reason =
                match terminated.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
                    Some(reason) => reason.into(),
                    None => format!("ExitCode:{}", state["terminated"]["exitCode"]).into(),
                };
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
        }
    }
    // One container is done, another is not: the pod as a whole runs.
    if reason == "Completed" && running {
        reason = "Running".into();
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        reason = if status["reason"] == "NodeLost" { "Unknown" } else { "Terminating" }.into();
    }
    let gates = pod["spec"]["readinessGates"].as_array().map_or(&[][..], Vec::as_slice);
    let open = gates.iter().filter(|gate| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    });
    vec![
        name(pod),
        format!("{ready}/{total}").into(),
        reason,
        restarts.to_string().into(),
        age(pod),
        or(&status["podIP"], "<none>"),
        or(&pod["spec"]["nodeName"], "<none>"),
        or(&status["nominatedNodeName"], "<none>"),
        if gates.is_empty() { "<none>".into() } else { format!("{}/{}", open.count(), gates.len()).into() },
    ]
}

pub(super) fn volume(volume: &Value) -> Vec<Value> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = match &spec["claimRef"] {
        Value::Object(claim) => {
            let part = |field: &str| claim.get(field).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name"))
        }
        _ => String::new(),
    };
    vec![
        name(volume),
        text(&spec["capacity"]["storage"]),
        access_modes(&spec["accessModes"]),
        text(&spec["persistentVolumeReclaimPolicy"]),
        phase(volume),
        claim.into(),
        class_name(volume),
        or(&spec["volumeAttributesClassName"], "<unset>"),
        text(&status["reason"]),
        age(volume),
        or(&spec["volumeMode"], "<unset>"),
    ]
}

pub(super) fn claim(claim: &Value) -> Vec<Value> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    // What the claim got is of interest once it has a volume.
    let bound = spec["volumeName"].as_str().is_some_and(|volume| !volume.is_empty());
    let blank = || Value::from("");
    vec![
        name(claim),
        phase(claim),
        text(&spec["volumeName"]),
        if bound { or(&status["capacity"]["storage"], "0") } else { blank() },
        if bound { access_modes(&status["accessModes"]) } else { blank() },
        class_name(claim),
        or(&spec["volumeAttributesClassName"], "<unset>"),
        age(claim),
        or(&spec["volumeMode"], "<unset>"),
    ]
}

pub(super) fn event(event: &Value) -> Vec<Value> {
    let first = [&event["firstTimestamp"], &event["eventTime"]].into_iter().find_map(Value::as_str);
    let last =
        [&event["series"]["lastObservedTime"], &event["lastTimestamp"]].into_iter().find_map(Value::as_str);
    let object = &event["involvedObject"];
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let source = &event["source"];
    let component = source["component"].as_str().or(event["reportingComponent"].as_str()).unwrap_or_default();
    let source = match source["host"].as_str().or(event["reportingInstance"].as_str()) {
        Some(host) if !host.is_empty() => format!("{component}, {host}"),
        _ => component.to_owned(),
    };
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1);
    vec![
        since(last.or(first)),
        text(&event["type"]),
        text(&event["reason"]),
        format!("{kind}/{}", object["name"].as_str().unwrap_or_default()).into(),
        text(&object["fieldPath"]),
        source.into(),
        event["message"].as_str().unwrap_or_default().trim().into(),
        since(first),
        count.into(),
        name(event),
    ]
}

pub(super) fn lease(lease: &Value) -> Vec<Value> {
    vec![name(lease), text(&lease["spec"]["holderIdentity"]), age(lease)]
}

pub(super) fn class(class: &Value) -> Vec<Value> {
    let default = crate::admission::claim::is_default(class);
    let title = class["metadata"]["name"].as_str().unwrap_or_default();
    vec![
        if default { format!("{title} (default)").into() } else { title.into() },
        text(&class["provisioner"]),
        text(&class["reclaimPolicy"]),
        text(&class["volumeBindingMode"]),
        (class["allowVolumeExpansion"] == true).into(),
        age(class),
    ]
}

pub(super) fn attachment(attachment: &Value) -> Vec<Value> {
    let spec = &attachment["spec"];
    vec![
        name(attachment),
        text(&spec["attacher"]),
        text(&spec["source"]["persistentVolumeName"]),
        text(&spec["nodeName"]),
        (attachment["status"]["attached"] == true).into(),
        age(attachment),
    ]
}

pub(super) fn driver(driver: &Value) -> Vec<Value> {
    let spec = &driver["spec"];
    let flag = |field: &str, unset: bool| Value::from(spec[field].as_bool().unwrap_or(unset));
    let requests = spec["tokenRequests"].as_array().into_iter().flatten();
    let audiences: Vec<&str> = requests.filter_map(|request| request["audience"].as_str()).collect();
    let modes = spec["volumeLifecycleModes"].as_array().into_iter().flatten();
    let modes: Vec<&str> = modes.filter_map(Value::as_str).collect();
    vec![
        name(driver),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        if audiences.is_empty() { "<unset>".into() } else { audiences.join(",").into() },
        flag("requiresRepublish", false),
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() },
        age(driver),
    ]
}

pub(super) fn csi_node(node: &Value) -> Vec<Value> {
    vec![name(node), node["spec"]["drivers"].as_array().map_or(0, Vec::len).into(), age(node)]
}

pub(super) fn capacity(capacity: &Value) -> Vec<Value> {
    vec![
        name(capacity),
        text(&capacity["storageClassName"]),
        or(&capacity["capacity"], "<unset>"),
        age(capacity),
    ]
}

pub(super) fn attributes_class(class: &Value) -> Vec<Value> {
    vec![name(class), text(&class["driverName"]), age(class)]
}

pub(super) fn config_map(map: &Value) -> Vec<Value> {
    vec![name(map), (count(&map["data"]) + count(&map["binaryData"])).into(), age(map)]
}

pub(super) fn secret(secret: &Value) -> Vec<Value> {
    vec![name(secret), text(&secret["type"]), count(&secret["data"]).into(), age(secret)]
}

pub(super) fn service_account(account: &Value) -> Vec<Value> {
    vec![name(account), account["secrets"].as_array().map_or(0, Vec::len).into(), age(account)]
}

pub(super) fn priority_class(class: &Value) -> Vec<Value> {
    let default = class["globalDefault"] == true;
    let policy = text(&class["preemptionPolicy"]);
    vec![name(class), class["value"].clone(), default.into(), age(class), policy]
}

fn count(entries: &Value) -> usize {
    entries.as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"])
}

pub(super) fn age(object: &Value) -> Value {
    since(object["metadata"]["creationTimestamp"].as_str())
}

pub(super) fn since(moment: Option<&str>) -> Value {
    moment.and_then(time::seconds_since).map_or("<unknown>".into(), |seconds| time::human(seconds).into())
}

fn text(value: &Value) -> Value {
    or(value, "")
}

fn or(value: &Value, unset: &str) -> Value {
    if value.is_null() { unset.into() } else { value.clone() }
}

/// The phase, or Terminating.
fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".into();
    }
    text(&object["status"]["phase"])
}

/// The class, from the annotation or the field.
fn class_name(object: &Value) -> Value {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    if annotation.is_null() { text(&object["spec"]["storageClassName"]) } else { annotation.clone() }
}

/// `RWO,ROX,RWX,RWOP`, in upstream's order.
fn access_modes(modes: &Value) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.as_array().into_iter().flatten().any(|given| given == mode);
    let given: Vec<&str> = short.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    given.join(",").into()
}
