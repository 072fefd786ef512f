//! Collects the objects of a cluster as JSON after a failed run, before it is deleted.

use std::path::Path;

use claimcheck_files::write_private;
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

/// Writes one file per kind, named after its resource. Kinds that cannot be listed are skipped.
pub(super) async fn write(client: &Client, folder: &Path) {
    if let Err(error) = std::fs::create_dir_all(folder) {
        warn!(folder = %folder.display(), %error, "cannot create the folder for the cluster's objects");
        return;
    }
    for resource in resources() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = match api.list(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().map(plain).collect::<Vec<_>>(),
            Err(error) => {
                warn!(resource = resource.plural, %error, "cannot list objects");
                continue;
            }
        };
        let path = folder.join(format!("{}.json", resource.plural));
        let text = serde_json::to_vec_pretty(&listed).expect("objects are JSON");
        if let Err(error) = write_private(&path, &text) {
            warn!(path = %path.display(), %error, "cannot write objects");
        }
    }
}

/// Without managed fields.
fn plain(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

/// The kinds related to storage, and Events.
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
