//! The driver is stopped before every single effect on the machine, and each time a new one takes over.
//!
//! Kubernetes then either repeats the call that failed and goes on, or changes its mind and takes everything
//! back. Both ways a volume must be whole or not there, and nothing may be left at the end. On the fake
//! machine the successor is stopped as well, before each of its effects.

use std::{path::Path, process::Command, sync::Arc, time::Instant};

use crate::support::{self, Place, fake::FakeHost};
use claimcheck_driver::{
    Driver,
    error::{Error, Result},
    host::{Host, RealHost, fault::FaultHost},
};

const NODE: &str = "node-1";
/// The calls of one life cycle in order; the second half takes back what the first half did.
const CALLS: [&str; 8] = ["create", "attach", "stage", "publish", "unpublish", "unstage", "detach", "delete"];
const FIRST_UNDO: usize = 4;

#[derive(Clone, Copy, Debug)]
enum After {
    /// The failed call is repeated and the life cycle goes on.
    Retry,
    /// Everything is taken back.
    GiveUp,
}

fn call(driver: &Driver, place: &Place, kind: &str, call: &str) -> Result<()> {
    let (staging, target) = (place.staging(), place.target());
    match call {
        "create" => driver.create(support::create(kind)).map(drop),
        "attach" => driver.attach(support::attach(NODE)).map(drop),
        "stage" => driver.stage(support::stage(&staging)).map(drop),
        "publish" => driver.publish(support::publish(&staging, &target, true)).map(drop),
        "unpublish" => driver.unpublish(support::unpublish(&target)).map(drop),
        "unstage" => driver.unstage(support::unstage(&staging)).map(drop),
        "detach" => driver.detach(support::detach(NODE)).map(drop),
        "delete" => driver.delete(support::delete()).map(drop),
        other => panic!("no call {other}"),
    }
}

/// Starts a driver and makes calls from the `next` one on. `Err` says which call failed; a failed start is
/// put down to the call that would have been made. What a driver finds it puts right before it serves.
fn run<H: Host + 'static>(
    host: Arc<FaultHost<H>>,
    place: &Place,
    kind: &str,
    next: usize,
) -> std::result::Result<(), (usize, Error)> {
    let driver = place.driver(host.clone()).map_err(|error| (next, error))?;
    if !host.crashed() {
        place.assert_whole("after a start");
    }
    for (index, name) in CALLS.iter().enumerate().skip(next) {
        match call(&driver, place, kind, name) {
            Ok(()) => {}
            // Taken back before it was there: nothing to do, as Kubernetes sees it.
            Err(Error::NoVolume(_) | Error::NoNode(_)) if index >= FIRST_UNDO => {}
            Err(error) => return Err((index, error)),
        }
        if *name == "publish" {
            let mounted = place_mounted(&driver, place);
            assert!(mounted, "publish succeeded without a mount");
        }
    }
    Ok(())
}

fn place_mounted(driver: &Driver, place: &Place) -> bool {
    driver.stats(support::stats(&place.target())).is_ok()
}

fn resume_at(failed: usize, after: After) -> usize {
    match after {
        After::Retry => failed,
        After::GiveUp => failed.max(FIRST_UNDO),
    }
}

/// The effects of one undisturbed life cycle.
fn effects(host: impl Host + 'static, kind: &str) -> Vec<String> {
    let place = Place::new();
    let recorder = Arc::new(FaultHost::recording(host));
    run(recorder.clone(), &place, kind, 0).unwrap();
    let prefix = place.path().display().to_string();
    recorder.effects().into_iter().map(|effect| effect.replace(&prefix, "")).collect()
}

fn assert_nothing_left(place: &Place, context: &str) {
    assert_eq!(place.volumes(), Vec::<String>::new(), "{context}");
    assert!(!place.target().exists(), "{context}: target left");
}

fn on_fake_host(kind: &str) {
    let effects = effects(FakeHost::default(), kind);
    let mut crashes = 0;
    let mut second_crashes = 0;
    for (after, before) in
        [After::Retry, After::GiveUp].into_iter().flat_map(|a| (0..effects.len()).map(move |b| (a, b)))
    {
        // Stop the successor before each of its effects too, until it no longer gets that far.
        for second in 0.. {
            let context =
                format!("{kind}: {after:?} after a crash before {}, again before #{second}", effects[before]);
            let (place, host) = (Place::new(), FakeHost::default());
            let first = Arc::new(FaultHost::crashing_after(host.clone(), before));
            let (failed, error) = run(first.clone(), &place, kind, 0).expect_err(&context);
            assert!(first.crashed(), "{context}: {error:?}");
            crashes += usize::from(second == 0);

            let next = resume_at(failed, after);
            let successor = Arc::new(FaultHost::crashing_after(host.clone(), second));
            let outcome = run(successor.clone(), &place, kind, next);
            if let Err((failed, error)) = &outcome {
                assert!(successor.crashed(), "{context}: call {} failed: {error:?}", CALLS[*failed]);
                second_crashes += 1;
                let next = resume_at(*failed, after);
                let (failed, error) =
                    match run(Arc::new(FaultHost::recording(host.clone())), &place, kind, next) {
                        Ok(()) => {
                            assert_nothing_left(&place, &context);
                            assert!(host.mounts().is_empty(), "{context}: {:?}", host.mounts());
                            continue;
                        }
                        Err(failure) => failure,
                    };
                panic!("{context}: call {} failed: {error:?}", CALLS[failed]);
            }
            assert_nothing_left(&place, &context);
            assert!(host.mounts().is_empty(), "{context}: {:?}", host.mounts());
            break;
        }
    }
    println!(
        "{kind} on the fake machine: {} effects, {crashes} crashes, {second_crashes} of the successor too",
        effects.len()
    );
    assert_eq!(crashes, 2 * effects.len());
}

fn on_real_host(kind: &'static str) {
    support::with_private_mounts(move || {
        if !support::possible(kind, &RealHost) {
            return;
        }
        let started = Instant::now();
        let effects = effects(RealHost, kind);
        println!("{kind}: one life cycle takes {:?}", started.elapsed());
        for effect in &effects {
            println!("    {effect}");
        }
        for after in [After::Retry, After::GiveUp] {
            for (before, effect) in effects.iter().enumerate() {
                let context = format!("{kind}: {after:?} after a crash before {effect}");
                let place = Place::new();
                let first = Arc::new(FaultHost::crashing_after(RealHost, before));
                let (failed, error) = run(first.clone(), &place, kind, 0).expect_err(&context);
                assert!(first.crashed(), "{context}: {error:?}");
                let outcome =
                    run(Arc::new(FaultHost::recording(RealHost)), &place, kind, resume_at(failed, after));
                if let Err((failed, error)) = outcome {
                    panic!("{context}: call {} failed: {error:?}", CALLS[failed]);
                }
                assert_nothing_left(&place, &context);
                assert_eq!(mounts_below(place.path()), Vec::<String>::new(), "{context}");
                support::assert_loops_clear(place.path(), &context);
            }
        }
        println!("{kind} on the real machine: {} effects, {} crashes", effects.len(), 2 * effects.len());
    });
}

fn mounts_below(dir: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(dir.to_str().unwrap())).map(str::to_owned).collect()
}

#[test]
fn fake_directory() {
    on_fake_host("directory");
}

#[test]
fn fake_image() {
    on_fake_host("image");
}

#[test]
fn real_directory() {
    on_real_host("directory");
}

#[test]
fn real_image() {
    on_real_host("image");
}

/// Directory volumes work for an ordinary user in a user namespace.
#[test]
fn user_namespace() {
    let unshare = |args: &[&str]| {
        Command::new("unshare").args(["--user", "--map-root-user", "--mount"]).args(args).output()
    };
    match unshare(&["true"]) {
        Ok(output) if output.status.success() => {}
        refused => return println!("skipped: user namespaces are not permitted ({refused:?})"),
    }
    let me = std::env::current_exe().unwrap();
    let output = unshare(&[me.to_str().unwrap(), "--exact", "crash::real_directory", "--nocapture"]).unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    assert!(words.contains("directory on the real machine"), "{words}");
}

/// A reboot takes the mounts and keeps the records: the next start notices.
#[test]
fn reboot() {
    let (place, host) = (Place::new(), FakeHost::default());
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    for name in &CALLS[..FIRST_UNDO] {
        call(&driver, &place, "directory", name).unwrap();
    }
    assert!(call(&driver, &place, "directory", "delete").unwrap_err().to_string().contains("published at"));
    host.reboot();
    let driver = place.driver(Arc::new(host)).unwrap();
    let refused = call(&driver, &place, "directory", "delete").unwrap_err();
    assert!(refused.to_string().contains("attached to node node-1"), "{refused}");
    call(&driver, &place, "directory", "detach").unwrap();
    call(&driver, &place, "directory", "delete").unwrap();
    assert_eq!(place.volumes(), Vec::<String>::new());
}
