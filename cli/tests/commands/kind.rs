//! Clusters of kind from the command line, with a `kind` and a `docker` of our own on the PATH.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use claimcheck_kind::Store;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpgid},
};

struct Machine(tempfile::TempDir);

impl Machine {
    fn with(programs: &[&str]) -> Self {
        let machine = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(machine.0.path().join("bin")).expect("a folder");
        // Links, as a program that has just been written may still be open in a child of another test.
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/kind/src/testing.sh");
        for name in programs {
            symlink(&program, machine.0.path().join("bin").join(name)).expect("a link");
        }
        machine
    }

    fn store(&self) -> Store {
        Store::at(self.0.path().join("claimcheck/kind"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
        command.env("CLAIMCHECK_NO_HISTORY", "1");
        command.env_remove("KIND_EXPERIMENTAL_PROVIDER").env("PATH", self.0.path().join("bin"));
        command.env("FAKE", self.0.path()).env("XDG_STATE_HOME", self.0.path());
        command
    }

    fn cluster(&self, args: &[&str]) -> Output {
        self.command().arg("cluster").args(args).output().expect("the binary runs")
    }

    fn containers(&self) -> String {
        fs::read_to_string(self.0.path().join("containers")).unwrap_or_default()
    }

    /// Starts a run that does not get further than the middle of `kind create`, and returns once it is there.
    fn run_until_created_halfway(&self) -> Halfway {
        fs::write(self.0.path().join("info"), INFO).expect("a file");
        fs::create_dir(self.0.path().join("rules")).expect("a folder");
        let script = "echo 'claimcheck-ci-worker|claimcheck-ci|Created|ours' >>\"$FAKE/containers\"\n\
                      sleep 1000 & echo $! >\"$FAKE/hung\"; wait\n";
        fs::write(self.0.path().join("rules/kind-create"), script).expect("a file");
        let mut command = self.command();
        command.args(["run", "--cluster", "kind", "--name", "ci", "--out"]).arg(self.0.path().join("run"));
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        // A run that ends before does not write it, as on a full disk.
        let hung = self.0.path().join("hung");
        let kind = loop {
            if let Ok(text) = fs::read_to_string(&hung)
                && let Some(id) = text.strip_suffix('\n')
            {
                break id.parse().expect("a process id");
            }
            if run.try_wait().expect("its state").is_some() {
                panic!("{}", output_of(&run.wait_with_output().expect("its output")));
            }
            thread::sleep(Duration::from_millis(10));
        };
        Halfway { run, kind }
    }
}

/// A run with a `kind create` that hangs.
struct Halfway {
    run: Child,
    /// A process below kind's.
    kind: i32,
}

impl Halfway {
    fn end_by(self, signal: Signal) -> Output {
        kill(Pid::from_raw(self.run.id().cast_signed()), signal).expect("it runs");
        self.run.wait_with_output().expect("it ends")
    }
}

/// What `docker info` says where all is well.
const INFO: &str = r#"{"ServerVersion":"28.2.2","CgroupDriver":"systemd","CgroupVersion":"2",
    "MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"DockerRootDir":"/no/such/folder"}"#;

fn output_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn clusters_are_listed_pruned_and_taken_down() {
    let machine = Machine::with(&["kind", "docker"]);
    let none = machine.cluster(&["list"]);
    assert_eq!(
        (none.status.code(), output_of(&none).as_str()),
        (Some(0), "no kind clusters were created by claimcheck\n")
    );
    let store = machine.store();
    drop(store.claim("claimcheck-gone", "docker", true).unwrap());
    let mut kept = store.claim("claimcheck-kept", "docker", true).unwrap();
    kept.keep().unwrap();
    drop(kept);
    let living = store.claim("claimcheck-living", "docker", true).unwrap();
    let containers = "claimcheck-gone-control-plane|claimcheck-gone|Created|ours\n\
                      claimcheck-kept-control-plane|claimcheck-kept|Up 3 days|ours\n";
    fs::write(machine.0.path().join("containers"), containers).unwrap();

    let listed = output_of(&machine.cluster(&["list"]));
    for (name, nodes, state) in [
        ("claimcheck-gone", "0/1", "left by a run that was killed"),
        ("claimcheck-kept", "1/1", "kept"),
        ("claimcheck-living", "0/0", "in use by a run"),
    ] {
        let line = listed.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{listed}"));
        assert!(line.contains(nodes) && line.contains(state), "{line}");
    }

    let pruned = machine.cluster(&["prune"]);
    assert_eq!(output_of(&pruned), "claimcheck-gone was deleted: it was left by a run that was killed\n");
    assert_eq!(output_of(&machine.cluster(&["prune"])), "nothing to delete\n");
    let refused = machine.cluster(&["down", "living"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(
        output_of(&refused).contains("cluster claimcheck-living is in use by an active run"),
        "{refused:?}"
    );
    let down = machine.cluster(&["down", "kept"]);
    assert_eq!(output_of(&down), "claimcheck-kept was deleted\n");
    assert_eq!(fs::read_to_string(machine.0.path().join("containers")).unwrap(), "");
    drop(living);
}

/// As upstream's sidecars have to come to nodes without a registry.
#[test]
fn additional_images_are_loaded_onto_the_nodes() {
    let commands: [&[&str]; 3] = [&["run"], &["load"], &["cluster", "up"]];
    for command in commands {
        let machine = Machine::with(&["kind", "docker"]);
        let path = |name: &str| machine.0.path().join(name);
        fs::write(path("info"), INFO).unwrap();
        fs::write(path("sidecars.tar"), "").unwrap();
        let archive = path("sidecars.tar").display().to_string();
        let images = ["--image", "ours:1", "--load-image", "vendor/driver:v1", "--load-image", &archive];
        let out = path("out").display().to_string();
        let mut program = machine.command();
        program.args(command).args(["--cluster", "kind", "--name", "ci", "--out", &out]).args(images);
        // There is no API server at its end.
        let output = program.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(3), "{}", output_of(&output));
        let log = fs::read_to_string(path("log")).unwrap();
        let loaded: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("kind load ")).collect();
        let expected = [
            "docker-image ours:1 --name claimcheck-ci".to_owned(),
            "docker-image vendor/driver:v1 --name claimcheck-ci".to_owned(),
            format!("image-archive {archive} --name claimcheck-ci"),
        ];
        assert_eq!(loaded, expected, "{command:?}: {}", output_of(&output));
    }
}

#[test]
fn a_missing_engine_is_reported() {
    let output = Machine::with(&[]).cluster(&["prune"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        output_of(&output).contains("a container engine is not on the PATH: install Docker"),
        "{output:?}"
    );
}

#[test]
fn all_preflight_findings_are_reported_together() {
    let machine = Machine::with(&[]);
    let run =
        |args: &[&str]| machine.command().args(["run", "--cluster", "kind"]).args(args).output().unwrap();
    let out = machine.0.path().join("run").display().to_string();
    let output = run(&["--out", &out]);
    let out = format!("{out}-up");
    assert_eq!(output.status.code(), Some(3));
    for line in
        ["a container engine is not on the PATH: install Docker", "kind is not on the PATH: install it"]
    {
        assert!(output_of(&output).contains(line), "{output:?}");
    }
    for (args, expected) in [
        (&["--driver", "exec:./d {endpoint}"][..], "--driver is for --cluster embedded, not kind"),
        (&["--kubeconfig", "k"], "--kubeconfig is for --cluster existing, not kind"),
        (&["--reuse"], "--name"),
        (&["--name", "My Cluster"], "use lower case letters, digits and dashes"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output_of(&output).contains(expected), "{args:?}: {output:?}");
    }
    let existing = machine.cluster(&["up", "--cluster", "existing"]);
    assert_eq!(existing.status.code(), Some(2), "{existing:?}");
    let up = machine.cluster(&["up", "--cluster", "kind", "--out", &out]);
    assert_eq!(up.status.code(), Some(3));
    assert!(output_of(&up).contains("kind is not on the PATH"), "{up:?}");
    let embedded = machine.command().args(["run", "--keep"]).output().unwrap();
    assert!(
        output_of(&embedded)
            .contains("--keep is for --cluster kind, or existing with --install, not embedded"),
        "{embedded:?}"
    );
}

#[test]
fn an_interrupted_creation_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let machine = Machine::with(&["kind", "docker"]);
        let output = machine.run_until_created_halfway().end_by(signal);
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(
            !output_of(&output).contains("PASS"),
            "there is no verdict on a run that never began: {output:?}"
        );
        assert_eq!((machine.containers().as_str(), machine.store().records().len()), ("", 0));
    }
}

#[test]
fn a_killed_creation_is_found_and_pruned() {
    let machine = Machine::with(&["kind", "docker"]);
    let halfway = machine.run_until_created_halfway();
    let kind = getpgid(Some(Pid::from_raw(halfway.kind))).unwrap();
    halfway.end_by(Signal::SIGKILL);
    // A real one would go on, and fail once its containers are gone.
    killpg(kind, Signal::SIGKILL).unwrap();
    assert!(output_of(&machine.cluster(&["list"])).contains("left by a run that was killed"));
    let pruned = machine.cluster(&["prune"]);
    assert_eq!(output_of(&pruned), "claimcheck-ci was deleted: it was left by a run that was killed\n");
    assert_eq!((machine.containers().as_str(), machine.store().records().len()), ("", 0));
}
