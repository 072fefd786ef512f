//! When the driver's volumes are listed, and which attachments are compared with the list.
//!
//! Upstream: `ReconcileVA` in external-attacher `pkg/controller/csi_handler.go`. Unlike there an attachment with a
//! call or a write ahead is not compared, nor with a list that began before the last of them ended: such a list may
//! show either state, and a failed call is repeated anyway.

use std::{collections::HashMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

/// The ids of the nodes that each volume is published on, by the volume's handle.
pub type Published = HashMap<String, Vec<String>>;

/// The last list, and the attachments to compare with it.
#[derive(Debug)]
pub struct Listing {
    interval: SignedDuration,
    /// When the attacher started.
    born: Timestamp,
    /// When the last call began; at first, an interval before the attacher started.
    started: Timestamp,
    /// Its response; `None` if it is in progress or has failed.
    published: Option<Published>,
    /// Since when an attachment has nothing ahead, or was compared; by its uid. `None` while it has.
    settled: HashMap<String, Option<Timestamp>>,
}

impl Listing {
    /// The first list is due now: what has changed while no attacher ran is found at once.
    pub fn new(interval: Duration, now: Timestamp) -> Self {
        let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
        let started = now.saturating_sub(interval).unwrap_or(Timestamp::MIN);
        Self { interval, born: now, started, published: None, settled: HashMap::new() }
    }

    /// The time until the next list; `None` if it is due.
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        until(self.started, self.interval, now)
    }

    /// A list begins.
    pub fn begin(&mut self, now: Timestamp) {
        (self.started, self.published) = (now, None);
    }

    /// The driver's response to it.
    pub fn answered(&mut self, published: Published) {
        self.published = Some(published);
    }

    /// The attachment has a call or a write ahead.
    pub fn unsettle(&mut self, uid: &str) {
        self.settled.insert(uid.to_owned(), None);
    }

    /// The attachment was deleted.
    pub fn forget(&mut self, uid: &str) {
        self.settled.remove(uid);
    }

    /// The list to compare a settled attachment with, which is returned once. One that never had anything ahead was
    /// attached by an earlier process, before any list of this one.
    pub fn unsettled(&mut self, uid: &str, now: Timestamp) -> Option<&Published> {
        let settled = self.settled.entry(uid.to_owned()).or_insert(Some(self.born)).get_or_insert(now);
        let published = self.published.as_ref().filter(|_| *settled < self.started)?;
        *settled = now;
        Some(published)
    }

    /// When to look for news again: a tenth of the interval after the begin of the present list, or of the next one. A
    /// list that takes longer to arrive is looked at after the next one.
    pub fn next_look(&self, now: Timestamp) -> Duration {
        let arrival = self.interval / 10;
        let present = until(self.started, arrival, now).filter(|_| self.published.is_none());
        let next = || until(self.started, self.interval.saturating_add(arrival), now);
        present.or_else(next).unwrap_or(self.interval.unsigned_abs())
    }
}

fn until(started: Timestamp, span: SignedDuration, now: Timestamp) -> Option<Duration> {
    let left = started.saturating_add(span).unwrap_or(Timestamp::MAX).duration_since(now);
    left.is_positive().then(|| left.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn each_list_is_compared_once_with_what_was_settled_before_it() {
        let mut listing = Listing::new(Duration::from_secs(60), at(0));
        listing.begin(at(0));
        listing.answered(Published::new());
        listing.unsettle("early");
        assert_eq!(listing.unsettled("early", at(1)), None, "it was attached after the list");
        assert_eq!((listing.left(at(1)), listing.next_look(at(1))), (Some(secs(59)), secs(65)));
        assert_eq!(listing.left(at(60)), None, "it is due");
        listing.begin(at(60));
        assert_eq!(listing.left(at(61)), Some(secs(59)));
        assert_eq!(listing.unsettled("early", at(61)), None, "no response yet");
        assert_eq!(listing.next_look(at(61)), secs(5), "it arrives soon");
        listing.unsettle("late");
        assert_eq!(listing.unsettled("late", at(61)), None);
        listing.answered(Published::new());
        assert_eq!(listing.unsettled("late", at(62)), None, "it was attached during the call");
        assert!(listing.unsettled("early", at(66)).is_some());
        assert_eq!(listing.unsettled("early", at(67)), None, "once");
        listing.begin(at(120));
        listing.answered(Published::new());
        listing.unsettle("early");
        assert_eq!(listing.unsettled("early", at(126)), None, "it was attached again meanwhile");
        assert!(listing.unsettled("late", at(126)).is_some());
        assert_eq!(listing.next_look(at(1000)), secs(60), "the next list is late");
    }

    #[test]
    fn the_first_list_is_due_at_once_and_shows_what_happened_while_no_attacher_ran() {
        let mut listing = Listing::new(Duration::from_secs(60), at(0));
        assert_eq!(listing.left(at(0)), None, "it is due");
        assert_eq!(listing.unsettled("planned first", at(0)), None);
        assert_eq!(listing.next_look(at(0)), secs(6));
        listing.begin(at(1));
        assert_eq!(listing.unsettled("planned second", at(2)), None);
        assert_eq!(listing.next_look(at(2)), secs(5));
        listing.answered(Published::new());
        for earlier in ["planned first", "planned second", "planned last"] {
            assert!(listing.unsettled(earlier, at(6)).is_some(), "{earlier}");
            assert_eq!(listing.unsettled(earlier, at(7)), None, "{earlier}");
        }
        assert_eq!(listing.next_look(at(7)), secs(60));
        listing.forget("planned first");
        assert_eq!(listing.settled.len(), 2);
    }

    #[test]
    fn a_failed_list_proves_nothing_and_the_next_one_follows_after_the_interval() {
        let mut listing = Listing::new(Duration::from_secs(60), at(0));
        assert_eq!(listing.unsettled("va", at(1)), None);
        listing.begin(at(1));
        assert_eq!(listing.unsettled("va", at(6)), None);
        assert_eq!(listing.left(at(11)), Some(secs(50)));
        assert_eq!(listing.next_look(at(11)), secs(56));
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
