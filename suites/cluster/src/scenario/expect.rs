//! What must hold for a whole scenario.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use claimcheck_model::{CsiMethod, Outcome};
use claimcheck_scenario::{Expect, Seen};

use super::play::Player;

/// How long the last calls of a scenario may take.
const ORDER: Duration = Duration::from_secs(10);

/// Checks all expectations at the end of a scenario.
pub(super) async fn check(player: &Player, expect: &Expect) -> Result<()> {
    let t = &player.t;
    if !expect.calls.is_empty() {
        let counts: Vec<(CsiMethod, u64)> =
            expect.calls.iter().map(|(method, count)| (*method, *count)).collect();
        t.expect_only(&counts).await.context("expect.calls")?;
    }
    if !expect.order.is_empty() {
        let end = Instant::now() + ORDER;
        let missing = |calls: &[CsiMethod]| {
            let mut rest = expect.order.iter().peekable();
            for call in calls {
                rest.next_if(|next| *next == call);
            }
            rest.next().copied()
        };
        let mut calls = t.succeeded_calls().await?;
        while missing(&calls).is_some() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
            calls = t.succeeded_calls().await?;
        }
        if let Some(missing) = missing(&calls) {
            let names = |calls: &[CsiMethod]| match calls {
                [] => "none".to_owned(),
                calls => calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            };
            bail!(
                "expect.order: {missing} did not follow: the calls were {}; expected {}",
                names(&calls),
                names(&expect.order)
            );
        }
    }
    for seen in &expect.events {
        let event = event(player, seen)?;
        let found = player.actor.record.read(|store| {
            store.versions.iter().filter_map(|version| version.object.as_ref()).any(|object| event.is(object))
        });
        ensure!(found, "expect.events: no event {}{}", words(seen), event.others(&player.actor.record));
    }
    for seen in &expect.no_events {
        let event = event(player, seen)?;
        let found = player.actor.record.read(|store| {
            let mut objects = store.versions.iter().filter_map(|version| version.object.as_ref());
            objects.find(|object| event.is(object)).map(|event| event["message"].to_string())
        });
        if let Some(message) = found {
            bail!("expect.no-events: there was an event {}: {message}", words(seen));
        }
    }
    if !expect.phases.is_empty() {
        t.session().calls_recorded().await?;
        let samples = t.session().timeline().phases(t.claim_uids()).await?;
        for (phase, limit) in &expect.phases {
            let mut durations = samples.iter().filter(|sample| sample.phase == *phase).filter_map(|sample| {
                match sample.outcome {
                    Outcome::Ok { seconds, .. } => Some(seconds),
                    Outcome::Aborted { .. } | Outcome::Unobserved => None,
                }
            });
            let longest = durations.by_ref().reduce(f64::max);
            let Some(longest) = longest else {
                bail!("expect.phases: the phase {} was not observed", phase.name())
            };
            ensure!(
                longest <= *limit,
                "expect.phases: {} took {longest:.3} s, more than {limit} s",
                phase.name()
            );
        }
    }
    Ok(())
}

fn event(player: &Player, seen: &Seen) -> Result<claimcheck_scenario::EventOf> {
    Ok(player.actor.event(&seen.of, seen.reason.as_deref(), seen.message.as_deref())?)
}

fn words(seen: &Seen) -> String {
    let parts = [Some(seen.of.as_str()), seen.reason.as_deref(), seen.message.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
