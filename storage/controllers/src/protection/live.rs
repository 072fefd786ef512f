//! Live lists of a namespace's pods, each shared by all claims that were waiting when it began: so the deletion of
//! hundreds of claims at once costs a handful of lists.
//!
//! Upstream: `LazyLivePodList` in `pkg/controller/volume/pvcprotection/pvc_protection_controller.go`, one list per
//! batch of a namespace's claims.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};

/// A namespace's pods could not be listed.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot list the pods of namespace {namespace}: until this succeeds, its deleted claims keep their finalizers, \
     and no claim gets the condition Unused"
)]
pub struct ListError {
    namespace: String,
    #[source]
    source: kube::Error,
}

/// The lists of all namespaces.
#[derive(Default)]
pub struct LivePods {
    /// By namespace; only while claims wait.
    lists: Mutex<HashMap<String, Arc<Latest>>>,
}

/// The latest list of a namespace. The lock is held during a list.
type Latest = tokio::sync::Mutex<Option<List>>;

struct List {
    started: Instant,
    pods: Arc<[Pod]>,
}

impl LivePods {
    /// The namespace's pods, by a list that began after this call.
    pub async fn of(&self, client: &Client, namespace: &str) -> Result<Arc<[Pod]>, ListError> {
        let asked = Instant::now();
        let latest = self.lists().entry(namespace.to_owned()).or_default().clone();
        let pods = list(&latest, asked, client, namespace).await;
        drop(latest);
        // Whoever still waits holds the list, too.
        self.lists().retain(|_, latest| Arc::strong_count(latest) > 1);
        pods
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn lists(&self) -> MutexGuard<'_, HashMap<String, Arc<Latest>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn list(
    latest: &Latest,
    asked: Instant,
    client: &Client,
    namespace: &str,
) -> Result<Arc<[Pod]>, ListError> {
    let mut latest = latest.lock().await;
    if let Some(List { started, pods }) = &*latest
        && *started >= asked
    {
        return Ok(pods.clone());
    }
    let started = Instant::now();
    // Without a resourceVersion, so that the response is not older than the request.
    let listed = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await;
    let listed = listed.map_err(|source| ListError { namespace: namespace.to_owned(), source })?;
    let pods: Arc<[Pod]> = listed.items.into();
    *latest = Some(List { started, pods: pods.clone() });
    Ok(pods)
}
