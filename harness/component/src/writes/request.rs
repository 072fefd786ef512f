//! Determines the write of a request from its line and the request and response bodies. Pure.

use claimcheck_informer::pod_claims;
use claimcheck_model::{ApiWrite, LifecycleObject, LifecycleObjectKind, ObjectKey, Stamp};
use http::{Method, Request, header::USER_AGENT};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, Pod},
    storage::v1::VolumeAttachment,
};
use serde::Deserialize;

/// A write in progress.
#[derive(Debug, PartialEq)]
pub(super) struct PendingWrite {
    agent: String,
    verb: &'static str,
    kind: LifecycleObjectKind,
    namespace: String,
    /// None for a new object: its name is in the request or response body.
    name: Option<String>,
    subresource: String,
}

impl PendingWrite {
    /// The write of a request, if it is for an object of a volume's lifecycle; by `agent`, if
    /// the request has no user agent.
    pub(super) fn of<B>(request: &Request<B>, agent: &str) -> Option<Self> {
        let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match *rest {
            [plural] => (plural, None, ""),
            [plural, name] => (plural, Some(name), ""),
            [plural, name, subresource] => (plural, Some(name), subresource),
            _ => return None,
        };
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let kind = LifecycleObjectKind::ALL.into_iter().find(|kind| kind.resource() == resource)?;
        let verb = match (request.method(), name) {
            (&Method::POST, _) => "create",
            (&Method::PUT, Some(_)) => "update",
            (&Method::PATCH, Some(_)) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            // Reads, and writes to whole collections, which belong to no single object.
            _ => return None,
        };
        let user_agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = user_agent.unwrap_or(agent).split([' ', '/']).next().unwrap_or_default();
        let (agent, namespace) = (agent.to_owned(), namespace.to_owned());
        let (name, subresource) = (name.map(str::to_owned), subresource.to_owned());
        Some(Self { agent, verb, kind, namespace, name, subresource })
    }

    /// The write returned `code`; none if its object cannot be determined.
    pub(super) fn ended(
        self,
        code: u16,
        sent: &[u8],
        answered: &[u8],
        start: Stamp,
        end: Stamp,
    ) -> Option<ApiWrite> {
        let Self { agent, verb, kind, namespace, name, subresource } = self;
        let named = || [answered, sent].into_iter().find_map(name_in);
        let key = ObjectKey::new(namespace, name.or_else(named)?);
        // The response is the object, unless it is a Status.
        let refers_to = [answered, sent].into_iter().find_map(|body| references(kind, &key, body));
        Some(ApiWrite {
            agent,
            verb: verb.to_owned(),
            object: LifecycleObject { kind, key },
            subresource,
            refers_to,
            code,
            start,
            seconds: end.seconds_since(start),
        })
    }
}

/// The name of the object in a body.
fn name_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: Option<String>,
    }
    let named: Named = serde_json::from_slice(body).ok()?;
    named.metadata.name.filter(|name| !name.is_empty())
}

/// The references of the object in a body; none if it is no such object, but a patch or a Status.
fn references(kind: LifecycleObjectKind, key: &ObjectKey, body: &[u8]) -> Option<Vec<LifecycleObject>> {
    let to = |kind, key| LifecycleObject { kind, key };
    Some(match kind {
        // A claim is identified by its name.
        LifecycleObjectKind::Claim => Vec::new(),
        LifecycleObjectKind::Volume => {
            let spec = serde_json::from_slice::<PersistentVolume>(body).ok()?.spec?;
            let claim = spec.claim_ref.and_then(|claim| {
                let key = ObjectKey::new(claim.namespace.unwrap_or_default(), claim.name?);
                Some(to(LifecycleObjectKind::Claim, key))
            });
            claim.into_iter().collect()
        }
        LifecycleObjectKind::Attachment => {
            let attachment: VolumeAttachment = serde_json::from_slice(body).ok()?;
            let volume = attachment.spec.source.persistent_volume_name;
            volume.map(|name| to(LifecycleObjectKind::Volume, ObjectKey::cluster(name))).into_iter().collect()
        }
        LifecycleObjectKind::Pod => {
            let mut pod: Pod = serde_json::from_slice(body).ok()?;
            pod.spec.as_ref()?;
            // A request body may omit what the path contains.
            pod.metadata.namespace = Some(key.namespace.clone());
            pod.metadata.name = Some(key.name.clone());
            pod_claims(&pod).map(|used| to(LifecycleObjectKind::Claim, used.claim)).collect()
        }
    })
}
