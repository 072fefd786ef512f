//! The last CreateVolume call of each claim, as far as it determines the next one: shared by the controller that calls
//! the driver and by the one that releases the sources of volumes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use claimcheck_informer::{DataSource, data_source};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::plan::Known;
use crate::provisioner::source_object::object;

/// The calls, by the claim's uid. Clones are the same: the calls of a controller are known to its successor, which
/// begins when the driver has other capabilities.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    last: HashMap<String, Known>,
    settled: Option<UnboundedSender<DataSource>>,
}

impl Calls {
    /// The last call for a claim.
    pub fn of(&self, uid: &str) -> Option<Known> {
        self.state().last.get(uid).cloned()
    }

    /// Replaces the last call for a claim. Once it is no longer in doubt, its source is [reported](Self::settled).
    pub fn set(&self, uid: &str, known: Option<Known>) {
        let mut state = self.state();
        let is_in_doubt = matches!(known, Some(Known::InDoubt(_)));
        let before = match known {
            Some(known) => state.last.insert(uid.to_owned(), known),
            None => state.last.remove(uid),
        };
        if let Some(Known::InDoubt(job)) = before
            && !is_in_doubt
            && let Some(source) = source_of(&job.claim)
            && let Some(settled) = &state.settled
        {
            // Without a receiver, nothing releases sources.
            let _ = settled.send(source);
        }
    }

    /// Forgets all calls that are not in doubt.
    pub fn retain_in_doubt(&self) {
        self.state().last.retain(|_, known| matches!(known, Known::InDoubt(_)));
    }

    /// The claims with calls in doubt, which need not exist any more.
    pub fn in_doubt(&self) -> Vec<Arc<PersistentVolumeClaim>> {
        let of = |known: &Known| match known {
            Known::InDoubt(job) => Some(job.claim.clone()),
            Known::Infeasible { .. } => None,
        };
        self.state().last.values().filter_map(of).collect()
    }

    /// Whether the driver may still create a volume from the source.
    pub fn may_read(&self, source: &DataSource) -> bool {
        self.in_doubt().iter().any(|claim| source_of(claim).as_ref() == Some(source))
    }

    /// From now on the sources of calls that are no longer in doubt, for one receiver.
    pub fn settled(&self) -> UnboundedReceiver<DataSource> {
        let (sender, receiver) = unbounded_channel();
        self.state().settled = Some(sender);
        receiver
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn source_of(claim: &PersistentVolumeClaim) -> Option<DataSource> {
    object(data_source(claim)?)
}
