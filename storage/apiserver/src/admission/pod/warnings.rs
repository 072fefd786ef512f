//! Warnings about a pod or a pod template: deprecated labels, annotations and volumes, and fields that contradict each
//! other.
//!
//! Mirrors pkg/api/pod/warnings.go, pkg/api/node/util.go and pkg/api/persistentvolumeclaim/util.go.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::requirements::UNIT;
use crate::admission::{items, text};
use crate::quantity::Quantity;

/// Labels of nodes that others have replaced.
const LABELS: [(&str, &str); 6] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Annotations of pods without effect.
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Sources of volumes without effect: the field, its name in the warning, and the warning.
const VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APPARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const SELECTS_NONE: &str = "a null labelSelector results in matching no pod";

/// The warning about a label of nodes.
pub fn of_label(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(label, _)| *label == key).map(|(_, warning)| *warning)
}

/// Warnings about the expressions of a selector of nodes at `path`.
pub fn of_expressions<'a>(path: &'a str, term: &'a Value) -> impl Iterator<Item = String> + 'a {
    items(&term["matchExpressions"]).enumerate().filter_map(move |(index, expression)| {
        let key = text(expression, "key");
        of_label(key).map(|warning| format!("{path}.matchExpressions[{index}].key: {key} is {warning}"))
    })
}

/// A source of volumes at `path` without effect.
pub fn of_source(path: &str, volume: &Value) -> Option<String> {
    let found = VOLUMES.iter().find(|(field, _, _)| !volume[*field].is_null());
    found.map(|(_, name, warning)| format!("{path}.{name}: {warning}"))
}

/// Warnings about the spec of a claim at `path`.
pub fn of_claim(path: &str, spec: &Value) -> Vec<String> {
    fractions(&format!("{path}.resources"), &spec["resources"], &["storage"], &["requests", "limits"])
}

/// Warnings about a pod (its path is empty), or the template of pods at `path`.
pub fn of_pod(path: &str, pod: &Value) -> Vec<String> {
    let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    let annotation = |key: &str, warning: &str| {
        let given = !annotations[key].is_null();
        given.then(|| format!("{}: {warning}", at(&format!("metadata.annotations[{key}]"))))
    };
    let unconfined = |container: &Value| {
        let profile = |context: &Value| !context["appArmorProfile"].is_null();
        let has_field = profile(&spec["securityContext"]) || profile(&container["securityContext"]);
        let key = format!("container.apparmor.security.beta.kubernetes.io/{}", text(container, "name"));
        annotation(&key, APPARMOR).filter(|_| !has_field)
    };
    let mut warnings = Vec::new();
    let at_template = !path.is_empty();
    // Of pods, upstream reports them before all others (`applyAppArmorVersionSkew`).
    if !at_template {
        warnings.extend(containers("", spec).filter_map(|(_, container)| unconfined(container)));
    }
    warnings.extend(placement(&at("spec"), spec));
    warnings.extend(ANNOTATIONS.iter().filter_map(|(key, warning)| annotation(key, warning)));
    for (index, volume) in items(&spec["volumes"]).enumerate() {
        let path = at(&format!("spec.volumes[{index}]"));
        warnings.extend(of_source(&path, volume));
        let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
        warnings.extend(of_claim(&format!("{path}.ephemeral.volumeClaimTemplate.spec"), claim));
    }
    warnings.extend(duplicates(&at("spec.hostAliases"), &spec["hostAliases"], "ip"));
    warnings.extend(duplicates(&at("spec.imagePullSecrets"), &spec["imagePullSecrets"], "name"));
    let nameless =
        items(&spec["imagePullSecrets"]).enumerate().filter(|(_, item)| text(item, "name").is_empty());
    warnings.extend(nameless.map(|(index, _)| {
        format!("{}: invalid empty name \"\"", at(&format!("spec.imagePullSecrets[{index}].name")))
    }));
    warnings.extend(fractions(&at("spec"), spec, &["memory", "ephemeral-storage"], &["overhead"]));
    if spec["securityContext"]["seccompProfile"].is_null() {
        warnings.extend(annotation("seccomp.security.alpha.kubernetes.io/pod", SECCOMP));
    }
    for (path, container) in containers(&at("spec"), spec) {
        if container["securityContext"]["seccompProfile"].is_null() {
            let name = text(container, "name");
            warnings.extend(annotation(
                &format!("container.seccomp.security.alpha.kubernetes.io/{name}"),
                SECCOMP,
            ));
        }
        if at_template {
            warnings.extend(unconfined(container));
        }
        let (kinds, fields) = (["memory", "ephemeral-storage"], ["limits", "requests"]);
        for kind in kinds {
            warnings.extend(fractions(
                &format!("{path}.resources"),
                &container["resources"],
                &[kind],
                &fields,
            ));
        }
        warnings.extend(hidden_variables(&path, container));
    }
    warnings.extend(ports(&at("spec"), spec));
    for kind in ["podAffinity", "podAntiAffinity"] {
        warnings.extend(affinity(&at(&format!("spec.affinity.{kind}")), &spec["affinity"][kind]));
    }
    warnings
}

/// The containers of a spec with their paths.
fn containers<'a>(path: &'a str, spec: &'a Value) -> impl Iterator<Item = (String, &'a Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let containers = items(&spec[list]).enumerate();
        containers.map(move |(index, container)| (format!("{path}.{list}[{index}]"), container))
    })
}

/// Deprecated labels of nodes, and spread constraints that count no pod.
fn placement(path: &str, spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut labels: Vec<&String> =
        spec["nodeSelector"].as_object().into_iter().flat_map(|map| map.keys()).collect();
    labels.sort();
    let deprecated = labels.into_iter().filter_map(|key| Some((key, of_label(key)?)));
    warnings.extend(deprecated.map(|(key, warning)| format!("{path}.nodeSelector[{key}]: {warning}")));
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let (affinity, at) = (&spec["affinity"]["nodeAffinity"], format!("{path}.affinity.nodeAffinity"));
    for (index, term) in items(&affinity[required]["nodeSelectorTerms"]).enumerate() {
        warnings.extend(of_expressions(&format!("{at}.{required}.nodeSelectorTerms[{index}]"), term));
    }
    for (index, term) in items(&affinity[preferred]).enumerate() {
        let path = format!("{at}.{preferred}[{index}].preference");
        warnings.extend(of_expressions(&path, &term["preference"]));
    }
    for (index, constraint) in items(&spec["topologySpreadConstraints"]).enumerate() {
        let (path, key) =
            (format!("{path}.topologySpreadConstraints[{index}]"), text(constraint, "topologyKey"));
        warnings.extend(of_label(key).map(|warning| format!("{path}.topologyKey: {key} is {warning}")));
        let selects_none = constraint["labelSelector"].is_null();
        warnings.extend(selects_none.then(|| format!("{path}.labelSelector: {SELECTS_NONE}")));
    }
    warnings
}

/// Terms that match no pod.
fn affinity(path: &str, affinity: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (list, below) in [
        ("requiredDuringSchedulingIgnoredDuringExecution", ""),
        ("preferredDuringSchedulingIgnoredDuringExecution", ".podAffinityTerm"),
    ] {
        for (index, term) in items(&affinity[list]).enumerate() {
            let inner = if below.is_empty() { term } else { &term["podAffinityTerm"] };
            if inner["labelSelector"].is_null() {
                warnings.push(format!("{path}.{list}[{index}]{below}.labelSelector: {SELECTS_NONE}"));
            }
        }
    }
    warnings
}

/// Items with the same value in a field.
fn duplicates(path: &str, list: &Value, field: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let repeated = items(list).enumerate().filter(|(_, item)| !seen.insert(text(item, field)));
    repeated
        .map(|(index, item)| format!("{path}[{index}].{field}: duplicate {field} {:?}", text(item, field)))
        .collect()
}

/// Amounts of bytes that are not whole.
fn fractions(path: &str, resources: &Value, kinds: &[&str], fields: &[&str]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (field, kind) in fields.iter().flat_map(|field| kinds.iter().map(move |kind| (field, kind))) {
        let amount = text(&resources[*field], kind);
        let is_whole = amount.parse::<Quantity>().is_ok_and(|amount| amount.nanos() % UNIT == 0);
        if !amount.is_empty() && !is_whole {
            warnings.push(format!(
                "{path}.{field}[{kind}]: fractional byte value {amount:?} is invalid, must be an integer"
            ));
        }
    }
    warnings
}

/// Variables that replace an earlier one without a reference to it.
fn hidden_variables(path: &str, container: &Value) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut warnings = Vec::new();
    for (index, variable) in items(&container["env"]).enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        let reference = format!("$({name})");
        let hides = !variable["valueFrom"].is_null() || value == reference || !value.contains(&reference);
        if !seen.insert(name) && hides {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    warnings
}

/// Ports that several containers have, and names of ports, of which the first is found.
fn ports(path: &str, spec: &Value) -> Vec<String> {
    // By number and protocol: paths, and addresses and ports of the host.
    type Known<'a> = Vec<(String, &'a str, i64)>;
    let mut warnings = Vec::new();
    let mut numbers: BTreeMap<(i64, &str), Known<'_>> = BTreeMap::new();
    let all = || {
        containers(path, spec).flat_map(|(path, container)| {
            let ports = items(&container["ports"]).enumerate();
            ports.map(move |(index, port)| (format!("{path}.ports[{index}]"), port))
        })
    };
    for (path, port) in all() {
        let host = (text(port, "hostIP"), port["hostPort"].as_i64().unwrap_or_default());
        let key = (port["containerPort"].as_i64().unwrap_or_default(), text(port, "protocol"));
        let others = numbers.entry(key).or_default();
        for (other, address, number) in &*others {
            let sort = if host == (*address, *number) {
                "duplicate"
            } else if host.1 == 0 || *number == 0 {
                "overlapping"
            } else if host.1 == *number && host.0.is_empty() != address.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{path}: {sort} port definition with {other}"));
        }
        others.push((path, host.0, host.1));
    }
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (path, port) in all() {
        let name = text(port, "name");
        match names.get(name) {
            _ if name.is_empty() => {}
            Some(first) => warnings.push(format!(
                "{path}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use \
                 {first}"
            )),
            None => drop(names.insert(name, path)),
        }
    }
    warnings
}
