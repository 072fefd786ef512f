//! Reconstruction after a restart: what the previous agent has left becomes the actual state, so that orphaned mounts
//! are unmounted, and those that are desired are completed.
//!
//! All of it is uncertain: a mount shows neither that the driver's call has ended, nor that what follows it has: the
//! ownership of files, an expansion. So desired volumes are staged and published again before their pods' containers
//! are started. Upstream: `pkg/kubelet/volumemanager/reconciler/reconstruct.go`.

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

/// Scans the node. Where a record is missing or damaged, the volumes of `world`, and those attached to its node, help to
/// identify a directory; without a world, the result is `None` in such a case, and nothing is removed.
///
/// # Errors
/// If the directories cannot be read.
pub fn reconstruct<H: Host>(
    host: &H,
    layout: &Layout,
    world: Option<&World>,
) -> Result<Option<Found>, ReconstructError> {
    let mut scan = Scan { host, layout, world, unidentified: false, found: Found::default() };
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
    Ok((!scan.unidentified).then_some(scan.found))
}

/// The names of the PersistentVolumes that directories on the node have.
///
/// # Errors
/// If the directories cannot be read.
pub fn volume_names<H: Host>(host: &H, layout: &Layout) -> Result<BTreeSet<String>, ReconstructError> {
    let list = |path: &Path| host.list(path).map_err(at(path));
    let mut directories = list(&layout.block_devices())?;
    for pod in list(&layout.pods())? {
        let pod = PodUid::from(file_name(&pod));
        directories.extend(list(&layout.pod_volumes(&pod).join(Plugin::Csi.directory()))?);
    }
    Ok(directories.iter().map(|path| file_name(path)).collect())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ReconstructError {
    let path = path.to_owned();
    |source| ReconstructError { path, source }
}

struct Scan<'a, H> {
    host: &'a H,
    layout: &'a Layout,
    world: Option<&'a World>,
    /// The volume of a directory is unknown for lack of a world.
    unidentified: bool,
    found: Found,
}

impl<'a, H: Host> Scan<'a, H> {
    fn list(&self, path: &Path) -> Result<Vec<PathBuf>, ReconstructError> {
        self.host.list(path).map_err(at(path))
    }

    /// One volume's device directory.
    fn device(&mut self, directory: &Path) -> Result<(), ReconstructError> {
        let mount_point = directory.join("globalmount");
        let recorded = self.vol_data::<DeviceData>(directory)?;
        let key = recorded.map(|data| VolumeKey::csi(data.driver_name, data.volume_handle));
        match key.or_else(|| self.volume_at(directory)) {
            Some(key) => self.found.actual.adopt(&key, None, Mounted::Found),
            None if self.world.is_none() => {}
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

    /// One block volume.
    fn block_device(&mut self, directory: &Path) -> Result<(), ReconstructError> {
        let pv = file_name(directory);
        let Some(key) = self.block_key(&pv)? else {
            if self.world.is_none() {
                return Ok(());
            }
            tracing::warn!(path = %directory.display(), "removing a directory of an unknown volume");
            if let Err(error) = self.host.remove_tree(directory) {
                tracing::warn!(path = %directory.display(), %error, "not removed");
            }
            return Ok(());
        };
        self.found.actual.adopt(&key, None, Mounted::Found);
        self.found.actual.set_form(&key, Form::Block { pv });
        Ok(())
    }

    fn block_key(&mut self, pv: &str) -> Result<Option<VolumeKey>, ReconstructError> {
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
            let unknown = || VolumeKey::Local { plugin: Plugin::Csi, pod: uid.clone(), name: name.clone() };
            let key = recorded.or_else(|| self.volume_named(&name)).unwrap_or_else(unknown);
            self.found.actual.adopt(&key, Some((&uid, &name)), Mounted::Found);
        }
        for link in self.list(&self.layout.pod_devices(&uid))? {
            let pv = file_name(&link);
            if let Some(key) = self.block_key(&pv)? {
                self.found.actual.adopt(&key, Some((&uid, &pv)), Mounted::Found);
                self.found.actual.set_form(&key, Form::Block { pv });
            }
        }
        for plugin in Plugin::OF_CONTENT.into_iter().chain([Plugin::EmptyDir]) {
            for directory in self.list(&volumes.join(plugin.directory()))? {
                let name = file_name(&directory);
                let key = VolumeKey::Local { plugin, pod: uid.clone(), name: name.clone() };
                let mounted = match plugin {
                    // Never made again: its users may have changed its mode since.
                    Plugin::EmptyDir if self.is_ready(&uid, &name)? => Mounted::Yes,
                    // Its files appear all at once, with their group.
                    _ if self.list(&directory)?.contains(&directory.join(DATA)) => Mounted::Outdated,
                    _ => Mounted::Found,
                };
                self.found.actual.adopt(&key, Some((&uid, &name)), mounted);
            }
        }
        self.found.pods.insert(uid);
        Ok(())
    }

    /// Whether an emptyDir was completed.
    fn is_ready(&self, pod: &PodUid, name: &str) -> Result<bool, ReconstructError> {
        let path = self.layout.empty_dir_ready(pod, name);
        Ok(self.host.read(&path).map_err(at(&path))?.is_some())
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
    fn volume_at(&mut self, directory: &Path) -> Option<VolumeKey> {
        let world = self.known_volumes()?;
        let of_volumes = world.volumes.iter().filter_map(|volume| key_of_volume(volume));
        let status = world.nodes.iter().filter_map(|node| node.status.as_ref());
        let attached = status.flat_map(|status| status.volumes_attached.iter().flatten());
        let mut keys = of_volumes.chain(attached.filter_map(|volume| VolumeKey::parse(&volume.name)));
        keys.find(|key| match key {
            VolumeKey::Csi { driver, handle } => self.layout.device(driver, handle) == directory,
            VolumeKey::Inline { .. } | VolumeKey::Local { .. } => false,
        })
    }

    /// The volume named by a pod's directory.
    fn volume_named(&mut self, name: &str) -> Option<VolumeKey> {
        self.known_volumes()?.volumes.named(name).and_then(|volume| key_of_volume(volume))
    }

    fn known_volumes(&mut self) -> Option<&'a World> {
        self.unidentified |= self.world.is_none();
        self.world
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

        let found = reconstruct(&host, &layout, Some(&World::default())).unwrap().unwrap();
        assert_eq!(found.pods, BTreeSet::from([pod.clone()]));
        let volume = found.actual.get(&key).unwrap();
        assert_eq!((volume.device, volume.pods[&pod].mounted), (Some(Mounted::Found), Mounted::Found));
        // A publication that was interrupted may yet have happened.
        let other = found.actual.get(&VolumeKey::csi("d", "other")).unwrap();
        assert_eq!((other.device, other.pods[&pod].mounted), (None, Mounted::Found));
        // One without a record is only removed.
        let unsaid = VolumeKey::Local { plugin: Plugin::Csi, pod: pod.clone(), name: "unsaid".into() };
        assert!(found.actual.get(&unsaid).is_some());
        assert_eq!(found.actual.volumes_of_pod(&pod).count(), 4);
    }

    /// Its directory may lack the tmpfs, the mode or the group.
    #[test]
    fn an_empty_dir_counts_once_it_was_completed() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from("u");
        let key =
            |name: &str| VolumeKey::Local { plugin: Plugin::EmptyDir, pod: pod.clone(), name: name.into() };
        for name in ["begun", "made"] {
            RealHost.make_dir(&layout.pod_volume(&pod, &key(name), name)).unwrap();
        }
        let ready = layout.empty_dir_ready(&pod, "made");
        RealHost.make_dir(ready.parent().unwrap()).unwrap();
        RealHost.write(&ready, b"").unwrap();
        let found = reconstruct(&FakeHost::default(), &layout, None).unwrap().unwrap();
        let mounted = |name: &str| found.actual.get(&key(name)).unwrap().pods[&pod].mounted;
        assert_eq!((mounted("begun"), mounted("made")), (Mounted::Found, Mounted::Yes));
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

        let unlisted = reconstruct(&host, &layout, None).unwrap();
        assert!(unlisted.is_none() && unknown.exists(), "it may be a volume that has not been listed");
        let found = reconstruct(&host, &layout, Some(&world)).unwrap().unwrap();
        let volume = found.actual.get(&key).unwrap();
        assert_eq!((volume.device, volume.pods[&pod].mounted), (Some(Mounted::Found), Mounted::Found));
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

        let found = reconstruct(&FakeHost::default(), &layout, None).unwrap().unwrap();
        let mounted = |key: &VolumeKey| found.actual.get(key).unwrap().pods[&pod].mounted;
        assert_eq!(mounted(&inline), Mounted::Found);
        assert_eq!((mounted(&key("written")), mounted(&key("begun"))), (Mounted::Outdated, Mounted::Found));
    }

    #[test]
    fn an_empty_node_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path().join("none"));
        let found = reconstruct(&FakeHost::default(), &layout, None).unwrap().unwrap();
        assert!(found.pods.is_empty() && found.actual.iter().next().is_none());
    }
}
