//! How often the whole mount table is read: the kernel writes each of its lines, so a reading costs as much as the node has
//! mounts. Pure: times are arguments.

use std::time::{Duration, Instant};

/// The part of a core that readings use while the table changes all the time.
const SHARE: f64 = 0.004;
/// What may be used at once after a time without changes, seconds of a core: on most nodes readings take less than a
/// millisecond, and a pod that starts or ends changes the table about ten times.
const SAVED: f64 = 0.04;
/// The longest time between a change and the next reading, whatever that costs.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// The time that may be used for readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Seconds at a time; negative if more was used.
    credit: f64,
    at: Instant,
}

impl Pace {
    /// With all that can be saved.
    pub fn new(now: Instant) -> Self {
        Self { credit: SAVED, at: now }
    }

    /// A reading took this time of a core.
    pub fn used(&mut self, cost: Duration, now: Instant) {
        self.credit = (self.credit(now) - cost.as_secs_f64()).max(-SHARE * LONGEST.as_secs_f64());
        self.at = now;
    }

    /// The time until the next reading.
    pub fn delay(&self, now: Instant) -> Duration {
        Duration::from_secs_f64((-self.credit(now) / SHARE).max(0.0)).min(LONGEST)
    }

    fn credit(&self, now: Instant) -> f64 {
        (self.credit + now.saturating_duration_since(self.at).as_secs_f64() * SHARE).min(SAVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of readings in a minute of permanent changes, and the longest time between two of them.
    fn readings(cost: Duration) -> (u32, Duration) {
        let started = Instant::now();
        let (mut pace, mut now, mut last) = (Pace::new(started), started, started);
        let (mut count, mut longest) = (0, Duration::ZERO);
        while now - started < Duration::from_secs(60) {
            now += pace.delay(now) + cost;
            pace.used(cost, now);
            longest = longest.max(now - last);
            (count, last) = (count + 1, now);
        }
        (count, longest)
    }

    #[test]
    fn readings_use_their_share_and_the_delay_has_a_limit() {
        let ms = Duration::from_millis;
        for (cost, expected) in [(ms(1), 240..300), (ms(3), 80..100), (ms(10), 24..32), (ms(100), 11..14)] {
            let (count, longest) = readings(cost);
            assert!(expected.contains(&count) && longest <= LONGEST + cost, "{cost:?}: {count}, {longest:?}");
        }
    }

    #[test]
    fn after_a_time_without_changes_a_burst_is_read_at_once() {
        let (started, cost) = (Instant::now(), Duration::from_millis(3));
        let mut pace = Pace::new(started);
        let mut burst = |from: Instant| {
            let read = (0..100).take_while(|_| {
                let at_once = pace.delay(from).is_zero();
                pace.used(cost, from);
                at_once
            });
            read.count()
        };
        assert_eq!(burst(started), 14);
        assert_eq!(burst(started), 0);
        assert_eq!(burst(started + Duration::from_secs(3600)), 14);
    }
}
