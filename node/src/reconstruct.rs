//! What a restarted agent finds: the mounts of its predecessor become the actual state, so that nothing is
//! staged or published twice, and what nobody wants any more is unmounted.
//!
//! Upstream: `pkg/kubelet/volumemanager/reconciler/reconstruct.go`, which marks all it finds as uncertain
//! and mounts it again; here a mount that stands in the mount table is taken as it is.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::{
    actual::{Actual, Mounted},
    effects::Host,
    layout::{Layout, VOL_DATA, file_name},
    volumes::{DeviceData, Plugin, PodUid, PublishData, VolumeKey, vol_data},
};

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Mounts.
    pub actual: Actual,
    /// Pods that have a directory.
    pub pods: BTreeSet<PodUid>,
}

/// Why the node cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: the agent must not guess what is mounted, so it does not start", path.display())]
pub struct ReconstructError {
    /// What cannot be read.
    path: PathBuf,
    /// Why.
    #[source]
    source: io::Error,
}

/// Looks at the node.
///
/// # Errors
/// If the directories or the mount table cannot be read.
pub fn reconstruct<H: Host>(host: &H, layout: &Layout) -> Result<Found, ReconstructError> {
    let mounts = host.mount_points().map_err(at(Path::new("/proc/self/mountinfo")))?;
    let mut scan = Scan { host, layout, mounts, found: Found::default() };
    for driver in scan.list(&layout.csi())? {
        for device in scan.list(&driver)? {
            scan.device(&device)?;
        }
    }
    for pod in scan.list(&layout.pods())? {
        scan.pod(PodUid::from(file_name(&pod)))?;
    }
    Ok(scan.found)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ReconstructError {
    let path = path.to_owned();
    |source| ReconstructError { path, source }
}

struct Scan<'a, H> {
    host: &'a H,
    layout: &'a Layout,
    mounts: BTreeSet<PathBuf>,
    found: Found,
}

impl<H: Host> Scan<'_, H> {
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>, ReconstructError> {
        self.host.list(path).map_err(at(path))
    }

    /// One volume's device directory. Without a mount the predecessor was interrupted between the
    /// directory and the driver's answer, or the driver does not mount there.
    fn device(&mut self, directory: &Path) -> Result<(), ReconstructError> {
        let Some(data) = self.vol_data::<DeviceData>(directory)? else { return Ok(()) };
        let key = VolumeKey::csi(data.driver_name, data.volume_handle);
        let mounted = self.state(&directory.join("globalmount"));
        self.found.actual.adopt(&key, None, mounted);
        Ok(())
    }

    fn pod(&mut self, uid: PodUid) -> Result<(), ReconstructError> {
        let volumes = self.layout.pod_volumes(&uid);
        for directory in self.list(&volumes.join(Plugin::Csi.directory()))? {
            let Some(data) = self.vol_data::<PublishData>(&directory)? else { continue };
            let key = VolumeKey::csi(data.driver_name, data.volume_handle);
            let mounted = self.state(&directory.join("mount"));
            self.found.actual.adopt(&key, Some((&uid, &file_name(&directory))), mounted);
        }
        for directory in self.list(&volumes.join(Plugin::EmptyDir.directory()))? {
            let name = file_name(&directory);
            let key = VolumeKey::Local { plugin: Plugin::EmptyDir, pod: uid.clone(), name: name.clone() };
            self.found.actual.adopt(&key, Some((&uid, &name)), Mounted::Yes);
        }
        self.found.pods.insert(uid);
        Ok(())
    }

    fn state(&self, mount_point: &Path) -> Mounted {
        if self.mounts.contains(mount_point) { Mounted::Yes } else { Mounted::Uncertain }
    }

    /// Whose the directory is. One that does not say holds no mount of ours, since that is written first.
    fn vol_data<T: DeserializeOwned>(&self, directory: &Path) -> Result<Option<T>, ReconstructError> {
        let path = directory.join(VOL_DATA);
        let Some(bytes) = self.host.read(&path).map_err(at(&path))? else { return Ok(None) };
        match vol_data::decode(&bytes) {
            Ok(data) => Ok(Some(data)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "left alone");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{effects::RealHost, testing::FakeHost};

    #[test]
    fn the_predecessors_mounts_are_taken_over() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let (key, pod) = (VolumeKey::csi("d", "h"), PodUid::from("u"));
        let host = FakeHost::default();
        let device = layout.device("d", "h");
        let published = layout.pod_volume(&pod, &key, "pv");
        let interrupted = layout.pod_volume(&pod, &VolumeKey::csi("d", "other"), "pv-other");
        let data = |handle: &str, pv: &str| {
            vol_data::encode(&PublishData {
                driver_name: "d".into(),
                volume_handle: handle.into(),
                pv: pv.into(),
                node_name: "n".into(),
                attachment: String::new(),
                volume_lifecycle_mode: "Persistent".into(),
            })
        };
        for dir in [&device.join("globalmount"), &published.join("mount"), &interrupted] {
            RealHost.make_dir(dir).unwrap();
        }
        let device_data = DeviceData { driver_name: "d".into(), volume_handle: "h".into() };
        RealHost.write(&device.join(VOL_DATA), &vol_data::encode(&device_data)).unwrap();
        RealHost.write(&published.join(VOL_DATA), &data("h", "pv")).unwrap();
        RealHost.write(&interrupted.join(VOL_DATA), &data("other", "pv-other")).unwrap();
        RealHost.make_dir(&layout.pod_volumes(&pod).join("kubernetes.io~empty-dir/scratch")).unwrap();
        RealHost.make_dir(&layout.pod_volumes(&pod).join("kubernetes.io~csi/unsaid")).unwrap();
        host.mount(device.join("globalmount"));
        host.mount(published.join("mount"));

        let found = reconstruct(&host, &layout).unwrap();
        assert_eq!(found.pods, BTreeSet::from([pod.clone()]));
        let volume = found.actual.get(&key).unwrap();
        assert_eq!(volume.device, Some(Mounted::Yes));
        assert!(found.actual.is_mounted(&key, &pod));
        // A publication that was interrupted may yet have happened.
        let other = found.actual.get(&VolumeKey::csi("d", "other")).unwrap();
        assert_eq!((other.device, other.pods[&pod].mounted), (None, Mounted::Uncertain));
        assert_eq!(found.actual.of_pod(&pod).count(), 3);
    }

    #[test]
    fn an_empty_node_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let found = reconstruct(&FakeHost::default(), &Layout::new(root.path().join("none"))).unwrap();
        assert!(found.pods.is_empty() && found.actual.iter().next().is_none());
    }
}
