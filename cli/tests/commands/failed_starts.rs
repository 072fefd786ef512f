//! Runs that could not start or tested nothing say so in every output, and their folder can be used again; a full disk does
//! not hide a verdict.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_claimcheck");

/// A run of the binary in CI, with its summary of the job in `home`.
fn claimcheck(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.env("CLAIMCHECK_NO_HISTORY", "1").env("GITHUB_STEP_SUMMARY", home.join("step"));
    if args.contains(&"kind") {
        // No container engine.
        command.env("PATH", home);
    }
    command.args(args).current_dir(home).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All outputs in the folder state that the run could not start, because of this.
fn state_a_failed_start(home: &Path, out: &Path, reason: &str) {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    let summary: Value = serde_json::from_str(&read(out.join("summary.json"))).unwrap();
    assert_eq!(
        (&summary["state"], &summary["cases"]["passed"]),
        (&"not_started".into(), &0.into()),
        "{summary}"
    );
    assert!(summary["reason"].as_str().unwrap().contains(reason), "{summary}");
    let (junit, page) = (read(out.join("junit.xml")), read(out.join("report.html")));
    assert!(junit.matches("<error").count() == 1 && junit.contains("errors=\"1\""), "{junit}");
    assert!(page.contains("Could not start") && !page.contains("Passed"), "{page}");
    let markdown = read(out.join("summary.md"));
    assert!(
        markdown.starts_with("## ❌ claimcheck could not start\n") && markdown.contains(reason),
        "{markdown}"
    );
    assert_eq!(read(home.join("step")), markdown);
    fs::remove_file(home.join("step")).unwrap();
}

/// The steps of a start, in order: the folder, listeners, and the cluster of each kind with its API server, driver and
/// sidecars, until the plan; the folder alone fails before there are outputs.
#[test]
fn a_start_that_fails_at_any_step_is_a_pass_in_no_output_and_can_be_repeated() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = home.join("driver.yaml");
    let of_other = "StorageClass: {FromName: true}\nDriverInfo:\n  Name: other.example.com\n";
    fs::write(&config, of_other).unwrap();
    let config = config.display().to_string();
    let table: &[(&str, &[&str], i32, &str)] = &[
        ("listener", &["run", "--metrics-addr", &address], 3, &address),
        ("engine", &["run", "--cluster", "kind"], 3, "kind"),
        (
            "kubeconfig",
            &["run", "--cluster", "existing", "--kubeconfig", "/no/such/file"],
            3,
            "/no/such/file",
        ),
        ("program", &["run", "--driver", "exec:/no/such/driver {endpoint}"], 3, "/no/such/driver"),
        ("exit", &["run", "--driver", "exec:sh -c 'echo no licence; exit 1' {endpoint}"], 3, "no licence"),
        (
            "sidecar",
            &["run", "--sidecar", "provisioner=exec:/no/such/sidecar {socket}"],
            3,
            "/no/such/sidecar",
        ),
        ("name", &["run", "--driver-config", &config], 3, "other.example.com"),
        ("class", &["load", "--class", "no-such-class"], 2, "no-such-class"),
        ("call", &["csi", "--driver", "exec:sh -c 'echo no licence; exit 1' {endpoint}"], 3, "no licence"),
        ("spawn", &["csi", "--driver", "exec:/no/such/driver {endpoint}"], 3, "/no/such/driver"),
    ];
    for (name, args, code, reason) in table {
        let out = home.join(name);
        let args = [args, &["--out", name][..]].concat();
        for attempt in 1..3 {
            let output = claimcheck(home, &args);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(*code), "{args:?}: {printed}");
            assert!(printed.contains(reason) && printed.contains("NOT STARTED"), "{args:?}: {printed}");
            assert!(!printed.contains("already exists") && !printed.contains("PASS"), "{args:?}: {printed}");
            state_a_failed_start(home, &out, reason);
            let logs = names(&out).into_iter().filter(|name| name.starts_with("failed-start-")).count();
            assert!(logs < attempt, "{args:?}: {logs}");
        }
    }

    // The folder itself: nothing in it is changed, and no cluster is created.
    for args in [&["run", "--cluster", "kind"][..], &["run"], &["load"], &["csi", "--driver", "builtin"]] {
        let full = home.join("full");
        fs::create_dir_all(&full).unwrap();
        fs::write(full.join("junit.xml"), "of an earlier run").unwrap();
        let output = claimcheck(home, &[args, &["--out", "full"]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {printed}");
        assert!(
            printed.contains("full already exists") && !printed.contains("creating"),
            "{args:?}: {printed}"
        );
        assert_eq!(names(&full), ["junit.xml"], "{args:?}");
        let step = fs::read_to_string(home.join("step")).unwrap();
        assert!(step.starts_with("## ❌ claimcheck could not start\n"), "{args:?}: {step}");
        fs::remove_file(home.join("step")).unwrap();
    }

    // A cluster without a run.
    let port = taken.local_addr().unwrap().port().to_string();
    for _ in 0..2 {
        let printed = text(&claimcheck(home, &["cluster", "up", "--port", &port, "--out", "up"]));
        assert!(printed.contains("choose another port"), "{printed}");
    }
}

#[test]
fn a_run_without_a_case_that_can_run_is_no_pass() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for args in [&["run", "no such case"][..], &["csi", "--driver", "builtin", "no such case"]] {
        let output = claimcheck(home, args);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {printed}");
        assert!(printed.contains("nothing was tested: no test case matches"), "{args:?}: {printed}");
        let step = fs::read_to_string(home.join("step")).unwrap();
        assert!(step.contains("❌") && step.contains("nothing was tested"), "{args:?}: {step}");
        fs::remove_file(home.join("step")).unwrap();
    }

    let reason = "--pod-security restricted does not admit pods with hostPath volumes";
    let output =
        claimcheck(home, &["run", "a hostPath volume", "--pod-security", "restricted", "--out", "run"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("NOTHING TESTED  0 passed, 2 skipped") && printed.contains(reason), "{printed}");
    // The last line can be opened.
    let last = String::from_utf8_lossy(&output.stdout).trim_end().lines().last().unwrap().trim().to_owned();
    assert!(last.ends_with("report.html") && home.join(&last).is_file(), "{last}");
    for file in ["summary.md", "junit.xml", "report.html"] {
        let text = fs::read_to_string(home.join("run").join(file)).unwrap();
        assert!(
            text.contains(&format!("nothing was tested: all cases were skipped\n  2 × {reason}")),
            "{file}: {text}"
        );
    }
}

#[test]
#[ignore = "requires root"]
fn a_full_disk_does_not_hide_the_verdict() {
    claimcheck_needs::require("root");
    let home = tempfile::tempdir().unwrap();
    let case = "volumes::data persists across pod recreation [dynamic, default fs, Immediate]";
    let script = "mount -t tmpfs -o size=300k none \"$1\" && \"$2\" run \"$3\" --out \"$1/run\"; code=$?; \
                  cat \"$1/run/junit.xml\" \"$1/run/summary.md\"; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(home.path()).arg(PROGRAM).arg(case);
    let output = command.env("CLAIMCHECK_NO_HISTORY", "1").output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(5), "{printed}");
    for part in
        [" PASS  1 passed", "these outputs could not be written", "tests=\"1\"", "## ✅ claimcheck passed"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}
