//! A driver process is killed again and again while volumes of all kinds, their snapshots, groups of those, and
//! what is made from them come, grow and go: none is lost, none is half there, and nothing is left on the machine.
//!
//! A few kills with the other tests; as many as one likes by `CLAIMCHECK_KILLS=1000 cargo test -p
//! claimcheck-driver at_random -- --ignored --nocapture`.

mod load;

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use crate::support::{self, Place};
use claimcheck_csi::{Driver as Client, Endpoint, tap::Tap};
use claimcheck_driver::{Args, run};
use clap::Parser;

use self::load::{Life, Load, Shape, Text};

/// Set for the process that is killed: its command line, one argument a line.
const ARGS: &str = "CLAIMCHECK_KILLED_DRIVER";
const NODE: &str = "node-1";
const WORKERS: usize = 6;

#[test]
#[ignore = "not a test: the process that the others kill"]
fn driver_process() {
    let Ok(args) = env::var(ARGS) else { return };
    let args = Args::try_parse_from(args.lines()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(args, std::future::pending())).unwrap();
}

/// The process; killed when dropped.
struct Process(Child);

impl Process {
    fn start(place: &Place, socket: &Path) -> Self {
        let endpoint = format!("unix://{}", socket.display());
        let state = place.state().display().to_string();
        let args = ["driver", "--endpoint", &endpoint, "--node-id", NODE, "--state-dir", &state];
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "kills::driver_process", "--ignored"]).env(ARGS, args.join("\n"));
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A volume that is there throughout, and a snapshot of it.
struct Snapshotted {
    life: Life,
    snapshot: String,
}

async fn kills(place: Rc<Place>, kills: usize) {
    let socket = place.path().join("csi.sock");
    let mut process = Process::start(&place, &socket);
    let client = Client::new(Endpoint::Unix(socket.clone()), Tap::none(), "load");
    client.wait_ready(Duration::from_secs(30)).await.unwrap();
    let load = Rc::new(Load::new(client));

    // One of each shape in use and one not, each with a snapshot of what it was before.
    let mut kept = Vec::new();
    for number in 0..6 {
        let life = Life::new(&place, &format!("kept-{number}"), Shape::of(number));
        load.create(&life, None).await;
        load.up(&life).await;
        life.write(Text::Before);
        let snapshot = load.snapshot(&life).await;
        life.write(Text::After);
        kept.push(Snapshotted { life, snapshot });
    }
    let (in_use, idle) = kept.split_at(3);
    for Snapshotted { life, .. } in idle {
        load.down(life).await;
    }

    let began = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (load, place) = (Rc::clone(&load), Rc::clone(&place));
            tokio::task::spawn_local(async move { load.work(&place, worker).await })
        })
        .collect();
    for _ in 0..kills {
        // From before it serves to well after.
        tokio::time::sleep(Duration::from_micros(fastrand::u64(1_000..150_000))).await;
        process = {
            drop(process);
            Process::start(&place, &socket)
        };
        assert!(!workers.iter().any(|worker| worker.is_finished()), "a worker failed");
    }
    load.end();
    let mut lives = 0;
    for worker in workers {
        lives += worker.await.unwrap();
    }
    println!("{kills} kills in {:?}: {lives} lives, {}", began.elapsed(), load.summary());

    let mut expected: Vec<String> = kept.iter().map(|kept| kept.life.id()).collect();
    expected.sort();
    assert_eq!(load.volumes().await, expected, "a volume was lost, or one that was deleted stayed");
    let mut expected: Vec<String> = kept.iter().map(|kept| kept.snapshot.clone()).collect();
    expected.sort();
    assert_eq!(load.snapshots().await, expected, "a snapshot was lost, or one that was deleted stayed");
    assert_eq!(place.names("groups"), Vec::<String>::new());
    place.assert_whole("after the kills");
    for Snapshotted { life, .. } in in_use {
        life.check(Text::After);
    }
    for Snapshotted { life, .. } in idle {
        load.up(life).await;
        life.check(Text::After);
    }
    for Snapshotted { life, snapshot } in &kept {
        load.restore(&place, life, snapshot).await;
        load.delete_snapshot(snapshot).await;
        load.down(life).await;
        load.delete(life).await;
    }
    for folder in ["volumes", "snapshots", "groups"] {
        assert_eq!(place.names(folder), Vec::<String>::new(), "{folder}");
    }
    drop(process);
    place.assert_unmounted("after the kills");
}

#[test]
#[ignore = "requires root, loop"]
fn at_random() {
    let count = env::var("CLAIMCHECK_KILLS").map_or(20, |text| text.parse().unwrap());
    support::with_loops(move || {
        // One thread: the only one that has the private mount table in which the driver mounts.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, kills(Rc::new(Place::new()), count));
    });
}
