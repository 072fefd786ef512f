//! The life cycle of a unit, a group of volumes that are created and deleted together: claims, and the pods that use
//! all of them. Waits use the session's cache, so they cause no load on the API server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use claimcheck_cluster::{Check, Trigger};
use claimcheck_harness::{LeftoversError, Session};
use claimcheck_informer::Kind;
use claimcheck_model::{Event, Leak, LoadEvent, ObjectKey, VolumeStep};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use tokio_util::sync::CancellationToken;

use super::{Spec, objects};
use crate::fixture::{delete, readiness};

/// The time limit for call records to arrive after the objects are gone from the API.
const SETTLE: Duration = Duration::from_secs(5);

/// The context in which volumes are created.
pub(super) struct LoadContext {
    pub session: Arc<Session>,
    pub spec: Spec,
    pub namespace: String,
    pub interrupted: CancellationToken,
}

/// A group of volumes that are created and deleted together.
pub(super) struct Unit {
    /// Names of the claims.
    claims: Vec<String>,
    pods: Vec<String>,
    /// UIDs of the claims created so far.
    uids: Vec<String>,
    started: Instant,
    failed: bool,
}

impl Unit {
    /// The `nth` unit, with claims numbered from `first`.
    pub fn new(nth: usize, first: usize, volumes: usize, pods: usize) -> Self {
        let claims = (first..first + volumes).map(|number| format!("claim-{number}")).collect();
        let pods = (0..pods).map(|pod| format!("pod-{nth}-{pod}")).collect();
        Self { claims, pods, uids: Vec::new(), started: Instant::now(), failed: false }
    }

    /// The number of volumes.
    pub fn volumes(&self) -> usize {
        self.claims.len()
    }

    /// No step of the unit has failed.
    pub fn is_good(&self) -> bool {
        !self.failed
    }
}

impl LoadContext {
    /// Creates claims and pods and waits until they are up, the unit has failed, or the load is interrupted.
    pub async fn up(&self, mut unit: Unit) -> Unit {
        unit.started = Instant::now();
        self.reached(&unit, VolumeStep::Created);
        let interrupted = self.interrupted.clone();
        tokio::select! {
            rose = self.rise(&mut unit) => match rose {
                Ok(()) => self.reached(&unit, VolumeStep::Up),
                Err(error) => self.failed(&mut unit, &error),
            },
            () = interrupted.cancelled() => {}
        }
        unit
    }

    /// Deletes the objects of a unit, including a failed one, and waits until they are gone.
    pub async fn down(&self, mut unit: Unit) -> Unit {
        if unit.is_good() {
            self.reached(&unit, VolumeStep::Going);
        }
        match self.fall(&unit).await {
            Ok(()) if unit.is_good() => self.reached(&unit, VolumeStep::Gone),
            Ok(()) => {}
            Err(error) => self.failed(&mut unit, &error),
        }
        match self.session.leftovers(unit.uids.clone(), SETTLE).await {
            Ok(balance) => {
                for (kind, name) in balance.left {
                    self.session.emit(Event::Leak(Leak { kind, name, case: None }));
                }
            }
            // The timeline ends only at the end of the whole run.
            Err(LeftoversError::Closed(_)) => {}
            Err(error @ LeftoversError::NoEvidence(_)) => self.failed(&mut unit, &error.into()),
        }
        self.session.timeline().forget(std::mem::take(&mut unit.uids));
        unit
    }

    async fn rise(&self, unit: &mut Unit) -> Result<()> {
        for claim in &unit.claims {
            let made = self.claims().create(&PostParams::default(), &objects::claim(claim, &self.spec)).await;
            let made = made.with_context(|| format!("claim {claim} cannot be created"))?;
            unit.uids.push(made.uid().context("the API server returned the claim without a UID")?);
        }
        let Some((first, others)) = unit.pods.split_first() else { return self.bound(&unit.claims).await };
        self.pod(first, &unit.claims, None).await?;
        if !others.is_empty() {
            // ReadWriteOnce allows one node, and the scheduler does not choose that node for the other pods.
            let node = self.node_of(first).await?;
            try_join_all(others.iter().map(|pod| self.pod(pod, &unit.claims, Some(&node)))).await?;
        }
        self.ready(&unit.pods).await
    }

    async fn fall(&self, unit: &Unit) -> Result<()> {
        let all = DeleteParams::default();
        let (pods, claims) = (self.pods(), self.claims());
        try_join_all(unit.pods.iter().map(|pod| delete::<Pod>(&pods, pod, &all))).await?;
        let keys = |kind: Kind, names: &[String]| -> Vec<(Kind, ObjectKey)> {
            names.iter().map(|name| (kind, self.key(name))).collect()
        };
        self.deleted(&keys(Kind::Pod, &unit.pods)).await?;
        let volumes: Vec<String> = self.session.observer().look(|world| {
            let claims = unit.claims.iter().filter_map(|claim| world.claims.get(&self.key(claim)));
            claims.filter_map(|claim| claim.spec.as_ref()?.volume_name.clone()).collect()
        });
        try_join_all(unit.claims.iter().map(|name| delete::<PersistentVolumeClaim>(&claims, name, &all)))
            .await?;
        let mut left = keys(Kind::Claim, &unit.claims);
        left.extend(volumes.into_iter().map(|name| (Kind::Volume, ObjectKey::cluster(name))));
        self.deleted(&left).await
    }

    async fn pod(&self, name: &str, claims: &[String], node: Option<&str>) -> Result<()> {
        let mut pod = objects::pod(name, claims, node);
        self.spec.workload.dress(&mut pod);
        let made = self.pods().create(&PostParams::default(), &pod).await;
        made.map(drop).with_context(|| format!("pod {name} cannot be created"))
    }

    async fn bound(&self, claims: &[String]) -> Result<()> {
        self.each(Kind::Claim, claims, "to be Bound", |world, key| {
            let Some(claim) = world.claims.get(key) else {
                return Check::NotYet("the claim does not exist".into());
            };
            match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
                Some("Bound") => Check::Yes(()),
                Some("Lost") => Check::Never("it is Lost".into()),
                phase => Check::NotYet(format!("phase {}", phase.unwrap_or("none"))),
            }
        })
        .await
    }

    async fn ready(&self, pods: &[String]) -> Result<()> {
        self.each(Kind::Pod, pods, "to be Ready", |world, key| match world.pods.get(key) {
            Some(pod) => readiness(pod),
            None => Check::NotYet("the pod does not exist".into()),
        })
        .await
    }

    /// The node that a pod was scheduled to.
    async fn node_of(&self, pod: &str) -> Result<String> {
        let key = self.key(pod);
        let on = [Trigger::Object(Kind::Pod, key.clone())];
        let what = format!("pod {key} to be scheduled");
        let node = self.session.observer().until(&what, self.spec.timeout, &on, |world| {
            let node = world.pods.get(&key).and_then(|pod| pod.spec.as_ref()?.node_name.clone());
            node.map_or_else(|| Check::NotYet("no node assigned".into()), Check::Yes)
        });
        Ok(node.await?)
    }

    async fn deleted(&self, objects: &[(Kind, ObjectKey)]) -> Result<()> {
        for (kind, key) in objects {
            let on = [Trigger::Object(*kind, key.clone())];
            let what = format!("{} {key} to be gone", kind.name());
            let deleted = self.session.observer().until(&what, self.spec.timeout, &on, |world| {
                let present = match kind {
                    Kind::Claim => world.claims.get(key).is_some(),
                    Kind::Pod => world.pods.get(key).is_some(),
                    Kind::Volume => world.volumes.get(key).is_some(),
                    kind => unreachable!("a load creates no {}", kind.name()),
                };
                if present { Check::NotYet("it still exists".into()) } else { Check::Yes(()) }
            });
            deleted.await?;
        }
        Ok(())
    }

    /// Waits for one object after another, so that a change wakes only the waiter of its object.
    async fn each(
        &self,
        kind: Kind,
        names: &[String],
        what: &str,
        look: impl Fn(&claimcheck_informer::World, &ObjectKey) -> Check<()>,
    ) -> Result<()> {
        for name in names {
            let key = self.key(name);
            let what = format!("{} {key} {what}", kind.name());
            let on = [Trigger::Object(kind, key.clone())];
            self.session.observer().until(&what, self.spec.timeout, &on, |world| look(world, &key)).await?;
        }
        Ok(())
    }

    fn reached(&self, unit: &Unit, reached: VolumeStep) {
        let (volumes, seconds) = (unit.volumes() as u64, unit.started.elapsed().as_secs_f64());
        self.session.emit(Event::Load(LoadEvent::Volumes { reached, volumes, seconds }));
    }

    /// Reports a failure, once per unit.
    fn failed(&self, unit: &mut Unit, error: &anyhow::Error) {
        if !std::mem::replace(&mut unit.failed, true) {
            let claims = unit.claims.iter().map(|claim| self.key(claim).to_string()).collect();
            self.session.emit(Event::Load(LoadEvent::Failed { claims, reason: format!("{error:#}") }));
        }
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.session.client(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.session.client(), &self.namespace)
    }
}
