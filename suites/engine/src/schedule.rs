//! The order of a run: which cases run in parallel, and which alone.

use std::{cmp::Reverse, collections::BTreeSet};

use futures::{StreamExt, stream::FuturesUnordered};

use crate::{case::Case, plan::Planned, resting::Resting};

/// The phase of a run in which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schedule {
    /// Before all others, serially: a failure here is reported once, and not by every case that depends on it.
    First,
    /// In parallel with others.
    Parallel,
    /// Serially: the case affects others, or checks everything that they created.
    Serial,
    /// After all others: the case checks their observations.
    Last,
}

impl Schedule {
    const ORDER: [Self; 4] = [Self::First, Self::Parallel, Self::Serial, Self::Last];
}

/// The cases of a phase.
pub struct Phase<'a, C> {
    /// Which phase.
    pub schedule: Schedule,
    /// The cases, in the order of the plan.
    pub cases: Vec<&'a Planned<C>>,
    /// The maximum number of cases at a time.
    pub parallel: usize,
    /// The maximum number of things that are in use at a time ([`Case::exclusive`]): each is from the start of the first
    /// case that uses it until the last one has ended.
    pub exclusives: usize,
    /// Those of the cases that only wait: others start in their place, unless cases run one at a time.
    pub resting: Resting,
}

/// The phases of a run, in order; in the parallel one, at most `parallel` cases run at a time.
pub fn phases<C: Case>(planned: &[Planned<C>], parallel: usize) -> impl Iterator<Item = Phase<'_, C>> {
    Schedule::ORDER.into_iter().map(move |schedule| {
        let cases = planned.iter().filter(|planned| planned.schedule == schedule).collect();
        let parallel = if schedule == Schedule::Parallel { parallel.max(1) } else { 1 };
        Phase { schedule, cases, parallel, exclusives: usize::MAX, resting: Resting::default() }
    })
}

/// What the cases of a phase use exclusively.
#[derive(Default)]
struct Exclusives {
    /// Of running cases.
    taken: Vec<&'static str>,
    /// Of cases that have started, as long as others wait for the same.
    in_use: BTreeSet<&'static str>,
}

impl Exclusives {
    fn is_available(&self, exclusive: &'static str, shares: bool, limit: usize) -> bool {
        let is_new = !self.in_use.contains(exclusive);
        (shares || !self.taken.contains(&exclusive)) && (!is_new || self.in_use.len() < limit.max(1))
    }

    fn take(&mut self, exclusive: &'static str) {
        self.taken.push(exclusive);
        self.in_use.insert(exclusive);
    }

    fn release(&mut self, exclusive: &'static str, is_awaited: bool) {
        let at = self.taken.iter().position(|taken| *taken == exclusive);
        at.map(|at| self.taken.swap_remove(at));
        if !is_awaited && !self.taken.contains(&exclusive) {
            self.in_use.remove(exclusive);
        }
    }
}

impl<'a, C: Case> Phase<'a, C> {
    /// Runs the cases, each after those that it waits for. The results are in the order of the cases.
    pub async fn run<F: Future>(&self, run: impl Fn(&'a Planned<C>) -> F) -> Vec<F::Output> {
        let mut waiting: Vec<(usize, &'a Planned<C>)> = self.cases.iter().copied().enumerate().collect();
        waiting.sort_by_key(|(_, planned)| Reverse(planned.case.urgency()));
        let mut exclusives = Exclusives::default();
        let (awaited, mut ended) = (self.awaited(), vec![false; self.cases.len()]);
        let is_free = |ended: &[bool], number: usize| awaited[number].iter().all(|&other| ended[other]);
        let (mut running, mut results) = (FuturesUnordered::new(), Vec::new());
        let mut rests = self.resting.changes();
        loop {
            while self.working(running.len()) < self.parallel
                && let Some(at) = self
                    .startable(&waiting, &exclusives, |number| is_free(&ended, number))
                    // Cases that wait for each other would never start.
                    .or_else(|| self.startable(&waiting, &exclusives, |_| running.is_empty()))
            {
                let (number, planned) = waiting.remove(at);
                let exclusive = planned.case.exclusive();
                exclusive.into_iter().for_each(|exclusive| exclusives.take(exclusive));
                let result = run(planned);
                running.push(async move { (number, exclusive, result.await) });
            }
            let next = tokio::select! {
                next = running.next() => next,
                _ = rests.changed() => continue,
            };
            let Some((number, exclusive, result)) = next else { break };
            if let Some(exclusive) = exclusive {
                let is_awaited =
                    waiting.iter().any(|(_, planned)| planned.case.exclusive() == Some(exclusive));
                exclusives.release(exclusive, is_awaited);
            }
            ended[number] = true;
            results.push((number, result));
        }
        results.sort_unstable_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// The number of running cases that do not only wait.
    fn working(&self, running: usize) -> usize {
        let resting = if self.parallel == 1 { 0 } else { self.resting.count() };
        running.saturating_sub(resting)
    }

    /// The numbers of the cases that each case waits for.
    fn awaited(&self) -> Vec<Vec<usize>> {
        let mut awaited = Vec::new();
        for planned in &self.cases {
            let others = self.cases.iter().enumerate();
            let others = others.filter(|(_, other)| planned.case.waits_for(&other.case));
            awaited.push(others.map(|(number, _)| number).collect());
        }
        awaited
    }

    /// The first case that uses nothing that is taken, and has nothing to wait for: a case that waits would occupy a slot
    /// and do nothing.
    fn startable(
        &self,
        waiting: &[(usize, &Planned<C>)],
        exclusives: &Exclusives,
        is_free: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        waiting.iter().position(|(number, planned)| {
            let (exclusive, shares) = (planned.case.exclusive(), planned.case.shares());
            exclusive.is_none_or(|it| exclusives.is_available(it, shares, self.exclusives))
                && is_free(*number)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use tokio::time::Instant;

    use super::*;
    use crate::{case::tests::Toy, plan::plan};

    const fn at(name: &'static str, schedule: Schedule) -> Toy {
        Toy { schedule, ..Toy::new(name) }
    }

    const fn with(name: &'static str, exclusive: &'static str) -> Toy {
        Toy { exclusive: Some(exclusive), ..Toy::new(name) }
    }

    /// Runs the cases. Returns those that ran at the same time, and the results.
    async fn run(cases: &[Toy], parallel: usize) -> (Vec<BTreeSet<&'static str>>, Vec<&'static str>) {
        run_with(cases, parallel, usize::MAX).await
    }

    async fn run_with(
        cases: &[Toy],
        parallel: usize,
        exclusives: usize,
    ) -> (Vec<BTreeSet<&'static str>>, Vec<&'static str>) {
        let running: &RefCell<BTreeSet<&'static str>> = &RefCell::default();
        let seen: &RefCell<Vec<BTreeSet<&'static str>>> = &RefCell::default();
        let attempt = |name: &'static str| async move {
            running.borrow_mut().insert(name);
            // The others start before this one continues.
            tokio::task::yield_now().await;
            seen.borrow_mut().push(running.borrow().clone());
            running.borrow_mut().remove(name);
            name
        };
        let (planned, mut results) = (plan(cases, &[], None), Vec::new());
        for phase in phases(&planned, parallel) {
            let phase = Phase { exclusives, ..phase };
            results.extend(phase.run(|planned| attempt(planned.case.name)).await);
        }
        (seen.take(), results)
    }

    #[tokio::test]
    async fn phases_run_in_order_and_results_are_in_the_order_of_the_cases() {
        let cases = [
            at("last", Schedule::Last),
            at("serial", Schedule::Serial),
            Toy::new("one"),
            Toy::new("two"),
            at("first", Schedule::First),
        ];
        let (seen, results) = run(&cases, 8).await;
        assert_eq!(results, ["first", "one", "two", "serial", "last"]);
        assert_eq!(seen[..2], [BTreeSet::from(["first"]), BTreeSet::from(["one", "two"])]);
        let (seen, results) = run(&cases, 0).await;
        assert_eq!(results, ["first", "one", "two", "serial", "last"]);
        assert!(seen.iter().all(|running| running.len() == 1), "{seen:?}");
    }

    #[tokio::test]
    async fn a_case_starts_after_the_one_that_it_waits_for() {
        let after = |name, other| Toy { after: Some(other), ..Toy::new(name) };
        let cases = [after("reads", "writes"), Toy::new("any"), Toy::new("writes"), after("alone", "absent")];
        for parallel in [1, 8] {
            let (seen, results) = run(&cases, parallel).await;
            assert_eq!(results, ["reads", "any", "writes", "alone"]);
            let first = |name| seen.iter().position(|running| running.contains(name));
            assert!(first("writes") < first("reads"), "{seen:?}");
            assert!(!seen.contains(&BTreeSet::from(["reads", "writes"])), "{seen:?}");
        }
        // A cycle is a mistake in the catalogue, which shall not hang a run.
        let (_, results) = run(&[after("one", "two"), after("two", "one")], 8).await;
        assert_eq!(results, ["one", "two"]);
    }

    #[tokio::test]
    async fn cases_that_wait_for_a_driver_do_not_occupy_slots() {
        let cases = [with("zoned 1", "zoned"), with("zoned 2", "zoned"), Toy::new("any")];
        let (seen, results) = run(&cases, 2).await;
        assert_eq!(results, ["zoned 1", "zoned 2", "any"]);
        assert_eq!(seen[0], BTreeSet::from(["zoned 1", "any"]));
        assert!(seen.iter().all(|running| !running.is_superset(&BTreeSet::from(["zoned 1", "zoned 2"]))));
    }

    #[tokio::test]
    async fn cases_that_share_a_driver_run_together() {
        let sharing = |name| Toy { shares: true, ..with(name, "a") };
        let cases = [sharing("a 1"), sharing("a 2"), with("b 1", "b")];
        let (seen, _) = run_with(&cases, 8, 1).await;
        assert_eq!(seen[0], BTreeSet::from(["a 1", "a 2"]));
        assert_eq!(seen[2], BTreeSet::from(["b 1"]), "once neither uses the other driver");
    }

    #[tokio::test]
    async fn cases_that_run_one_after_the_other_start_first() {
        let cases = [Toy::new("any"), Toy::new("other"), with("zoned 1", "zoned"), with("zoned 2", "zoned")];
        let (seen, results) = run(&cases, 2).await;
        assert_eq!(results, ["any", "other", "zoned 1", "zoned 2"]);
        assert_eq!(seen[0], BTreeSet::from(["any", "zoned 1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn others_start_while_a_case_only_waits() {
        let started = async |parallel: usize| {
            let cases = [Toy::new("waits"), Toy::new("one"), Toy::new("two"), Toy::new("three")];
            let (planned, resting) = (plan(&cases, &[], None), Resting::default());
            let (started, resting) = (&RefCell::new(Vec::new()), &resting);
            let attempt = |name: &'static str| async move {
                started.borrow_mut().push((name, Instant::now()));
                let _rest = (name == "waits").then(|| resting.rest());
                tokio::time::sleep(Duration::from_secs(1)).await;
            };
            let began = Instant::now();
            for phase in phases(&planned, parallel) {
                Phase { resting: resting.clone(), ..phase }.run(|planned| attempt(planned.case.name)).await;
            }
            started.take().into_iter().map(|(_, at)| (at - began).as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(started(2).await, [0, 0, 0, 1]);
        assert_eq!(started(1).await, [0, 1, 2, 3], "one at a time");
    }

    #[tokio::test]
    async fn urgent_cases_start_first() {
        let urgent = Toy { urgency: 2, ..Toy::new("urgent") };
        let (seen, _) = run(&[Toy::new("any"), with("zoned", "zoned"), urgent], 1).await;
        assert_eq!(seen, [BTreeSet::from(["urgent"]), BTreeSet::from(["zoned"]), BTreeSet::from(["any"])]);
    }

    #[tokio::test]
    async fn at_most_so_many_drivers_are_in_use_each_until_its_last_case_has_ended() {
        let cases = [
            with("a 1", "a"),
            with("b 1", "b"),
            with("c 1", "c"),
            with("a 2", "a"),
            with("b 2", "b"),
            Toy::new("any"),
        ];
        let (seen, results) = run_with(&cases, 8, 2).await;
        assert_eq!(results, ["a 1", "b 1", "c 1", "a 2", "b 2", "any"]);
        assert_eq!(seen[0], BTreeSet::from(["a 1", "b 1", "any"]));
        let with_c = seen.iter().filter(|running| running.contains("c 1"));
        // When it starts, one of the others is done.
        with_c.for_each(|running| assert!(running.len() <= 2 && !running.contains("a 1"), "{seen:?}"));
        let (seen, results) = run_with(&cases, 8, 0).await;
        assert_eq!(results.len(), 6);
        let drivers = |running: &BTreeSet<&str>| running.iter().filter(|name| **name != "any").count();
        assert!(seen.iter().all(|running| drivers(running) <= 1), "{seen:?}");
    }
}
