//! A write to the API, as the client that made it tells.

use serde::{Deserialize, Serialize};

use crate::{ObjectKey, Stamp};

/// The kinds of objects that a volume's life is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WrittenKind {
    /// A claim.
    Claim,
    /// A volume.
    Volume,
    /// A volume on a node.
    Attachment,
    /// A pod.
    Pod,
}

impl WrittenKind {
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

/// An object of a volume's life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Written {
    /// Its kind.
    pub kind: WrittenKind,
    /// Which of them.
    pub key: ObjectKey,
}

/// A write to the API of an object that a volume's life is written in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiWrite {
    /// The first word of the client's user agent.
    pub agent: String,
    /// The Kubernetes verb, `patch`.
    pub verb: String,
    /// The object.
    pub object: Written,
    /// What of it was written, `status`; empty where it was the object itself.
    pub subresource: String,
    /// What the object refers to: a pod to its claims, a volume to its claim, an attachment to its volume. None
    /// where neither request nor answer showed the object.
    pub refers_to: Option<Vec<Written>>,
    /// The HTTP status; 0 where there was no answer.
    pub code: u16,
    /// When the client sent it.
    pub start: Stamp,
    /// Until the client had the answer.
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
