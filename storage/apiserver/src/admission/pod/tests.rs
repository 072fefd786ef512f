//! What is refused of a pod, and where.

use serde_json::{Value, json};

use super::validate;
use crate::status::FieldError;

/// A pod with one container that mounts its one volume.
fn pod() -> Value {
    json!({
        "metadata": { "name": "p" },
        "spec": {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "containers": [container("c")],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        },
    })
}

fn container(name: &str) -> Value {
    json!({
        "name": name, "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
        "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
    })
}

/// The errors of a pod that has `value` at `pointer`, each as one text.
fn errors(pointer: &str, value: Value) -> Vec<String> {
    let mut pod = pod();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match pod.pointer_mut(parent).unwrap() {
        Value::Array(items) => items.push(value),
        parent => parent[field] = value,
    }
    validate(&pod).iter().map(ToString::to_string).collect()
}

#[test]
fn a_plain_pod_is_fine() {
    assert_eq!(validate(&pod()), []);
}

#[test]
fn volumes() {
    let volume = |source: Value| {
        let mut volume = json!({ "name": "w" });
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        volume
    };
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem" });
    let file = |path: &str| json!({ "key": "k", "path": path });
    let two = json!([
        { "secret": { "name": "s", "items": [file("a")] } },
        { "serviceAccountToken": { "path": "a", "expirationSeconds": 60 } },
    ]);
    let table = [
        (json!({ "name": "v", "emptyDir": {} }), "name: Duplicate value: \"v\""),
        (json!({ "name": "V", "emptyDir": {} }), "name: Invalid value: \"V\": a lowercase RFC 1123 label"),
        (volume(json!({})), "spec.volumes[1]: Required value: must specify a volume type"),
        (
            volume(json!({ "emptyDir": {}, "secret": { "secretName": "s" } })),
            "secret: Forbidden: may not specify more than 1 volume type",
        ),
        (volume(json!({ "emptyDir": { "sizeLimit": "-1" } })), "emptyDir.sizeLimit: Forbidden: SizeLimit"),
        (volume(json!({ "hostPath": { "path": "" } })), "hostPath.path: Required value"),
        (volume(json!({ "hostPath": { "path": "/a/../b" } })), "hostPath.path: Invalid value: \"/a/../b\""),
        (volume(json!({ "hostPath": { "path": "/a", "type": "x" } })), "hostPath.type: Unsupported value"),
        (volume(json!({ "secret": {} })), "secret.secretName: Required value"),
        (
            volume(json!({ "secret": { "secretName": "s", "defaultMode": 512 } })),
            "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777",
        ),
        (
            volume(json!({ "configMap": { "name": "m", "items": [file("/x")] } })),
            "configMap.items[0].path: Invalid value: \"/x\": must be a relative path",
        ),
        (
            volume(json!({ "downwardAPI": { "items": [{ "path": "x" }] } })),
            "downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
        ),
        (volume(json!({ "persistentVolumeClaim": {} })), "persistentVolumeClaim.claimName: Required value"),
        (volume(json!({ "csi": {} })), "csi.driver: Required value"),
        (volume(json!({ "ephemeral": {} })), "ephemeral.volumeClaimTemplate: Required value"),
        (
            volume(json!({ "ephemeral": { "volumeClaimTemplate": { "spec": claim } } })),
            "ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
        ),
    ];
    for (volume, expected) in table {
        let errors = errors("/spec/volumes/-", volume.clone());
        assert!(errors.len() == 1 && errors[0].contains(expected), "{volume}: {errors:?}");
    }
    let errors = errors("/spec/volumes/-", volume(json!({ "projected": { "sources": two } })));
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("sources[1].serviceAccountToken.expirationSeconds"), "{errors:?}");
    assert!(errors[1].ends_with("conflicting duplicate paths"), "{errors:?}");
}

#[test]
fn containers() {
    let mount = |more: Value| {
        let mut mount = json!({ "name": "v", "mountPath": "/w" });
        mount.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        mount
    };
    let mounts = "/spec/containers/0/volumeMounts/-";
    let devices = "/spec/containers/0/volumeDevices";
    let ports = "/spec/containers/0/ports";
    let resources = "/spec/containers/0/resources";
    let mut started = container("i");
    started["livenessProbe"] = json!({});
    let table = [
        ("/spec/containers", json!([]), "spec.containers: Required value"),
        ("/spec/containers/-", container("c"), "spec.containers[1].name: Duplicate value: \"c\""),
        (
            "/spec/initContainers",
            json!([container("c")]),
            "spec.initContainers[0].name: Duplicate value: \"c\"",
        ),
        ("/spec/initContainers", json!([started]), "initContainers[0].livenessProbe: Forbidden"),
        ("/spec/containers/0/image", json!(""), "image: Required value"),
        ("/spec/containers/0/imagePullPolicy", json!("x"), "imagePullPolicy: Unsupported value: \"x\""),
        ("/spec/containers/0/env", json!([{ "name": "" }]), "env[0].name: Required value"),
        (resources, json!({ "limits": { "cpu": "-1" } }), "resources.limits[cpu]: Invalid value: \"-1\""),
        (
            resources,
            json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } }),
            "resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi",
        ),
        (mounts, mount(json!({ "name": "nope" })), "volumeMounts[1].name: Not found: \"nope\""),
        (mounts, mount(json!({ "mountPath": "/v" })), "mountPath: Invalid value: \"/v\": must be unique"),
        (
            mounts,
            mount(json!({ "subPath": "/x" })),
            "subPath: Invalid value: \"/x\": must be a relative path",
        ),
        (
            mounts,
            mount(json!({ "subPath": "a/.." })),
            "subPath: Invalid value: \"a/..\": must not contain '..'",
        ),
        (mounts, mount(json!({ "subPath": "a", "subPathExpr": "b" })), "mutually exclusive"),
        (mounts, mount(json!({ "mountPropagation": "x" })), "mountPropagation: Unsupported value"),
        ("/spec/restartPolicy", json!("x"), "spec.restartPolicy: Unsupported value: \"x\""),
        (
            "/spec/dnsPolicy",
            json!("x"),
            "spec.dnsPolicy: Unsupported value: \"x\": supported values: \"ClusterFirst",
        ),
        ("/spec/nodeSelector", json!({ "bad key!": "v" }), "spec.nodeSelector: Invalid value: \"bad key!\""),
        (
            "/spec/tolerations",
            json!([{ "key": "k", "operator": "x" }]),
            "spec.tolerations[0].operator: Unsupported value: \"x\": supported values: \"Equal\", \"Exists\"",
        ),
        ("/spec/tolerations", json!([{ "value": "v" }]), "operator must be Exists when `key` is empty"),
        (
            "/spec/tolerations",
            json!([{ "key": "k", "tolerationSeconds": 1 }]),
            "tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute'",
        ),
        (ports, json!([{}]), "spec.containers[0].ports[0].containerPort: Required value"),
        (ports, json!([{ "containerPort": 70000 }]), "ports[0].containerPort: Invalid value: 70000: must be"),
        (ports, json!([{ "containerPort": 1, "hostPort": -1 }]), "ports[0].hostPort: Invalid value: -1"),
        (ports, json!([{ "containerPort": 1, "protocol": "x" }]), "protocol: Unsupported value: \"x\""),
        ("/spec/activeDeadlineSeconds", json!(0), "must be between 1 and 2147483647, inclusive"),
    ];
    for (pointer, value, expected) in table {
        let errors = errors(pointer, value);
        assert!(errors.len() == 1 && errors[0].contains(expected), "{expected}: {errors:?}");
    }
    let both = errors(devices, json!([{ "name": "v", "devicePath": "/v" }]));
    assert_eq!(both.len(), 5, "names and paths of both, and the kind of volume: {both:?}");
}

#[test]
fn a_volume_with_an_error_cannot_be_mounted() {
    let errors = errors("/spec/volumes", json!([{ "name": "v", "csi": {} }]));
    let expected = [
        "spec.volumes[0].csi.driver: Required value",
        "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn in_the_network_of_the_host_a_port_is_that_of_the_host() {
    let message = "hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true";
    let mut pod = pod();
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80, "hostPort": 81 }]);
    let texts = |errors: Vec<FieldError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(validate(&pod)), [format!("spec.containers[0].ports[0].{message}")]);
    pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80 }]);
    assert_eq!(validate(&pod).len(), 1);
}

#[test]
fn errors_of_containers_are_in_the_order_of_upstream() {
    let container = |name: &str, image: &str| json!({ "name": name, "image": image });
    let mut first = container("a", "b");
    first["volumeMounts"] = json!([{ "name": "none", "mountPath": "/x" }]);
    first["env"] = json!([{ "name": "" }]);
    first["resources"] = json!({ "limits": { "cpu": "-1" } });
    let mut pod = pod();
    pod["spec"]["containers"] = json!([first, container("a", ""), container("", "i"), container("", "i")]);
    pod["spec"]["initContainers"] = json!([container("a", "i")]);
    let errors: Vec<String> = validate(&pod)
        .iter()
        .map(ToString::to_string)
        .filter(|error| !error.contains("Policy"))
        .map(|error| error.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    let expected = [
        "spec.containers[0].env[0].name: Required value",
        "spec.containers[0].volumeMounts[0].name: Not found",
        "spec.containers[0].resources.limits[cpu]: Invalid value",
        "spec.containers[1].image: Required value",
        "spec.containers[1].name: Duplicate value",
        "spec.containers[2].name: Required value",
        "spec.containers[3].name: Required value",
        "spec.containers[3].name: Duplicate value",
        "spec.initContainers[0].name: Duplicate value",
    ];
    assert_eq!(errors, expected);
}
