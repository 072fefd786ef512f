//! Decides which claims of a pod are still to be created.

use std::sync::Arc;

use claimcheck_informer::{World, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::claims::{is_deleting, is_owned_by};

/// An action for one volume of a pod.
#[derive(Debug, PartialEq)]
pub struct Action {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The volume's name in it.
    pub volume: String,
    /// The action.
    pub step: Step,
}

/// What to do for a volume.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Create its claim.
    Create(Box<PersistentVolumeClaim>),
    /// Report that the name is in use by a claim that does not belong to the pod. Using that would expose
    /// unrelated data to the pod.
    Refuse(String),
}

/// The actions for a pod. One that is being deleted needs no claims any more.
pub fn plan(key: &ObjectKey, world: &World) -> Vec<Action> {
    let Some(pod) = world.pods.get(key).filter(|pod| !is_deleting(&***pod)) else { return Vec::new() };
    let ephemeral = pod_claims(pod).filter(|used| used.ephemeral);
    let steps = ephemeral.filter_map(|used| {
        let step = match world.claims.get(&used.claim) {
            Some(claim) if is_owned_by(claim, pod) => return None,
            Some(_) => {
                Step::Refuse(format!("PVC {} was not created for pod {key} (pod is not owner)", used.claim))
            }
            None => Step::Create(Box::new(claim(pod, &used.volume, &used.claim)?)),
        };
        Some(Action { pod: pod.clone(), volume: used.volume, step })
    });
    steps.collect()
}

/// The claim of the template.
fn claim(pod: &Pod, volume: &str, key: &ObjectKey) -> Option<PersistentVolumeClaim> {
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let source = volumes.find(|candidate| candidate.name == volume)?.ephemeral.as_ref()?;
    let template = source.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, deleting, world};
    use k8s_openapi::api::core::v1::Volume;
    use serde_json::json;

    use super::*;

    /// A pod with an ephemeral volume, an ordinary claim and an emptyDir.
    fn pod() -> Pod {
        let mut pod = testing::pod("p", "n", &["other"]);
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let volumes = json!([
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
            {"name": "empty", "emptyDir": {}},
        ]);
        let volumes: Vec<Volume> = serde_json::from_value(volumes).unwrap();
        pod.spec.as_mut().unwrap().volumes.get_or_insert_default().extend(volumes);
        pod
    }

    fn steps(world: &World) -> Vec<Step> {
        plan(&ObjectKey::new("default", "p"), world).into_iter().map(|action| action.step).collect()
    }

    #[test]
    fn a_claim_is_made_from_the_template_and_owned_by_the_pod() {
        let steps = steps(&world([pod().into()]));
        let [Step::Create(claim)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!(claim.metadata.name.as_deref(), Some("p-scratch"));
        assert_eq!(claim.metadata.labels.as_ref().unwrap()["app"], "web");
        assert!(is_owned_by(claim, &pod()));
        assert_eq!(claim.spec.as_ref().unwrap().access_modes.as_deref(), Some(&["ReadWriteOnce".into()][..]));
        // It is there now.
        let present = world([pod().into(), (**claim).clone().into()]);
        assert_eq!(plan(&ObjectKey::new("default", "p"), &present), []);
    }

    #[test]
    fn a_claim_of_another_owner_is_not_changed() {
        let taken = testing::claim("p-scratch", "", "1Gi");
        let message = "PVC default/p-scratch was not created for pod default/p (pod is not owner)";
        assert_eq!(steps(&world([pod().into(), taken.into()])), [Step::Refuse(message.into())]);
    }

    #[test]
    fn a_deleted_pod_gets_no_claim() {
        assert_eq!(steps(&world([deleting(pod(), &[]).into()])), []);
        assert_eq!(steps(&world([])), []);
    }
}
