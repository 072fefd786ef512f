//! The cells of the tables that kubectl shows: a field of the object, or a function that computes it.
//!
//! Mirrors pkg/printers/internalversion/printers.go.

pub(super) mod labels;
mod pod;
mod roles;
mod service;

use serde_json::{Value, json};

use crate::custom::DeclaredCell;
use crate::time;

/// How the cell of a column is read from an object. Paths are JSON pointers.
#[derive(Debug)]
pub enum Cell {
    /// A field, or this text if it is not set or empty.
    Path(&'static str, &'static str),
    /// A number, or 0 if it is not set.
    Number(&'static str),
    /// A boolean field, or this value if it is not set.
    Flag(&'static str, bool),
    /// How many entries these lists and maps have together.
    Count(Vec<&'static str>),
    /// Two numbers, such as those of ready and of expected pods.
    Ratio(&'static str, &'static str),
    /// This field of each item of a list, or the text if there is none.
    Join(&'static str, &'static str, &'static str),
    /// Labels.
    Labels(&'static str),
    /// A selector.
    Selector(&'static str),
    /// The time since a moment.
    Since(&'static str),
    /// Computed from the object.
    Computed(fn(&Value) -> Value),
    /// Read by the path of a column that a CustomResourceDefinition declares.
    Declared(&'static DeclaredCell),
}

/// The functions that the rows name.
fn computed(name: &str) -> Option<fn(&Value) -> Value> {
    Some(match name {
        "age" => |object| since(object["metadata"]["creationTimestamp"].as_str()),
        "node-status" => node_status,
        "node-roles" => node_roles,
        "internal-ip" => |node| node_address(node, "InternalIP"),
        "external-ip" => |node| node_address(node, "ExternalIP"),
        "kernel-version" => kernel_version,
        "ready-containers" => pod::ready_containers,
        "pod-status" => pod::pod_status,
        "restarts" => pod::restarts,
        "readiness-gates" => readiness_gates,
        "phase" => phase,
        "class-name" => class_name,
        "volume-access-modes" => |volume| access_modes(&volume["spec"]["accessModes"]),
        "claim-of-volume" => claim_of_volume,
        "claim-capacity" => claim_capacity,
        "claim-access-modes" => claim_access_modes,
        "last-seen" => last_seen,
        "first-seen" => |event| since(first_time(event)),
        "event-object" => event_object,
        "event-source" => event_source,
        "event-message" => |event| event["message"].as_str().unwrap_or_default().trim().into(),
        "event-count" => {
            |event| event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1).into()
        }
        "class-title" => class_title,
        "external-ip-of-service" => service::external_ip,
        "ports-of-service" => service::ports,
        "role" => roles::role,
        "users" => |binding| roles::subjects(binding, "User"),
        "groups" => |binding| roles::subjects(binding, "Group"),
        "service-accounts" => |binding| roles::subjects(binding, "ServiceAccount"),
        _ => return None,
    })
}

impl Cell {
    /// Reads the cell of a column in `columns.yaml` or `inert.yaml`; the former describes the format.
    pub(super) fn read(text: &'static str) -> Option<Self> {
        let words: Vec<&'static str> = text.split(' ').collect();
        Some(match words[..] {
            ["path", path] => Self::Path(path, ""),
            ["path", path, unset] => Self::Path(path, unset),
            ["number", path] => Self::Number(path),
            ["flag", path] => Self::Flag(path, false),
            ["flag", path, "true"] => Self::Flag(path, true),
            ["count", ref paths @ ..] => Self::Count(paths.to_vec()),
            ["ratio", one, all] => Self::Ratio(one, all),
            ["join", list, field] => Self::Join(list, field, ""),
            ["join", list, field, unset] => Self::Join(list, field, unset),
            ["labels", path] => Self::Labels(path),
            ["selector", path] => Self::Selector(path),
            ["since", path] => Self::Since(path),
            [name] => Self::Computed(computed(name)?),
            _ => return None,
        })
    }

    /// The cell of one object.
    pub fn of(&self, object: &Value) -> Value {
        match self {
            Self::Path(path, unset) => or(object.pointer(path).unwrap_or(&Value::Null), unset),
            Self::Number(path) => {
                object.pointer(path).filter(|number| number.is_number()).cloned().unwrap_or_else(|| 0.into())
            }
            Self::Flag(path, unset) => object.pointer(path).and_then(Value::as_bool).unwrap_or(*unset).into(),
            Self::Count(paths) => {
                let count: usize = paths.iter().filter_map(|path| object.pointer(path)).map(entries).sum();
                count.into()
            }
            Self::Ratio(one, all) => {
                let number = |path| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
                format!("{}/{}", number(one), number(all)).into()
            }
            Self::Join(list, field, unset) => {
                let items = object.pointer(list).and_then(Value::as_array).into_iter().flatten();
                let texts = items.map(|item| match if *field == "." { item } else { &item[field] } {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                });
                joined(&texts.collect::<Vec<_>>(), unset)
            }
            Self::Labels(path) => labels::format_labels(object.pointer(path).unwrap_or(&Value::Null)),
            Self::Selector(path) => labels::format_selector(object.pointer(path).unwrap_or(&Value::Null)),
            Self::Since(path) => match object.pointer(path).and_then(Value::as_str) {
                Some(moment) => since(Some(moment)),
                None => "<none>".into(),
            },
            Self::Computed(compute) => compute(object),
            Self::Declared(declared) => declared.of(object),
        }
    }
}

/// How many entries a list or map has.
fn entries(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn since(moment: Option<&str>) -> Value {
    moment.and_then(time::seconds_since).map_or("<unknown>".into(), |seconds| time::human(seconds).into())
}

fn or(value: &Value, unset: &str) -> Value {
    if value.is_null() || value == "" { unset.into() } else { value.clone() }
}

/// The elements of a list, none if it is not set.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `a,b`, or `unset` if there is none.
fn joined<T: AsRef<str>>(values: &[T], unset: &str) -> Value {
    let texts: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    if texts.is_empty() { unset.into() } else { texts.join(",").into() }
}

fn node_status(node: &Value) -> Value {
    let ready = list(&node["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    joined(&roles, "<none>")
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = list(&node["status"]["addresses"]).iter().find(|address| address["type"] == kind);
    address.map_or(json!("<none>"), |address| address["address"].clone())
}

/// With the architecture, if the node reports it.
fn kernel_version(node: &Value) -> Value {
    let info = &node["status"]["nodeInfo"];
    let kernel = or(&info["kernelVersion"], "<unknown>");
    match (kernel.as_str(), info["architecture"].as_str()) {
        (Some(kernel), Some(architecture)) if !architecture.is_empty() => {
            format!("{kernel} ({architecture})").into()
        }
        _ => kernel,
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let conditions = list(&pod["status"]["conditions"]);
    let open = |gate: &&Value| {
        let condition = &gate["conditionType"];
        conditions.iter().any(|c| c["type"] == *condition && c["status"] == "True")
    };
    format!("{}/{}", gates.iter().filter(open).count(), gates.len()).into()
}

/// The phase of a volume or claim, or Terminating.
fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".into();
    }
    or(&object["status"]["phase"], "")
}

/// The class of a volume or claim, from the annotation or the field.
fn class_name(object: &Value) -> Value {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    if annotation.is_null() { or(&object["spec"]["storageClassName"], "") } else { annotation.clone() }
}

fn claim_of_volume(volume: &Value) -> Value {
    match &volume["spec"]["claimRef"] {
        Value::Object(claim) => {
            let part = |field: &str| claim.get(field).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name")).into()
        }
        _ => "".into(),
    }
}

fn claim_capacity(claim: &Value) -> Value {
    if has_volume(claim) { or(&claim["status"]["capacity"]["storage"], "0") } else { "".into() }
}

fn claim_access_modes(claim: &Value) -> Value {
    if has_volume(claim) { access_modes(&claim["status"]["accessModes"]) } else { "".into() }
}

/// What the claim got is of interest once it has a volume.
fn has_volume(claim: &Value) -> bool {
    claim["spec"]["volumeName"].as_str().is_some_and(|volume| !volume.is_empty())
}

/// `RWO,ROX,RWX,RWOP`, in upstream's order.
fn access_modes(modes: &Value) -> Value {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| list(modes).iter().any(|given| given == mode);
    let given: Vec<&str> = short.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    joined(&given, "")
}

fn last_seen(event: &Value) -> Value {
    let last =
        [&event["series"]["lastObservedTime"], &event["lastTimestamp"]].into_iter().find_map(Value::as_str);
    since(last.or(first_time(event)))
}

fn first_time(event: &Value) -> Option<&str> {
    [&event["firstTimestamp"], &event["eventTime"]].into_iter().find_map(Value::as_str)
}

fn event_object(event: &Value) -> Value {
    let object = &event["involvedObject"];
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    match object["name"].as_str() {
        Some(name) if !name.is_empty() => format!("{kind}/{name}").into(),
        _ => kind.into(),
    }
}

fn event_source(event: &Value) -> Value {
    let source = &event["source"];
    let first = |values: [&Value; 2]| {
        let mut texts = values.into_iter().filter_map(Value::as_str);
        texts.find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let component = first([&source["component"], &event["reportingComponent"]]);
    match first([&source["host"], &event["reportingInstance"]]) {
        host if host.is_empty() => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

/// The name of a StorageClass, marked if it is the default.
fn class_title(class: &Value) -> Value {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    if crate::admission::claim::is_default(class) { format!("{name} (default)").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_as_unset() {
        let node = json!({ "status": { "nodeInfo": { "osImage": "", "kernelVersion": "6.1", "architecture": "" } } });
        let os = Cell::read("path /status/nodeInfo/osImage <unknown>").unwrap();
        assert_eq!(os.of(&node), "<unknown>");
        assert_eq!(kernel_version(&node), "6.1");
        let node = json!({ "status": { "nodeInfo": { "kernelVersion": "6.1", "architecture": "amd64" } } });
        assert_eq!(kernel_version(&node), "6.1 (amd64)");
        let event = json!({
            "involvedObject": { "kind": "Pod" }, "source": { "component": "" },
            "reportingComponent": "c", "reportingInstance": "i",
        });
        assert_eq!(event_object(&event), "pod");
        assert_eq!(event_source(&event), "c, i");
    }

    #[test]
    fn a_cell_is_read_from_the_object() {
        let object = json!({
            "name": "a", "none": null, "yes": true, "list": [1, 2], "map": { "k": "v" },
            "items": [{ "name": "a" }, { "name": 2 }], "selector": { "matchLabels": { "k": "v" } },
        });
        for (text, expected) in [
            ("path /name -", json!("a")),
            ("path /none -", json!("-")),
            ("path /absent/below -", json!("-")),
            ("path /absent", json!("")),
            ("number /list/1", json!(2)),
            ("number /none", json!(0)),
            ("flag /yes", json!(true)),
            ("flag /absent true", json!(true)),
            ("flag /none", json!(false)),
            ("count /list /map /absent", json!(3)),
            ("ratio /list/0 /absent", json!("1/0")),
            ("join /items name", json!("a,2")),
            ("join /list .", json!("1,2")),
            ("join /absent name", json!("")),
            ("join /absent name <none>", json!("<none>")),
            ("labels /map", json!("k=v")),
            ("selector /selector", json!("k=v")),
            ("since /absent", json!("<none>")),
            ("phase", json!("")),
        ] {
            let cell = Cell::read(text).unwrap();
            assert_eq!(cell.of(&object), expected, "{cell:?}");
        }
    }
}
