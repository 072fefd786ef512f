//! The numbers and names of fields, as in the `generated.proto` files of k8s.io/api.
//!
//! Fields that clients cannot set in a create request (times, status, managed fields) are omitted.

/// A field of a message.
pub struct Field {
    /// Its number on the wire.
    pub number: u64,
    /// Its name in JSON.
    pub name: &'static str,
    /// The type of its value.
    pub of: Type,
}

/// The type of a field's value.
#[derive(Clone, Copy)]
pub enum Type {
    /// A string; empty is unset.
    Text,
    /// Several strings.
    Texts,
    /// Bytes, which JSON has as base64.
    Bytes,
    /// Set or not.
    Flag,
    /// True, false, or unset.
    Choice,
    /// An integer.
    Number,
    /// One message.
    Message(&'static [Field]),
    /// Several messages.
    Messages(&'static [Field]),
    /// A map, as messages of keys and values.
    Map(&'static [Field]),
}

use Type::{Bytes, Choice, Flag, Map, Message, Messages, Number, Text, Texts};

const fn f(number: u64, name: &'static str, of: Type) -> Field {
    Field { number, name, of }
}

/// The content of a body.
pub const ENVELOPE: &[Field] =
    &[f(1, "typeMeta", Message(&[f(1, "apiVersion", Text), f(2, "kind", Text)])), f(2, "raw", Bytes)];

/// The message of a supported kind.
pub fn of_kind(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "ConfigMap" => CONFIG_MAP,
        "DeleteOptions" => DELETE_OPTIONS,
        "Eviction" => EVICTION,
        "Namespace" => NAMESPACE,
        "PriorityClass" => PRIORITY_CLASS,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "TokenRequest" => TOKEN_REQUEST,
        _ => return None,
    })
}

const TEXT_ENTRY: &[Field] = &[f(1, "key", Text), f(2, "value", Text)];
const BYTES_ENTRY: &[Field] = &[f(1, "key", Text), f(2, "value", Bytes)];

const METADATA: &[Field] = &[
    f(1, "name", Text),
    f(2, "generateName", Text),
    f(3, "namespace", Text),
    f(5, "uid", Text),
    f(6, "resourceVersion", Text),
    f(11, "labels", Map(TEXT_ENTRY)),
    f(12, "annotations", Map(TEXT_ENTRY)),
    f(13, "ownerReferences", Messages(OWNER)),
    f(14, "finalizers", Texts),
];

const OWNER: &[Field] = &[
    f(1, "kind", Text),
    f(3, "name", Text),
    f(4, "uid", Text),
    f(5, "apiVersion", Text),
    f(6, "controller", Choice),
    f(7, "blockOwnerDeletion", Choice),
];

const CONFIG_MAP: &[Field] = &[
    f(1, "metadata", Message(METADATA)),
    f(2, "data", Map(TEXT_ENTRY)),
    f(3, "binaryData", Map(BYTES_ENTRY)),
    f(4, "immutable", Choice),
];

const DELETE_OPTIONS: &[Field] = &[
    f(1, "gracePeriodSeconds", Number),
    f(2, "preconditions", Message(&[f(1, "uid", Text), f(2, "resourceVersion", Text)])),
    f(3, "orphanDependents", Choice),
    f(4, "propagationPolicy", Text),
    f(5, "dryRun", Texts),
];

const EVICTION: &[Field] =
    &[f(1, "metadata", Message(METADATA)), f(2, "deleteOptions", Message(DELETE_OPTIONS))];

const NAMESPACE: &[Field] =
    &[f(1, "metadata", Message(METADATA)), f(2, "spec", Message(&[f(1, "finalizers", Texts)]))];

const PRIORITY_CLASS: &[Field] = &[
    f(1, "metadata", Message(METADATA)),
    f(2, "value", Number),
    f(3, "globalDefault", Flag),
    f(4, "description", Text),
    f(5, "preemptionPolicy", Text),
];

const SECRET: &[Field] = &[
    f(1, "metadata", Message(METADATA)),
    f(2, "data", Map(BYTES_ENTRY)),
    f(3, "type", Text),
    f(4, "stringData", Map(TEXT_ENTRY)),
    f(5, "immutable", Choice),
];

const REFERENCE: &[Field] = &[
    f(1, "kind", Text),
    f(2, "namespace", Text),
    f(3, "name", Text),
    f(4, "uid", Text),
    f(5, "apiVersion", Text),
    f(6, "resourceVersion", Text),
    f(7, "fieldPath", Text),
];

const SERVICE_ACCOUNT: &[Field] = &[
    f(1, "metadata", Message(METADATA)),
    f(2, "secrets", Messages(REFERENCE)),
    f(3, "imagePullSecrets", Messages(&[f(1, "name", Text)])),
    f(4, "automountServiceAccountToken", Choice),
];

const BOUND_OBJECT: &[Field] =
    &[f(1, "kind", Text), f(2, "apiVersion", Text), f(3, "name", Text), f(4, "uid", Text)];

const TOKEN_REQUEST: &[Field] = &[
    f(1, "metadata", Message(METADATA)),
    f(
        2,
        "spec",
        Message(&[
            f(1, "audiences", Texts),
            f(3, "boundObjectRef", Message(BOUND_OBJECT)),
            f(4, "expirationSeconds", Number),
        ]),
    ),
];
