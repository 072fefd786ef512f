//! What can still be seen of a cluster whose run has failed, before it is gone: its objects, as JSON.

use std::path::Path;

use k8s_openapi::api::{
    core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment},
};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use tracing::warn;

/// Writes a file a kind, called after its resource. What cannot be had is left out.
pub(super) async fn write(client: &Client, folder: &Path) {
    if let Err(error) = std::fs::create_dir_all(folder) {
        warn!(folder = %folder.display(), %error, "there is no place for the cluster's objects");
        return;
    }
    for resource in resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = match api.list(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().map(plain).collect::<Vec<_>>(),
            Err(error) => {
                warn!(resource = resource.plural, %error, "cannot be listed");
                continue;
            }
        };
        let path = folder.join(format!("{}.json", resource.plural));
        let text = serde_json::to_vec_pretty(&listed).expect("objects are JSON");
        if let Err(error) = std::fs::write(&path, text) {
            warn!(path = %path.display(), %error, "cannot be written");
        }
    }
}

/// Without what only servers read.
fn plain(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

/// What storage is made of, and what was said about it.
fn resources() -> [ApiResource; 9] {
    [
        ApiResource::erase::<Event>(&()),
        ApiResource::erase::<Node>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<PersistentVolume>(&()),
        ApiResource::erase::<VolumeAttachment>(&()),
        ApiResource::erase::<StorageClass>(&()),
        ApiResource::erase::<CSINode>(&()),
        ApiResource::erase::<CSIDriver>(&()),
    ]
}
