//! The objects that a run observes: on an existing cluster, others have volumes, too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Object;

/// The namespaces of a run: those with a common prefix.
#[derive(Clone, Debug)]
pub struct Scope {
    prefix: String,
}

impl Scope {
    /// The namespaces `{prefix}-..`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}-") }
    }

    /// Whether an object may belong to the run. Volumes without a claim, attachments, nodes and drivers may: alone, they
    /// begin no phase.
    pub fn includes(&self, object: &Object) -> bool {
        match object {
            Object::Claim(claim) => self.has(&claim.metadata),
            Object::Pod(pod) => self.has(&pod.metadata),
            Object::Snapshot(snapshot) => self.has(&snapshot.metadata),
            Object::Volume(volume) => {
                let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                claim.is_none_or(|claim| self.is_in(claim.namespace.as_deref()))
            }
            Object::Content(content) => self.is_in(content.spec.volume_snapshot_ref.namespace.as_deref()),
            Object::Attachment(_) | Object::Driver(_) | Object::CsiNode(_) | Object::Node(_) => true,
        }
    }

    fn has(&self, meta: &ObjectMeta) -> bool {
        self.is_in(meta.namespace.as_deref())
    }

    fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_some_and(|namespace| namespace.starts_with(&self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{attachment, claim, claim_ref, pod, volume};

    use super::*;

    #[test]
    fn volumes_of_others_are_not_observed() {
        let scope = Scope::new("cc-1a2b");
        let moved = |namespace: &str| {
            let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
            claim.metadata.namespace = Some(namespace.to_owned());
            volume.spec.get_or_insert_default().claim_ref = Some(claim_ref(&claim));
            let mut pod = pod("p", "n", &["c"]);
            pod.metadata.namespace = Some(namespace.to_owned());
            [Object::from(claim), volume.into(), pod.into()].map(|object| scope.includes(&object))
        };
        assert_eq!(moved("cc-1a2b-pods-0"), [true; 3]);
        assert_eq!(moved("shop"), [false; 3]);
        assert_eq!(moved("cc-1a2bc-pods-0"), [false; 3]);
        assert!(scope.includes(&volume("unclaimed", "fast", "1Gi").into()));
        assert!(scope.includes(&attachment("a", "v", "n", true).into()));
    }
}
