//! emptyDir: a directory with its pod's lifetime, on the node's disk or in memory.
//! Upstream: `pkg/volume/emptydir/empty_dir.go`.

use std::sync::atomic::AtomicU64;

use claimcheck_informer::quantity;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

use crate::{
    effects::Host,
    operations::{Executor, OperationError},
    volumes::{PodMount, VolumeKey},
};

/// An empty directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDir {
    /// Its medium.
    pub medium: Medium,
    /// Its size limit. In memory it is the file system's size; on disk the pod is evicted once it exceeds the
    /// limit.
    pub limit: Option<Limit>,
}

/// The medium of an emptyDir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// On the node's disk.
    Disk,
    /// In a tmpfs of its own.
    Memory,
}

/// A size, as text and in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In the pod's format, for messages.
    pub text: String,
    /// In bytes.
    pub bytes: u64,
}

impl EmptyDir {
    /// Parses the volume source of a pod's spec.
    ///
    /// # Errors
    /// A message for the user, for an unsupported medium.
    pub fn of(source: &EmptyDirVolumeSource) -> Result<Self, String> {
        let medium = match source.medium.as_deref() {
            None | Some("") => Medium::Disk,
            Some("Memory") => Medium::Memory,
            Some(medium) => {
                return Err(format!("emptyDir of medium {medium:?} is not supported by this node"));
            }
        };
        // Upstream: a limit of zero is none.
        let limit = source.size_limit.as_ref().and_then(|size| {
            let bytes = u64::try_from(quantity::bytes(size)?).ok().filter(|bytes| *bytes > 0)?;
            Some(Limit { text: size.0.clone(), bytes })
        });
        Ok(Self { medium, limit })
    }
}

/// Makes the directory.
pub(crate) async fn make<H: Host>(
    executor: &Executor<H>,
    key: &VolumeKey,
    volume: &EmptyDir,
    mount: &PodMount,
) -> Result<(), OperationError> {
    let path = executor.layout.pod_mount(&mount.pod.uid, key, &mount.directory);
    let (dir, group) = (path.clone(), mount.fs_group);
    let ready = executor.layout.empty_dir_ready(&mount.pod.uid, &mount.directory);
    let memory = match volume.medium {
        Medium::Memory => Some(volume.limit.as_ref().map(|limit| limit.bytes)),
        Medium::Disk => None,
    };
    let made = executor.blocking(move |host| {
        host.make_dir(&dir)?;
        if let Some(size) = memory {
            host.mount_memory(&dir, size)?;
        }
        host.open_to_all(&dir)?;
        if let Some(group) = group {
            host.apply_group(&dir, group, false, &AtomicU64::default())?;
        }
        // Last: without it, the next agent makes the directory again.
        ready.parent().map_or(Ok(()), |parent| host.make_dir(parent))?;
        host.write(&ready, b"")
    });
    made.await.map_err(|source| OperationError::Finish { path, source })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn medium_and_limit() {
        let of = |medium: Option<&str>, size: Option<&str>| {
            EmptyDir::of(&EmptyDirVolumeSource {
                medium: medium.map(str::to_owned),
                size_limit: size.map(|size| Quantity(size.to_owned())),
                ..EmptyDirVolumeSource::default()
            })
        };
        let limit = |text: &str, bytes| Some(Limit { text: text.into(), bytes });
        assert_eq!(of(None, None), Ok(EmptyDir { medium: Medium::Disk, limit: None }));
        assert_eq!(of(Some(""), Some("0")), Ok(EmptyDir { medium: Medium::Disk, limit: None }));
        let small = EmptyDir { medium: Medium::Memory, limit: limit("1Mi", 1 << 20) };
        assert_eq!(of(Some("Memory"), Some("1Mi")), Ok(small));
        assert!(of(Some("HugePages"), None).is_err());
    }
}
