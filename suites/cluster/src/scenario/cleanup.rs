//! What a scenario leaves to be deleted that the clean-up of a case does not know: workloads, a second namespace, and
//! retained volumes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use claimcheck_cluster::{Disruption, Victim};
use claimcheck_scenario::{Kind, Record, Store};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// How often is looked whether objects are gone.
const PAUSE: Duration = Duration::from_millis(50);

/// The objects of a scenario.
pub(crate) struct Cleanup {
    client: Client,
    record: Record,
    namespace: String,
    /// Kind, namespace and name of what it has created.
    created: Mutex<Vec<(&'static Kind, String, String)>>,
    /// The former values of fields of objects that are not the scenario's.
    restored: Mutex<Vec<(&'static Kind, String, String, Value)>>,
    /// Objects that are not the scenario's, and that it has deleted.
    recreated: Mutex<Vec<(&'static Kind, Value)>>,
    /// What is stopped or paused, with what ends that.
    disrupted: Mutex<Vec<(Victim, Disruption)>>,
    limit: Duration,
}

impl Cleanup {
    /// Of a scenario in this namespace; its objects must be gone after `limit`.
    pub(super) fn new(client: Client, record: Record, namespace: &str, limit: Duration) -> Self {
        Self {
            client,
            record,
            namespace: namespace.to_owned(),
            created: Mutex::default(),
            restored: Mutex::default(),
            recreated: Mutex::default(),
            disrupted: Mutex::default(),
            limit,
        }
    }

    /// An object was created.
    pub(super) fn created(&self, kind: &'static Kind, namespace: &str, name: &str) {
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        created.push((kind, namespace.to_owned(), name.to_owned()));
    }

    /// A field of an object that is not the scenario's will be changed.
    pub(super) fn restore(&self, kind: &'static Kind, namespace: &str, name: &str, former: Value) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        restored.push((kind, namespace.to_owned(), name.to_owned(), former));
    }

    /// An object that is not the scenario's will be deleted.
    pub(super) fn recreate(&self, kind: &'static Kind, object: Value) {
        self.recreated.lock().unwrap_or_else(PoisonError::into_inner).push((kind, object));
    }

    /// What is stopped or paused now.
    pub(super) fn stopped(&self) -> Vec<String> {
        let disrupted = self.disrupted.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |end: &Disruption| if *end == Disruption::Resume { "paused" } else { "stopped" };
        disrupted.iter().map(|(victim, end)| format!("{victim} {}", state(end))).collect()
    }

    /// A component is disrupted.
    pub(super) fn disrupted(&self, victim: &Victim, how: Disruption) {
        let mut disrupted = self.disrupted.lock().unwrap_or_else(PoisonError::into_inner);
        disrupted.retain(|(other, _)| other != victim);
        match how {
            Disruption::Stop => disrupted.push((victim.clone(), Disruption::Start)),
            Disruption::Pause => disrupted.push((victim.clone(), Disruption::Resume)),
            Disruption::Kill | Disruption::Start | Disruption::Resume | Disruption::Configure(_) => {}
        }
    }

    /// What ends the disruptions that the scenario has not ended, once.
    pub(crate) fn ends(&self) -> Vec<(Victim, Disruption)> {
        std::mem::take(&mut self.disrupted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn all(&self) -> Vec<(&'static Kind, String, String)> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Before the objects of the scenario's namespace are deleted: workloads, of which the controllers would start pods again,
    /// and the objects of its second namespace; volumes that would be retained are no longer.
    ///
    /// # Errors
    /// An object cannot be deleted, or is not gone in time.
    pub(crate) async fn before(&self) -> Result<()> {
        // What cannot be restored is reported after the rest is deleted.
        let restored = self.restore_all().await;
        self.delete_own().await.and(restored)
    }

    async fn restore_all(&self) -> Result<()> {
        let restored = std::mem::take(&mut *self.restored.lock().unwrap_or_else(PoisonError::into_inner));
        let recreated = std::mem::take(&mut *self.recreated.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ended = Ok(());
        for (kind, mut object) in recreated {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            object["metadata"] = json!({
                "name": name,
                "labels": object["metadata"]["labels"],
                "annotations": object["metadata"]["annotations"],
            });
            let object = serde_json::from_value(object).context("an object of the cluster is none")?;
            match kind.api(&self.client, None).create(&PostParams::default(), &object).await {
                Ok(_) => {}
                // The scenario has created it again.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => {
                    let what = format!("{} {name} cannot be created again", kind.kind);
                    ended = ended.and(Err(error).context(what));
                }
            }
        }
        for (kind, namespace, name, former) in restored.into_iter().rev() {
            let api = kind.api(&self.client, Some(&namespace));
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(former)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    let what = format!("{} {name} cannot be restored", kind.kind);
                    ended = ended.and(Err(error).context(what));
                }
            }
        }
        ended
    }

    async fn delete_own(&self) -> Result<()> {
        let created = self.all();
        for (kind, namespace, name) in created.iter().filter(|(kind, ..)| kind.is_workload()) {
            self.delete(kind, namespace, name, &DeleteParams::foreground()).await?;
        }
        for (kind, namespace, name) in created.iter().filter(|(kind, ..)| kind.is_workload()) {
            self.gone(kind, namespace, name).await?;
        }
        self.release_volumes().await?;
        let Some(other) = created.iter().map(|(_, namespace, _)| namespace).find(|of| self.is_other(of))
        else {
            return Ok(());
        };
        for short in ["pod", "snapshot", "group", "claim"] {
            let Some(kind) = Kind::named(short) else { continue };
            if short == "pod" || short == "claim" || created.iter().any(|(of, ..)| of.short == short) {
                self.clear(kind, other).await?;
            }
        }
        Ok(())
    }

    /// After that: the second namespace, and objects without a namespace.
    ///
    /// # Errors
    /// An object cannot be deleted.
    pub(crate) async fn after(&self) -> Result<()> {
        for (kind, namespace, name) in self.all().iter().filter(|(kind, ..)| !kind.namespaced) {
            self.delete(kind, namespace, name, &DeleteParams::default()).await?;
        }
        let all = self.all();
        let other = all.iter().map(|(_, namespace, _)| namespace).find(|of| self.is_other(of));
        let Some(other) = other else { return Ok(()) };
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        crate::fixture::delete(&namespaces, other, &DeleteParams::default()).await
    }

    fn is_other(&self, namespace: &str) -> bool {
        !namespace.is_empty() && namespace != self.namespace
    }

    /// Provisioned volumes with policy Retain would be left in the storage system, also those of which the scenario has deleted
    /// the objects: these are created again.
    async fn release_volumes(&self) -> Result<()> {
        let Some(kind) = Kind::named("volume") else { return Ok(()) };
        let api = kind.api(&self.client, None);
        let listed = api.list(&ListParams::default()).await?;
        let present = listed.items.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let patch = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } }));
        let claims = self.record.read(claims);
        for volume in present.iter().filter(|volume| is_retained(volume, &claims)) {
            let name = volume["metadata"]["name"].as_str().unwrap_or_default();
            match api.patch(name, &PatchParams::default(), &patch).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error).with_context(|| format!("volume {name} cannot be changed")),
            }
        }
        for volume in self.record.read(|store| orphans(store, &present)) {
            let name = volume["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let object = serde_json::from_value(volume).context("a volume is no object")?;
            let created = api.create(&PostParams::default(), &object).await;
            created
                .with_context(|| format!("volume {name} cannot be created again, to delete its storage"))?;
            self.gone(kind, "", &name).await?;
        }
        Ok(())
    }

    async fn delete(&self, kind: &Kind, namespace: &str, name: &str, params: &DeleteParams) -> Result<()> {
        crate::fixture::delete(&kind.api(&self.client, Some(namespace)), name, params).await
    }

    /// Deletes all objects of a kind in a namespace, and waits until they are gone.
    async fn clear(&self, kind: &Kind, namespace: &str) -> Result<()> {
        let api = kind.api(&self.client, Some(namespace));
        let params = match kind.short {
            "pod" => DeleteParams::default().grace_period(1),
            _ => DeleteParams::default(),
        };
        let listed = api.list(&ListParams::default()).await?;
        for object in &listed.items {
            crate::fixture::delete(&api, object.metadata.name.as_deref().unwrap_or_default(), &params)
                .await?;
        }
        let end = Instant::now() + self.limit;
        while !api.list(&ListParams::default()).await?.items.is_empty() {
            if Instant::now() > end {
                bail!("objects of kind {} in namespace {namespace} are not gone in time", kind.kind);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn gone(&self, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
        let (api, end) = (kind.api(&self.client, Some(namespace)), Instant::now() + self.limit);
        while api.get_opt(name).await?.is_some() {
            if Instant::now() > end {
                bail!("{} {namespace}/{name} is not gone in time", kind.kind);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Whether a volume was provisioned for one of these claims, by their uids, and is to be retained. A volume that existed before
/// may be bound by a scenario's claim, too: its storage is not the scenario's.
fn is_retained(volume: &Value, claims: &BTreeSet<String>) -> bool {
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        && volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"].is_string()
        && claims.iter().any(|uid| name.ends_with(uid.as_str()))
}

/// The uids of all claims that the scenario has, or had.
fn claims(store: &Store) -> BTreeSet<String> {
    let uids = store.seen("PersistentVolumeClaim").filter_map(|claim| claim["metadata"]["uid"].as_str());
    uids.map(str::to_owned).collect()
}

/// The objects of provisioned volumes that the scenario has deleted while they were to be retained, with policy Delete, and of
/// claims that do not exist: once created again, their storage is deleted. Not of those of which another volume has the storage.
fn orphans(store: &Store, present: &[Value]) -> Vec<Value> {
    let handle = |volume: &Value| volume["spec"]["csi"]["volumeHandle"].as_str().map(str::to_owned);
    let mut last: BTreeMap<String, &Value> = BTreeMap::new();
    for volume in store.seen("PersistentVolume") {
        if let Some(handle) = handle(volume) {
            last.insert(handle, volume);
        }
    }
    let exists = |volume: &Value| present.iter().any(|other| handle(other) == handle(volume));
    let claims = claims(store);
    let orphans = last.into_values().filter(|volume| is_retained(volume, &claims) && !exists(volume));
    let again = orphans.map(|volume| {
        let mut again = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": volume["metadata"]["name"],
                "annotations": volume["metadata"]["annotations"],
            },
            "spec": volume["spec"],
        });
        again["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        // Of a claim that still exists, it would be bound again, and stay.
        again["spec"]["claimRef"]["uid"] = json!("deleted");
        again
    });
    again.collect()
}
