//! Emits the Events, as the leader.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::{
    COMPONENT, REASON,
    plan::{Emitted, Notice, expire, plan},
};
use crate::{class_duration::ClassDuration, messages::time, run::Shared};

/// The time between two looks at what waits.
const EVERY: Duration = Duration::from_secs(20);

/// Emits Events about claims that exceed their threshold; does not return. Each is a new object, so that the right to create is enough.
pub(crate) async fn run(client: &Client, shared: &Shared, thresholds: &[ClassDuration]) {
    let mut emitted = Emitted::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = shared.now();
        expire(&mut emitted, now);
        let status = shared.status_of_users();
        for notice in plan(&status.waiting, thresholds, &emitted, now) {
            // By an earlier leader, or before a restart.
            let earlier = last(client, &notice).await.map(|at| (notice.uid.clone(), at));
            if let Some(earlier) = earlier.filter(|(_, at)| is_recent(*at, now)) {
                emitted.extend([earlier]);
                continue;
            }
            let api = Api::<Event>::namespaced(client.clone(), &notice.namespace);
            match api.create(&PostParams::default(), &event(&notice, now)).await {
                Ok(_) => {
                    emitted.insert(notice.uid, now);
                }
                Err(error) => warn!(
                    namespace = notice.namespace, claim = notice.claim, %error,
                    "cannot emit an Event: apply manifests/monitor/events"
                ),
            }
        }
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let mut one = Emitted::from([(String::new(), at)]);
    expire(&mut one, now);
    !one.is_empty()
}

/// When the last Event about a claim was emitted.
async fn last(client: &Client, notice: &Notice) -> Option<Timestamp> {
    let api = Api::<Event>::namespaced(client.clone(), &notice.namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={},reason={REASON}", notice.uid));
    match api.list(&params).await {
        Ok(events) => events.items.iter().filter_map(time).max(),
        Err(error) => {
            debug!(%error, claim = notice.claim, "its earlier Events cannot be read");
            None
        }
    }
}

fn event(notice: &Notice, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            // As client-go names them (`makeEvent` in `tools/record/event.go`), so that names are unique.
            name: Some(format!("{}.{:x}", notice.claim, now.as_nanosecond())),
            namespace: Some(notice.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(notice.namespace.clone()),
            name: Some(notice.claim.clone()),
            uid: Some(notice.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some(REASON.to_owned()),
        message: Some(notice.message.clone()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(String::new()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}
