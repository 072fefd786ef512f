//! What a scenario waits for, and what must not be seen.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use claimcheck_model::{CsiMethod, Phase};
use claimcheck_scenario::{EventOf, Key, Step, Store, Subject, matches, split};
use serde_json::{Value, json};

use super::{
    inline,
    play::Player,
    requests::{carries, carrying, differences, nearest},
};

/// How long the watch of an object that exists may take.
const SHOWN: Duration = Duration::from_secs(2);

/// Something that must not be seen.
pub(super) struct Never {
    /// As the scenario names it.
    pub(super) subject: String,
    pub(super) title: String,
    pub(super) line: u64,
    pub(super) what: Unwanted,
}

/// What is unwanted.
pub(super) enum Unwanted {
    /// An object that has this, in the versions from this number on. Its name, and what it refers to, may not be known yet.
    Object { object: String, has: Value, from: usize },
    /// The deletion of an object, in the versions from this number on.
    Deletion { key: Key, from: usize },
    /// An event, in the versions from this number on.
    Event { event: EventOf, from: usize },
    /// More calls than before, for one claim or all.
    Call { method: CsiMethod, claim: Option<String>, before: u64 },
    /// A call, for one claim or all, after so many of which the requests were recorded, that carries one thing, or lacks
    /// another.
    Carrying {
        method: CsiMethod,
        claim: Option<String>,
        has: Option<Value>,
        lacks: Option<Value>,
        from: usize,
    },
}

impl Player {
    /// The first that must not be seen and was.
    pub(super) async fn unwanted_so_far(&self) -> Option<String> {
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

    /// What must not be seen refers to something that never came.
    pub(super) fn nevers_are_known(&self) -> Result<()> {
        for never in &self.nevers {
            let named = match &never.what {
                Unwanted::Object { has, .. } => [Some(has), None],
                Unwanted::Carrying { has, lacks, .. } => [has.as_ref(), lacks.as_ref()],
                Unwanted::Deletion { .. } | Unwanted::Event { .. } | Unwanted::Call { .. } => [None, None],
            };
            let at = || format!("{}:{}: {}", self.played.file, never.line, never.title);
            self.is_known(named).with_context(at)?;
        }
        Ok(())
    }

    pub(super) async fn until(&mut self, what: &str, step: &Step) -> Result<()> {
        let what = &self.actor.references.fill(what);
        let limit = self.limit(step);
        let subject = Subject::parse(what).map_err(anyhow::Error::msg)?;
        match subject {
            Subject::Event(object) => {
                Ok(self.while_armed(self.actor.until_event(object, step, limit)).await?)
            }
            Subject::Object(object) => {
                let deleted = step.delete.as_ref().map(|deleted| self.actor.references.fill(deleted));
                if step.gone && deleted.as_deref() != Some(object) {
                    self.was_there(object)?;
                }
                Ok(self.while_armed(self.actor.until_object(object, step, limit)).await?)
            }
            Subject::Call { .. } | Subject::Phase { .. } => self.until_counted(subject, step, limit).await,
        }
    }

    /// Waits for so many calls, or ends of a phase.
    async fn until_counted(&mut self, subject: Subject<'_>, step: &Step, limit: Duration) -> Result<()> {
        let count = step.count;
        let wanted = u64::try_from(count.unwrap_or(1))?;
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.know().await;
            self.arm().await;
            let has = step.has.as_ref().map(|has| self.actor.references.filled(has));
            let seen = match subject {
                Subject::Call { method, claim } => match (self.held(method), &has) {
                    // A call of before the step that holds them is none that waits.
                    (Some(of), _) if count.is_none() && (of.is_none() || claim.is_none() || of == claim) => {
                        let claim = claim.or(of);
                        match &has {
                            Some(has) => carrying(&self.requests_in_progress(method, claim)?, has)?,
                            None => self.waiting(method, claim)?,
                        }
                    }
                    (_, Some(has)) => carrying(&self.requests(method, claim, 0)?, has)?,
                    (_, None) => self.calls(method, claim).await?,
                },
                Subject::Phase { phase, claim } => self.ended(phase, claim).await?,
                Subject::Object(_) | Subject::Event(_) => wanted,
            };
            if seen >= wanted {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                let others = match (subject, &has) {
                    (Subject::Call { method, .. }, Some(_))
                        if self.held(method).is_some() && count.is_none() =>
                    {
                        "; no call that is held carries this".to_owned()
                    }
                    (Subject::Call { method, claim }, Some(has)) => {
                        nearest(&self.requests(method, claim, 0)?, has)
                    }
                    _ => String::new(),
                };
                bail!("not in time: {seen} of {wanted} were seen{others}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        Ok(self.claims().remove(&(key.1, key.2)).unwrap_or_default())
    }

    /// The number of calls of a method up to now, also of those that an answer of the scenario made fail.
    async fn calls(&self, method: CsiMethod, claim: Option<&str>) -> Result<u64> {
        let balance = match claim {
            Some(_) => self.t.session().timeline().balance(self.uids(claim)?).await?,
            None => self.t.balance_so_far().await?,
        };
        let injected = balance.injected.get(&method).copied().unwrap_or_default();
        Ok(self.waiting(method, claim)? + balance.all_calls(method) + injected)
    }

    /// What the calls of a method carried, after the first `from` of all that were recorded.
    fn requests(&self, method: CsiMethod, claim: Option<&str>, from: usize) -> Result<Vec<Value>> {
        Ok(self.t.session().in_flight().requests(method, &self.volumes(claim)?, from))
    }

    /// What those carry that have begun and not ended.
    fn requests_in_progress(&self, method: CsiMethod, claim: Option<&str>) -> Result<Vec<Value>> {
        Ok(self.t.session().in_flight().requests_in_progress(method, &self.volumes(claim)?))
    }

    /// The number of calls of a method that have begun and not ended.
    fn waiting(&self, method: CsiMethod, claim: Option<&str>) -> Result<u64> {
        Ok(self.t.session().in_flight().count(method, &self.volumes(claim)?))
    }

    /// The names and handles of the volumes and snapshots of one claim, or of the scenario.
    fn volumes(&self, claim: Option<&str>) -> Result<Vec<String>> {
        let mut volumes = self.volumes_of(&self.uids(claim)?);
        if claim.is_none() {
            let driver = self.t.driver_name();
            volumes.extend(self.actor.record.read(|store| inline::handles(store, driver)));
        }
        Ok(volumes)
    }

    /// The names and handles of the volumes and snapshots of claims.
    fn volumes_of(&self, uids: &[String]) -> Vec<String> {
        let mut names: Vec<String> = uids.iter().map(|uid| format!("pvc-{uid}")).collect();
        self.actor.record.read(|store| {
            let is_of = |volume: &Value| {
                let of = volume["spec"]["claimRef"]["uid"].as_str();
                of.is_some_and(|of| uids.iter().any(|uid| uid == of))
            };
            // Also of those that are gone.
            let volumes = store.seen("PersistentVolume").filter(|volume| is_of(volume));
            let handles = volumes.map(|volume| &volume["spec"]["csi"]["volumeHandle"]);
            let contents = store.seen("VolumeSnapshotContent").flat_map(|content| {
                [&content["status"]["snapshotHandle"], &content["spec"]["source"]["snapshotHandle"]]
            });
            names.extend(handles.chain(contents).filter_map(Value::as_str).map(str::to_owned));
        });
        names
    }

    /// The number of times that a phase has ended.
    async fn ended(&self, phase: Phase, claim: Option<&str>) -> Result<u64> {
        let samples = self.t.session().timeline().phases(self.uids(claim)?).await?;
        Ok(samples.iter().filter(|sample| sample.phase == phase).count().try_into()?)
    }

    pub(super) async fn unwanted(&self, what: &str, step: &Step) -> Result<Unwanted> {
        let from = self.actor.record.read(|store| store.versions.len());
        Ok(match Subject::parse(what).map_err(anyhow::Error::msg)? {
            Subject::Event(object) => {
                let event = self.actor.event(object, step.reason.as_deref(), step.message.as_deref())?;
                Unwanted::Event { event, from }
            }
            Subject::Call { method, claim } if step.has.is_some() || step.lacks.is_some() => {
                self.t.session().calls_recorded().await?;
                let from = self.t.session().in_flight().asked_so_far();
                let (has, lacks) = (step.has.clone(), step.lacks.clone());
                Unwanted::Carrying { method, claim: claim.map(str::to_owned), has, lacks, from }
            }
            Subject::Call { method, claim } => {
                self.t.session().calls_recorded().await?;
                let before = self.calls(method, claim).await?;
                Unwanted::Call { method, claim: claim.map(str::to_owned), before }
            }
            Subject::Phase { .. } => bail!("a phase cannot be forbidden: use until"),
            Subject::Object(object) => {
                let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
                let has = step.has.clone().unwrap_or(json!({}));
                let filled = self.actor.references.filled(&has);
                let mut now = self.actor.record.read(|store| store.latest.get(&key).cloned());
                if step.gone && now.is_none() {
                    // The watch may not have shown yet what was just created.
                    let shown = |store: &Store| store.latest.get(&key).cloned();
                    now = self.actor.record.until(SHOWN, shown).await;
                }
                match (step.gone, now) {
                    (true, None) => bail!("there is no {object} now: wait for it in a step before"),
                    (false, Some(now)) if matches(&now, &filled) => bail!("it has {filled} already"),
                    (true, Some(_)) => Unwanted::Deletion { key, from },
                    (false, _) => Unwanted::Object { object: object.to_owned(), has, from },
                }
            }
        })
    }

    /// What was seen of something unwanted.
    async fn seen(&self, what: &Unwanted) -> Result<Option<String>> {
        Ok(match what {
            Unwanted::Object { object, has, from } => {
                let key = self.actor.references.key(object).map_err(anyhow::Error::msg)?;
                self.actor.record.read(|store| {
                    let has = self.actor.references.filled(has);
                    let versions = store.versions.iter().skip(*from).filter(|version| version.key == key);
                    let mut objects = versions.filter_map(|version| version.object.as_ref());
                    objects.find(|object| matches(object, &has)).map(|_| format!("it had {has}"))
                })
            }
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
                (now > *before).then(|| match now - before {
                    1 => format!("a call of {method}"),
                    more => format!("{more} calls of {method}"),
                })
            }
            Unwanted::Carrying { method, claim, has, lacks, from } => {
                self.t.session().calls_recorded().await?;
                let filled =
                    |part: &Option<Value>| part.as_ref().map(|part| self.actor.references.filled(part));
                let (has, lacks) = (filled(has), filled(lacks));
                let requests = self.requests(*method, claim.as_deref(), *from)?;
                let is_unwanted = |request: &&Value| {
                    has.as_ref().is_none_or(|has| carries(request, has))
                        && lacks.as_ref().is_none_or(|lacks| !carries(request, lacks))
                };
                requests.iter().find(is_unwanted).map(|request| {
                    let has = has.as_ref().map(|has| format!(" carried {has}")).unwrap_or_default();
                    let lacks = lacks.as_ref().map(|lacks| differences(request, lacks)).unwrap_or_default();
                    format!("a call of {method}{has}{lacks}")
                })
            }
        })
    }
}
