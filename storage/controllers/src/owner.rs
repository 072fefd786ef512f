//! The owner of CSIStorageCapacity objects, if it is not the CSIDriver: the pod of this process, or what controls it.
//!
//! Upstream: external-provisioner `pkg/owner/owner.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use crate::CapacityOwner;

/// Why there is no such owner.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// An object on the way to it cannot be read.
    #[error(
        "cannot read {kind} {namespace}/{name} for --capacity-ownerref-level; allow this process to get it"
    )]
    Get {
        /// Its kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's error.
        source: Box<kube::Error>,
    },
    /// An object on the way to it has no controller.
    #[error("{kind} {namespace}/{name} has no controlling owner: set a lower --capacity-ownerref-level")]
    NoController {
        /// Its kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The owners to write; `None` for the CSIDriver.
pub async fn capacity_owners(
    client: &Client,
    namespace: &str,
    owner: &CapacityOwner,
) -> Result<Option<Vec<OwnerReference>>, OwnerError> {
    match owner {
        CapacityOwner::Driver => Ok(None),
        CapacityOwner::Nothing => Ok(Some(Vec::new())),
        CapacityOwner::Pod { name, level } => Ok(Some(vec![lookup(client, namespace, name, *level).await?])),
    }
}

/// The pod, or its `level`th controller. The last one is not read, so that the right to get it is not required.
async fn lookup(
    client: &Client,
    namespace: &str,
    pod: &str,
    level: u8,
) -> Result<OwnerReference, OwnerError> {
    let mut kind = GroupVersionKind::gvk("", "v1", "Pod");
    let mut name = pod.to_owned();
    let mut left = level;
    loop {
        let api =
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
        let object = api.get(&name).await.map_err(|source| OwnerError::Get {
            kind: kind.kind.clone(),
            namespace: namespace.to_owned(),
            name: name.clone(),
            source: Box::new(source),
        })?;
        if left == 0 {
            return Ok(OwnerReference {
                api_version: kind.api_version(),
                kind: kind.kind,
                name,
                uid: object.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            });
        }
        let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        let Some(controller) = controller else {
            let namespace = namespace.to_owned();
            return Err(OwnerError::NoController { kind: kind.kind, namespace, name });
        };
        if left == 1 {
            return Ok(OwnerReference { block_owner_deletion: None, ..controller.clone() });
        }
        kind = controller.clone().into();
        name = controller.name.clone();
        left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_apiserver as apiserver;
    use k8s_openapi::api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::Pod,
    };
    use kube::{
        Config,
        api::PostParams,
        config::{KubeConfigOptions, Kubeconfig},
    };
    use serde_json::{Value, json};

    use super::*;

    const NAMESPACE: &str = "kube-system";

    /// Creates an object of a kind that runs pods; returns the reference to it as a controller.
    async fn create<K>(client: &Client, name: &str, owners: Vec<Value>) -> Value
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        let labels = json!({"app": "a"});
        let spec = match &*K::kind(&()) {
            "Pod" => pod,
            _ => json!({
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            }),
        };
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec});
        let object: K = serde_json::from_value(object).unwrap();
        let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
        let uid = api.create(&PostParams::default(), &object).await.unwrap().uid();
        json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": name, "uid": uid, "controller": true,
        })
    }

    #[tokio::test]
    async fn controllers_are_followed_up_to_the_level() {
        let server = apiserver::start(apiserver::Config::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let top = create::<DaemonSet>(&client, "top", Vec::new()).await;
        let mut other = create::<DaemonSet>(&client, "other", Vec::new()).await;
        other["controller"] = json!(false);
        let middle = create::<Deployment>(&client, "middle", vec![other, top.clone()]).await;
        let pod = create::<Pod>(&client, "pod", vec![middle.clone()]).await;

        let owner = async |level| {
            let owner = CapacityOwner::Pod { name: "pod".to_owned(), level };
            capacity_owners(&client, NAMESPACE, &owner).await
        };
        for (level, expected) in [(0, pod), (1, middle), (2, top)] {
            let found = owner(level).await.unwrap().unwrap();
            assert_eq!(json!(found), json!([expected]), "level {level}");
        }
        let error = owner(3).await.unwrap_err().to_string();
        assert!(error.contains("DaemonSet kube-system/top has no controlling owner"), "{error}");

        let nothing = capacity_owners(&client, NAMESPACE, &CapacityOwner::Nothing).await.unwrap();
        assert_eq!(nothing, Some(Vec::new()));
        assert_eq!(capacity_owners(&client, NAMESPACE, &CapacityOwner::Driver).await.unwrap(), None);
    }
}
