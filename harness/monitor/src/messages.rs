//! The last Event about waiting objects. Events are requested for those alone: a watch of all Events of a cluster would
//! cost more than all that a monitor does otherwise.

use std::{cmp::Reverse, collections::BTreeSet};

use claimcheck_informer::response;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use tracing::debug;

use crate::{
    claim_events::COMPONENT,
    rights,
    stuck::{Involved, Message, Messages, Waiting},
};

/// The most rows for which Events are requested: the longest waits come first.
const ROWS: usize = 64;
/// The most objects of a row: its pod and its claim, or its claim and its volume.
const OBJECTS: usize = 2;

/// The last Events about what waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastEvents {
    /// By object. One without Events, or with a failed request, has none.
    pub messages: Messages,
    /// Why some could not be read: a note of the status, since messages name most causes.
    pub note: Option<String>,
}

/// The last Events about these rows, each object's from its namespace: a request for those of all namespaces would
/// have the API server look at every Event. `requested` is called before each request.
pub(crate) async fn messages(client: &Client, rows: &[Waiting], requested: impl Fn()) -> LastEvents {
    let LastEvents { mut messages, mut note } = LastEvents::default();
    let mut read = BTreeSet::new();
    for Involved { namespace, uid } in
        rows.iter().take(ROWS).flat_map(|row| row.involved.iter().take(OBJECTS))
    {
        if uid.is_empty() || namespace.is_empty() || !read.insert(uid) {
            continue;
        }
        let api = Api::<Event>::namespaced(client.clone(), namespace);
        requested();
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        match api.list(&params).await {
            Ok(events) => messages.extend(last(events.items).map(|message| (uid.clone(), message))),
            Err(error) => {
                debug!(%error, uid, "its Events cannot be read");
                note.get_or_insert_with(|| unread(&error));
            }
        }
    }
    LastEvents { messages, note }
}

/// The note about an error.
fn unread(error: &kube::Error) -> String {
    let reason = response::message(error);
    let remedy = match error {
        kube::Error::Api(status) if status.code == 403 => format!(": {}", rights::remedy::<Event>(&["list"])),
        _ => String::new(),
    };
    format!("Events cannot be read, so that messages are missing and causes may be others: {reason}{remedy}")
}

/// The last Warning; without any, the last Event. The monitor's own Events repeat earlier ones.
fn last(mut events: Vec<Event>) -> Option<Message> {
    events.retain(|event| event.reporting_component.as_deref() != Some(COMPONENT));
    events.sort_by_key(|event| (Reverse(event.type_.as_deref() == Some("Warning")), Reverse(time(event))));
    let event = events.into_iter().next()?;
    let text = event.message.unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(Message { reason: event.reason.unwrap_or_default(), text })
}

/// The last occurrence, as the different recorders write it.
pub(crate) fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    micro.or(event.last_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn event(kind: &str, reason: &str, seconds: i64) -> Event {
        Event {
            type_: Some(kind.into()),
            reason: Some(reason.into()),
            message: Some("a\n  b".into()),
            last_timestamp: Timestamp::from_second(seconds).ok().map(Time),
            ..Event::default()
        }
    }

    #[test]
    fn the_last_warning_precedes_later_events() {
        let events = vec![
            event("Normal", "Scheduled", 9),
            event("Warning", "FailedMount", 5),
            event("Warning", "FailedAttachVolume", 3),
        ];
        let message = last(events).expect("there is one");
        assert_eq!((&*message.reason, &*message.text), ("FailedMount", "a b"));
        let message = last(vec![event("Normal", "Early", 1), event("Normal", "Late", 2)]);
        assert_eq!(message.expect("there is one").reason, "Late");
        assert_eq!(last(Vec::new()), None);
        let own =
            Event { reporting_component: Some(COMPONENT.to_owned()), ..event("Warning", "ClaimWaits", 9) };
        assert_eq!(last(vec![own]), None);
    }
}
