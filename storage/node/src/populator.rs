//! The populator: the volumes of a pod and their mount options, from the pod and the objects it refers to.
//!
//! Pure, like a planner. A volume that cannot be resolved yet (a claim that is not bound) is a [`Problem`] that
//! may resolve itself: the pod is populated again when the object changes.
//! Upstream: `pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{Kind, Pending, World, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::{
    api::core::v1::{
        CSIPersistentVolumeSource, CSIVolumeSource, Container, PersistentVolume, PersistentVolumeClaim, Pod,
        SecretReference, Volume,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    desired::VolumeUse,
    volumes::{
        Content, CsiVolume, EmptyDir, Form, FsGroup, HostPath, Plugin, PodMount, PodRef, PodUid, VolumeKey,
        VolumeSpec, host_path::HostPathKind,
    },
};

/// The volumeMode of block volumes.
const BLOCK: &str = "Block";

/// Why a volume of a pod cannot be mounted at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The volume's name in the pod.
    pub volume: String,
    /// The message for the user.
    pub message: String,
    /// Waiting may help: an object is missing or not bound yet. Otherwise the pod will never start.
    pub waiting: bool,
    /// An object that it depends on cannot be read: reported at once, though waiting may help.
    pub unlisted: bool,
}

/// The volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// Volumes to mount; two names for one claim are one volume.
    pub expected: Vec<VolumeUse>,
    /// Volumes that cannot be mounted, yet or ever.
    pub problems: Vec<Problem>,
}

/// The volumes that `pod` uses on this node.
///
/// A volume that was resolved `before` stays as it was: the claim of a running pod may be deleted, and
/// nothing is unmounted under it for that (upstream: `processedPods`). One that depends on what is still `pending`
/// waits: what the cache lacks may exist.
pub fn populate(pod: &Pod, world: &World, pending: &Pending, before: Option<&Population>) -> Population {
    let mut population = Population {
        expected: before.map(|before| before.expected.clone()).unwrap_or_default(),
        problems: Vec::new(),
    };
    let mut index: BTreeMap<VolumeKey, usize> = population
        .expected
        .iter()
        .enumerate()
        .map(|(position, expected)| (expected.key.clone(), position))
        .collect();
    let resolved: BTreeSet<String> =
        population.expected.iter().flat_map(|expected| expected.mount.names.iter().cloned()).collect();
    let Some(spec) = &pod.spec else { return population };
    let used = UsedNames::of(pod);
    // A volume that no container mounts is not mounted either.
    let volumes = spec.volumes.iter().flatten().filter(|volume| used.contains(&volume.name));
    for volume in volumes.filter(|volume| !resolved.contains(&volume.name)) {
        match unlisted(pod, volume, world, pending).map_or_else(|| resolve(pod, volume, &used, world), Err) {
            Err(problem) => population.problems.push(problem),
            Ok(expected) => match index.get(&expected.key) {
                // Published once; writable if one of the pod's two names is.
                Some(&first) => {
                    let mount = &mut population.expected[first].mount;
                    mount.read_only &= expected.mount.read_only;
                    mount.names.extend(expected.mount.names);
                }
                None => {
                    index.insert(expected.key.clone(), population.expected.len());
                    population.expected.push(expected);
                }
            },
        }
    }
    population
}

/// The claims of the pod's volumes that its containers use.
pub fn used_claims(pod: &Pod) -> impl Iterator<Item = ObjectKey> {
    let used = UsedNames::of(pod);
    pod_claims(pod).filter(move |claim| used.contains(&claim.volume)).map(|used| used.claim)
}

/// The name of the PersistentVolume to which a claim is bound.
pub fn bound_volume(claim: &PersistentVolumeClaim) -> Option<&str> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    name.filter(|name| phase == Some("Bound") && !name.is_empty())
}

/// The pod as volumes refer to it.
pub fn pod_ref(pod: &Pod) -> PodRef {
    let service_account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    PodRef { key: key_of(pod), uid: uid_of(pod), service_account: service_account.unwrap_or_default() }
}

/// The pod's uid.
pub fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.metadata.uid.clone().unwrap_or_default())
}

/// Names of the pod's volumes that its containers mount as a file system, or read variables from, or mount as a device.
struct UsedNames<'a> {
    mounts: BTreeSet<&'a str>,
    devices: BTreeSet<&'a str>,
}

impl<'a> UsedNames<'a> {
    fn contains(&self, name: &str) -> bool {
        self.mounts.contains(name) || self.devices.contains(name)
    }

    fn of(pod: &'a Pod) -> Self {
        let containers = || -> Box<dyn Iterator<Item = &'a Container>> {
            match &pod.spec {
                Some(spec) => Box::new(spec.init_containers.iter().flatten().chain(&spec.containers)),
                None => Box::new(std::iter::empty()),
            }
        };
        Self {
            mounts: containers()
                .flat_map(|c| c.volume_mounts.iter().flatten())
                .map(|m| m.name.as_str())
                .chain(containers().flat_map(volumes_of_variables))
                .collect(),
            devices: containers()
                .flat_map(|c| c.volume_devices.iter().flatten())
                .map(|d| d.name.as_str())
                .collect(),
        }
    }
}

/// The volumes with files of a container's variables.
fn volumes_of_variables(container: &Container) -> impl Iterator<Item = &str> {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    sources.filter_map(|source| source.file_key_ref.as_ref()).map(|file| file.volume_name.as_str())
}

/// The problem of a volume that depends on objects that could not be read, or on a kind that has not been listed.
fn unlisted(pod: &Pod, volume: &Volume, world: &World, pending: &Pending) -> Option<Problem> {
    let mut needed = vec![(Kind::CsiDriver, None)];
    if let Some(used) = pod_claims(pod).find(|claim| claim.volume == volume.name) {
        let pv = world.claims.get(&used.claim).and_then(|claim| bound_volume(claim)).map(ObjectKey::cluster);
        needed.extend([(Kind::Node, None), (Kind::Claim, Some(used.claim))]);
        needed.extend(pv.map(|pv| (Kind::Volume, Some(pv))));
    } else if volume.csi.is_none() {
        return None;
    }
    let waits = |needed: &(Kind, Option<ObjectKey>)| Some((needed.clone(), pending.get(needed)?));
    let ((kind, object), reason) = needed.iter().find_map(waits)?;
    let kind = kind.name();
    let message = match (object, reason.as_str()) {
        (Some(object), reason) => format!("{kind} {object} cannot be read: {reason}"),
        (None, "") => format!("{kind} objects have not been listed yet"),
        (None, reason) => format!("{kind} objects cannot be listed: {reason}"),
    };
    Some(Problem { volume: volume.name.clone(), message, waiting: true, unlisted: !reason.is_empty() })
}

fn resolve(pod: &Pod, volume: &Volume, used: &UsedNames<'_>, world: &World) -> Result<VolumeUse, Problem> {
    let problem = |waiting: bool, message: String| {
        let volume = volume.name.clone();
        Problem { volume, message, waiting, unlisted: false }
    };
    if let Some(by) = pod_claims(pod).find(|claim| claim.volume == volume.name) {
        let source =
            Source { pod, volume, claim: &by.claim, ephemeral: by.ephemeral, read_only: by.read_only };
        let (expected, mode) =
            source.resolve(world).map_err(|(waiting, message)| problem(waiting, message))?;
        check_mode(volume, mode, used).map_err(|message| problem(false, message))?;
        return Ok(expected);
    }
    let (key, spec, read_only) = pod_volume(pod, volume).map_err(|message| problem(false, message))?;
    check_mode(volume, "Filesystem", used).map_err(|message| problem(false, message))?;
    Ok(VolumeUse { key, spec, mount: pod_mount(pod, volume, volume.name.clone(), read_only) })
}

/// A pod-local volume.
fn pod_volume(pod: &Pod, volume: &Volume) -> Result<(VolumeKey, VolumeSpec, bool), String> {
    let uid = uid_of(pod);
    if let Some(csi) = &volume.csi {
        let key = VolumeKey::inline(&csi.driver, &uid, &volume.name);
        let spec = VolumeSpec::Csi(Box::new(inline_volume(pod, volume, csi)));
        return Ok((key, spec, csi.read_only.unwrap_or(false)));
    }
    let (plugin, spec) = if let Some(dir) = &volume.empty_dir {
        (Plugin::EmptyDir, VolumeSpec::EmptyDir(EmptyDir::of(dir)?))
    } else if let Some(source) = &volume.host_path {
        let kind = source.type_.as_deref().unwrap_or_default();
        let path = HostPath::of(source).ok_or_else(|| format!("hostPath has no type {kind:?}"))?;
        (Plugin::HostPath, VolumeSpec::HostPath(path))
    } else if let Some(content) = Content::of(volume, &key_of(pod).namespace) {
        let (plugin, content) = content?;
        (plugin, VolumeSpec::Content(Box::new(content)))
    } else {
        return Err("volumes of this kind are not supported by this node".into());
    };
    Ok((VolumeKey::Local { plugin, pod: uid, name: volume.name.clone() }, spec, false))
}

/// Upstream: `SetUpAt` in `pkg/volume/csi/csi_mounter.go`, for a volume source of a pod.
fn inline_volume(pod: &Pod, volume: &Volume, csi: &CSIVolumeSource) -> CsiVolume {
    let VolumeKey::Inline { driver, handle } = VolumeKey::inline(&csi.driver, &uid_of(pod), &volume.name)
    else {
        unreachable!("an inline volume has an inline key")
    };
    let secret = csi.node_publish_secret_ref.as_ref();
    CsiVolume {
        pv: volume.name.clone(),
        driver,
        handle,
        form: Form::Filesystem,
        fs_type: csi.fs_type.clone().unwrap_or_default(),
        mount_options: Vec::new(),
        access_modes: vec!["ReadWriteOnce".into()],
        attributes: csi.volume_attributes.clone().unwrap_or_default(),
        stage_secret: None,
        publish_secret: secret.map(|secret| ObjectKey::new(key_of(pod).namespace, secret.name.clone())),
        expand_secret: None,
    }
}

/// Upstream: `createVolumeSpec` in the populator; the messages are its.
fn check_mode(volume: &Volume, mode: &str, used: &UsedNames<'_>) -> Result<(), String> {
    match (mode, used.devices.contains(volume.name.as_str())) {
        (BLOCK, false) => {
            Err(format!("volume {} has volumeMode Block, but is specified in volumeMounts", volume.name))
        }
        (BLOCK, true) => Ok(()),
        (_, true) => Err(format!(
            "volume {} has volumeMode Filesystem, but is specified in volumeDevices",
            volume.name
        )),
        (_, false) => Ok(()),
    }
}

fn pod_mount(pod: &Pod, volume: &Volume, directory: String, read_only: bool) -> PodMount {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let fs_group = security.and_then(|context| {
        let on_root_mismatch = context.fs_group_change_policy.as_deref() == Some("OnRootMismatch");
        Some(FsGroup { gid: u32::try_from(context.fs_group?).ok()?, on_root_mismatch })
    });
    PodMount { pod: pod_ref(pod), names: vec![volume.name.clone()], directory, read_only, fs_group }
}

/// A pod's volume that comes from a claim.
struct Source<'a> {
    pod: &'a Pod,
    volume: &'a Volume,
    claim: &'a ObjectKey,
    ephemeral: bool,
    read_only: bool,
}

impl Source<'_> {
    /// The volume and its mode, or whether waiting helps and a message.
    fn resolve<'w>(&self, world: &'w World) -> Result<(VolumeUse, &'w str), (bool, String)> {
        let failed =
            |waiting: bool, what: &str| (waiting, format!("error processing PVC {}: {what}", self.claim));
        let claim = world.claims.get(self.claim).ok_or_else(|| failed(true, "the claim does not exist"))?;
        if self.ephemeral && !self.owns(claim.metadata.owner_references.as_deref().unwrap_or_default()) {
            return Err(failed(false, "the claim was not made for this pod: delete it, or rename the pod"));
        }
        if claim.metadata.deletion_timestamp.is_some() && !self.has_run() {
            // Upstream: a claim that is being deleted is held for the pods that use it already, not for more.
            return Err(failed(false, "PVC is being deleted"));
        }
        let name = bound_volume(claim).ok_or_else(|| failed(true, "PVC is not bound"))?;
        let pv =
            world.volumes.named(name).ok_or_else(|| failed(true, &format!("PV {name} does not exist")))?;
        let pv_spec = pv.spec.as_ref().ok_or_else(|| failed(false, &format!("PV {name} has no spec")))?;
        let owner = pv_spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref());
        if owner != claim.metadata.uid.as_ref() {
            return Err(failed(true, &format!("PV {name} is bound to another claim")));
        }
        let mode = pv_spec.volume_mode.as_deref().unwrap_or("Filesystem");
        let (key, spec) = self.persistent_volume(name, pv).map_err(|what| failed(false, &what))?;
        // The PV's own `readOnly` is for ControllerPublishVolume alone: upstream's `getReadOnlyFromSpec`.
        let mount = pod_mount(self.pod, self.volume, name.to_owned(), self.read_only);
        Ok((VolumeUse { key, spec, mount }, mode))
    }

    /// The PV's specification on this node.
    fn persistent_volume(
        &self,
        name: &str,
        pv: &PersistentVolume,
    ) -> Result<(VolumeKey, VolumeSpec), String> {
        let spec = pv.spec.as_ref();
        if let Some(csi) = spec.and_then(|spec| spec.csi.as_ref()) {
            let volume = csi_volume(name, pv, csi);
            let key = VolumeKey::csi(&csi.driver, &csi.volume_handle);
            return Ok((key, VolumeSpec::Csi(Box::new(volume))));
        }
        let host = spec.and_then(|spec| spec.host_path.as_ref()).and_then(HostPath::of);
        // Upstream binds a local volume into the pod's directory; containers see the same without.
        let block = spec.is_some_and(|spec| spec.volume_mode.as_deref() == Some(BLOCK));
        let kind = if block { HostPathKind::BlockDevice } else { HostPathKind::Directory };
        let local = spec.and_then(|spec| spec.local.as_ref());
        let local = local.map(|local| HostPath { path: local.path.clone().into(), kind });
        let path = host.or(local).ok_or_else(|| {
            format!("PV {name} is neither a CSI nor a hostPath or local volume, which are all that this node mounts")
        })?;
        let (plugin, pod) = (Plugin::HostPath, uid_of(self.pod));
        let key = VolumeKey::Local { plugin, pod, name: self.volume.name.clone() };
        Ok((key, VolumeSpec::HostPath(path)))
    }

    fn owns(&self, owners: &[OwnerReference]) -> bool {
        owners
            .iter()
            .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == self.pod.metadata.uid.as_ref())
    }

    /// Whether a container of the pod was started: those that wait have a status as well, without an ID.
    fn has_run(&self) -> bool {
        let status = self.pod.status.iter();
        let mut containers = status
            .flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses))
            .flatten();
        containers.any(|container| container.container_id.as_ref().is_some_and(|id| !id.is_empty()))
    }
}

fn csi_volume(name: &str, pv: &PersistentVolume, csi: &CSIPersistentVolumeSource) -> CsiVolume {
    let spec = pv.spec.as_ref();
    let block = spec.is_some_and(|spec| spec.volume_mode.as_deref() == Some(BLOCK));
    CsiVolume {
        pv: name.to_owned(),
        form: if block { Form::Block { pv: name.to_owned() } } else { Form::Filesystem },
        driver: csi.driver.clone(),
        handle: csi.volume_handle.clone(),
        fs_type: csi.fs_type.clone().unwrap_or_default(),
        mount_options: spec.and_then(|spec| spec.mount_options.clone()).unwrap_or_default(),
        access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        attributes: csi.volume_attributes.clone().unwrap_or_default(),
        stage_secret: csi.node_stage_secret_ref.as_ref().map(secret_key),
        publish_secret: csi.node_publish_secret_ref.as_ref().map(secret_key),
        expand_secret: csi.node_expand_secret_ref.as_ref().map(secret_key),
    }
}

fn secret_key(reference: &SecretReference) -> ObjectKey {
    ObjectKey::new(
        reference.namespace.clone().unwrap_or_default(),
        reference.name.clone().unwrap_or_default(),
    )
}

#[cfg(test)]
#[path = "populator_tests.rs"]
mod tests;
