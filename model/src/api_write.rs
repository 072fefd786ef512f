//! A write to the API server, as recorded by the client that made it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ObjectKey, Stamp};

/// The kinds of API objects that record a volume's lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LifecycleObjectKind {
    /// A claim.
    Claim,
    /// A volume.
    Volume,
    /// A volume on a node.
    Attachment,
    /// A pod.
    Pod,
}

impl LifecycleObjectKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claim, Self::Volume, Self::Attachment, Self::Pod];

    /// The resource with its group, `volumeattachments.storage.k8s.io`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Claim => "persistentvolumeclaims",
            Self::Volume => "persistentvolumes",
            Self::Attachment => "volumeattachments.storage.k8s.io",
            Self::Pod => "pods",
        }
    }
}

/// An API object that is part of a volume's lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LifecycleObject {
    /// Its kind.
    pub kind: LifecycleObjectKind,
    /// Its namespace and name.
    pub key: ObjectKey,
}

/// An API write to an object that is part of a volume's lifecycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiWrite {
    /// The first word of the client's user agent.
    pub agent: String,
    /// The Kubernetes verb, `patch`.
    pub verb: String,
    /// The object.
    pub object: LifecycleObject,
    /// The subresource, `status`; empty for a write to the object itself.
    pub subresource: String,
    /// The objects it refers to: a pod's claims, a volume's claim, an attachment's volume. None
    /// if neither request nor response contained the object.
    pub refers_to: Option<Vec<LifecycleObject>>,
    /// The HTTP status code; 0 without a response.
    pub code: u16,
    /// When the client sent it.
    pub start: Stamp,
    /// The time until the client received the response.
    pub seconds: f64,
}

impl ApiWrite {
    /// The resource with its subresource, `pods/binding`.
    pub fn resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.object.kind.resource().to_owned(),
            subresource => format!("{}/{subresource}", self.object.kind.resource()),
        }
    }
}
