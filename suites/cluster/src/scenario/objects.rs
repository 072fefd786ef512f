//! The objects of a scenario, as they are sent.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_scenario::{Given, Kind, Names, Object, References, Step, Use, split};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    Played,
    play::Player,
    usual::{with_claims, with_own_names},
};

impl Player {
    /// The kind of an object, its name in the scenario, and what is sent.
    pub(super) fn object(
        &mut self,
        object: &Object,
        with: &Value,
        uses: &[Use],
    ) -> Result<(&'static Kind, String, Value)> {
        let references = &self.actor.references;
        let (kind, name, object) = match object.form().map_err(anyhow::Error::msg)? {
            Given::Short(text, more) => {
                let text = references.fill(text);
                let (kind, name) = split(&text).map_err(anyhow::Error::msg)?;
                let mut changes = references.filled(&more);
                merge(&mut changes, with);
                let object = self.actor.object(kind, name, &changes);
                (kind, name.to_owned(), object)
            }
            Given::Manifest(manifest) => {
                let mut manifest = references.filled(manifest);
                let kind = Kind::of_manifest(&manifest).context("its kind is not known")?;
                let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                merge(&mut manifest, with);
                with_own_names(&mut manifest, &self.own);
                if !kind.namespaced {
                    manifest["metadata"]["name"] = json!(references.names.cluster(&name));
                    return self.made(kind, name, manifest, uses);
                }
                // Whatever namespace it names: that of a report does not exist here.
                let (other, _) = references.names.namespaced("other/");
                let is_other = manifest["metadata"]["namespace"] == other.as_str();
                let namespace = if is_other { other } else { self.t.namespace().to_owned() };
                manifest["metadata"]["namespace"] = json!(namespace);
                let name = if is_other { format!("other/{name}") } else { name };
                (kind, name, manifest)
            }
            Given::File(path) => bail!("{path} was not read"),
        };
        self.made(kind, name, object, uses)
    }

    /// An object, with the claims that it uses, and what the run says about its pods.
    pub(super) fn made(
        &mut self,
        kind: &'static Kind,
        name: String,
        mut object: Value,
        uses: &[Use],
    ) -> Result<(&'static Kind, String, Value)> {
        if kind.short == "claim" && object["spec"]["volumeMode"] == "Block" {
            self.blocks.push(name.clone());
        }
        if kind.short == "class" {
            self.is_of_run(&object)?;
        }
        if !uses.is_empty() {
            with_claims(&mut object, uses, |claim| self.blocks.iter().any(|block| block == claim));
        }
        self.dress(kind, &mut object)?;
        Ok((kind, name, object))
    }

    /// A class of a driver that the cluster does not have would be waited for in vain.
    pub(super) fn is_of_run(&self, class: &Value) -> Result<()> {
        let provisioner = class["provisioner"].as_str().unwrap_or_default();
        let of_run = self.t.driver_name();
        ensure!(
            provisioner == of_run || provisioner == "kubernetes.io/no-provisioner" || provisioner.is_empty(),
            "the class names the provisioner {provisioner}, but the driver of this run is {of_run}: write $driver"
        );
        Ok(())
    }

    /// Sets what the run says about its pods: the image, the Pod Security level, the nodes.
    pub(super) fn dress(&self, kind: &Kind, object: &mut Value) -> Result<()> {
        let template = match kind.short {
            "pod" => object,
            "job" | "deployment" | "stateful-set" | "daemon-set" => &mut object["spec"]["template"],
            _ => return Ok(()),
        };
        let mut pod: Pod = serde_json::from_value(json!({ "spec": template["spec"] }))?;
        self.t.workload().dress(&mut pod);
        merge(&mut template["spec"], &serde_json::to_value(pod.spec)?);
        Ok(())
    }

    /// Remembers the fields of an object that is not the scenario's, to restore them at its end.
    pub(super) async fn keep(&self, object: &str, with: &Value) -> Result<()> {
        let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
        let is_own = key.1.starts_with(self.t.namespace()) || key.2.starts_with(self.t.namespace());
        let is_own = is_own || self.actor.record.read(|store| store.owner(&key).is_some());
        if is_own {
            return Ok(());
        }
        let (kind, _) = split(key.0).map_err(anyhow::Error::msg)?;
        // Not of the record, which may not have seen it yet.
        let now = kind.api(&self.actor.client, Some(&key.1)).get_opt(&key.2).await?;
        let Some(now) = now else { return Ok(()) };
        self.cleanup.restore(kind, &key.1, &key.2, former(&serde_json::to_value(now)?, with));
        Ok(())
    }

    /// Remembers an object of the cluster that is to be deleted, to create it again at the end. What controllers and the
    /// scenario have created is not of the cluster.
    pub(super) async fn keep_whole(&self, object: &str) -> Result<()> {
        let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
        let (kind, _) = split(key.0).map_err(anyhow::Error::msg)?;
        if !kind.is_of_cluster() || key.2.starts_with(self.t.namespace()) {
            return Ok(());
        }
        if let Some(now) = kind.api(&self.actor.client, None).get_opt(&key.2).await? {
            self.cleanup.recreate(kind, serde_json::to_value(now)?);
        }
        Ok(())
    }

    pub(super) fn note(&self, kind: &'static Kind, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        self.cleanup.created(kind, text("namespace"), text("name"));
    }

    /// A reference to what does not exist would be looked for in vain, or be gone at once.
    pub(super) fn is_known<'v>(&self, values: impl IntoIterator<Item = Option<&'v Value>>) -> Result<()> {
        for value in values.into_iter().flatten() {
            let filled = self.actor.references.filled(value).to_string();
            ensure!(
                !filled.contains("no-uid"),
                "{value} refers to an object that does not exist: filled in, it is {filled}"
            );
            ensure!(
                !filled.contains("no-node"),
                "{value} names the node of a pod that runs on none yet: wait in a step before until it does"
            );
            ensure!(
                !filled.contains("no-handle"),
                "{value} names the handle of a claim that has no volume yet, or of a snapshot that does not exist yet: wait in a step before until it is Bound, or ready"
            );
            if let Some(unset) = unset(value, &self.actor.references) {
                bail!("{unset} stands for nothing: pass --set {}=VALUE", unset.trim_start_matches('$'));
            }
        }
        Ok(())
    }

    /// What the action of a step refers to exists.
    pub(super) fn action_is_known(&self, step: &Step) -> Result<()> {
        let names = [&step.patch, &step.delete, &step.never].into_iter().flatten().cloned();
        let names: Vec<Value> = names.map(Value::String).collect();
        let objects = step.create.iter().chain(&step.apply).map(|object| Some(&object.0));
        self.is_known(names.iter().map(Some).chain(objects).chain([Some(&step.with)]))?;
        for claim in step.uses.iter().map(|used| &used.claim) {
            let key = self.actor.references.key(&format!("claim {claim}")).map_err(anyhow::Error::msg)?;
            let created = self.actor.references.uid("claim", claim) != "no-uid";
            let exists = created || self.actor.record.read(|store| store.latest.contains_key(&key));
            let other = self.actor.references.uid("claim", &format!("other/{claim}")) != "no-uid";
            ensure!(exists || other, "uses: there is no claim {claim}: create it first");
        }
        Ok(())
    }
}

/// The former values of the fields of a patch.
fn former(now: &Value, patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let of = |key: &str| now.get(key).unwrap_or(&Value::Null);
            let former_of = |(key, patch): (&String, &Value)| {
                (
                    key.clone(),
                    match of(key) {
                        Value::Object(_) => former(of(key), patch),
                        other => other.clone(),
                    },
                )
            };
            Value::Object(fields.iter().map(former_of).collect())
        }
        _ => now.clone(),
    }
}

/// A text that is a reference to a value, which is not given.
fn unset(value: &Value, references: &References) -> Option<String> {
    match value {
        Value::String(text) => {
            let name = text.strip_prefix('$')?;
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            (is_name && references.fill(text) == *text).then(|| text.clone())
        }
        Value::Array(items) => items.iter().find_map(|item| unset(item, references)),
        Value::Object(fields) => fields.values().find_map(|value| unset(value, references)),
        _ => None,
    }
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                match value {
                    // As in a merge patch: the usual field is left out.
                    Value::Null => drop(into.insert(key.clone(), Value::Null)),
                    _ => merge(into.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        (into, changes) => *into = changes.clone(),
    }
}

/// The objects without a namespace that a scenario has, by their names in its manifests.
pub(super) fn own_names(played: &Played, names: &Names) -> BTreeMap<String, String> {
    let objects = played.scenario.objects().filter_map(|(_, object)| object.kind_and_name());
    let of_cluster = objects.filter(|(kind, _)| !kind.namespaced);
    of_cluster.map(|(_, name)| (name.clone(), names.cluster(&name))).collect()
}
