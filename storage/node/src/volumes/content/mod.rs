//! Volumes with files made of API objects: configMap, secret, downwardAPI, and projected, which combines
//! several of these and tokens in one directory. All four are lists of sources, so they share everything but
//! their directory's name.
//!
//! ```text
//! pod's volume ──> Content (what is asked for)     objects: one watch per ConfigMap or Secret that is used
//!                      └──────> payload: content + objects + pod + tokens -> files <──────┘
//!                                  └──> atomic: all files change at once
//! ```
//!
//! Upstream keeps secrets in a tmpfs of their own, so that they never reach a disk. The tree of an embedded
//! node is in a tmpfs as a whole, so that is omitted here.
//!
//! Upstream: `pkg/volume/{configmap,secret,downwardapi,projected}`.

pub mod atomic;
mod downward;
mod mount;
mod objects;
mod payload;
mod token;

use std::fmt;

use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIVolumeFile, KeyToPath, SecretProjection, ServiceAccountTokenProjection,
    Volume, VolumeProjection,
};

use super::Plugin;

pub(crate) use downward::field;
pub use mount::Filling;
pub(crate) use mount::write;
pub(crate) use objects::fetch;
pub use objects::{Known, ObjectUpdate, Objects, Snapshot, Values};
pub use payload::{Files, PayloadError};
pub use token::{Bearer, TokenError};
pub(crate) use token::{TokenSpec, request as request_token};

/// Upstream's default mode of files, and the lifetime of a token in seconds.
const DEFAULT_MODE: u32 = 0o644;
const DEFAULT_EXPIRATION: i64 = 3600;

/// The sources of a volume's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The default mode of files.
    pub default_mode: u32,
    /// In the order of the spec: of two files with the same path the later one wins.
    pub sources: Vec<Source>,
}

/// One source of files.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A ConfigMap or Secret.
    Object {
        /// The object.
        object: ObjectRef,
        /// The selected keys; empty for all, each as a file with its key's name.
        items: Vec<Item>,
        /// The object, or an item, may be missing.
        optional: bool,
    },
    /// Fields of the pod.
    Downward(Vec<DownwardAPIVolumeFile>),
    /// A token of the pod's service account.
    Token {
        /// Its audience; `None` for the API server.
        audience: Option<String>,
        /// Its lifetime in seconds.
        expiration: i64,
        /// Its file.
        path: String,
    },
}

// A `DownwardAPIVolumeFile` holds nothing that is not equal to itself.
impl Eq for Source {}

/// One value as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value's key.
    pub key: String,
    /// The file's path in the volume.
    pub path: String,
    /// The file's mode, if not the volume's default.
    pub mode: Option<u32>,
}

/// A reference to a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: ObjectKind,
    /// Namespace and name.
    pub key: ObjectKey,
}

/// A kind of object that volumes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// Its name in upstream's messages.
impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        })
    }
}

impl Content {
    /// The content of a pod's volume in `namespace`; `None` if it is not of these kinds.
    ///
    /// # Errors
    /// A message for the user, for an unsupported source.
    pub fn of(volume: &Volume, namespace: &str) -> Option<Result<(Plugin, Self), String>> {
        let sources = Sources { namespace };
        let (plugin, mode, sources) = if let Some(config) = &volume.config_map {
            let source = sources.object(ObjectKind::ConfigMap, &config.name, &config.items, config.optional);
            (Plugin::ConfigMap, config.default_mode, vec![source])
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.clone().unwrap_or_default();
            let source = sources.object(ObjectKind::Secret, &name, &secret.items, secret.optional);
            (Plugin::Secret, secret.default_mode, vec![source])
        } else if let Some(downward) = &volume.downward_api {
            let source = Source::Downward(downward.items.clone().unwrap_or_default());
            (Plugin::DownwardApi, downward.default_mode, vec![source])
        } else if let Some(projected) = &volume.projected {
            let made: Result<Vec<Source>, String> =
                projected.sources.iter().flatten().map(|one| sources.projection(one)).collect();
            match made {
                Ok(made) => (Plugin::Projected, projected.default_mode, made),
                Err(message) => return Some(Err(message)),
            }
        } else {
            return None;
        };
        let default_mode = mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_MODE);
        Some(Ok((plugin, Self { default_mode, sources })))
    }

    /// The objects that it uses.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.sources.iter().filter_map(|source| match source {
            Source::Object { object, .. } => Some(object),
            Source::Downward(_) | Source::Token { .. } => None,
        })
    }

    /// Whether it may contain the pod's labels and annotations.
    pub fn shows_pod(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, Source::Downward(_)))
    }

    /// The tokens that it contains.
    pub(crate) fn tokens(&self) -> Vec<TokenSpec> {
        let token_spec = |source: &Source| match source {
            Source::Token { audience, expiration, .. } => {
                Some(TokenSpec { audience: audience.clone(), expiration: Some(*expiration) })
            }
            Source::Object { .. } | Source::Downward(_) => None,
        };
        self.sources.iter().filter_map(token_spec).collect()
    }
}

/// Parses the sources of a pod's volume.
struct Sources<'a> {
    namespace: &'a str,
}

impl Sources<'_> {
    fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        items: &Option<Vec<KeyToPath>>,
        optional: Option<bool>,
    ) -> Source {
        let item = |item: &KeyToPath| Item {
            key: item.key.clone(),
            path: item.path.clone(),
            mode: item.mode.and_then(|mode| u32::try_from(mode).ok()),
        };
        Source::Object {
            object: ObjectRef { kind, key: ObjectKey::new(self.namespace, name) },
            items: items.iter().flatten().map(item).collect(),
            optional: optional.unwrap_or(false),
        }
    }

    fn projection(&self, source: &VolumeProjection) -> Result<Source, String> {
        let VolumeProjection { config_map, secret, downward_api, service_account_token, .. } = source;
        if let Some(ConfigMapProjection { name, items, optional }) = config_map {
            return Ok(self.object(ObjectKind::ConfigMap, name, items, *optional));
        }
        if let Some(SecretProjection { name, items, optional }) = secret {
            return Ok(self.object(ObjectKind::Secret, name, items, *optional));
        }
        if let Some(downward) = downward_api {
            return Ok(Source::Downward(downward.items.clone().unwrap_or_default()));
        }
        let Some(ServiceAccountTokenProjection { audience, expiration_seconds, path, .. }) =
            service_account_token
        else {
            return Err(
                "a source of the projected volume is of a kind that this node does not support".into()
            );
        };
        Ok(Source::Token {
            audience: audience.clone().filter(|audience| !audience.is_empty()),
            expiration: expiration_seconds.unwrap_or(DEFAULT_EXPIRATION),
            path: path.clone(),
        })
    }
}
