//! `claimcheck cluster list|down|prune`, with a `kind` and a `docker` of our own on the PATH.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use claimcheck_harness::kind::Store;

struct Machine(tempfile::TempDir);

impl Machine {
    fn with(programs: &[&str]) -> Self {
        let machine = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(machine.0.path().join("bin")).expect("a folder");
        // Links, as a program that has just been written may still be open in a child of another test.
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/src/kind/tests/program.sh");
        for name in programs {
            symlink(&program, machine.0.path().join("bin").join(name)).expect("a link");
        }
        machine
    }

    fn store(&self) -> Store {
        Store::at(self.0.path().join("claimcheck/kind"))
    }

    fn cluster(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
        command.arg("cluster").args(args).env_remove("KIND_EXPERIMENTAL_PROVIDER");
        command.env("PATH", self.0.path().join("bin")).env("FAKE", self.0.path());
        command.env("XDG_STATE_HOME", self.0.path()).output().expect("the binary runs")
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn clusters_are_listed_pruned_and_taken_down() {
    let machine = Machine::with(&["kind", "docker"]);
    let none = machine.cluster(&["list"]);
    assert_eq!((none.status.code(), said(&none).as_str()), (Some(0), "no clusters of kind are ours\n"));
    let store = machine.store();
    drop(store.claim("claimcheck-gone", "docker", true).unwrap());
    let mut kept = store.claim("claimcheck-kept", "docker", true).unwrap();
    kept.keep().unwrap();
    drop(kept);
    let living = store.claim("claimcheck-living", "docker", true).unwrap();
    let containers = "claimcheck-gone-control-plane|claimcheck-gone|Created|ours\n\
                      claimcheck-kept-control-plane|claimcheck-kept|Up 3 days|ours\n";
    fs::write(machine.0.path().join("containers"), containers).unwrap();

    let listed = said(&machine.cluster(&["list"]));
    for (name, nodes, state) in [
        ("claimcheck-gone", "0/1", "left by a run that was killed"),
        ("claimcheck-kept", "1/1", "kept"),
        ("claimcheck-living", "0/0", "in use by a run"),
    ] {
        let line = listed.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{listed}"));
        assert!(line.contains(nodes) && line.contains(state), "{line}");
    }

    let pruned = machine.cluster(&["prune"]);
    assert_eq!(said(&pruned), "claimcheck-gone is deleted: it was left by a run that was killed\n");
    assert_eq!(said(&machine.cluster(&["prune"])), "nothing is to be deleted\n");
    let refused = machine.cluster(&["down", "living"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(said(&refused).contains("cluster claimcheck-living belongs to a run that lives"), "{refused:?}");
    let down = machine.cluster(&["down", "kept"]);
    assert_eq!(said(&down), "claimcheck-kept is deleted\n");
    assert_eq!(fs::read_to_string(machine.0.path().join("containers")).unwrap(), "");
    drop(living);
}

#[test]
fn without_an_engine_it_says_so() {
    let output = Machine::with(&[]).cluster(&["prune"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("a container engine is not on the PATH: install Docker"), "{output:?}");
}
