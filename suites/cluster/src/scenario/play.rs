//! Plays a scenario in the namespace of a case.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use claimcheck_cluster::{Disruption, Victim, faults::FaultSpec};
use claimcheck_model::CsiMethod;
use claimcheck_scenario::{
    ActError, Actor, Answer, EventOf, Given, How, KINDS, Kind, Names, Object, Outcome, Record, References,
    Saved, Scope, Script, Step, Store, matches, phase, split,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::{
    Cleanup, Played,
    answers::Answers,
    exec::{self, Ended},
    expect,
    usual::{CLASS, Usual, with_claims, with_own_names},
};
use crate::fixture::Fixture;

/// The step timeout to which `within` refers: that of an embedded cluster. On slower kinds it is longer by as much as
/// their limit.
const SCALE: Duration = Duration::from_secs(60);
/// How long nothing may have happened at the end of a scenario with something that must not.
const QUIET: Duration = Duration::from_millis(1500);
/// The size of data, if a step does not say.
const SIZE: &str = "1Mi";
/// How often a script is repeated until its output is as expected.
const AGAIN: Duration = Duration::from_millis(300);

/// Kinds that are always recorded.
const ALWAYS: [&str; 5] = ["claim", "volume", "pod", "attachment", "event"];

/// A scenario that is played.
pub(super) struct Player {
    pub(super) t: Arc<Fixture>,
    pub(super) played: Arc<Played>,
    pub(super) actor: Actor,
    cleanup: Arc<Cleanup>,
    answers: Answers,
    nevers: Vec<Never>,
    outcome: Outcome,
    /// What was written, by path: the seed and the size.
    written: BTreeMap<String, (String, u64)>,
    /// Claims of raw block volumes.
    blocks: Vec<String>,
    /// The full names of objects without a namespace, by the names in manifests.
    own: BTreeMap<String, String>,
    /// Ends the watches.
    _watches: JoinSet<()>,
}

/// Something that must not be seen.
struct Never {
    title: String,
    line: u64,
    what: Unwanted,
}

enum Unwanted {
    /// An object that has this, in the versions from this number on.
    Object { key: claimcheck_scenario::Key, has: Value, from: usize },
    /// The deletion of an object, in the versions from this number on.
    Deletion { key: claimcheck_scenario::Key, from: usize },
    /// An event, in the versions from this number on.
    Event { event: EventOf, from: usize },
    /// More calls than before, for one claim or all.
    Call { method: CsiMethod, claim: Option<String>, before: u64 },
}

/// Plays a scenario to its end.
pub(crate) async fn play(t: Arc<Fixture>, played: Arc<Played>) -> Result<()> {
    let mut player = Player::new(t, played).await?;
    let ended = player.run().await;
    player.save().await.context("what happened cannot be written")?;
    ended
}

impl Player {
    async fn new(t: Arc<Fixture>, played: Arc<Played>) -> Result<Self> {
        let client = t.session().client();
        let names = Names::with_dashes(t.namespace());
        let record = Record::new(Scope::One(t.namespace().to_owned()));
        let mut references = References::new(names.clone(), t.driver_name());
        let own = own_names(&played, &names);
        let class = match own.get(CLASS) {
            Some(full) => full.clone(),
            None => t.class().await?,
        };
        let variables = [
            ("driver", t.driver_name().to_owned()),
            ("class", class),
            ("size", t.usual_size()),
            ("image", t.workload().image.clone()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let nodes = t.nodes().into_iter().enumerate();
        let nodes = nodes.map(|(number, node)| (format!("node-{}", number + 1), node));
        references.variables.extend(variables.into_iter().chain(nodes).chain(played.values.clone()));
        let mut watches = JoinSet::new();
        for (kind, namespace) in recorded(&played, &names) {
            watches.spawn(record.watch(&client, kind, namespace.as_deref()));
        }
        let cleanup = Arc::new(Cleanup::new(client.clone(), record.clone(), t.namespace(), t.step()));
        t.clean_up_with(cleanup.clone());
        let usual = Usual::of(&t);
        let usual = move |kind: &Kind, name: &str, of: &References| usual.object(kind, name, of);
        let actor = Actor::new(client, record, references, Box::new(usual)).strict();
        let (answers, nevers, outcome) = (Answers::default(), Vec::new(), Outcome::new());
        let (written, blocks) = (BTreeMap::new(), Vec::new());
        Ok(Self {
            t,
            played,
            actor,
            cleanup,
            answers,
            nevers,
            outcome,
            written,
            blocks,
            own,
            _watches: watches,
        })
    }

    async fn run(&mut self) -> Result<()> {
        let scenario = self.played.scenario.clone();
        self.follow(&scenario.driver).await;
        for object in &scenario.given {
            let step = Step { create: Some(object.clone()), ..Step::default() };
            self.act(&step).await.with_context(|| format!("given: {}", step.title()))?;
        }
        for (number, step) in scenario.steps.iter().enumerate() {
            let title = self.actor.references.fill(&step.whole_title());
            let t = self.t.clone();
            let at = || format!("step {} ({}:{}), {title}", number + 1, self.played.file, step.line);
            let at = at();
            let ended = t.record_step(&title, self.step(step)).await;
            let came = if ended.is_ok() { "done" } else { "failed" };
            self.outcome.push((format!("{} {}", number + 1, step.title()), came.to_owned()));
            if let Err(error) = ended {
                let error = error.context(at);
                // It may be the reason.
                return Err(match self.unwanted_so_far().await {
                    Some(seen) => error.context(seen),
                    None => error,
                });
            }
        }
        if !self.nevers.is_empty() || scenario.quiet.is_some() {
            let quiet = scenario.quiet.map_or(QUIET, Duration::from_millis);
            self.actor.record.quiet(self.t.namespace(), quiet, self.t.step()).await;
        }
        self.know().await;
        if let Some(seen) = self.unwanted_so_far().await {
            bail!("{seen}");
        }
        expect::check(self, &scenario.expect).await
    }

    /// The first that must not be seen and was.
    async fn unwanted_so_far(&self) -> Option<String> {
        for never in &self.nevers {
            let seen = match self.seen(&never.what).await {
                Ok(None) => continue,
                Ok(Some(seen)) => seen,
                Err(error) => format!("that is not known: {error:#}"),
            };
            return Some(format!("{}:{}: {}: {seen}", self.played.file, never.line, never.title));
        }
        None
    }

    /// Writes what happened, if that is asked for.
    async fn save(&mut self) -> Result<()> {
        let Some(folder) = self.played.save.clone() else { return Ok(()) };
        self.know().await;
        let mut calls = BTreeMap::new();
        for (name, uids) in self.claims() {
            let balance = self.t.session().timeline().balance(uids).await?;
            calls.insert(name, balance.succeeded.into_iter().map(|(_, method)| method).collect());
        }
        let saved = Saved {
            name: self.played.scenario.name.clone(),
            namespace: self.t.namespace().to_owned(),
            nodes: self.t.nodes(),
            outcome: self.outcome.clone(),
            calls,
            ..Saved::default()
        };
        Ok(saved.with_record(&self.actor.record).write(&folder)?)
    }

    /// The uids of each claim.
    fn claims(&self) -> BTreeMap<String, Vec<String>> {
        let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.actor.record.read(|store| {
            for version in store.versions.iter().filter(|version| version.key.0 == "PersistentVolumeClaim") {
                let uid = version.object.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
                let Some(uid) = uid else { continue };
                let uids = claims.entry(format!("{}/{}", version.key.1, version.key.2)).or_default();
                if !uids.iter().any(|known| known == uid) {
                    uids.push(uid.to_owned());
                }
            }
        });
        claims
    }

    /// Carries out a step, and waits for what it waits for.
    async fn step(&mut self, step: &Step) -> Result<()> {
        self.know().await;
        self.is_known(step)?;
        if let Some(script) = &step.driver {
            self.follow(script).await;
        }
        if let Some(milliseconds) = step.settle {
            self.quiet(milliseconds).await;
        }
        match (self.act(step).await, step.rejected, &step.error) {
            (Ok(()), false, None) => {}
            (Err(error), true, _) if error.is::<ActError>() => {}
            (Err(error), _, Some(reason)) => refused(&error, &self.actor.references.fill(reason))?,
            (Ok(()), true, _) | (Ok(()), _, Some(_)) => bail!("the API server accepted it, but must not"),
            (Err(error), ..) => return Err(error),
        }
        if let Some(what) = &step.until {
            self.until(what, step).await?;
        }
        if let Some(milliseconds) = step.rest {
            self.quiet(milliseconds).await;
        }
        Ok(())
    }

    /// A reference to what does not exist would be looked for in vain, or be gone at once.
    fn is_known(&self, step: &Step) -> Result<()> {
        let names = [&step.patch, &step.delete, &step.until, &step.never].into_iter().flatten().cloned();
        let mut values: Vec<Value> = names.map(Value::String).collect();
        values.extend([step.with.clone()].into_iter().chain(step.has.clone()));
        values.extend(step.create.iter().chain(&step.apply).map(|object| object.0.clone()));
        for value in &values {
            let filled = self.actor.references.filled(value).to_string();
            ensure!(
                !filled.contains("no-uid") && !filled.contains("no-node"),
                "{value} refers to an object that does not exist: filled in, it is {filled}"
            );
            if let Some(unset) = unset(value, &self.actor.references) {
                bail!("{unset} stands for nothing: pass --set {}=VALUE", unset.trim_start_matches('$'));
            }
        }
        for claim in &step.uses {
            let key = self.actor.references.key(&format!("claim {claim}")).map_err(anyhow::Error::msg)?;
            let created = self.actor.references.uid("claim", claim) != "no-uid";
            let exists = created || self.actor.record.read(|store| store.latest.contains_key(&key));
            let other = self.actor.references.uid("claim", &format!("other/{claim}")) != "no-uid";
            ensure!(exists || other, "uses: there is no claim {claim}: create it first");
        }
        Ok(())
    }

    async fn quiet(&self, milliseconds: u64) {
        let quiet = Duration::from_millis(milliseconds);
        self.actor.record.quiet(self.t.namespace(), quiet, self.t.step()).await;
    }

    async fn act(&mut self, step: &Step) -> Result<()> {
        let with = self.actor.references.filled(&step.with);
        if let Some(object) = &step.create {
            let (kind, name, object) = self.object(object, &with, &step.uses)?;
            self.note(kind, &object);
            self.actor.create(kind, &name, &object).await?;
        } else if let Some(object) = &step.apply {
            let (kind, name, object) = self.object(object, &with, &step.uses)?;
            self.note(kind, &object);
            self.actor.apply(kind, &name, &object).await?;
        } else if let Some(object) = &step.patch {
            self.keep(object, &with)?;
            self.actor.patch(object, &with, false).await?;
        } else if let Some(object) = &step.delete {
            self.actor.delete(object, step.grace).await?;
        } else if let Some(what) = &step.never {
            let what = self.unwanted(what, step).await?;
            self.nevers.push(Never { title: step.title(), line: step.line, what });
        } else if let Some(pod) = &step.exec {
            self.exec(pod, step).await?;
        } else if let Some(pod) = &step.write {
            self.write(pod, step).await?;
        } else if let Some(pod) = &step.read {
            self.read(pod, step).await?;
        } else if let Some(faults) = &step.fault {
            let specs: Result<Vec<FaultSpec>, _> = faults.iter().map(|fault| fault.parse()).collect();
            self.t.add_faults(&specs.map_err(|error| anyhow::anyhow!("{error}"))?).await?;
            self.arm().await;
        } else if let Some(method) = &step.hold {
            let node = step.node.as_deref().map(|node| self.node(node)).transpose()?;
            let answer = Answer { of: step.of.clone(), node, ..Answer::default() };
            let (references, answers) = (&self.actor.references, &mut self.answers);
            self.actor.record.read(|store| answers.hold(method, answer, references, store));
            self.arm().await;
        } else if let Some(method) = &step.release {
            self.answers.release(method);
            self.arm().await;
        } else if let Some(what) = &step.disrupt {
            self.disrupt(what, step).await?;
        }
        Ok(())
    }

    /// The kind of an object, its name in the scenario, and what is sent.
    fn object(
        &mut self,
        object: &Object,
        with: &Value,
        uses: &[String],
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
    fn made(
        &mut self,
        kind: &'static Kind,
        name: String,
        mut object: Value,
        uses: &[String],
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
    fn is_of_run(&self, class: &Value) -> Result<()> {
        let provisioner = class["provisioner"].as_str().unwrap_or_default();
        let of_run = self.t.driver_name();
        ensure!(
            provisioner == of_run || provisioner == "kubernetes.io/no-provisioner" || provisioner.is_empty(),
            "the class names the provisioner {provisioner}, but the driver of this run is {of_run}: write $driver"
        );
        Ok(())
    }

    /// Sets what the run says about its pods: the image, the Pod Security level, the nodes.
    fn dress(&self, kind: &Kind, object: &mut Value) -> Result<()> {
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
    fn keep(&self, object: &str, with: &Value) -> Result<()> {
        let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
        let is_own = key.1.starts_with(self.t.namespace()) || key.2.starts_with(self.t.namespace());
        let is_own = is_own || self.actor.record.read(|store| store.owner(&key).is_some());
        if is_own {
            return Ok(());
        }
        let (kind, _) = split(key.0).map_err(anyhow::Error::msg)?;
        // It is not found if the record has not seen it, which the patch will say.
        let Some(now) = self.actor.record.read(|store| store.latest.get(&key).cloned()) else {
            return Ok(());
        };
        self.cleanup.restore(kind, &key.1, &key.2, former(&now, with));
        Ok(())
    }

    fn note(&self, kind: &'static Kind, object: &Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        self.cleanup.created(kind, text("namespace"), text("name"));
    }

    /// Takes over what has happened: uids of claims, nodes of pods.
    pub(super) async fn know(&mut self) {
        let (mut claims, mut pods, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        self.actor.record.read(|store| {
            for (_, volume) in store.own("PersistentVolume") {
                let text = |pointer: &str| volume.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
                handles.extend(text("/spec/claimRef/name").zip(text("/spec/csi/volumeHandle")));
            }
            for version in &store.versions {
                let Some(object) = &version.object else { continue };
                match version.key.0 {
                    "PersistentVolumeClaim" => {
                        claims.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
                    }
                    "Pod" => pods.extend(
                        object["spec"]["nodeName"]
                            .as_str()
                            .map(|node| (version.key.2.clone(), node.to_owned())),
                    ),
                    _ => {}
                }
            }
        });
        self.t.adopt_uids(claims);
        for (claim, handle) in handles {
            self.actor.references.provisioned(&claim, handle);
        }
        for (pod, node) in pods {
            self.actor.references.scheduled(&pod, node);
        }
    }

    /// Calls are answered so from now on.
    async fn follow(&mut self, script: &Script) {
        let (references, answers) = (&self.actor.references, &mut self.answers);
        self.actor.record.read(|store| answers.follow(script, references, store));
        self.arm().await;
    }

    /// Injects the answers for the volumes that exist now.
    async fn arm(&self) {
        let rules = self.actor.record.read(|store| self.answers.rules(&self.actor.references, store));
        self.t.answer_calls(rules).await;
    }

    /// Waits, while answers are injected for each volume that is provisioned meanwhile.
    async fn while_armed<T>(&self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            let known = self.actor.record.read(volumes);
            let more = |store: &Store| (volumes(store) != known).then_some(());
            tokio::select! {
                ended = &mut wait => return ended,
                _ = self.actor.record.until(Duration::MAX, more) => self.arm().await,
            }
        }
    }

    fn limit(&self, step: &Step) -> Duration {
        let scale = (self.t.step().as_secs_f64() / SCALE.as_secs_f64()).max(1.0);
        step.within.map_or(self.t.step(), |within| Duration::from_secs(within).mul_f64(scale))
    }

    async fn until(&mut self, what: &str, step: &Step) -> Result<()> {
        let what = &self.actor.references.fill(what);
        let limit = self.limit(step);
        if let Some(object) = what.strip_prefix("event ") {
            return Ok(self.while_armed(self.actor.until_event(object, step, limit)).await?);
        }
        if let Some((subject @ ("call" | "phase"), rest)) = what.split_once(' ') {
            let (name, claim) = rest.split_once(" of ").map_or((rest, None), |(name, of)| (name, Some(of)));
            let count = u64::try_from(step.count.unwrap_or(1))?;
            let end = tokio::time::Instant::now() + limit;
            loop {
                self.know().await;
                self.arm().await;
                let (seen, wanted) = match subject {
                    "call" => (self.calls(name.parse()?, claim).await?, count),
                    _ => (self.ended(name, claim).await?, count),
                };
                if seen >= wanted {
                    return Ok(());
                }
                if tokio::time::Instant::now() > end {
                    bail!("not in time: {seen} of {wanted} were seen");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if step.gone {
            self.was_there(what)?;
        }
        Ok(self.while_armed(self.actor.until_object(what, step, limit)).await?)
    }

    /// An object that never existed, because its name is misspelt, would be gone at once.
    fn was_there(&self, object: &str) -> Result<()> {
        let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
        let (kind, name) = split(object).map_err(anyhow::Error::msg)?;
        let created = self.actor.references.uid(kind.short, name) != "no-uid";
        let seen = self.actor.record.read(|store| {
            store.latest.contains_key(&key) || store.versions.iter().any(|version| version.key == key)
        });
        ensure!(created || seen, "there never was a {object}, so it cannot be gone: is its name right?");
        Ok(())
    }

    /// The uids of one claim, or all.
    fn uids(&self, claim: Option<&str>) -> Result<Vec<String>> {
        let Some(claim) = claim else { return Ok(self.t.claim_uids()) };
        let key = self.actor.references.key(claim).map_err(anyhow::Error::msg)?;
        let mut uids = self.actor.record.read(|store| {
            let versions = store.versions.iter().filter(|version| version.key == key);
            let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
            versions.filter_map(|version| uid(version.object.as_ref()?)).collect::<Vec<_>>()
        });
        uids.dedup();
        Ok(uids)
    }

    /// The number of calls of a method up to now, also of those that an answer of the scenario made fail.
    async fn calls(&self, method: CsiMethod, claim: Option<&str>) -> Result<u64> {
        let uids = self.uids(claim)?;
        let begun = self.t.session().in_flight().count(method, &self.volumes_of(&uids));
        let balance = self.t.session().timeline().balance(uids).await?;
        Ok(begun + balance.all_calls(method) + balance.injected.get(&method).copied().unwrap_or_default())
    }

    /// The names and handles of the volumes and snapshots of claims.
    fn volumes_of(&self, uids: &[String]) -> Vec<String> {
        let mut names: Vec<String> = uids.iter().map(|uid| format!("pvc-{uid}")).collect();
        self.actor.record.read(|store| {
            let is_of = |volume: &Value| {
                let of = volume["spec"]["claimRef"]["uid"].as_str();
                of.is_some_and(|of| uids.iter().any(|uid| uid == of))
            };
            let volumes = store.own("PersistentVolume").filter(|(_, volume)| is_of(volume));
            let handles = volumes.map(|(_, volume)| &volume["spec"]["csi"]["volumeHandle"]);
            let contents =
                store.own("VolumeSnapshotContent").map(|(_, content)| &content["status"]["snapshotHandle"]);
            names.extend(handles.chain(contents).filter_map(Value::as_str).map(str::to_owned));
        });
        names
    }

    /// The number of ended phases of a name.
    async fn ended(&self, name: &str, claim: Option<&str>) -> Result<u64> {
        let phase = phase(name).map_err(anyhow::Error::msg)?;
        let samples = self.t.session().timeline().phases(self.uids(claim)?).await?;
        Ok(samples.iter().filter(|sample| sample.phase == phase).count().try_into()?)
    }

    async fn unwanted(&self, what: &str, step: &Step) -> Result<Unwanted> {
        let from = self.actor.record.read(|store| store.versions.len());
        if let Some(object) = what.strip_prefix("event ") {
            let event = self.actor.event(object, step.reason.as_deref(), step.message.as_deref())?;
            return Ok(Unwanted::Event { event, from });
        }
        if let Some(rest) = what.strip_prefix("call ") {
            let (name, claim) = rest.split_once(" of ").map_or((rest, None), |(name, of)| (name, Some(of)));
            let method = name.parse()?;
            self.t.session().calls_recorded().await?;
            let before = self.calls(method, claim).await?;
            return Ok(Unwanted::Call { method, claim: claim.map(str::to_owned), before });
        }
        let key = self.actor.references.key(what).map_err(anyhow::Error::msg)?;
        if step.gone {
            return Ok(Unwanted::Deletion { key, from });
        }
        let has = step.has.as_ref().map(|has| self.actor.references.filled(has)).unwrap_or(json!({}));
        Ok(Unwanted::Object { key, has, from })
    }

    /// What was seen of something unwanted.
    async fn seen(&self, what: &Unwanted) -> Result<Option<String>> {
        Ok(match what {
            Unwanted::Object { key, has, from } => self.actor.record.read(|store| {
                let versions = store.versions.iter().skip(*from).filter(|version| version.key == *key);
                let mut objects = versions.filter_map(|version| version.object.as_ref());
                objects.find(|object| matches(object, has)).map(|_| format!("it had {has}"))
            }),
            Unwanted::Deletion { key, from } => self.actor.record.read(|store| {
                let mut versions = store.versions.iter().skip(*from).filter(|version| version.key == *key);
                versions.any(|version| version.object.is_none()).then(|| "it was deleted".to_owned())
            }),
            Unwanted::Event { event, from } => self.actor.record.read(|store| {
                let objects = store.versions.iter().skip(*from).filter_map(|version| version.object.as_ref());
                let mut events = objects.filter(|object| event.is(object));
                events.next().map(|event| event["message"].as_str().unwrap_or_default().to_owned())
            }),
            Unwanted::Call { method, claim, before } => {
                self.t.session().calls_recorded().await?;
                let now = self.calls(*method, claim.as_deref()).await?;
                (now > *before).then(|| format!("{} calls of {method}", now - before))
            }
        })
    }

    /// Runs the script of a step; repeats it within its deadline if it has one.
    async fn exec(&self, pod: &str, step: &Step) -> Result<()> {
        let script = self.actor.references.fill(step.run.as_deref().unwrap_or_default());
        let expected = step.output.as_deref().map(|output| self.actor.references.fill(output));
        let end = tokio::time::Instant::now() + step.within.map_or(Duration::ZERO, |_| self.limit(step));
        loop {
            let ended = self.in_pod(pod, step, &script).await?;
            let wrong = if (ended.code == 0) == step.fails {
                let must = if step.fails { ", but must fail" } else { "" };
                Some(format!("the script {}{must}", words(&ended)))
            } else {
                let differs = expected.as_ref().filter(|expected| expected.trim() != ended.output);
                differs.map(|expected| {
                    format!("the script printed {:?} instead of {:?}", ended.output, expected.trim())
                })
            };
            match wrong {
                None => return Ok(()),
                Some(wrong) if tokio::time::Instant::now() >= end => bail!("{wrong}"),
                Some(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    async fn in_pod(&self, pod: &str, step: &Step, script: &str) -> Result<Ended> {
        let (_, namespace, name) = self.actor.references.key(pod).map_err(anyhow::Error::msg)?;
        let api: Api<Pod> = Api::namespaced(self.actor.client.clone(), &namespace);
        let limit = self.limit(step);
        let ran =
            tokio::time::timeout(limit, exec::run(&api, &name, step.container.as_deref(), script)).await;
        ran.with_context(|| format!("the script in {pod} has not ended after {} s", limit.as_secs()))?
    }

    /// Writes lines that are known here, so that what is read later is compared with what was meant, not with what a
    /// volume has returned.
    async fn write(&mut self, pod: &str, step: &Step) -> Result<()> {
        let path = step.path.clone().unwrap_or_default();
        let size = step.size.as_deref().unwrap_or(SIZE);
        let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.to_owned());
        let size = claimcheck_informer::quantity::bytes(&quantity).and_then(|size| u64::try_from(size).ok());
        let size =
            size.with_context(|| format!("size {} is no quantity: write for example 1Mi", quantity.0))?;
        let seed = hex(format!("{}{path}{}", self.t.namespace(), self.written.len()).as_bytes());
        let (seed, lines) = (seed[..16].to_owned(), size.div_ceil(LINE));
        let script = format!(
            "awk 'BEGIN{{for(i=0;i<{lines};i++)printf \"{seed} %014d\\n\",i}}' | head -c {size} > {path} && sync"
        );
        let ended = self.in_pod(pod, step, &script).await?;
        ensure!(ended.code == 0, "the data cannot be written: the script {}", words(&ended));
        self.written.insert(path, (seed, size));
        Ok(())
    }

    async fn read(&self, pod: &str, step: &Step) -> Result<()> {
        let path = step.path.clone().unwrap_or_default();
        let like = step.like.as_ref().unwrap_or(&path);
        let (seed, size) =
            self.written.get(like).with_context(|| format!("no step has written {like}: write it first"))?;
        let ended = self.in_pod(pod, step, &format!("head -c {size} {path} | sha256sum")).await?;
        ensure!(ended.code == 0, "the data cannot be read: the script {}", words(&ended));
        let seen = ended.output.split_whitespace().next().unwrap_or_default();
        let expected = hex(&content(seed, *size));
        ensure!(
            seen == expected,
            "{path} does not hold the {size} bytes that were written at {like}: its SHA-256 is {seen} instead of {expected}"
        );
        Ok(())
    }

    fn node(&self, node: &str) -> Result<String> {
        let node = match node.strip_prefix("pod ") {
            Some(pod) => self.actor.references.fill(&format!("$node({pod})")),
            None => self.actor.references.fill(node),
        };
        ensure!(
            self.t.nodes().contains(&node),
            "there is no node {node}: write `pod` and its name, or $node-1"
        );
        Ok(node)
    }

    async fn disrupt(&self, what: &str, step: &Step) -> Result<()> {
        let disruption = match step.how.unwrap_or(How::Kill) {
            How::Kill => Disruption::Kill,
            How::Stop => Disruption::Stop,
            How::Start => Disruption::Start,
            How::Pause => Disruption::Pause,
            How::Resume => Disruption::Resume,
        };
        let nodes = match &step.node {
            Some(node) => vec![self.node(node)?],
            None => self.t.nodes(),
        };
        let victims: Vec<Victim> = match what {
            "controllers" => vec![Victim::Controllers],
            "agent" => nodes.into_iter().map(Victim::NodeAgent).collect(),
            _ => nodes.into_iter().map(Victim::Driver).collect(),
        };
        for victim in victims {
            self.cleanup.disrupted(&victim, disruption);
            self.t.disrupt(victim, disruption).await?;
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

/// The bytes of a line of written data.
const LINE: u64 = 32;

/// What [`Player::write`] writes.
fn content(seed: &str, size: u64) -> Vec<u8> {
    let lines = (0..size.div_ceil(LINE)).map(|number| format!("{seed} {number:014}\n"));
    let mut bytes = lines.collect::<String>().into_bytes();
    bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    bytes
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn words(ended: &Ended) -> String {
    let printed = [("to standard error ", &ended.errors), ("", &ended.output)];
    let printed = printed.into_iter().filter(|(_, text)| !text.is_empty());
    let printed: Vec<String> = printed.map(|(to, text)| format!("{to}{text:?}")).collect();
    let printed = if printed.is_empty() { "nothing".to_owned() } else { printed.join(", and ") };
    format!("exited with {} and printed {printed}", ended.code)
}

/// The volumes and snapshots of the scenario.
fn volumes(store: &Store) -> Vec<String> {
    let of = |kind| store.own(kind).map(|(key, _)| key.2.clone());
    of("PersistentVolume").chain(of("VolumeSnapshotContent")).collect()
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

/// Whether the API server has refused a request for this reason, or with this text in its message.
fn refused(error: &anyhow::Error, reason: &str) -> Result<()> {
    let Some(ActError::Rejected(rejected)) = error.downcast_ref() else { bail!("{error:#}") };
    let kube::Error::Api(status) = rejected.as_ref() else { bail!("{rejected}") };
    ensure!(
        status.reason == reason || status.message.contains(reason),
        "the API server refused it for another reason than {reason}: {}: {}",
        status.reason,
        status.message
    );
    Ok(())
}

/// The objects without a namespace that a scenario has, by their names in its manifests.
fn own_names(played: &Played, names: &Names) -> BTreeMap<String, String> {
    let scenario = &played.scenario;
    let created = scenario.steps.iter().flat_map(|step| step.create.iter().chain(&step.apply));
    let objects = scenario.given.iter().chain(created);
    let name = |object: &Object| match object.form().ok()? {
        Given::Short(text, _) => {
            let (kind, name) = split(text).ok()?;
            (!kind.namespaced).then(|| name.to_owned())
        }
        Given::Manifest(manifest) => {
            let kind = Kind::of_manifest(manifest)?;
            (!kind.namespaced).then(|| manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned())
        }
        Given::File(_) => None,
    };
    objects.filter_map(name).map(|name| (name.clone(), names.cluster(&name))).collect()
}

/// The kinds that are recorded, and the namespaces.
fn recorded(played: &Played, names: &Names) -> Vec<(&'static Kind, Option<String>)> {
    let scenario = &played.scenario;
    let text = format!("{scenario:?}");
    let is_named = |kind: &Kind| {
        text.contains(&format!("\"{} ", kind.short)) || text.contains(&format!("\"{}\"", kind.kind))
    };
    let snapshots = |kind: &Kind| matches!(kind.short, "content") && text.contains("\"snapshot ");
    let groups = |kind: &Kind| {
        matches!(kind.short, "snapshot" | "content" | "group-content") && text.contains("\"group ")
    };
    let in_event = |kind: &Kind| text.contains(&format!("event {} ", kind.short));
    let kinds = KINDS.iter().filter(|kind| {
        ALWAYS.contains(&kind.short) || is_named(kind) || snapshots(kind) || groups(kind) || in_event(kind)
    });
    let mut all = Vec::new();
    for kind in kinds {
        let namespace = kind.namespaced.then(|| names.scenario.clone());
        all.push((kind, namespace));
        if kind.namespaced && text.contains(" other/") {
            all.push((kind, Some(names.namespaced("other/").0)));
        }
        // Of objects without a namespace.
        if kind.short == "event" {
            all.push((kind, Some("default".to_owned())));
        }
    }
    all
}
