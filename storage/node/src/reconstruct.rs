//! Reconstruction after a restart: the mounts of the previous agent become the actual state, so that nothing is
//! staged or published twice, and orphaned mounts are unmounted.
//!
//! Upstream: `pkg/kubelet/volumemanager/reconciler/reconstruct.go`, which marks all of them as uncertain and
//! mounts them again; here a mount in the mount table is accepted as it is.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use claimcheck_informer::World;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde::de::DeserializeOwned;

use crate::{
    actual::{Actual, Mounted},
    effects::Host,
    layout::{Layout, VOL_DATA, file_name},
    volumes::{
        DeviceData, Form, Lifecycle, Plugin, PodUid, PublishData, VolumeKey, content::atomic::DATA, vol_data,
    },
};

/// The reconstructed state.
#[derive(Debug, Default)]
pub struct Found {
    /// Mounts.
    pub actual: Actual,
    /// Pods that have a directory.
    pub pods: BTreeSet<PodUid>,
}

/// Why the state of the node cannot be determined.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: the agent must not guess what is mounted, so it does not start", path.display())]
pub struct ReconstructError {
    /// The path.
    path: PathBuf,
    /// The error.
    #[source]
    source: io::Error,
}

/// Scans the node. Where a record is missing or damaged, the volumes of `world` help to identify a directory.
///
/// # Errors
/// If the directories or the mount table cannot be read.
pub fn reconstruct<H: Host>(host: &H, layout: &Layout, world: &World) -> Result<Found, ReconstructError> {
    let mounts = host.mount_points().map_err(at(Path::new("/proc/self/mountinfo")))?;
    let mut scan = Scan { host, layout, world, mounts, found: Found::default() };
    let devices = layout.block_devices();
    for driver in scan.list(&layout.csi())?.into_iter().filter(|path| *path != devices) {
        for device in scan.list(&driver)? {
            scan.device(&device)?;
        }
    }
    let other_directories = [devices.join("staging"), devices.join("publish")];
    for volume in scan.list(&devices)?.into_iter().filter(|path| !other_directories.contains(path)) {
        scan.block_device(&volume)?;
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
    world: &'a World,
    mounts: BTreeSet<PathBuf>,
    found: Found,
}

impl<H: Host> Scan<'_, H> {
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>, ReconstructError> {
        self.host.list(path).map_err(at(path))
    }

    /// One volume's device directory. Without a mount the previous agent was interrupted between creating the
    /// directory and the driver's response, or the driver does not mount there.
    fn device(&mut self, directory: &Path) -> Result<(), ReconstructError> {
        let mount_point = directory.join("globalmount");
        let recorded = self.vol_data::<DeviceData>(directory)?;
        let key = recorded.map(|data| VolumeKey::csi(data.driver_name, data.volume_handle));
        match key.or_else(|| self.volume_at(directory)) {
            Some(key) => {
                let mounted = self.state(&mount_point);
                self.found.actual.adopt(&key, None, mounted);
            }
            // A call to the driver needs the volume's id, which is lost.
            None => {
                tracing::warn!(path = %directory.display(), "removing a directory of an unknown volume");
                let removed = self.host.unmount(&mount_point).and_then(|()| self.host.remove_tree(directory));
                if let Err(error) = removed {
                    tracing::warn!(path = %directory.display(), %error, "not removed");
                }
            }
        }
        Ok(())
    }

    /// One block volume. Its driver need not mount anything to stage it; a pod's device shows that it is
    /// staged.
    fn block_device(&mut self, directory: &Path) -> Result<(), ReconstructError> {
        let pv = file_name(directory);
        let Some(key) = self.block_key(&pv)? else {
            tracing::warn!(path = %directory.display(), "removing a directory of an unknown volume");
            if let Err(error) = self.host.remove_tree(directory) {
                tracing::warn!(path = %directory.display(), %error, "not removed");
            }
            return Ok(());
        };
        let published = self.layout.block_publish(&pv);
        let used = self.mounts.iter().any(|mount| mount.parent() == Some(&published));
        self.found.actual.adopt(&key, None, if used { Mounted::Yes } else { Mounted::Found });
        self.found.actual.set_form(&key, Form::Block { pv });
        Ok(())
    }

    fn block_key(&self, pv: &str) -> Result<Option<VolumeKey>, ReconstructError> {
        let record = self.layout.block_devices().join(pv).join("data");
        let recorded = self.vol_data::<DeviceData>(&record)?;
        let key = recorded.map(|data| VolumeKey::csi(data.driver_name, data.volume_handle));
        Ok(key.or_else(|| self.volume_named(pv)))
    }

    fn pod(&mut self, uid: PodUid) -> Result<(), ReconstructError> {
        let volumes = self.layout.pod_volumes(&uid);
        for directory in self.list(&volumes.join(Plugin::Csi.directory()))? {
            let name = file_name(&directory);
            let recorded = self.vol_data::<PublishData>(&directory)?.map(|data| match data {
                PublishData { volume_lifecycle_mode: Lifecycle::Persistent, .. } => {
                    VolumeKey::csi(data.driver_name, data.volume_handle)
                }
                PublishData { driver_name: driver, volume_handle: handle, .. } => {
                    VolumeKey::Inline { driver, handle }
                }
            });
            let mounted = self.state(&directory.join("mount"));
            let unknown = || VolumeKey::Local { plugin: Plugin::Csi, pod: uid.clone(), name: name.clone() };
            let key = recorded.or_else(|| self.volume_named(&name)).unwrap_or_else(unknown);
            self.found.actual.adopt(&key, Some((&uid, &name)), mounted);
            // A driver may stage without a mount of its own: a pod has the volume, so it was staged.
            let device = self.found.actual.get(&key).and_then(|volume| volume.device);
            if (device, mounted) == (Some(Mounted::Found), Mounted::Yes) {
                self.found.actual.adopt(&key, None, Mounted::Yes);
            }
        }
        for link in self.list(&self.layout.pod_devices(&uid))? {
            let pv = file_name(&link);
            if let Some(key) = self.block_key(&pv)? {
                let mounted = self.state(&self.layout.block_published(&uid, &pv));
                self.found.actual.adopt(&key, Some((&uid, &pv)), mounted);
                self.found.actual.set_form(&key, Form::Block { pv });
            }
        }
        for plugin in Plugin::OF_CONTENT.into_iter().chain([Plugin::EmptyDir]) {
            for directory in self.list(&volumes.join(plugin.directory()))? {
                let mounted = match plugin {
                    Plugin::EmptyDir => Mounted::Yes,
                    _ if self.list(&directory)?.contains(&directory.join(DATA)) => Mounted::Outdated,
                    _ => Mounted::Found,
                };
                let name = file_name(&directory);
                let key = VolumeKey::Local { plugin, pod: uid.clone(), name: name.clone() };
                self.found.actual.adopt(&key, Some((&uid, &name)), mounted);
            }
        }
        self.found.pods.insert(uid);
        Ok(())
    }

    fn state(&self, mount_point: &Path) -> Mounted {
        if self.mounts.contains(mount_point) { Mounted::Yes } else { Mounted::Found }
    }

    /// The volume of the directory. Without a record it was being created or removed, or is damaged.
    fn vol_data<T: DeserializeOwned>(&self, directory: &Path) -> Result<Option<T>, ReconstructError> {
        let path = directory.join(VOL_DATA);
        let Some(bytes) = self.host.read(&path).map_err(at(&path))? else { return Ok(None) };
        match vol_data::decode(&bytes) {
            Ok(data) => Ok(Some(data)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the record");
                Ok(None)
            }
        }
    }

    /// The volume of this device directory. A linear search is acceptable: it is rare.
    fn volume_at(&self, directory: &Path) -> Option<VolumeKey> {
        let keys = self.world.volumes.iter().filter_map(|volume| key_of_volume(volume));
        let mut keys = keys.filter(|key| match key {
            VolumeKey::Csi { driver, handle } => self.layout.device(driver, handle) == directory,
            VolumeKey::Inline { .. } | VolumeKey::Local { .. } => false,
        });
        keys.next()
    }

    /// The volume named by a pod's directory.
    fn volume_named(&self, name: &str) -> Option<VolumeKey> {
        self.world.volumes.named(name).and_then(|volume| key_of_volume(volume))
    }
}

fn key_of_volume(volume: &PersistentVolume) -> Option<VolumeKey> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some(VolumeKey::csi(&csi.driver, &csi.volume_handle))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

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
                volume_lifecycle_mode: Lifecycle::Persistent,
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

        let found = reconstruct(&host, &layout, &World::default()).unwrap();
        assert_eq!(found.pods, BTreeSet::from([pod.clone()]));
        let volume = found.actual.get(&key).unwrap();
        assert_eq!(volume.device, Some(Mounted::Yes));
        assert!(found.actual.is_mounted(&key, &pod));
        // A publication that was interrupted may yet have happened.
        let other = found.actual.get(&VolumeKey::csi("d", "other")).unwrap();
        assert_eq!((other.device, other.pods[&pod].mounted), (None, Mounted::Found));
        // One without a record is only removed.
        let unsaid = VolumeKey::Local { plugin: Plugin::Csi, pod: pod.clone(), name: "unsaid".into() };
        assert!(found.actual.get(&unsaid).is_some());
        assert_eq!(found.actual.of_pod(&pod).count(), 4);
    }

    #[test]
    fn a_volume_that_a_pod_has_is_staged_though_its_driver_mounts_nothing_there() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let host = FakeHost::default();
        let pod = PodUid::from("u");
        for handle in ["in-use", "unused"] {
            let device = layout.device("d", handle);
            let data = DeviceData { driver_name: "d".into(), volume_handle: handle.into() };
            RealHost.make_dir(&device.join("globalmount")).unwrap();
            RealHost.write(&device.join(VOL_DATA), &vol_data::encode(&data)).unwrap();
        }
        let key = VolumeKey::csi("d", "in-use");
        let published = layout.pod_volume(&pod, &key, "pv");
        let data = r#"{"driverName":"d","volumeHandle":"in-use","nodeName":"n","attachmentID":"",
            "specVolID":"pv","volumeLifecycleMode":"Persistent"}"#;
        RealHost.make_dir(&published.join("mount")).unwrap();
        RealHost.write(&published.join(VOL_DATA), data.as_bytes()).unwrap();
        host.mount(published.join("mount"));

        let found = reconstruct(&host, &layout, &World::default()).unwrap();
        let device = |handle: &str| found.actual.get(&VolumeKey::csi("d", handle)).unwrap().device;
        assert_eq!((device("in-use"), device("unused")), (Some(Mounted::Yes), Some(Mounted::Found)));
    }

    #[test]
    fn the_api_helps_where_a_record_is_corrupt() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from("u");
        let host = FakeHost::default();
        let world = testing::world([testing::volume("pv", "", "1Gi").into()]);
        let key = VolumeKey::csi(testing::DRIVER, "handle-pv");
        let known = layout.device(testing::DRIVER, "handle-pv");
        let unknown = layout.device(testing::DRIVER, "other");
        let published = layout.pod_volume(&pod, &key, "pv");
        for dir in [&known.join("globalmount"), &unknown.join("globalmount"), &published.join("mount")] {
            RealHost.make_dir(dir).unwrap();
            host.mount(dir.clone());
        }
        RealHost.write(&known.join(VOL_DATA), b"{\"driverName\":").unwrap();
        RealHost.write(&unknown.join(VOL_DATA), b"").unwrap();

        let found = reconstruct(&host, &layout, &world).unwrap();
        let volume = found.actual.get(&key).unwrap();
        assert_eq!((volume.device, volume.pods[&pod].mounted), (Some(Mounted::Yes), Mounted::Yes));
        assert!(!unknown.exists() && known.exists());
        assert_eq!(found.actual.iter().count(), 1);
    }

    #[test]
    fn content_and_inline_volumes_are_found_too() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from("u");
        let inline = VolumeKey::inline("d", &pod, "scratch");
        let VolumeKey::Inline { handle, .. } = &inline else { panic!("{inline:?}") };
        let directory = layout.pod_volume(&pod, &inline, "scratch");
        RealHost.make_dir(&directory).unwrap();
        let data = format!(
            r#"{{"driverName":"d","volumeHandle":"{handle}","nodeName":"n","attachmentID":"",
            "specVolID":"scratch","volumeLifecycleMode":"Ephemeral"}}"#
        );
        RealHost.write(&directory.join(VOL_DATA), data.as_bytes()).unwrap();
        let key =
            |name: &str| VolumeKey::Local { plugin: Plugin::Secret, pod: pod.clone(), name: name.into() };
        for (name, file) in [("written", "..data"), ("begun", "..data_tmp")] {
            RealHost.make_dir(&layout.pod_volume(&pod, &key(name), name).join(file)).unwrap();
        }

        let found = reconstruct(&FakeHost::default(), &layout, &World::default()).unwrap();
        let mounted = |key: &VolumeKey| found.actual.get(key).unwrap().pods[&pod].mounted;
        assert_eq!(mounted(&inline), Mounted::Found);
        assert_eq!((mounted(&key("written")), mounted(&key("begun"))), (Mounted::Outdated, Mounted::Found));
    }

    #[test]
    fn an_empty_node_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path().join("none"));
        let found = reconstruct(&FakeHost::default(), &layout, &World::default()).unwrap();
        assert!(found.pods.is_empty() && found.actual.iter().next().is_none());
    }
}
