//! Which claims exceed their threshold and have had no Event for an hour.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    class_duration::ClassDuration,
    stuck::{Cause, Waiting, age},
};

/// The least time between two Events about a claim.
const QUIET: SignedDuration = SignedDuration::from_hours(1);

/// The most bytes of a message. Upstream: `NoteLengthLimit` in `pkg/apis/core/validation/events.go`.
const LENGTH: usize = 1024;

/// The name of the threshold of all classes without their own.
const OTHERS: &str = "*";

/// An Event that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The namespace of the claim.
    pub namespace: String,
    /// The name of the claim.
    pub claim: String,
    /// The uid of the claim.
    pub uid: String,
    /// The text.
    pub message: String,
}

/// When the last Event about each claim was emitted, by uid.
pub(crate) type Emitted = BTreeMap<String, Timestamp>;

/// The due Events, one per claim: about its longest wait.
pub(crate) fn plan(
    waiting: &[Waiting],
    thresholds: &[ClassDuration],
    emitted: &Emitted,
    now: Timestamp,
) -> Vec<Notice> {
    let mut longest: BTreeMap<&str, &Waiting> = BTreeMap::new();
    for row in waiting {
        let limit = threshold(thresholds, &row.storage_class);
        let exceeds = limit.is_some_and(|limit| row.seconds > limit.as_secs_f64());
        // A claim without a pod waits for nothing that could be late.
        if row.claim_uid.is_empty() || !exceeds || row.cause == Cause::FirstConsumer {
            continue;
        }
        let longest = longest.entry(&row.claim_uid).or_insert(row);
        if row.seconds > longest.seconds {
            *longest = row;
        }
    }
    let is_due = |uid: &str| emitted.get(uid).is_none_or(|at| now.duration_since(*at) >= QUIET);
    let due = longest.into_iter().filter(|(uid, _)| is_due(uid));
    due.map(|(uid, row)| Notice {
        namespace: row.namespace.clone(),
        claim: row.claim.clone(),
        uid: uid.to_owned(),
        message: message(row),
    })
    .collect()
}

/// Removes what no longer matters.
pub(crate) fn expire(emitted: &mut Emitted, now: Timestamp) {
    emitted.retain(|_, at| now.duration_since(*at) < QUIET);
}

/// The threshold of a class.
fn threshold(thresholds: &[ClassDuration], class: &str) -> Option<SignedDuration> {
    let named = |name: &str| thresholds.iter().find(|one| one.class == name).map(|one| one.duration);
    named(class).or_else(|| named(OTHERS))
}

fn message(row: &Waiting) -> String {
    let phase = row.phase.name();
    let place = if row.node.is_empty() { String::new() } else { format!(" on node {}", row.node) };
    let last = row.message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
    let mut text = format!("phase {phase}{place} has lasted {}{last}: {}", age(row.seconds), row.remedy);
    text.truncate(text.floor_char_boundary(LENGTH));
    text
}

#[cfg(test)]
mod tests {
    use claimcheck_model::Phase;

    use super::*;
    use crate::stuck::example;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("it is in range")
    }

    fn row(claim: &str, class: &str, phase: Phase, seconds: f64) -> Waiting {
        let status = example();
        let [row, _] = &status.waiting[..] else { panic!("{status:?}") };
        Waiting {
            claim: claim.to_owned(),
            claim_uid: format!("uid-{claim}"),
            storage_class: class.to_owned(),
            phase,
            seconds,
            ..row.clone()
        }
    }

    fn due(waiting: &[Waiting], thresholds: &[&str], emitted: &Emitted, now: i64) -> Vec<String> {
        let thresholds: Vec<ClassDuration> =
            thresholds.iter().map(|one| one.parse().expect("a threshold")).collect();
        let notices = plan(waiting, &thresholds, emitted, at(now));
        notices.into_iter().map(|notice| notice.claim).collect()
    }

    #[test]
    fn the_threshold_is_that_of_the_class_or_of_all_others() {
        let waiting = [
            row("a", "fast", Phase::Attach, 100.0),
            row("b", "slow", Phase::Attach, 100.0),
            row("c", "other", Phase::Attach, 100.0),
        ];
        let none = Emitted::new();
        let cases: [(&[&str], &[&str]); 6] = [
            (&[], &[]),
            (&["fast=90s"], &["a"]),
            (&["fast=100s"], &[]),
            (&["*=90s"], &["a", "b", "c"]),
            (&["slow=1h", "*=90s"], &["a", "c"]),
            (&["*=1h", "slow=90s"], &["b"]),
        ];
        for (thresholds, expected) in cases {
            assert_eq!(due(&waiting, thresholds, &none, 0), expected, "{thresholds:?}");
        }
    }

    #[test]
    fn a_claim_has_one_event_per_hour_about_its_longest_wait() {
        let waiting = [row("a", "fast", Phase::Publish, 200.0), row("a", "fast", Phase::Attach, 700.0)];
        let notices = plan(&waiting, &["*=1m".parse().expect("one")], &Emitted::new(), at(0));
        let [notice] = &notices[..] else { panic!("{notices:?}") };
        assert!(
            notice.message.starts_with("phase attach on node n1 has lasted 11m (FailedMount"),
            "{notice:?}"
        );
        assert!(notice.message.ends_with(Cause::MissingSecret.remedy()), "{notice:?}");
        let mut emitted = Emitted::from([("uid-a".to_owned(), at(0))]);
        assert_eq!(due(&waiting, &["*=1m"], &emitted, 3599), Vec::<String>::new());
        assert_eq!(due(&waiting, &["*=1m"], &emitted, 3600), ["a"]);
        expire(&mut emitted, at(3600));
        assert_eq!(emitted, Emitted::new());
    }

    #[test]
    fn claims_without_a_consumer_or_uid_have_none() {
        let lazy = Waiting { cause: Cause::FirstConsumer, ..row("a", "fast", Phase::Provision, 1e6) };
        let deleted = Waiting { claim_uid: String::new(), ..row("b", "fast", Phase::Delete, 1e6) };
        assert_eq!(due(&[lazy, deleted], &["*=1m"], &Emitted::new(), 0), Vec::<String>::new());
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let long = Waiting { message: Some("é".repeat(2000)), ..row("a", "fast", Phase::Attach, 700.0) };
        let text = message(&long);
        assert!((LENGTH - 1..=LENGTH).contains(&text.len()), "{}", text.len());
    }
}
