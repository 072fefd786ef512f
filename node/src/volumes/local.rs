//! Volumes of the node itself: emptyDir and hostPath.
//! Upstream: `pkg/volume/emptydir/empty_dir.go`, `pkg/volume/hostpath/host_path.go`.

use crate::{
    effects::Host,
    operations::{Executor, OperationError},
    volumes::{Plugin, PodMount, PodUid, VolumeKey},
};

/// Makes the volume.
pub(crate) async fn make<H: Host>(
    executor: &Executor<H>,
    key: &VolumeKey,
    mount: &PodMount,
) -> Result<(), OperationError> {
    match key.plugin() {
        Plugin::EmptyDir => {
            let path = executor.layout.pod_mount(&mount.pod.uid, key, &mount.directory);
            let group = mount.fs_group.and_then(|group| u32::try_from(group).ok());
            let dir = path.clone();
            let made = executor.blocking(move |host| {
                host.make_dir(&dir)?;
                host.open_to_all(&dir)?;
                group.map_or(Ok(()), |group| host.apply_group(&dir, group, false))
            });
            made.await.map_err(|source| OperationError::Finish { path, source })
        }
        // It is there or it is not; the container's mount will tell.
        Plugin::HostPath | Plugin::Csi => Ok(()),
    }
}

/// Removes the volume, with what is in it.
pub(crate) async fn remove<H: Host>(
    executor: &Executor<H>,
    key: &VolumeKey,
    pod: &PodUid,
    directory: &str,
) -> Result<(), OperationError> {
    match key.plugin() {
        Plugin::EmptyDir => {
            let path = executor.layout.pod_mount(pod, key, directory);
            let dir = path.clone();
            let removed = executor.blocking(move |host| host.remove_tree(&dir)).await;
            removed.map_err(|source| OperationError::Finish { path, source })
        }
        // The path belongs to the node.
        Plugin::HostPath | Plugin::Csi => Ok(()),
    }
}
