//! A monitor measures the phases of a volume as the run does that creates it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use claimcheck_model::{Event, LoggedEvent, Outcome, Phase, SubjectIds};
use claimcheck_monitor::{Monitor, Options, Scope};
use jiff::SignedDuration;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// What both observe in objects alone.
const PHASES: [Phase; 6] =
    [Phase::Provision, Phase::Bind, Phase::Schedule, Phase::Attach, Phase::Detach, Phase::Delete];
/// By how much two watches of one object may differ, as docs/operators/monitor.md states; seconds.
const TOLERANCE: f64 = 1.0;
/// How long the last events of the monitor may be under way.
const LIMIT: Duration = Duration::from_secs(30);

fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    command
}

/// A cluster that ends with the test.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT);
        let _ = self.0.wait();
    }
}

async fn monitor(kubeconfig: &Path) -> Monitor {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the cluster wrote it");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    let client = Client::try_from(config).expect("a client");
    let options = Options {
        scope: Scope::default(),
        stuck_after: SignedDuration::from_mins(5),
        address: "127.0.0.1:0".parse().expect("an address"),
        election: None,
        canary: None,
        event_thresholds: Vec::new(),
        traces: None,
    };
    let monitor = Monitor::start(client, options).await.expect("it starts");
    tokio::time::timeout(LIMIT, monitor.synced()).await.expect("every kind is listed");
    monitor
}

/// The seconds of a phase, if it was measured.
fn measured(event: &Event) -> Option<((Phase, SubjectIds), f64)> {
    match event {
        Event::Phase(sample) if PHASES.contains(&sample.phase) => match sample.outcome {
            Outcome::Ok { seconds, .. } => Some(((sample.phase, sample.subject.clone()), seconds)),
            Outcome::Aborted { .. } | Outcome::Unobserved => None,
        },
        _ => None,
    }
}

fn run_durations(folder: &Path) -> BTreeMap<(Phase, SubjectIds), f64> {
    let text = fs::read_to_string(folder.join("events.ndjson")).expect("a run folder");
    let events = text.lines().map(|line| serde_json::from_str::<LoggedEvent>(line).expect("an event").event);
    events.filter_map(|event| measured(&event)).collect()
}

#[test]
fn a_monitor_measures_what_a_run_measures() {
    let out = tempfile::tempdir().expect("a folder");
    let (folder, run) = (out.path().join("cluster"), out.path().join("run"));
    let mut up = claimcheck();
    up.args(["cluster", "up", "--nodes", "1", "--out"]).arg(&folder).stdout(Stdio::piped());
    let mut up = Up(up.spawn().expect("the binary runs"));
    let mut lines = BufReader::new(up.0.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Ctrl-C")), "the cluster is not ready");
    let kubeconfig = folder.join("kubeconfig");

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let monitor = runtime.block_on(monitor(&kubeconfig));
    let mut events = monitor.subscribe();
    let mut tests = claimcheck();
    let case = "volumes::data persists across pod recreation [";
    tests.args(["run", "--cluster", "existing", case, "--kubeconfig"]).arg(&kubeconfig);
    let tests = tests.arg("--out").arg(&run).output().expect("the binary runs");
    let mut by_monitor: BTreeMap<(Phase, SubjectIds), f64> = BTreeMap::new();
    let by_run = run_durations(&run);
    let complete = runtime.block_on(async {
        let all = async {
            while by_run.keys().any(|key| !by_monitor.contains_key(key)) {
                by_monitor.extend(measured(&events.recv().await.expect("the monitor runs")));
            }
        };
        tokio::time::timeout(LIMIT, all).await
    });
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));

    let missing: Vec<_> = by_run.keys().filter(|key| !by_monitor.contains_key(*key)).collect();
    assert!(complete.is_ok(), "the monitor has no {missing:?}");
    for phase in PHASES {
        let mut of_phase = by_run.iter().filter(|((of, _), _)| *of == phase).peekable();
        assert!(of_phase.peek().is_some(), "the run has no {phase:?}");
        for (key, seconds) in of_phase {
            let difference = (by_monitor[key] - seconds).abs();
            assert!(difference <= TOLERANCE, "{key:?}: {} and {seconds}", by_monitor[key]);
        }
    }
}
