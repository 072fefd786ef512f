//! The rules of rows about requests to the embedded API server: who requests, what, and what becomes of it.
//!
//! Paths of fields have dots; a dot within a name has a backslash before it: `metadata.annotations.example\.com/key`.
//! `stored` is the object of the request before it, `new` the one that the request stores.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::row::{Change, Number, Predicate, duration, one_or_many};

/// What a defect does to requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Who requests: controllers by name (`binder`) or all of them (`controllers`), `node` for the agents of nodes, `cache`
    /// for what all controllers read, `suite` for the cases, or `any`.
    #[serde(deserialize_with = "one_or_many")]
    pub by: Vec<String>,
    /// The verbs: create, update (also by patches), delete; read is what is not a change.
    #[serde(deserialize_with = "one_or_many")]
    pub verb: Vec<String>,
    /// Resources, such as `persistentvolumes` or `persistentvolumeclaims/status`.
    #[serde(deserialize_with = "one_or_many")]
    pub of: Vec<String>,
    /// The conditions.
    #[serde(default)]
    pub when: When,
    /// The actions.
    pub then: Vec<Action>,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Fields of the object before the request; of a read, of the object that is read.
    pub stored: BTreeMap<String, Predicate>,
    /// Fields of the object that the request stores, or of the response to it.
    pub new: BTreeMap<String, Predicate>,
    /// Fields of the object that the request changes.
    pub changes: Vec<String>,
    /// The number of the request among those that match otherwise and are about the same object.
    pub call: Option<Number>,
}

/// What becomes of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It succeeds and changes nothing.
    Drop(bool),
    /// It succeeds, although the API server would reject it; nothing is changed.
    Accept(bool),
    /// It fails.
    Refuse(Refusal),
    /// It is handled, and its response is this failure.
    Lose(Refusal),
    /// It waits before.
    Delay(#[serde(deserialize_with = "duration")] Duration),
    /// The object that is stored is changed.
    Change(Change),
    /// The object that is read is changed.
    See(Change),
    /// The object is not read.
    Hide(bool),
    /// Lists are reversed.
    Reverse(bool),
    /// Events of watches arrive so much later.
    Late(#[serde(deserialize_with = "duration")] Duration),
    /// The administrator requests something after it.
    Also(Also),
}

/// A failure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The message.
    #[serde(default)]
    pub message: String,
}

/// A further request. Paths of fields in braces are replaced: `{new.metadata.name}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// POST, PUT, PATCH (a merge patch) or DELETE.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body.
    #[serde(default)]
    pub body: Value,
    /// Instead of a body, a copy of the stored object with these changes.
    #[serde(default)]
    pub copy: Option<Change>,
}
