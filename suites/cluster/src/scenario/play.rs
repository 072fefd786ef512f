//! Plays a scenario in the namespace of a case.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_csi::tap::{FaultAction, FaultRule};
use claimcheck_informer::class::default_class;
use claimcheck_model::CsiMethod;
use claimcheck_scenario::{
    ActError, Actor, Answer, KINDS, Kind, Names, Outcome, Record, References, Saved, Scope, Script, Step,
    Store, Subject,
};
use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{
    Cleanup, Played,
    answers::Answers,
    expect, inline,
    objects::own_names,
    usual::{CLASS, Usual},
    waits::Never,
};
use crate::fixture::Fixture;

/// How long the watches of controllers may take to deliver the class and the given objects.
const KNOWN: Duration = Duration::from_millis(300);
/// How long nothing may have happened before it is said that what must not be seen was not.
const QUIET: Duration = Duration::from_millis(1500);

/// How often is looked whether a pod is scheduled.
const PAUSE: Duration = Duration::from_millis(20);

/// Kinds that are always recorded.
const ALWAYS: [&str; 5] = ["claim", "volume", "pod", "attachment", "event"];

/// A scenario that is played.
pub(super) struct Player {
    pub(super) t: Arc<Fixture>,
    pub(super) played: Arc<Played>,
    pub(super) actor: Actor,
    pub(super) cleanup: Arc<Cleanup>,
    answers: Answers,
    /// The faults that a step has set.
    faults: Vec<String>,
    /// The rules that are in force; `None` if others may have replaced them.
    armed: Mutex<Option<Vec<FaultRule>>>,
    pub(super) nevers: Vec<Never>,
    outcome: Outcome,
    /// What was written, by path: the seed and the size.
    pub(super) written: BTreeMap<String, (String, u64)>,
    /// Claims of raw block volumes.
    pub(super) blocks: Vec<String>,
    /// The full names of objects without a namespace, by the names in manifests.
    pub(super) own: BTreeMap<String, String>,
    /// Ends the watches.
    _watches: JoinSet<()>,
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
            ("larger-size", t.larger_size()),
            ("image", t.workload().image.clone()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let nodes = t.nodes().into_iter().enumerate();
        let nodes = nodes.map(|(number, node)| (format!("node-{}", number + 1), node));
        let default = t.session().observer().look(|world| Some(default_class(world)?.name_any()));
        let default = default.map(|name| ("default-class".to_owned(), name));
        references.variables.extend(variables.into_iter().chain(nodes).chain(default));
        references.variables.extend(played.values.clone());
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
            faults: Vec::new(),
            armed: Mutex::default(),
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
        self.follow(&scenario.driver).await.with_context(|| format!("driver, of {}", self.played.file))?;
        for object in &scenario.given {
            let step = Step { create: Some(object.clone()), ..Step::default() };
            let at = format!("given: {}, of {}", step.title(), self.played.file);
            self.act(&step).await.context(at)?;
        }
        if self.played.save.is_some() {
            // A controller that has not seen the class yet reports that it is missing, perhaps on one side only.
            tokio::time::sleep(KNOWN).await;
        }
        for (number, step) in scenario.steps.iter().enumerate() {
            self.know().await;
            let title = self.title(step);
            let t = self.t.clone();
            let at = format!("step {} ({}:{}), {title}", number + 1, self.played.file, step.line);
            let ended = t.record_step(&title, self.step(step)).await;
            let came = if ended.is_ok() { "done" } else { "failed" };
            self.outcome.push((format!("{} {}", number + 1, step.title()), came.to_owned()));
            if let Err(error) = ended {
                let error = error.context(at);
                // What the scenario itself still prevents.
                let error = match self.in_force() {
                    Some(what) => anyhow::anyhow!("{error:#}\n{what}"),
                    None => error,
                };
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
        self.nevers_are_known()?;
        let at = || format!("{}:{}", self.played.file, scenario.expect_line);
        expect::check(self, &scenario.expect).await.with_context(at)
    }

    /// What the scenario itself prevents or disturbs at present.
    fn in_force(&self) -> Option<String> {
        let mut all = self.answers.in_words();
        all.extend(self.cleanup.stopped());
        all.extend(self.faults.iter().map(|fault| format!("fault {fault}")));
        (!all.is_empty()).then(|| format!("by steps of the scenario, at that time: {}", all.join(", ")))
    }

    /// The title of a step, with what it refers to if that is known.
    fn title(&self, step: &Step) -> String {
        let title = step.whole_title();
        let filled = self.actor.references.fill(&title);
        let is_open = ["no-uid", "no-node", "no-handle"].iter().any(|open| filled.contains(open));
        if is_open { title } else { filled }
    }

    /// Writes what happened, if that is asked for.
    async fn save(&mut self) -> Result<()> {
        let Some(folder) = self.played.save.clone() else { return Ok(()) };
        self.know().await;
        let mut calls = BTreeMap::new();
        for ((namespace, name), uids) in self.claims() {
            let balance = self.t.session().timeline().balance(uids).await?;
            calls.insert(
                format!("{namespace}/{name}"),
                balance.succeeded.into_iter().map(|(_, method)| method).collect(),
            );
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

    /// The uids of each claim, by namespace and name.
    pub(super) fn claims(&self) -> BTreeMap<(String, String), Vec<String>> {
        let mut claims: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        self.actor.record.read(|store| {
            for version in store.versions.iter().filter(|version| version.key.0 == "PersistentVolumeClaim") {
                let uid = version.object.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
                let Some(uid) = uid else { continue };
                let uids = claims.entry((version.key.1.clone(), version.key.2.clone())).or_default();
                if !uids.iter().any(|known| known == uid) {
                    uids.push(uid.to_owned());
                }
            }
        });
        claims
    }

    /// Carries out a step, and waits for what it waits for.
    async fn step(&mut self, step: &Step) -> Result<()> {
        self.action_is_known(step)?;
        if let Some(script) = &step.driver {
            self.follow(script).await?;
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
            let named = [Some(&Value::String(what.clone())), step.has.as_ref()];
            self.scheduled(named, self.limit(step)).await;
            self.is_known(named)?;
            self.provisioned(what, self.limit(step)).await;
            self.until(what, step).await?;
        }
        if let Some(milliseconds) = step.rest {
            self.quiet(milliseconds).await;
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
            self.permit(kind, &object).await;
        } else if let Some(object) = &step.apply {
            let (kind, name, object) = self.object(object, &with, &step.uses)?;
            self.note(kind, &object);
            self.actor.apply(kind, &name, &object).await?;
            self.permit(kind, &object).await;
        } else if let Some(object) = &step.patch {
            self.keep(object, &with).await?;
            self.actor.patch(object, &with, false).await?;
        } else if let Some(object) = &step.delete {
            self.keep_whole(object).await?;
            self.actor.delete(object, step.grace).await?;
        } else if let Some(what) = &step.never {
            let (subject, what) = (what.clone(), self.unwanted(what, step).await?);
            self.nevers.push(Never { subject, title: step.title(), line: step.line, what });
        } else if let Some(subject) = &step.allow {
            // What came before this step may not be recorded yet.
            self.actor.record.quiet(self.t.namespace(), QUIET, self.t.step()).await;
            // The error of a step begins with what was seen.
            ensure!(self.unwanted_so_far().await.is_none(), "it came before this step");
            self.nevers.retain(|never| never.subject != *subject);
        } else if let Some(pod) = &step.exec {
            self.exec(pod, step).await?;
        } else if let Some(pod) = &step.write {
            self.write(pod, step).await?;
        } else if let Some(pod) = &step.read {
            self.read(pod, step).await?;
        } else if let Some(faults) = &step.fault {
            let specs: Result<Vec<FaultSpec>, _> = faults.iter().map(|fault| fault.parse()).collect();
            self.t.add_faults(&specs.map_err(|error| anyhow::anyhow!("{error}"))?).await?;
            self.faults.clone_from(faults);
            *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.arm().await;
        } else if let Some(method) = &step.hold {
            let node = step.node.clone();
            let answer = Answer { of: step.of.clone(), node, ..Answer::default() };
            let answer = self.with_node(method, answer).await?;
            let (references, answers) = (&self.actor.references, &mut self.answers);
            self.actor.record.read(|store| answers.hold(method, answer, references, store));
            self.arm().await;
        } else if let Some(method) = &step.release {
            self.answers.release(method);
            self.arm().await;
        } else if let Some(what) = &step.disrupt {
            self.disrupt(what, step).await?;
        } else if let Some(claim) = &step.remove {
            self.remove(claim).await?;
        }
        Ok(())
    }

    /// Lets controllers read a secret of the scenario.
    async fn permit(&self, kind: &Kind, object: &Value) {
        if kind.short == "secret" {
            self.t.permit_secrets(object["metadata"]["namespace"].as_str().unwrap_or_default()).await;
        }
    }

    /// Takes over what has happened: uids of claims, nodes of pods.
    pub(super) async fn know(&mut self) {
        let (mut pods, mut handles) = (Vec::new(), Vec::new());
        let driver = self.t.driver_name().to_owned();
        self.t.adopt_inline(self.actor.record.read(|store| inline::handles(store, &driver)));
        let text = |object: &Value, pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
        };
        self.actor.record.read(|store| {
            for (_, volume) in store.own("PersistentVolume") {
                handles
                    .extend(text(volume, "/spec/claimRef/name").zip(text(volume, "/spec/csi/volumeHandle")));
            }
            for (_, content) in store.own("VolumeSnapshotContent") {
                let snapshot = text(content, "/spec/volumeSnapshotRef/name");
                let snapshot = snapshot.map(|snapshot| format!("snapshot {snapshot}"));
                handles.extend(snapshot.zip(text(content, "/status/snapshotHandle")));
            }
            let scheduled = |pod| text(pod, "/metadata/name").zip(text(pod, "/spec/nodeName"));
            pods.extend(store.seen("Pod").filter_map(scheduled));
        });
        self.t.adopt_uids(self.claims().into_values().flatten().collect());
        for (claim, handle) in handles {
            self.actor.references.provisioned(&claim, handle);
        }
        for (pod, node) in pods {
            self.actor.references.scheduled(&pod, node);
        }
    }

    /// Calls are answered so from now on.
    async fn follow(&mut self, script: &Script) -> Result<()> {
        let mut on_nodes = Script::new();
        for (method, answers) in script {
            let mut here = Vec::new();
            for answer in answers {
                here.push(self.with_node(method, answer.clone()).await.with_context(|| method.clone())?);
            }
            // Also without answers: those of before end.
            on_nodes.insert(method.clone(), here);
        }
        let (references, answers) = (&self.actor.references, &mut self.answers);
        self.actor.record.read(|store| answers.follow(&on_nodes, references, store));
        self.arm().await;
        Ok(())
    }

    /// The answer with its node as calls of this method name it: those of controllers have the driver's node id.
    async fn with_node(&mut self, method: &str, answer: Answer) -> Result<Answer> {
        let Some(node) = &answer.node else { return Ok(answer) };
        self.know().await;
        let node = self.node(node)?;
        let attaches =
            [CsiMethod::ControllerPublishVolume, CsiMethod::ControllerUnpublishVolume].map(CsiMethod::as_str);
        let node = match attaches.contains(&method) {
            true => self.node_id(&node).await?,
            false => node,
        };
        Ok(Answer { node: Some(node), ..answer })
    }

    async fn node_id(&self, node: &str) -> Result<String> {
        let found = Api::<CSINode>::all(self.actor.client.clone()).get_opt(node).await?;
        let drivers = found.into_iter().flat_map(|found| found.spec.drivers);
        let id = drivers.filter(|of| of.name == self.t.driver_name()).map(|of| of.node_id).next();
        id.with_context(|| format!("the driver is not registered on node {node}"))
    }

    /// Waits until the pods are scheduled of which a wait names the nodes.
    async fn scheduled(&mut self, named: [Option<&Value>; 2], limit: Duration) {
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.know().await;
            let filled = named.iter().flatten().map(|value| self.actor.references.filled(value).to_string());
            let is_open =
                filled.into_iter().any(|text| text.contains("no-node") || text.contains("no-handle"));
            if !is_open || tokio::time::Instant::now() > end {
                return;
            }
            self.arm().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until the claim has a volume of which a wait names the attachment: its name is that of the volume on a node.
    async fn provisioned(&mut self, what: &str, limit: Duration) {
        let filled = self.actor.references.fill(what);
        let Some(claim) =
            filled.strip_prefix("attachment ").and_then(|name| Some(name.split_once(" on ")?.0))
        else {
            return;
        };
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.know().await;
            if !self.is_unprovisioned(claim) || tokio::time::Instant::now() > end {
                return;
            }
            self.arm().await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether there is such a claim, which has no volume yet.
    fn is_unprovisioned(&self, claim: &str) -> bool {
        let Ok(key) = self.actor.references.key(&format!("claim {claim}")) else { return false };
        let is_created = self.actor.references.uid("claim", claim) != "no-uid";
        self.actor.record.read(|store| match store.latest.get(&key) {
            Some(found) => {
                let name = found["spec"]["volumeName"].as_str().unwrap_or_default();
                !store.own("PersistentVolume").any(|(volume, _)| volume.2 == name)
            }
            // The watch may not have shown it yet.
            None => is_created && !store.versions.iter().any(|version| version.key == key),
        })
    }

    /// Injects the answers for the volumes that exist now.
    pub(super) async fn arm(&self) {
        let mut rules = self.asked();
        rules.extend(self.actor.record.read(|store| self.answers.rules(&self.actor.references, store)));
        let armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner).replace(rules.clone());
        if armed.as_ref() != Some(&rules) {
            self.t.answer_calls(rules).await;
        }
    }

    /// Records what the calls carry of which a step says what they must.
    fn asked(&self) -> Vec<FaultRule> {
        let asks = |step: &Step| {
            let has = step.has.is_some() || step.lacks.is_some();
            let what = step.until.as_deref().or(step.never.as_deref()).filter(|_| has)?;
            match Subject::parse(what) {
                Ok(Subject::Call { method, .. }) => Some(method),
                _ => None,
            }
        };
        let methods: BTreeSet<CsiMethod> = self.played.scenario.steps.iter().filter_map(asks).collect();
        methods.into_iter().map(|method| FaultRule::new(method, FaultAction::Record)).collect()
    }

    /// Waits, while answers are injected for each volume that is provisioned meanwhile.
    pub(super) async fn while_armed<T>(&self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        let volumes = |store: &Store| [volumes(store), inline::handles(store, self.t.driver_name())].concat();
        loop {
            let known = self.actor.record.read(volumes);
            self.arm().await;
            let more = |store: &Store| (volumes(store) != known).then_some(());
            tokio::select! {
                ended = &mut wait => return ended,
                _ = self.actor.record.until(Duration::MAX, more) => {}
            }
        }
    }

    /// The claim of which a step holds calls of a method, if one does; all if it is `None`.
    pub(super) fn held(&self, method: CsiMethod) -> Option<Option<&str>> {
        self.answers.held(method)
    }

    pub(super) fn limit(&self, step: &Step) -> Duration {
        super::limit(step, self.t.step())
    }

    pub(super) fn node(&self, node: &str) -> Result<String> {
        let node = match node.strip_prefix("pod ") {
            Some(pod) => self.actor.references.fill(&format!("$node({pod})")),
            None => self.actor.references.fill(node),
        };
        ensure!(node != "no-node", "the pod runs on no node yet: wait in a step before for one that does");
        ensure!(
            self.t.nodes().contains(&node),
            "there is no node {node}: write `pod` and its name, or $node-1"
        );
        Ok(node)
    }
}

/// The volumes and snapshots of the scenario.
fn volumes(store: &Store) -> Vec<String> {
    let of = |kind| store.own(kind).map(|(key, _)| key.2.clone());
    of("PersistentVolume").chain(of("VolumeSnapshotContent")).collect()
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
