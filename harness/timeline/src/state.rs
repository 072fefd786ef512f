//! The state of all objects: facts, filled in as evidence arrives, in any order.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{DataSource, data_source, is_terminal, pod_claims, quantity};
use claimcheck_model::{
    KubeletPath, OUT_OF_SERVICE, ObjectKey, SELECTED_NODE, STORAGE_PROVISIONER, Stamp, VolumeMode,
};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::calls::Handle;
use super::fact::Fact;
use super::objects::{Attachment, Claim, Expansion, PodState, Volume};
use super::snapshots::Snapshots;
use crate::evidence::{Change, Object};

/// All objects.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By uid.
    pub claims: BTreeMap<String, Claim>,
    /// The uid of the newest claim of a name.
    claim_names: BTreeMap<ObjectKey, String>,
    /// By name.
    pub volumes: BTreeMap<String, Volume>,
    /// Names of the volumes with a volume handle: rarely more than one.
    pub handles: BTreeMap<(String, String), BTreeSet<String>>,
    /// The handle by driver and SHA-256 of the handle, as in kubelets' directory names.
    hashes: BTreeMap<(String, String), String>,
    /// The volume's name by the claim uid of its claimRef.
    pub volume_of: BTreeMap<String, String>,
    /// By uid.
    pub attachments: BTreeMap<String, Attachment>,
    /// Attachments by volume.
    pub attachments_of: BTreeMap<String, BTreeSet<String>>,
    /// By uid.
    pub pods: BTreeMap<String, PodState>,
    pub snapshots: Snapshots,
    /// Pods that refer to a claim of this name which does not exist yet.
    waiting: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Drivers with attachRequired: false.
    unattachable: BTreeSet<String>,
    /// Nodes from which volumes are detached without waiting for an unmount.
    lost_nodes: BTreeSet<String>,
    /// The node with this node id of a driver.
    node_ids: BTreeMap<(String, String), String>,
}

/// The object of a change.
pub(super) enum Touched {
    Claim(String),
    Pod(String),
    Attachment(String),
    Snapshot(String),
    Nothing,
}

/// The related objects of a removed claim.
pub(super) struct Forgotten {
    /// Its pods.
    pub pods: Vec<String>,
    /// Its volume's attachments.
    pub attachments: BTreeSet<String>,
    /// Its volume handle, the name passed to CreateVolume, and its snapshot handles.
    pub handles: Vec<(String, String)>,
    /// Its snapshots.
    pub snapshots: Vec<String>,
}

impl State {
    /// Removes a claim with its volume, its attachments and those of its pods that no longer exist.
    pub fn forget(&mut self, uid: &str) -> Option<Forgotten> {
        let claim = self.claims.remove(uid)?;
        if self.claim_names.get(&claim.key).is_some_and(|newest| newest == uid) {
            self.claim_names.remove(&claim.key);
        }
        self.volume_of.remove(uid);
        let (mut handles, mut attachments) = (Vec::new(), BTreeSet::new());
        // A retained volume may belong to another claim by now.
        if self.volumes.get(&claim.volume).is_some_and(|volume| volume.claim == uid)
            && let Some(handle) = self.remove_volume(&claim.volume)
        {
            attachments = self.attachments_of.remove(&claim.volume).unwrap_or_default();
            for attachment in &attachments {
                self.attachments.remove(attachment);
            }
            let requested = (handle.0.clone(), claim.volume);
            handles = vec![handle, requested];
        }
        let deleted = |uid: &&String| self.pods.get(*uid).is_none_or(|pod| pod.deleted.is_some());
        let pods: Vec<String> = claim.pods.iter().filter(deleted).cloned().collect();
        for pod in &pods {
            self.pods.remove(pod);
        }
        let (snapshots, of_snapshots) = self.snapshots.forget(uid, &claim.key, claim.source.as_ref());
        handles.extend(of_snapshots);
        Some(Forgotten { pods, attachments, handles, snapshots })
    }

    /// Removes a volume, without its attachments; returns its handle.
    fn remove_volume(&mut self, name: &str) -> Option<Handle> {
        let volume = self.volumes.remove(name)?;
        let handle = (volume.driver, volume.handle);
        if let Some(names) = self.handles.get_mut(&handle) {
            names.remove(name);
            if names.is_empty() {
                self.handles.remove(&handle);
                self.hashes.remove(&(handle.0.clone(), claimcheck_model::sha256(&handle.1)));
            }
        }
        if self.volume_of.get(&volume.claim).is_some_and(|other| other == name) {
            self.volume_of.remove(&volume.claim);
        }
        Some(handle)
    }

    /// Removes a volume that no longer exists, unless a claim or an attachment has it: it is removed with that claim, or
    /// after that attachment. Returns its handle, and whether it is to be tried again.
    pub fn forget_volume(&mut self, name: &str, uid: &str) -> (Option<Handle>, bool) {
        let Some(volume) = self.volumes.get(name).filter(|volume| volume.uid == uid) else {
            return (None, false);
        };
        if self.claims.contains_key(&volume.claim) {
            return (None, false);
        }
        match self.attachments_of.contains_key(name) {
            true => (None, true),
            false => (self.remove_volume(name), false),
        }
    }

    /// Removes a pod that no longer exists.
    pub fn forget_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        for (key, claim) in pod.claims {
            if let Some(claim) = claim.and_then(|claim| self.claims.get_mut(&claim)) {
                claim.pods.remove(uid);
            }
            let Some(waiting) = self.waiting.get_mut(&key) else { continue };
            waiting.remove(uid);
            if waiting.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }

    /// Removes an attachment that no longer exists.
    pub fn forget_attachment(&mut self, uid: &str) {
        let Some(attachment) = self.attachments.remove(uid) else { return };
        let Some(others) = self.attachments_of.get_mut(&attachment.volume) else { return };
        others.remove(uid);
        if others.is_empty() {
            self.attachments_of.remove(&attachment.volume);
        }
    }

    /// Records a change.
    pub fn observe(&mut self, change: &Change) -> Touched {
        let fact = Fact::watched(change.at, version(change.object.metadata()));
        let uid = change.object.metadata().uid.clone().unwrap_or_default();
        match &change.object {
            Object::Claim(claim) => self.observe_claim(uid, claim, fact, change.deleted),
            Object::Volume(volume) => self.observe_volume(uid, volume, fact, change.deleted),
            Object::Attachment(attachment) => self.observe_attachment(uid, attachment, fact, change.deleted),
            Object::Pod(pod) => self.observe_pod(uid, pod, fact, change.deleted),
            Object::Snapshot(snapshot) => {
                let seen = self.snapshots.observe_snapshot(snapshot, fact, change.deleted);
                seen.map_or(Touched::Nothing, Touched::Snapshot)
            }
            Object::Content(content) => {
                let seen = self.snapshots.observe_content(content, fact, change.deleted);
                seen.map_or(Touched::Nothing, Touched::Snapshot)
            }
            Object::Driver(driver) => {
                let name = driver.metadata.name.clone().unwrap_or_default();
                match driver.spec.attach_required {
                    Some(false) => self.unattachable.insert(name),
                    Some(true) | None => self.unattachable.remove(&name),
                };
                Touched::Nothing
            }
            Object::CsiNode(node) => {
                self.observe_csi_node(node);
                Touched::Nothing
            }
            Object::Node(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                match change.deleted || is_lost(node) {
                    true => self.lost_nodes.insert(name),
                    false => self.lost_nodes.remove(&name),
                };
                Touched::Nothing
            }
        }
    }

    fn observe_claim(
        &mut self,
        uid: String,
        object: &PersistentVolumeClaim,
        fact: Fact,
        deleted: bool,
    ) -> Touched {
        let known = self.claims.entry(uid.clone()).or_default();
        let (spec, status) = (object.spec.as_ref(), object.status.as_ref());
        known.key = key(&object.metadata);
        known.class = spec.and_then(|s| s.storage_class_name.clone()).unwrap_or_default();
        known.mode = mode(spec.and_then(|s| s.volume_mode.as_deref()));
        known.single_node = spec
            .and_then(|s| s.access_modes.as_ref())
            .is_some_and(|modes| modes.iter().all(|mode| mode.starts_with("ReadWriteOnce")));
        known.provisioner = annotation(&object.metadata, STORAGE_PROVISIONER);
        known.created.get_or_insert(fact);
        if let Some(source) = data_source(object) {
            self.snapshots.observe_source(&uid, &source);
            known.source = Some(source);
        }
        if annotation(&object.metadata, SELECTED_NODE).is_some() {
            known.selected.get_or_insert(fact);
        }
        if let Some(name) = spec.and_then(|s| s.volume_name.clone()) {
            known.volume = name;
        }
        if status.and_then(|s| s.phase.as_deref()) == Some("Bound") {
            known.bound.get_or_insert(fact);
        }
        let storage =
            |quantities: Option<&BTreeMap<String, _>>| quantities?.get("storage").and_then(quantity::bytes);
        if let Some(bytes) = storage(spec.and_then(|s| s.resources.as_ref()?.requests.as_ref())) {
            if known.requested != 0 && bytes > known.requested {
                known.expansions.push(Expansion { bytes, raised: fact, pending: None });
            }
            known.requested = bytes;
        }
        if let Some(bytes) = storage(status.and_then(|s| s.capacity.as_ref())) {
            known.capacity.observe(bytes, fact);
        }
        let pending = status.and_then(|s| s.conditions.as_ref()).is_some_and(|all| {
            all.iter().any(|c| c.type_ == "FileSystemResizePending" && c.status == "True")
        });
        if let Some(expansion) = known.expansions.last_mut().filter(|_| pending) {
            expansion.pending.get_or_insert(fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        let claim_key = known.key.clone();
        if let Some(volume) = self.volume_of.get(&uid) {
            known.volume.clone_from(volume);
        }
        self.resolve(claim_key, &uid, deleted);
        Touched::Claim(uid)
    }

    /// Resolves this claim for the pods that refer to its name.
    fn resolve(&mut self, claim: ObjectKey, uid: &str, deleted: bool) {
        // Its name is kept: a pod that used it may be observed only now.
        if deleted {
            return;
        }
        for pod in self.waiting.remove(&claim).unwrap_or_default() {
            self.use_claim(&pod, claim.clone(), uid);
        }
        self.claim_names.insert(claim, uid.to_owned());
    }

    /// Whether a claim was already deleted at the time of a fact.
    fn was_deleted(&self, claim: &str, fact: &Fact) -> bool {
        let deleted = self.claims.get(claim).and_then(|claim| claim.deleted);
        deleted.is_some_and(|deleted| fact.is_after(&deleted))
    }

    fn use_claim(&mut self, pod: &str, claim: ObjectKey, uid: &str) {
        if let Some(known) = self.pods.get_mut(pod) {
            known.claims.insert(claim, Some(uid.to_owned()));
        }
        self.claims.entry(uid.to_owned()).or_default().pods.insert(pod.to_owned());
    }

    fn observe_volume(
        &mut self,
        uid: String,
        object: &PersistentVolume,
        fact: Fact,
        deleted: bool,
    ) -> Touched {
        let name = object.metadata.name.clone().unwrap_or_default();
        let Some(spec) = object.spec.as_ref() else { return Touched::Nothing };
        let known = self.volumes.entry(name.clone()).or_default();
        if known.uid != uid {
            *known = Volume { uid, ..Volume::default() };
        }
        known.created.get_or_insert(fact);
        if let Some(csi) = &spec.csi {
            known.driver.clone_from(&csi.driver);
            known.handle.clone_from(&csi.volume_handle);
            let names = self.handles.entry((csi.driver.clone(), csi.volume_handle.clone())).or_default();
            if names.insert(name.clone()) {
                let hash = claimcheck_model::sha256(&csi.volume_handle);
                self.hashes.insert((csi.driver.clone(), hash), csi.volume_handle.clone());
            }
        }
        known.provisioned = annotation(&object.metadata, claimcheck_model::PROVISIONED_BY).is_some();
        known.reclaimed = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        let size = spec.capacity.as_ref().and_then(|c| c.get("storage"));
        if let Some(bytes) = size.and_then(quantity::bytes) {
            known.capacity.observe(bytes, fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        let Some(claim) = spec.claim_ref.as_ref().and_then(|r| r.uid.clone()) else {
            return Touched::Nothing;
        };
        if let Some(known) = self.claims.get_mut(&claim) {
            known.volume.clone_from(&name);
        }
        self.volumes.entry(name.clone()).or_default().claim.clone_from(&claim);
        self.volume_of.insert(claim.clone(), name);
        Touched::Claim(claim)
    }

    fn observe_attachment(
        &mut self,
        uid: String,
        object: &VolumeAttachment,
        fact: Fact,
        deleted: bool,
    ) -> Touched {
        let known = self.attachments.entry(uid.clone()).or_default();
        known.name = object.metadata.name.clone().unwrap_or_default();
        known.volume = object.spec.source.persistent_volume_name.clone().unwrap_or_default();
        known.node.clone_from(&object.spec.node_name);
        known.created.get_or_insert(fact);
        if object.status.as_ref().is_some_and(|status| status.attached) {
            known.attached.get_or_insert(fact);
        }
        if object.metadata.deletion_timestamp.is_some() || deleted {
            known.deleting.get_or_insert(fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        self.attachments_of.entry(known.volume.clone()).or_default().insert(uid.clone());
        Touched::Attachment(uid)
    }

    fn observe_pod(&mut self, uid: String, object: &Pod, fact: Fact, deleted: bool) -> Touched {
        if !self.pods.contains_key(&uid) {
            let claims: Vec<ObjectKey> = pod_claims(object).map(|used| used.claim).collect();
            if claims.is_empty() {
                return Touched::Nothing;
            }
            let pod = PodState { key: key(&object.metadata), created: Some(fact), ..PodState::default() };
            self.pods.insert(uid.clone(), pod);
            for claim in claims {
                let present =
                    self.claim_names.get(&claim).filter(|uid| !self.was_deleted(uid, &fact)).cloned();
                match present {
                    Some(claim_uid) => self.use_claim(&uid, claim, &claim_uid),
                    None => {
                        self.waiting.entry(claim.clone()).or_default().insert(uid.clone());
                        self.pods.entry(uid.clone()).or_default().claims.insert(claim, None);
                    }
                }
            }
        }
        let known = self.pods.entry(uid.clone()).or_default();
        if let Some(node) =
            object.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|n| !n.is_empty())
        {
            if known.scheduled.is_none() {
                known.born_on_node = known.created == Some(fact);
                known.scheduled = Some(fact);
            }
            known.node = node;
        }
        if is_ready(object) {
            known.ready.get_or_insert(fact);
        }
        if object.metadata.deletion_timestamp.is_some() || deleted {
            known.deleting.get_or_insert(fact);
        }
        if containers_ended(object) || deleted {
            known.terminated.get_or_insert(fact);
        }
        if deleted {
            known.deleted.get_or_insert(fact);
        }
        Touched::Pod(uid)
    }

    fn observe_csi_node(&mut self, object: &CSINode) {
        let node = object.metadata.name.clone().unwrap_or_default();
        for driver in &object.spec.drivers {
            self.node_ids.insert((driver.name.clone(), driver.node_id.clone()), node.clone());
        }
    }

    /// The name of the node with the driver's node id `id`; the id itself if no CSINode contains it.
    pub fn node_name<'a>(&'a self, driver: &str, id: &'a str) -> &'a str {
        self.node_ids.get(&(driver.to_owned(), id.to_owned())).map_or(id, String::as_str)
    }

    /// Whether volumes are detached from a node without having been unmounted.
    pub fn is_lost(&self, node: &str) -> bool {
        self.lost_nodes.contains(node)
    }

    /// Whether a driver requires attach. As upstream, it does unless its CSIDriver has attachRequired: false.
    pub fn attachable(&self, driver: &str) -> bool {
        !self.unattachable.contains(driver)
    }

    /// The newest claim of a name, and its uid.
    pub fn claim_named(&self, key: &ObjectKey) -> Option<(&str, &Claim)> {
        let (uid, claim) = self.claims.get_key_value(self.claim_names.get(key)?)?;
        Some((uid, claim))
    }

    /// When the data source of a claim became available.
    pub fn source_ready(&self, source: &DataSource) -> Option<Fact> {
        match source {
            DataSource::Snapshot(key) => self.snapshots.named(key)?.ready,
            DataSource::Claim(key) => self.claim_named(key)?.1.bound,
            DataSource::Elsewhere { .. } | DataSource::Other { .. } => None,
        }
    }

    /// The volume of a claim.
    pub fn volume_of_claim(&self, claim: &Claim) -> Option<&Volume> {
        self.volumes.get(&claim.volume)
    }

    /// The attachments of a volume.
    pub fn attachments_of(&self, volume: &str) -> impl Iterator<Item = &Attachment> {
        self.attachments_of.get(volume).into_iter().flatten().filter_map(|uid| self.attachments.get(uid))
    }

    /// The claims of a pod, none for one that does not exist yet.
    pub fn claims_of<'a>(&'a self, pod: &'a PodState) -> impl Iterator<Item = Option<&'a Claim>> {
        pod.claims.values().map(|uid| self.claims.get(uid.as_ref()?))
    }

    /// The volume of a staging path, if it is known; none for the target path of a pod.
    pub fn handle_at(&self, place: &KubeletPath) -> Option<Handle> {
        match place {
            KubeletPath::Publish { .. } => None,
            KubeletPath::Stage { driver, handle_sha256 } => {
                let handle = self.hashes.get(&(driver.clone(), handle_sha256.clone()))?;
                Some((driver.clone(), handle.clone()))
            }
            KubeletPath::StageOf { volume } => {
                let volume = self.volumes.get(volume)?;
                Some((volume.driver.clone(), volume.handle.clone()))
            }
        }
    }

    /// The claim of a volume, and its uid.
    pub fn claim_of_volume(&self, volume: &str) -> Option<(&str, &Claim)> {
        let (uid, claim) = self.claims.get_key_value(&self.volumes.get(volume)?.claim)?;
        Some((uid, claim))
    }

    /// The name of the volume that had a handle at a time: the newest that was not deleted yet.
    pub fn volume_at(&self, driver: &str, handle: &str, at: Stamp) -> Option<&str> {
        let names = self.handles.get(&(driver.to_owned(), handle.to_owned()))?;
        let alive = names.iter().filter_map(|name| Some((name, self.volumes.get(name)?)));
        alive
            .filter(|(_, volume)| volume.deleted.is_none_or(|deleted| deleted.at >= at))
            .min_by_key(|(_, volume)| volume.created.map(|fact| fact.at))
            .map(|(name, _)| name.as_str())
    }
}

/// Not ready, or tainted as out of service: volumes that it has not unmounted are detached by force
/// (`pkg/controller/volume/attachdetach/reconciler/reconciler.go`).
fn is_lost(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    taints.any(|taint| taint.key == OUT_OF_SERVICE)
        || conditions.any(|condition| condition.type_ == "Ready" && condition.status != "True")
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

fn annotation(metadata: &ObjectMeta, name: &str) -> Option<String> {
    metadata.annotations.as_ref()?.get(name).cloned()
}

fn mode(mode: Option<&str>) -> VolumeMode {
    match mode {
        Some("Block") => VolumeMode::Block,
        _ => VolumeMode::Filesystem,
    }
}

/// A pod that completed without being observed as Ready counts as started too.
fn is_ready(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    ready || status.phase.as_deref() == Some("Succeeded")
}

/// Containers of a pod that is not being deleted may restart, unless the pod has completed.
fn containers_ended(pod: &Pod) -> bool {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let declared = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let ended = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended = ended.filter(|c| c.state.as_ref().is_some_and(|state| state.terminated.is_some())).count();
    is_terminal(pod) || (deleting && declared > 0 && ended == declared)
}
