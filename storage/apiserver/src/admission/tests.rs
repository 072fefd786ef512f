//! Rejected objects of the storage kinds, and the paths of the errors. Pods have a table of their own.

use serde_json::{Value, json};

use super::{attachment, claim, class, driver, volume};
use crate::status::FieldError;

/// A rule, and an object that it finds nothing wrong with.
struct Rule {
    validate: fn(&Value) -> Vec<FieldError>,
    fine: Value,
}

impl Rule {
    fn new(validate: fn(&Value) -> Vec<FieldError>, fine: Value) -> Self {
        assert_eq!(validate(&fine), []);
        Self { validate, fine }
    }

    /// Expects one error when `value` is at `pointer`.
    fn refuses(&self, pointer: &str, value: Value, expected: &str) {
        let mut object = self.fine.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let errors: Vec<String> = (self.validate)(&object).iter().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
    }
}

fn claim() -> Value {
    json!({ "spec": {
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "resources": { "requests": { "storage": "1Gi" } },
    } })
}

fn volume() -> Value {
    json!({ "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": "d", "volumeHandle": "h" },
    } })
}

#[test]
fn claims() {
    let rule = Rule::new(claim::validate, claim());
    let mode = "spec.accessModes: Unsupported value: \"x\"";
    rule.refuses("/spec/accessModes", json!([]), "spec.accessModes: Required value: at least 1");
    rule.refuses("/spec/accessModes", json!(["x"]), mode);
    let requests = "/spec/resources/requests";
    rule.refuses(requests, json!({}), "spec.resources[storage]: Required value");
    let negative = "spec.resources[storage]: Invalid value: \"-1\": must be greater than zero";
    rule.refuses(requests, json!({ "storage": "-1" }), negative);
    rule.refuses("/spec/volumeMode", json!("x"), "spec.volumeMode: Unsupported value: \"x\"");
    let class = "spec.storageClassName: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain";
    rule.refuses("/spec/storageClassName", json!("A_b"), class);
    let other = json!({ "kind": "Other", "name": "n" });
    let foreign = "spec.dataSource: Invalid value: \"Other\": must be 'PersistentVolumeClaim'";
    rule.refuses("/spec/dataSource", other, foreign);
    let nameless = json!({ "kind": "PersistentVolumeClaim" });
    rule.refuses("/spec/dataSourceRef", nameless, "spec.dataSourceRef.name: Required value");
}

#[test]
fn volumes() {
    let rule = Rule::new(volume::validate, volume());
    let none = volume::validate(
        &json!({ "spec": { "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/p" } } }),
    );
    let none: Vec<String> = none.iter().map(ToString::to_string).collect();
    assert!(none[0].starts_with("spec.capacity: Required value"), "{none:?}");
    assert!(none[1].starts_with("spec.capacity: Unsupported value: null: supported values"), "{none:?}");
    let two = json!({ "storage": "1", "other": "1" });
    rule.refuses("/spec/capacity", two, "spec.capacity: Unsupported value");
    rule.refuses("/spec/csi", Value::Null, "spec: Required value: must specify a volume type");
    let second = "spec.csi: Forbidden: may not specify more than 1 volume type";
    rule.refuses("/spec/hostPath", json!({ "path": "/x" }), second);
    let affinity = "spec.nodeAffinity.required: Required value: must specify required node constraints";
    rule.refuses("/spec/nodeAffinity", json!({}), affinity);
    let policy = "spec.persistentVolumeReclaimPolicy";
    rule.refuses("/spec/persistentVolumeReclaimPolicy", json!("x"), policy);
    rule.refuses("/spec/volumeMode", json!("x"), "spec.volumeMode: Unsupported value");
    for (operator, values, expected) in [
        ("Nope", json!([]), "operator: Invalid value: \"Nope\": not a valid selector operator"),
        ("In", json!([]), "values: Required value: must be specified when"),
        ("Gt", json!(["1", "2"]), "values: Required value: must be specified single value"),
        ("Exists", json!(["a"]), "values: Forbidden: may not be specified when"),
    ] {
        let expression = json!({ "key": "k", "operator": operator, "values": values });
        let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] } });
        let path = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0]";
        rule.refuses("/spec/nodeAffinity", affinity, &format!("{path}.{expected}"));
    }
    let with_source = |source: &str, value: Value| {
        let mut volume = volume();
        volume["spec"]["csi"] = Value::Null;
        volume["spec"][source] = value;
        volume::validate(&volume).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let errors = with_source("hostPath", json!({ "path": "/p", "type": "Nope" }));
    assert!(errors[0].starts_with("spec.hostPath.type: Unsupported value: \"Nope\""), "{errors:?}");
    let errors = with_source("nfs", json!({ "server": "s", "path": "p" }));
    assert_eq!(errors, ["spec.nfs.path: Invalid value: \"p\": must be an absolute path"]);
    let mut local = volume();
    local["spec"]["local"] = json!({ "path": "/a/../b" });
    local["spec"]["csi"] = Value::Null;
    let errors: Vec<String> = volume::validate(&local).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.local.path: Invalid value: \"/a/../b\": must not contain '..'",
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ]
    );
}

#[test]
fn classes() {
    let storage = json!({ "provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate" });
    let storage = Rule::new(class::validate, storage);
    storage.refuses("/provisioner", json!(""), "provisioner: Required value");
    storage.refuses("/reclaimPolicy", json!("Recycle"), "reclaimPolicy: Unsupported value");
    storage.refuses("/parameters", json!({ "": "x" }), "parameters: Invalid value: \"\"");
    storage.refuses(
        "/provisioner",
        json!("bad name!"),
        "provisioner: Invalid value: \"bad name!\": name part",
    );
    let term = |expressions: Value| json!([{ "matchLabelExpressions": expressions }]);
    let at = "allowedTopologies[0].matchLabelExpressions";
    for (expressions, expected) in [
        (json!([]), format!("{at}: Duplicate value: \"\"")),
        (json!([{ "key": "k", "values": [] }]), format!("{at}[0].values: Required value")),
        (json!([{ "key": "k", "values": ["a", "a"] }]), format!("{at}[0].values[1]: Duplicate value: \"a\"")),
        (
            json!([{ "key": "k", "values": ["a"] }, { "key": "k", "values": ["b"] }]),
            format!("{at}[1].key: Duplicate value: \"k\""),
        ),
    ] {
        storage.refuses("/allowedTopologies", term(expressions), &expected);
    }
    let lease = Rule::new(
        class::validate_lease,
        json!({ "spec": { "leaseDurationSeconds": 1, "leaseTransitions": 0 } }),
    );
    let duration = "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0";
    lease.refuses("/spec/leaseDurationSeconds", json!(0), duration);
    lease.refuses(
        "/spec/leaseTransitions",
        json!(-1),
        "spec.leaseTransitions: Invalid value: -1: must be greater",
    );
    let attributes = json!({ "driverName": "d", "parameters": { "a": "b" } });
    let attributes = Rule::new(class::validate_attributes, attributes);
    attributes.refuses("/driverName", json!(""), "driverName: Required value");
    attributes.refuses(
        "/driverName",
        json!("bad name!"),
        "driverName: Invalid value: \"bad name!\": name part",
    );
    attributes.refuses("/parameters", json!({}), "parameters: Required value: must contain");
    let priority = json!({ "metadata": { "name": "p" }, "value": 1, "preemptionPolicy": "Never" });
    let priority = Rule::new(class::validate_priority, priority);
    priority.refuses("/value", json!(2_000_000_000), "value: Forbidden: maximum allowed value");
    let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                    only. error: ";
    for (name, why) in [
        ("system-x", "system-x is not a known system priority class"),
        ("system-node-critical", "value of system-node-critical PriorityClass must be 2000001000"),
    ] {
        priority.refuses("/metadata/name", json!(name), &format!("{reserved}{why}"));
    }
    priority.refuses("/preemptionPolicy", json!("x"), "preemptionPolicy: Unsupported value");
}

#[test]
fn drivers() {
    let driver = json!({
        "metadata": { "name": "d.example.com" },
        "spec": { "volumeLifecycleModes": ["Persistent"], "fsGroupPolicy": "File" },
    });
    let rule = Rule::new(driver::validate, driver);
    let long = json!("x".repeat(64));
    rule.refuses("/metadata/name", long, "metadata.name: Too long: may not be more than 63 bytes");
    let mode = "spec.volumeLifecycleModes: Unsupported value: \"x\"";
    rule.refuses("/spec/volumeLifecycleModes", json!(["x"]), mode);
    rule.refuses("/spec/fsGroupPolicy", json!("x"), "spec.fsGroupPolicy: Unsupported");
    let twice = json!([{ "audience": "a" }, { "audience": "a" }]);
    let audience = "spec.tokenRequests[1].audience: Duplicate value: \"a\"";
    rule.refuses("/spec/tokenRequests", twice, audience);
    let short = json!([{ "audience": "a", "expirationSeconds": 1 }]);
    let life = "spec.tokenRequests[0].expirationSeconds: Invalid value: 1";
    rule.refuses("/spec/tokenRequests", short, life);
    let long = json!([{ "audience": "a", "expirationSeconds": (1i64 << 32) + 1 }]);
    let life = "spec.tokenRequests[0].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger";
    rule.refuses("/spec/tokenRequests", long, life);
    let period =
        "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10";
    rule.refuses("/spec/nodeAllocatableUpdatePeriodSeconds", json!(9), period);
    for in_secrets in [true, false] {
        let lonely = format!(
            "spec.serviceAccountTokenInSecrets: Invalid value: {in_secrets}: serviceAccountTokenInSecrets is set but \
             no tokenRequests are specified"
        );
        rule.refuses("/spec/serviceAccountTokenInSecrets", json!(in_secrets), &lonely);
    }
    let tokens = json!({ "tokenRequests": [{ "audience": "" }], "serviceAccountTokenInSecrets": true });
    let mut secretive = rule.fine.clone();
    secretive["spec"].as_object_mut().unwrap().extend(tokens.as_object().unwrap().clone());
    assert_eq!(driver::validate(&secretive), []);
}

#[test]
fn nodes_capacities_and_attachments() {
    let driver = |id: &str| json!({ "name": "d", "nodeID": id });
    let node = Rule::new(driver::validate_node, json!({ "spec": { "drivers": [driver("n")] } }));
    let twice = "spec.drivers[1].name: Duplicate value: \"d\"";
    node.refuses("/spec/drivers", json!([driver("n"), driver("m")]), twice);
    node.refuses("/spec/drivers", json!([driver("")]), "spec.drivers[0].nodeID: Required value");
    let mut negative = driver("n");
    negative["allocatable"] = json!({ "count": -1 });
    let count = "spec.drivers[0].allocatable.count: Invalid value: -1";
    node.refuses("/spec/drivers", json!([negative]), count);

    let registered = |id: &str, count: u32| json!({ "spec": { "drivers": [{ "name": "d", "nodeID": id, "allocatable": { "count": count } }] } });
    assert_eq!(driver::validate_node_update(&registered("n", 1), &registered("n", 2)), []);
    let errors = driver::validate_node_update(&registered("n", 1), &registered("m", 1));
    assert!(
        errors[0].to_string().starts_with("spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"m\"")
    );

    let capacity = json!({ "storageClassName": "c", "capacity": "1Gi" });
    let capacity = Rule::new(driver::validate_capacity, capacity);
    capacity.refuses("/storageClassName", json!(""), "storageClassName: Invalid value: \"\"");
    capacity.refuses("/capacity", json!("-1"), "capacity: Invalid value: \"-1\"");

    let attachment = json!({
        "spec": { "attacher": "d", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
    });
    let attachment = Rule::new(attachment::validate, attachment);
    attachment.refuses("/spec/attacher", json!(""), "spec.attacher: Required value");
    attachment.refuses("/spec/nodeName", json!(""), "spec.nodeName: Invalid value: \"\"");
    let source = "spec.source: Required value: must specify exactly one of";
    attachment.refuses("/spec/source", json!({}), source);
}

#[test]
fn what_may_not_change() {
    let change = |validate: fn(&Value, &Value) -> Vec<FieldError>, old: Value, new: Value| {
        validate(&old, &new).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let driver = |attach: bool, info: bool, mode: &str| json!({ "spec": { "attachRequired": attach, "podInfoOnMount": info, "volumeLifecycleModes": [mode] } });
    let (before, after) = (driver(true, false, "Persistent"), driver(false, true, "Ephemeral"));
    assert_eq!(
        change(driver::validate_update, before, after),
        [
            "spec.attachedRequired: Invalid value: false: field is immutable",
            "spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable",
        ]
    );
    let capacity = |class: &str, size: &str| json!({ "storageClassName": class, "capacity": size });
    assert_eq!(
        change(driver::validate_capacity_update, capacity("a", "1"), capacity("b", "2")),
        ["storageClassName: Invalid value: \"b\": field is immutable"]
    );
    let priority = |value: i64| json!({ "value": value });
    assert_eq!(
        change(class::validate_priority_update, priority(1), priority(2)),
        ["value: Forbidden: may not be changed in an update."]
    );
    let mut block = volume();
    block["spec"]["volumeMode"] = "Block".into();
    assert_eq!(
        change(volume::validate_update, volume(), block),
        ["volumeMode: Invalid value: \"Block\": field is immutable"]
    );
    let mut larger = claim();
    larger["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
    let unbound = change(claim::validate_update, claim(), larger);
    assert!(
        unbound.len() == 1 && unbound[0].starts_with("spec: Forbidden: spec is immutable"),
        "{unbound:?}"
    );
    let with = |class: Value, current: Value| {
        let mut bound = claim();
        if !class.is_null() {
            bound["spec"]["volumeAttributesClassName"] = class;
        }
        bound["status"] = json!({ "phase": "Bound", "currentVolumeAttributesClassName": current });
        bound
    };
    let update = |to: Value, current: Value| {
        change(claim::validate_update, with(json!("a"), current.clone()), with(to, current))
    };
    for to in [json!("b"), json!(""), Value::Null] {
        assert!(update(to, Value::Null).is_empty(), "no class was applied");
    }
    assert!(update(json!("b"), json!("a")).is_empty());
    for (to, what) in [(json!(""), "empty string"), (Value::Null, "nil")] {
        let expected = format!(
            "spec.volumeAttributesClassName: Forbidden: update to {what} is forbidden when \
             status.currentVolumeAttributesClassName is not nil"
        );
        assert_eq!(update(to, json!("a")), [expected]);
    }
}
