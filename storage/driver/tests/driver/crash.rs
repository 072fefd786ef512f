//! The driver is stopped before every single effect on the machine, and each time a new one takes over.
//!
//! Kubernetes then either repeats the call that failed and goes on, or changes its mind and takes everything
//! back. Both ways a volume must be whole or not there, and nothing may be left at the end. On the fake
//! machine the successor is stopped as well, before each of its effects.

use std::{process::Command, sync::Arc, time::Instant};

use crate::{
    scenarios::{self, Scenario, Step},
    support::{self, Place, fake::FakeHost},
};
use claimcheck_driver::{
    Config, Driver,
    capability::Capabilities,
    error::Error,
    host::{Host, RealHost, fault::FaultHost},
};

#[derive(Clone, Copy, Debug)]
enum After {
    /// The failed call is repeated and the life cycle goes on.
    Retry,
    /// Everything is taken back.
    GiveUp,
}

impl After {
    fn resume_at(self, failed: usize, scenario: &Scenario) -> usize {
        match self {
            Self::Retry => failed,
            Self::GiveUp => failed.max(scenario.does.len()),
        }
    }
}

/// Starts a driver and makes calls from the `next` one on. `Err` says which call failed; a failed start is
/// put down to the call that would have been made. What a driver finds it puts right before it serves.
fn run<H: Host + 'static>(
    host: Arc<FaultHost<H>>,
    place: &Place,
    scenario: &Scenario,
    next: usize,
) -> Result<(), (usize, Error)> {
    let capabilities = Capabilities::without(scenario.without.iter().copied());
    let config = Config { capabilities, ..place.config(scenarios::NODE) };
    let driver = Driver::start(config, host.clone()).map_err(|error| (next, error))?;
    if !host.crashed() {
        place.assert_whole("after a start");
    }
    for (index, Step(_, call)) in scenario.steps().enumerate().skip(next) {
        match call(&driver, place) {
            Ok(()) => {}
            // Taken back before it was there: nothing to do, as Kubernetes sees it.
            Err(Error::NoVolume(_)) if index >= scenario.does.len() => {}
            // Said as it should be; the volume grows with its next staging.
            Err(Error::OnlineGrowth { .. }) => {}
            Err(error) => return Err((index, error)),
        }
    }
    Ok(())
}

/// The effects of one undisturbed life cycle.
fn effects(host: impl Host + 'static, scenario: &Scenario) -> Vec<String> {
    let place = Place::new();
    let recorder = Arc::new(FaultHost::recording(host));
    run(recorder.clone(), &place, scenario, 0).unwrap();
    let prefix = place.path().display().to_string();
    recorder.effects().into_iter().map(|effect| effect.replace(&prefix, "")).collect()
}

fn assert_nothing_left(place: &Place, context: &str) {
    assert_eq!(place.volumes(), Vec::<String>::new(), "{context}");
    for target in [place.target(), scenarios::second_target(place)] {
        assert!(!target.exists(), "{context}: {} left", target.display());
    }
    for name in ["nodes", ""] {
        let dir = place.state().join(name);
        let mut files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
        assert!(!files.any(|file| file.to_str().unwrap().ends_with(".new")), "{context}: a draft left");
    }
}

fn assert_fake_clear(host: &FakeHost, context: &str) {
    assert!(host.mounts().is_empty(), "{context}: {:?}", host.mounts());
    assert_eq!(host.raw_count(), 0, "{context}: loop devices left");
}

fn on_fake_host(scenario: &Scenario, host: fn() -> FakeHost) {
    let Scenario { name, .. } = scenario;
    let effects = effects(host(), scenario);
    let (mut crashes, mut second_crashes) = (0, 0);
    for (after, before) in
        [After::Retry, After::GiveUp].into_iter().flat_map(|a| (0..effects.len()).map(move |b| (a, b)))
    {
        // Stop the successor before each of its effects too, until it no longer gets that far.
        for second in 0.. {
            let context =
                format!("{name}: {after:?} after a crash before {}, again before #{second}", effects[before]);
            let (place, host) = (Place::new(), host());
            let first = Arc::new(FaultHost::crashing_after(host.clone(), before));
            let (failed, error) = run(first.clone(), &place, scenario, 0).expect_err(&context);
            assert!(first.crashed(), "{context}: {error:?}");
            crashes += usize::from(second == 0);

            let next = after.resume_at(failed, scenario);
            let successor = Arc::new(FaultHost::crashing_after(host.clone(), second));
            let outcome = run(successor.clone(), &place, scenario, next);
            let again = successor.crashed();
            if again {
                second_crashes += 1;
                // A crash while it starts does not affect calls for deleted objects.
                let failed = outcome.map_or_else(|(failed, _)| failed, |()| scenario.steps().count());
                let next = after.resume_at(failed, scenario);
                let third = Arc::new(FaultHost::recording(host.clone()));
                if let Err((failed, error)) = run(third, &place, scenario, next) {
                    panic!("{context}: {} failed: {error:?}", scenario.name_of(failed));
                }
            } else if let Err((failed, error)) = outcome {
                panic!("{context}: {} failed: {error:?}", scenario.name_of(failed));
            }
            assert_nothing_left(&place, &context);
            assert_fake_clear(&host, &context);
            if !again {
                break;
            }
        }
    }
    println!(
        "{name} on the fake machine: {} effects, {crashes} crashes, {second_crashes} of the successor too",
        effects.len()
    );
    assert_eq!(crashes, 2 * effects.len());
}

fn on_real_host(scenario: &'static Scenario) {
    let kind = if scenario.loops { "image" } else { "directory" };
    support::with_mounts_of(kind, move || {
        let name = scenario.name;
        let started = Instant::now();
        let effects = effects(RealHost::default(), scenario);
        println!("{name}: one life cycle takes {:?}", started.elapsed());
        for effect in &effects {
            println!("    {effect}");
        }
        for after in [After::Retry, After::GiveUp] {
            for (before, effect) in effects.iter().enumerate() {
                let context = format!("{name}: {after:?} after a crash before {effect}");
                let place = Place::new();
                let first = Arc::new(FaultHost::crashing_after(RealHost::default(), before));
                let (failed, error) = run(first.clone(), &place, scenario, 0).expect_err(&context);
                assert!(first.crashed(), "{context}: {error:?}");
                let next = after.resume_at(failed, scenario);
                let host = Arc::new(FaultHost::recording(RealHost::default()));
                let outcome = run(host, &place, scenario, next);
                if let Err((failed, error)) = outcome {
                    panic!("{context}: {} failed: {error:?}", scenario.name_of(failed));
                }
                assert_nothing_left(&place, &context);
                place.assert_unmounted(&context);
            }
        }
        println!("{name} on the real machine: {} effects, {} crashes", effects.len(), 2 * effects.len());
    });
}

#[test]
fn fake_directory() {
    on_fake_host(&scenarios::DIRECTORY, FakeHost::default);
}

#[test]
fn fake_image() {
    on_fake_host(&scenarios::IMAGE, FakeHost::default);
}

#[test]
fn fake_grown_offline() {
    on_fake_host(&scenarios::GROWN_OFFLINE, FakeHost::without_online_growth);
}

#[test]
fn fake_block() {
    on_fake_host(&scenarios::BLOCK, FakeHost::default);
}

#[test]
fn fake_unstaged() {
    on_fake_host(&scenarios::UNSTAGED, FakeHost::default);
}

#[test]
fn fake_ephemeral() {
    on_fake_host(&scenarios::EPHEMERAL, FakeHost::default);
}

#[test]
#[ignore = "requires root"]
fn real_directory() {
    on_real_host(&scenarios::DIRECTORY);
}

#[test]
#[ignore = "requires root, loop"]
fn real_image() {
    on_real_host(&scenarios::IMAGE);
}

#[test]
#[ignore = "requires root, loop"]
fn real_grown_offline() {
    on_real_host(&scenarios::GROWN_OFFLINE);
}

#[test]
#[ignore = "requires root, loop"]
fn real_block() {
    on_real_host(&scenarios::BLOCK);
}

#[test]
#[ignore = "requires root, loop"]
fn real_unstaged() {
    on_real_host(&scenarios::UNSTAGED);
}

#[test]
#[ignore = "requires root, loop"]
fn real_ephemeral() {
    on_real_host(&scenarios::EPHEMERAL);
}

/// Directory volumes work for an ordinary user in a user namespace.
#[test]
#[ignore = "requires mounts"]
fn user_namespace() {
    let unshare = |args: &[&str]| {
        Command::new("unshare").args(["--user", "--map-root-user", "--mount"]).args(args).output()
    };
    claimcheck_needs::require("mounts");
    let me = std::env::current_exe().unwrap();
    let test = ["--exact", "crash::real_directory", "--ignored", "--nocapture"];
    let output = unshare(&[&[me.to_str().unwrap()], &test[..]].concat()).unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    assert!(words.contains("directory on the real machine"), "{words}");
}

/// A reboot takes the mounts and keeps the records: the next start notices.
#[test]
fn reboot() {
    let (place, host) = (Place::new(), FakeHost::default());
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    for Step(_, call) in scenarios::DIRECTORY.does {
        call(&driver, &place).unwrap();
    }
    assert!(driver.delete(support::delete()).unwrap_err().to_string().contains("published at"));
    host.reboot();
    let driver = place.driver(Arc::new(host)).unwrap();
    let refused = driver.delete(support::delete()).unwrap_err();
    assert!(refused.to_string().contains("attached to node node-1"), "{refused}");
    driver.detach(support::detach(scenarios::NODE)).unwrap();
    driver.delete(support::delete()).unwrap();
    assert_eq!(place.volumes(), Vec::<String>::new());
}
