//! Writes, told to whoever traces volumes: what was written, and which claims it has to do with.

use std::sync::OnceLock;

use claimcheck_model::{ApiWrite, ObjectKey, Stamp};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::request::{ObjectPath, Target};
use crate::resources::Shelf;
use crate::store::{Key, Store};

/// Where writes are told; nowhere until somebody listens, and then they cost nothing.
#[derive(Default)]
pub struct Writes(OnceLock<mpsc::UnboundedSender<ApiWrite>>);

impl Writes {
    /// All writes from now on; only who asks first gets them.
    pub fn listen(&self) -> Option<mpsc::UnboundedReceiver<ApiWrite>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.set(sender).is_ok().then_some(receiver)
    }

    /// A request begins, to be told where it writes and somebody listens.
    pub fn begin(&self, verb: &'static str, target: &Target, store: &Store) -> Option<Writing> {
        let Target::Objects(path) = target else { return None };
        self.0.get().filter(|_| matches!(verb, "create" | "update" | "patch" | "delete"))?;
        let path = path.clone();
        // Of what is there already before it goes.
        let claims = path.name.as_deref().map_or_else(Vec::new, |name| claims_of(store, &path, name));
        Some(Writing { verb, path, claims, start: Stamp::now() })
    }

    /// Tells one that ended.
    pub fn tell(&self, write: Option<ApiWrite>) {
        if let (Some(listener), Some(write)) = (self.0.get(), write) {
            // One who has gone no longer wants to know.
            let _ = listener.send(write);
        }
    }
}

/// A write under way.
pub struct Writing {
    verb: &'static str,
    path: ObjectPath,
    claims: Vec<String>,
    start: Stamp,
}

impl Writing {
    /// It was answered; nothing where it has to do with no claim. The name of a new object is in the `body`,
    /// as far as that is JSON.
    pub fn ended(
        self,
        agent: &str,
        resource: &str,
        code: u16,
        body: &[u8],
        store: &Store,
    ) -> Option<ApiWrite> {
        let Self { verb, path, mut claims, start } = self;
        let name = match &path.name {
            Some(name) => name.clone(),
            None => {
                let body: Value = serde_json::from_slice(body).ok()?;
                body["metadata"]["name"].as_str()?.to_owned()
            }
        };
        if claims.is_empty() {
            claims = claims_of(store, &path, &name);
        }
        if claims.is_empty() {
            return None;
        }
        Some(ApiWrite {
            agent: agent.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            object: ObjectKey::new(path.namespace.unwrap_or_default(), name),
            claims,
            code,
            start,
            seconds: Stamp::now().seconds_since(start),
        })
    }
}

/// The claims, by uid, that an object has to do with as it is stored now.
fn claims_of(store: &Store, path: &ObjectPath, name: &str) -> Vec<String> {
    let namespace = path.namespace.as_deref().unwrap_or_default();
    let get = |shelf, namespace: &str, name: &str| store.get(shelf, &Key::new(namespace, name));
    let of_volume = |name: &str| -> Option<String> {
        let volume = get(Shelf::Volumes, "", name)?;
        volume.value["spec"]["claimRef"]["uid"].as_str().map(str::to_owned)
    };
    match path.resource.shelf {
        Shelf::Claims => {
            get(Shelf::Claims, namespace, name).map(|claim| claim.uid().to_owned()).into_iter().collect()
        }
        Shelf::Volumes => of_volume(name).into_iter().collect(),
        Shelf::Attachments => {
            let Some(attachment) = get(Shelf::Attachments, "", name) else { return Vec::new() };
            let volume = attachment.value["spec"]["source"]["persistentVolumeName"].as_str();
            volume.and_then(of_volume).into_iter().collect()
        }
        Shelf::Pods => {
            let Some(pod) = get(Shelf::Pods, namespace, name) else { return Vec::new() };
            let volumes = pod.value["spec"]["volumes"].as_array().into_iter().flatten();
            let names = volumes.filter_map(|volume| match &volume["persistentVolumeClaim"]["claimName"] {
                Value::String(claim) => Some(claim.clone()),
                // As upstream names the claims of ephemeral volumes: pod and volume.
                _ if volume["ephemeral"].is_object() => {
                    Some(format!("{}-{}", name, volume["name"].as_str()?))
                }
                _ => None,
            });
            let claims = names.filter_map(|name| get(Shelf::Claims, namespace, &name));
            claims.map(|claim| claim.uid().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}
