//! The last Event about waiting objects. Events are requested for those alone: a watch of all Events of a cluster would
//! cost more than all that a monitor does otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use claimcheck_informer::response;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use tracing::debug;

use crate::{
    claim_events::COMPONENT,
    rights,
    stuck::{Involved, InvolvedKind, Message, Messages, Waiting},
};

/// The number of requests of a look of the monitor; groups that are left are next.
pub(crate) const REQUESTS: usize = 128;
/// The number of objects of a group up to which each is requested alone: a namespace may have many other Events.
const SINGLE: usize = 8;
/// The number of Events of a response.
const PAGE: u32 = 500;
/// The number of Events of an object that are stored, the latest ones.
const STORED: usize = 16;

/// Events that a look requests together: those of one kind in a namespace. A request for those of all namespaces would
/// have the API server look at every Event.
type Group = (String, InvolvedKind);

/// The last Events about what waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastEvents {
    /// By object.
    pub messages: Messages,
    /// Why some could not be read: a note of the status, since messages name most causes.
    pub note: Option<String>,
    /// The looks so far.
    looks: u64,
    /// The last look at each group.
    looked: BTreeMap<Group, u64>,
}

impl LastEvents {
    /// The last Events about these rows, with at most so many requests: those of earlier looks stay until the turn of
    /// their group comes again. `requested` is called before each request.
    pub async fn look(&mut self, client: &Client, rows: &[Waiting], requests: usize, requested: impl Fn()) {
        let groups = groups(rows);
        self.looks += 1;
        self.note = None;
        self.looked.retain(|group, _| groups.contains_key(group));
        let expected: BTreeSet<&String> = groups.values().flatten().collect();
        self.messages.retain(|uid, _| expected.contains(uid));
        let (mut left, mut failed) = (requests, None);
        for group in turns(&groups, &self.looked) {
            let uids = &groups[&group];
            let cost = if uids.len() > SINGLE { 1 } else { uids.len() };
            let Some(rest) = left.checked_sub(cost) else { continue };
            left = rest;
            match read(client, &group, uids, &requested).await {
                Ok(messages) => {
                    self.messages.extend(messages);
                    self.looked.insert(group, self.looks);
                }
                Err(error) => {
                    debug!(%error, ?group, "its Events cannot be read");
                    failed.get_or_insert_with(|| unread(&error));
                }
            }
        }
        let missing = expected.iter().filter(|uid| !self.messages.contains_key(**uid)).count();
        let pending =
            || format!("the Events of {missing} objects have not been read yet: their causes may be unknown");
        self.note = failed.or_else(|| (missing > 0).then(pending));
    }
}

/// The objects with Events, by group.
fn groups(rows: &[Waiting]) -> BTreeMap<Group, BTreeSet<String>> {
    let mut groups: BTreeMap<Group, BTreeSet<String>> = BTreeMap::new();
    for Involved { kind, namespace, uid } in rows.iter().flat_map(|row| &row.involved) {
        groups.entry((namespace.clone(), *kind)).or_default().insert(uid.clone());
    }
    groups
}

/// The groups in the order in which they are read: first those that never were, then by the last look at them.
fn turns(groups: &BTreeMap<Group, BTreeSet<String>>, looked: &BTreeMap<Group, u64>) -> Vec<Group> {
    let mut turns: Vec<Group> = groups.keys().cloned().collect();
    turns.sort_by_key(|group| looked.get(group).copied());
    turns
}

/// The Events of a group: each of the objects has an entry.
async fn read(
    client: &Client,
    (namespace, kind): &Group,
    uids: &BTreeSet<String>,
    requested: &impl Fn(),
) -> Result<Messages, kube::Error> {
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    let mut events: BTreeMap<String, Vec<Event>> = uids.iter().map(|uid| (uid.clone(), Vec::new())).collect();
    if uids.len() <= SINGLE {
        for (uid, events) in &mut events {
            requested();
            let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
            *events = api.list(&params).await?.items;
        }
    } else {
        let mut params =
            ListParams::default().fields(&format!("involvedObject.kind={}", kind.name())).limit(PAGE);
        loop {
            requested();
            let mut page = api.list(&params).await?;
            for event in mem::take(&mut page.items) {
                let uid = event.involved_object.uid.as_deref().unwrap_or_default();
                if let Some(events) = events.get_mut(uid) {
                    events.push(event);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(events.into_iter().map(|(uid, events)| (uid, latest(events))).collect())
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

/// The latest Events of an object, the last one first. The monitor's own Events repeat earlier ones.
fn latest(events: Vec<Event>) -> Vec<Message> {
    let others = events.into_iter().filter(|event| event.reporting_component.as_deref() != Some(COMPONENT));
    let mut messages: Vec<Message> = others.map(message).collect();
    messages.sort_by_key(|message| std::cmp::Reverse(message.at));
    messages.truncate(STORED);
    messages
}

fn message(event: Event) -> Message {
    // The time of the API server, unless it occurred again.
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let at = time(&event).max(created).unwrap_or_default();
    let text = event.message.unwrap_or_default();
    Message {
        at,
        is_warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.unwrap_or_default(),
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
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

    fn event(reason: &str, seconds: i64) -> Event {
        Event {
            type_: Some("Warning".into()),
            reason: Some(reason.into()),
            message: Some("a\n  b".into()),
            last_timestamp: Timestamp::from_second(seconds).ok().map(Time),
            ..Event::default()
        }
    }

    #[test]
    fn the_latest_events_come_first_without_those_of_the_monitor() {
        let own = Event { reporting_component: Some(COMPONENT.to_owned()), ..event("ClaimWaits", 99) };
        let messages = latest(vec![event("FailedMount", 5), own, event("FailedAttachVolume", 7)]);
        let found: Vec<_> =
            messages.iter().map(|one| (&*one.reason, &*one.text, one.at.as_second())).collect();
        assert_eq!(found, [("FailedAttachVolume", "a b", 7), ("FailedMount", "a b", 5)]);
        assert_eq!(latest((0..99).map(|second| event("r", second)).collect()).len(), STORED);
    }

    #[test]
    fn groups_that_were_not_read_come_first() {
        let group = |name: &str| (name.to_owned(), InvolvedKind::Pod);
        let groups = ["a", "b", "c"].map(|name| (group(name), BTreeSet::new())).into();
        let turns = |looked: &[(&str, u64)]| {
            let looked = looked.iter().map(|(name, look)| (group(name), *look)).collect();
            let turns = turns(&groups, &looked);
            turns.into_iter().map(|(name, _)| name).collect::<String>()
        };
        assert_eq!(turns(&[]), "abc");
        assert_eq!(turns(&[("a", 2), ("b", 1)]), "cba");
    }
}
