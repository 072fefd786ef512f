//! Byte vectors of Go and by hand, and random objects.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};

use super::*;
use crate::encoding::base64;
use crate::resources;
use crate::schema::{Other, Scalar};

/// Every built-in kind, with the first bytes of the SHA-256 of what Go encodes: the files
/// `testdata/HEAD/<group>.<version>.<kind>.pb` of kubernetes/api and apiextensions-apiserver in 1.37. `TokenRequest` is of `testdata/v1.36.0`,
/// without the map of lists that is new in 1.37.
const KINDS: [(&str, &str, &str); 57] = [
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "2748aaee4584a21c"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "c0a9a5839d89b7e3"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "5779191cd5f99a26"),
    ("apps/v1", "ControllerRevision", "e257fffa44c10c5e"),
    ("apps/v1", "DaemonSet", "b8c895ab829c36b2"),
    ("apps/v1", "Deployment", "48f38633ca8b4b40"),
    ("apps/v1", "ReplicaSet", "2bf481d06c8e0b5c"),
    ("apps/v1", "StatefulSet", "318bc54d0984d123"),
    ("authentication.k8s.io/v1", "SelfSubjectReview", "7230e42f34197f1d"),
    ("authentication.k8s.io/v1", "TokenRequest", "412b115e0ce7ca63"),
    ("authentication.k8s.io/v1", "TokenReview", "d9af1a59683d3e6d"),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "39dbbafbd08eae4c"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "d15e424494360e5f"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", "c59ea06fc23558c6"),
    ("authorization.k8s.io/v1", "SubjectAccessReview", "67698e2eee1772bf"),
    ("autoscaling/v1", "Scale", "119e2b1d1d38d097"),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "9d59923454c5aa27"),
    ("batch/v1", "CronJob", "9cea972ca4e226a9"),
    ("batch/v1", "Job", "48c51f78fe5eda70"),
    ("coordination.k8s.io/v1", "Lease", "388c7d21f5a5109e"),
    ("discovery.k8s.io/v1", "EndpointSlice", "9fa727d8bf11fbb6"),
    ("events.k8s.io/v1", "Event", "cd78bb3ba8038280"),
    ("networking.k8s.io/v1", "Ingress", "3960d66e3dec2dfc"),
    ("networking.k8s.io/v1", "IngressClass", "b50ff7b6db809be5"),
    ("networking.k8s.io/v1", "NetworkPolicy", "6352274e1204160b"),
    ("node.k8s.io/v1", "RuntimeClass", "80aeaf064d885866"),
    ("policy/v1", "Eviction", "1306160c4ae5218a"),
    ("policy/v1", "PodDisruptionBudget", "42b36f3cb40cfb65"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "f7ec86bc2b035b9f"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "dd8317ed5f2348bb"),
    ("rbac.authorization.k8s.io/v1", "Role", "331f4d52659a8040"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "810e15f22901a84f"),
    ("scheduling.k8s.io/v1", "PriorityClass", "c90779f503374e15"),
    ("storage.k8s.io/v1", "CSIDriver", "5809240929c6b809"),
    ("storage.k8s.io/v1", "CSINode", "4a99325d36629275"),
    ("storage.k8s.io/v1", "CSIStorageCapacity", "1100c11e3a17bb05"),
    ("storage.k8s.io/v1", "StorageClass", "94d3eb0fceceb338"),
    ("storage.k8s.io/v1", "VolumeAttachment", "fac6d6723b83aeb6"),
    ("storage.k8s.io/v1", "VolumeAttributesClass", "919fdab78d074944"),
    ("v1", "Binding", "8809114edf57ed65"),
    ("v1", "ConfigMap", "8f1b931b2e425f5c"),
    ("v1", "DeleteOptions", "f6916d7a6fdd6a53"),
    ("v1", "Endpoints", "443ac034d9793c1e"),
    ("v1", "Event", "5ffea2b263c57ea5"),
    ("v1", "LimitRange", "b95241b143d085a1"),
    ("v1", "Namespace", "d1fabb49631b85c0"),
    ("v1", "Node", "cbd1274150b90981"),
    ("v1", "PersistentVolume", "169f1b5638c3fdfb"),
    ("v1", "PersistentVolumeClaim", "a2130d8481daac3d"),
    ("v1", "Pod", "747978b9b62fff7f"),
    ("v1", "PodTemplate", "5f5c937c05ccabc1"),
    ("v1", "ReplicationController", "d071c96e7fc6552c"),
    ("v1", "ResourceQuota", "70965be9949257d8"),
    ("v1", "Secret", "bdcb33a8e0c20b90"),
    ("v1", "Service", "e608d81bb3627a32"),
    ("v1", "ServiceAccount", "49ab731646acfb0f"),
    ("v1", "Status", "173b498f7220a1a6"),
];

fn with_kind(version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    object
}

/// A schema within another one as Go fills it: with zeros, which it writes if they are no pointers.
fn empty_schema(object: &Object) -> Value {
    let zeros =
        object.fields.values().filter(|field| field.number.is_some_and(|number| number.zero_is_unset));
    let zeros = zeros.filter_map(|field| match field.shape {
        Shape::Scalar(Scalar::Bool) => Some((field.name.to_owned(), false.into())),
        Shape::Scalar(Scalar::Text) => Some((field.name.to_owned(), "".into())),
        _ => None,
    });
    Value::Object(zeros.collect())
}

/// The object as it is read again: without zeros that mean that a field is not set.
fn without_zeros(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| **value != false && **value != "");
            Value::Object(set.map(|(name, value)| (name.clone(), without_zeros(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_zeros).collect(),
        other => other.clone(),
    }
}

/// The object with every field set, as `CompatibilityTestObject` of apimachinery sets them
/// (pkg/api/apitesting/roundtrip/construct.go).
fn filled(object: &Object) -> Value {
    // Go leaves out a pointer to the type that contains it, which `not` is.
    let fields = object.fields.values().filter(|field| field.name != "not").filter_map(|field| {
        let number = field.number?;
        Some((field.name.to_owned(), fill(field.name, number.inner.unwrap_or(number.outer), &field.shape)))
    });
    Value::Object(fields.collect())
}

fn fill(name: &str, number: u64, shape: &Shape) -> Value {
    match shape {
        Shape::List { item, .. } => json!([fill(name, number, item)]),
        // Upstream fills no times in maps.
        Shape::Map { value, .. } if **value == Shape::Scalar(Scalar::Time) => {
            json!({ format!("{name}Key"): null })
        }
        Shape::Map { value, .. } => json!({ format!("{name}Key"): fill(name, number, value) }),
        Shape::Object { .. } | Shape::Declared(_) => {
            let object = shape.object().unwrap();
            match object.name == "JSONSchemaProps" && name != "openAPIV3Schema" {
                true => empty_schema(object),
                false => filled(object),
            }
        }
        Shape::Any if name == "fieldsV1" => json!({}),
        // A RawExtension.
        Shape::Any if name == "data" => json!({
            "apiVersion": "example.com/v1", "kind": "CustomType", "spec": { "replicas": 1 },
            "status": { "available": 1 },
        }),
        Shape::Any => format!("{name}Value").into(),
        Shape::Either(_, Other::Bool) => true.into(),
        Shape::Either(object, Other::Objects) => json!([fill(name, number, object)]),
        Shape::Either(_, Other::Texts) => json!(["<no json tag> PropertyValue"]),
        Shape::Deduced => json!({}),
        Shape::Scalar(scalar) => match scalar {
            Scalar::Text | Scalar::IntOrText => format!("{name}Value").into(),
            Scalar::Bytes => base64(&[number as u8]).into(),
            Scalar::Bool => true.into(),
            Scalar::Int32 | Scalar::Int64 => number.into(),
            Scalar::Double => (number as f64 + 0.5).into(),
            Scalar::Quantity => "0".into(),
            Scalar::Time => format!("{}-01-01T01:01:01Z", 2000 + number).into(),
            Scalar::MicroTime => format!("{}-01-01T01:01:01.{number:06}Z", 2000 + number).into(),
        },
    }
}

#[test]
fn every_kind_has_the_bytes_of_go() {
    for (version, kind, expected) in KINDS {
        let object = object_of(group_of(version), kind).unwrap();
        let object = with_kind(version, kind, filled(object));
        let body = encode(&object);
        let digest: String = Sha256::digest(&body)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, expected, "{kind} in {version}");
        assert_eq!(decode(&body).unwrap(), without_zeros(&object));
    }
}

#[test]
fn every_built_in_kind_has_protobuf() {
    for row in resources::all() {
        assert!(row.has_protobuf(), "{}", row.qualified_kind());
        let version = row.api_version();
        let has_digest = KINDS.iter().any(|(v, kind, _)| *v == version && *kind == row.kind);
        assert!(has_digest, "{}", row.qualified_kind());
    }
    let snapshot = body("VolumeSnapshot", "snapshot.storage.k8s.io/v1", b"");
    assert!(decode(&snapshot).unwrap_err().to_string().contains("send JSON"));
}

const TEXTS: [&str; 4] = ["", "a", "0", "ümlaut 🦀"];

/// An object as Go's JSON encoder writes it: no list or map is empty, and nothing is zero that Go omits.
fn random(object: &Object, depth: u8, chance: &mut fastrand::Rng) -> Value {
    let mut values = Map::new();
    // Schemas contain schemas: there are fewer, the deeper they are.
    let rarity = if object.name == "JSONSchemaProps" { depth } else { 4 };
    for field in object.fields.values() {
        let Some(number) = field.number.filter(|_| chance.u8(..rarity) == 0) else { continue };
        let value = random_value(&field.shape, depth + 2, chance);
        if !(number.zero_is_unset && [json!(""), json!(0), json!(false)].contains(&value)) {
            values.insert(field.name.to_owned(), value);
        }
    }
    Value::Object(values)
}

fn random_value(shape: &Shape, depth: u8, chance: &mut fastrand::Rng) -> Value {
    let text = TEXTS[chance.usize(..TEXTS.len())];
    let number = if chance.bool() { 0 } else { chance.i32(..) };
    match shape {
        Shape::List { item, .. } => {
            Value::Array((0..chance.usize(1..3)).map(|_| random_value(item, depth, chance)).collect())
        }
        Shape::Map { value, .. } => {
            json!({ text: random_value(value, depth, chance), "k": random_value(value, depth, chance) })
        }
        Shape::Object { .. } | Shape::Declared(_) => random(shape.object().unwrap(), depth, chance),
        Shape::Either(object, other) => match (other, chance.bool()) {
            (Other::Bool, false) => chance.bool().into(),
            (Other::Objects, false) => json!([random_value(object, depth, chance)]),
            (Other::Texts, false) => json!([text]),
            (_, true) => random_value(object, depth, chance),
        },
        Shape::Any | Shape::Deduced => json!({ text: [number] }),
        Shape::Scalar(scalar) => match scalar {
            Scalar::Text => text.into(),
            Scalar::Bytes => base64(text.as_bytes()).into(),
            Scalar::Bool => chance.bool().into(),
            Scalar::Int32 => number.into(),
            Scalar::Int64 => (i64::from(number) << chance.u8(..32)).into(),
            Scalar::Double => chance.f64().into(),
            Scalar::Quantity => ["0", "64Mi", "1500m", "-1"][chance.usize(..4)].into(),
            Scalar::IntOrText => [json!(number), json!(text)][usize::from(chance.bool())].clone(),
            Scalar::Time => format!("{}Z", second(number)).into(),
            Scalar::MicroTime => format!("{}.{:06}Z", second(number), chance.u32(..1_000_000)).into(),
        },
    }
}

fn second(number: i32) -> String {
    Timestamp::from_second(number.into()).unwrap().strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

proptest! {
    #[test]
    fn protobuf_loses_nothing(index in 0..KINDS.len(), seed in any::<u64>()) {
        let (version, kind, _) = KINDS[index];
        let object = object_of(group_of(version), kind).unwrap();
        let object = with_kind(version, kind, random(object, 4, &mut fastrand::Rng::with_seed(seed)));
        prop_assert_eq!(decode(&encode(&object)).unwrap(), object);
    }

    #[test]
    fn no_body_panics(index in 0..KINDS.len(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let (version, kind, _) = KINDS[index];
        // An error, or whatever is in it.
        let _ = decode(&body(kind, version, &bytes));
    }
}

/// A field of bytes: its tag, its length, itself.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn body(kind: &str, version: &str, object: &[u8]) -> Vec<u8> {
    let meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, object), field(3, b""), field(4, b"")].concat()
}

#[test]
fn unset_fields_of_go_are_not_set_in_json() {
    // The source of a volume is a message at 2, in which `csi` has the number 22.
    let csi = [field(1, b"d"), field(2, b"h"), vec![3 << 3, 0], field(4, b"")].concat();
    let csi = [&[0xb2, 0x01, u8::try_from(csi.len()).unwrap()][..], &csi[..]].concat();
    let metadata = [field(1, b"v"), field(2, b""), vec![7 << 3, 0], field(8, b"")].concat();
    let capacity = [field(1, b"storage"), field(2, &field(1, b"1Gi"))].concat();
    let spec =
        [field(1, &capacity), field(2, &csi), field(3, b"ReadWriteOnce"), field(5, b""), field(6, b"")];
    let volume = [field(1, &metadata), field(2, &spec.concat()), field(3, &field(1, b""))].concat();
    let expected = json!({
        "kind": "PersistentVolume", "apiVersion": "v1", "metadata": { "name": "v" }, "status": {},
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "d", "volumeHandle": "h" },
        },
    });
    assert_eq!(decode(&body("PersistentVolume", "v1", &volume)).unwrap(), expected);
    // This server omits them.
    let csi = [field(1, b"d"), field(2, b"h")].concat();
    let csi = [&[0xb2, 0x01, u8::try_from(csi.len()).unwrap()][..], &csi[..]].concat();
    let spec = [field(1, &capacity), field(2, &csi), field(3, b"ReadWriteOnce")].concat();
    let volume = [field(1, &field(1, b"v")), field(2, &spec), field(3, b"")].concat();
    assert_eq!(encode(&expected), body("PersistentVolume", "v1", &volume));
}

#[test]
fn a_pointer_to_zero_is_set() {
    let both = [vec![1 << 3, 0], vec![3 << 3, 0], field(2, b"")].concat();
    let expected = json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "gracePeriodSeconds": 0, "orphanDependents": false, "preconditions": {},
    });
    assert_eq!(decode(&body("DeleteOptions", "v1", &both)).unwrap(), expected);
    // Options are a kind of every group.
    assert_eq!(decode(&body("DeleteOptions", "apps/v1", &both)).unwrap()["gracePeriodSeconds"], 0);
}

#[test]
fn bytes_are_base64_in_json() {
    let datum = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
    let secret = [field(1, &field(1, b"s")), datum(b"x", b"foo"), datum(b"y", b""), vec![5 << 3, 1]];
    let expected = json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": { "name": "s" },
        "data": { "x": "Zm9v", "y": "" }, "immutable": true,
    });
    assert_eq!(decode(&body("Secret", "v1", &secret.concat())).unwrap(), expected);
}

#[test]
fn numbers_may_be_negative() {
    let minus_one = [&[2 << 3][..], &[0xff; 9], &[1]].concat();
    let object = decode(&body("PriorityClass", "scheduling.k8s.io/v1", &minus_one)).unwrap();
    assert_eq!(object["value"], -1);
    assert_eq!(encode(&object), body("PriorityClass", "scheduling.k8s.io/v1", &minus_one));
}

#[test]
fn times_have_the_precision_of_json() {
    let time = |nanos: &[u8]| [&[1 << 3, 60, 2 << 3][..], nanos].concat();
    // 1,002,000 nanoseconds.
    let spec = field(4, &time(&[0x90, 0x94, 0x3d]));
    let lease = decode(&body("Lease", "coordination.k8s.io/v1", &field(2, &spec))).unwrap();
    assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:01:00.001002Z");
    assert_eq!(encode(&lease), body("Lease", "coordination.k8s.io/v1", &field(2, &spec)));
    let metadata = field(8, &time(&[0x90, 0x94, 0x3d]));
    let lease = decode(&body("Lease", "coordination.k8s.io/v1", &field(1, &metadata))).unwrap();
    assert_eq!(lease["metadata"]["creationTimestamp"], "1970-01-01T00:01:00Z");
}

#[test]
fn lists_and_events_contain_messages() {
    let namespace = message("", "Namespace", &json!({ "metadata": { "name": "n" } }));
    let metadata = json!({ "resourceVersion": "7" });
    let list = encode_list("v1", "NamespaceList", &metadata, &[&Bytes::from(namespace)]);
    let expected = [field(1, &field(2, b"7")), field(2, &field(1, &field(1, b"n")))].concat();
    assert_eq!(list, body("NamespaceList", "v1", &expected));
    assert_eq!(&watch_frame("ADDED", b"xy")[..], b"\0\0\0\x0d\x0a\x05ADDED\x12\x04\x0a\x02xy");
}

#[test]
fn what_is_no_object_is_refused() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::Magic));
    let unknown = ProtobufError::Kind { kind: "Nope".to_owned(), version: "v1".to_owned() };
    assert_eq!(decode(&body("Nope", "v1", b"")), Err(unknown));
    // Metadata is not a number.
    assert_eq!(decode(&body("Namespace", "v1", &[1 << 3, 1])), Err(ProtobufError::Malformed));
    let whole = body("Namespace", "v1", &field(1, &field(1, b"n")));
    // The last two fields are empty and unused.
    for end in MAGIC.len() + 1..whole.len() - 4 {
        // Cut anywhere, it is refused or lacks something.
        let cut = decode(&whole[..end]);
        assert!(cut.is_err() || cut != decode(&whole), "{end}");
    }
}
