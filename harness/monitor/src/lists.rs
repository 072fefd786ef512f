//! A single look at a cluster: one list of each kind, and the Events about what waits.

use jiff::SignedDuration;
use kube::{Api, Client, api::ListParams};

use claimcheck_model::Stamp;

use crate::{
    api_clock,
    life::{Life, Scope, Seen},
    messages::LastEvents,
    rights,
    stuck::{Clock, Messages, Status},
    watch::{Watched, every_kind, is_optional},
};

/// A cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// A right is missing.
    #[error("cannot list {kind} of all namespaces: {message}: {remedy}, or use credentials with this right")]
    Forbidden {
        /// The kind.
        kind: &'static str,
        /// The message of the API server.
        message: String,
        /// The rule that permits it.
        remedy: String,
    },
    /// The API server does not respond, or with another error.
    #[error("cannot list {kind}: check the kubeconfig and the network")]
    Request {
        /// The kind.
        kind: &'static str,
        /// The error of the request.
        #[source]
        source: Box<kube::Error>,
    },
}

/// What waits in a cluster now.
///
/// # Errors
/// A kind cannot be listed; snapshots need not be served.
pub async fn look(client: &Client, scope: Scope, stuck_after: SignedDuration) -> Result<Status, LookError> {
    let mut life = Life::new(scope);
    macro_rules! list {
        ($($kind:ty),+) => {
            $(list::<$kind>(client, &mut life).await?;)+
        };
    }
    every_kind!(list);
    life.sync();
    let ahead = api_clock::ahead(client).await.unwrap_or_default();
    let clock = Clock::new(ahead, stuck_after);
    let without = life.status(&Messages::new(), &clock);
    let mut events = LastEvents::default();
    events.look(client, &without.waiting, usize::MAX, || ()).await;
    let mut status = life.status(&events.messages, &clock);
    status.notes.extend(events.note);
    status.notes.extend(api_clock::note(ahead));
    Ok(status)
}

async fn list<K: Watched>(client: &Client, life: &mut Life) -> Result<(), LookError> {
    let params = ListParams { resource_version: Some("0".into()), ..ListParams::default() };
    match Api::<K>::all(client.clone()).list(&params).await {
        Ok(objects) => {
            for object in objects.items {
                life.enter(object, Seen::Listed, Stamp::now());
            }
            Ok(())
        }
        Err(kube::Error::Api(status)) if is_optional(K::CACHED_AS) && matches!(status.code, 403 | 404) => {
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 403 => Err(LookError::Forbidden {
            kind: K::CACHED_AS.name(),
            message: status.message.clone(),
            remedy: rights::remedy::<K>(&rights::FOLLOW),
        }),
        Err(error) => Err(LookError::Request { kind: K::CACHED_AS.name(), source: Box::new(error) }),
    }
}
