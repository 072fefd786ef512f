//! A stored object: its key, its version, its value, and its cached encodings.

use std::sync::OnceLock;

use hyper::body::Bytes;
use serde_json::Value;

use crate::resources::Storage;

/// The key of an object within its resource. Keys order by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// The object's name.
    pub name: Box<str>,
}

impl Key {
    /// The key of an object in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }
}

/// One state of one object. `value` has neither `kind` nor `apiVersion`: those belong to the resource through
/// which it is read.
#[derive(Debug)]
pub struct Object {
    /// Its key.
    pub key: Key,
    /// The version of the write that created this state.
    pub version: u64,
    /// The object, with `metadata.resourceVersion` set.
    pub value: Value,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
    view: OnceLock<Box<Object>>,
}

impl Object {
    /// A state of the object at `key`.
    pub fn new(key: Key, version: u64, mut value: Value) -> Self {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        let (json, protobuf, view) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { key, version, value, json, protobuf, view }
    }

    /// Its JSON text, without `kind` and `apiVersion`; serialized once for all readers.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string()))
    }

    /// Its protobuf message, which `encode` returns; encoded once for all readers.
    pub fn protobuf(&self, encode: impl FnOnce(&Value) -> Vec<u8>) -> &Bytes {
        self.protobuf.get_or_init(|| Bytes::from(encode(&self.value)))
    }

    /// The object in the other shape that its storage is read in, which `convert` returns; converted once for all
    /// readers.
    pub fn view(&self, convert: fn(Value) -> Value) -> &Self {
        let view = || Self::new(self.key.clone(), self.version, convert(self.value.clone()));
        self.view.get_or_init(|| Box::new(view()))
    }

    /// Its unique id.
    pub fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }

    /// Whether it has finalizers.
    pub fn has_finalizers(&self) -> bool {
        has_finalizers(&self.value)
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        let finalizers = self.value["metadata"]["finalizers"].as_array();
        finalizers.into_iter().flatten().filter_map(Value::as_str)
    }

    /// The uids of its owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let references = self.value["metadata"]["ownerReferences"].as_array();
        references.into_iter().flatten().filter_map(|reference| reference["uid"].as_str())
    }
}

/// Whether an object that is being deleted can be removed: it has no finalizer, and no grace period. A pod in
/// its grace period is removed by the kubelet's final deletion only. A namespace has no grace period, but
/// finalizers of its own.
pub fn is_free(storage: Storage, value: &Value) -> bool {
    let own = || match storage {
        Storage::Namespaces => is_empty(&value["spec"]["finalizers"]),
        _ => value["metadata"]["deletionGracePeriodSeconds"] == 0,
    };
    !has_finalizers(value) && own()
}

fn has_finalizers(value: &Value) -> bool {
    !is_empty(&value["metadata"]["finalizers"])
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}
