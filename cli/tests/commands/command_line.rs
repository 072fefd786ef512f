//! The command line as people and pipelines meet it: every mistake is one clear line with its remedy.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn claimcheck(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(args)
        .output()
        .expect("the binary runs")
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What looks like no address may well be one with a slip in it, and a password.
#[test]
fn addresses_that_make_no_sense_are_not_repeated() {
    for (flag, expected) in
        [("--otlp", "http://HOST:4318/v1/traces"), ("--remote-write", "http://HOST:PORT/PATH")]
    {
        let output = claimcheck(&["run", flag, "htp://ann:p4ss@host/"]);
        let printed = output_of(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains(&format!("{flag}: write {expected}")) && !printed.contains("p4ss"),
            "{printed}"
        );
    }
}

/// As in `claimcheck list | head`.
#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .args(["list", "--format", "json"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .expect("the binary runs");
    assert_eq!((output.status.code(), output_of(&output).as_str()), (Some(0), ""));
}

/// What is used most is listed first; each option is below the heading of its group.
#[test]
fn help_lists_frequent_options_first() {
    for (command, frequent, first) in [
        (
            "run",
            &["--cluster", "--driver", "--parallel", "--fault", "--expect", "--out", "--slo"][..],
            "--cluster",
        ),
        ("load", &["--volumes", "--concurrency", "--cluster", "--fault", "--out"], "--volumes"),
        ("csi", &["--endpoint", "--driver", "--list", "--parallel", "--out", "--expect"], "--endpoint"),
    ] {
        let output = claimcheck(&[command, "-h"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, options) = text.split_once("\nOptions:\n").expect("a first section");
        let (options, rest) = options.split_once("\n\n").expect("other sections");
        assert!(options.trim_start().starts_with(first), "{command}: {options}");
        for option in frequent {
            assert!(options.contains(&format!("{option} ")), "{command} {option}: {options}");
        }
        let (_, history) = rest.split_once("\nHistory:\n").expect("a section");
        assert!(history.contains("--no-history") && !rest.contains("--out "), "{command}: {rest}");
    }
}

#[test]
fn mistakes_are_usage_errors() {
    let table: &[(&[&str], &str)] = &[
        (&["run", "--nodes", "0"], "0 is not in 1..=64"),
        (&["run", "--nodse", "2"], "a similar argument exists: '--nodes'"),
        (&["run", "--driver", "bultin"], "use `builtin`, or `exec:"),
        (&["run", "--driver", "exec:./d"], "one of them is required"),
        (&["run", "--driver", "exec:./d {endpoint} {nodeid}"], "{nodeid} is not a placeholder"),
        (&["run", "--driver-controller", "exec:./d {socket}"], "add --driver exec:COMMAND"),
        (&["run", "--fs-type", "ext4"], "add --driver exec:COMMAND"),
        (&["run", "--driver-param", "pool"], "write KEY=VALUE"),
        (&["run", "--cluster", "kindd"], "possible values: embedded"),
        (&["run", "--fault", "api=418"], "use 429, 409, 500, 503 or latency:DURATION"),
        (&["run", "--fault", "disk=full"], "use api[/VERB[/RESOURCE]], watch[/RESOURCE] or rpc[/METHOD]"),
        (&["run", "--remote-write", "localhost:9090"], "write http://HOST:PORT/PATH"),
        (&["run", "--push-gateway", "http://h"], "are removed: use --remote-write URL"),
        (&["load", "--remote-write", "ftp://h/"], "write http://HOST:PORT/PATH"),
        (&["load", "--push-gateway-delete"], "are removed: use --remote-write URL"),
        (&["run", "--push-interval", "0"], "0 is not in 1.."),
        (
            &["run", "--remote-write", "http://h", "--push-bearer-file", "/no/such"],
            "--push-bearer-file /no/such",
        ),
        (&["load", "--volumes", "0"], "0 is not in 1.."),
        (&["load", "--churn", "10"], "for example 30s, 10m or 1h30m"),
        (&["load", "--size", "64Mb"], "write a Kubernetes quantity above zero"),
        (&["load", "--no-pods", "--pods-per-volume", "2"], "cannot be used with '--pods-per-volume"),
        (&["load", "--hold", "--churn", "1m"], "cannot be used with '--churn"),
        (&["load", "--against", "./b", "--churn", "1m"], "cannot be used with '--churn"),
        (&["load", "--against", "--class 'a"], "unterminated '"),
        (&["load", "--against", ""], "write arguments of `load`, a claimcheck program, or both"),
        (&["load", "--against", "./b", "--volumes", "20"], "20 volumes are not enough for 12 blocks"),
        (
            &["load", "--against", "./b", "--cluster", "kind"],
            "--against is for --cluster embedded or envtest",
        ),
        (
            &["run", "--cluster", "existing", "--controllers", "stock"],
            "--controllers is for --cluster embedded, envtest or kind, not existing",
        ),
        (&["compare", "a", "b", "--confidence", "95"], "above 0 and below 1"),
        (&["run", "--cluster", "existing", "--install"], "--install needs --image NAME"),
        (&["run", "--cluster", "existing", "--install", "--image", "i.tar"], "--install needs --image NAME"),
        (&["run", "--cluster", "existing", "--sidecars", "upstream"], "existing with --install"),
        (&["run", "--cluster", "existing", "--kubelet-dir", "/k"], "--install"),
        (
            &["run", "--cluster", "existing", "--install", "--image", "i", "--kubelet-dir", "k0s/kubelet"],
            "write an absolute path",
        ),
        (
            &["run", "--cluster", "existing", "--install", "--image", "i", "--load-image", "j"],
            "--load-image is for --cluster kind, not existing",
        ),
        (&["load", "--load-image", "j"], "--load-image is for --cluster kind, not embedded"),
        (&["run", "--install", "--image", "i"], "--install is for --cluster existing, not embedded"),
        (&["testdriver"], "either --endpoint or --driver is required"),
        (&["testdriver", "--driver", "builtin", "--capability", "bock=true"], "did you mean block?"),
        (
            &["testdriver", "--driver", "builtin", "--capability", "teleport=true"],
            "known capabilities: persistence, block",
        ),
        (&["testdriver", "--driver", "builtin", "--capability", "block"], "write NAME=true or NAME=false"),
        (
            &["testdriver", "--driver", "builtin", "--capability", "block=yes"],
            "\"yes\" is neither true nor false",
        ),
        (&["testdriver", "--driver", "builtin", "--driver-param", "kind=image"], "--out <FILE>"),
        (&["testdriver", "--driver", "builtin", "--max-size", "1Ti"], "--min-size <QUANTITY>"),
        (
            &["testdriver", "--driver", "builtin", "--min-size", "64Mb"],
            "write a Kubernetes quantity above zero",
        ),
        (&["testdriver", "--driver", "builtin", "--endpoint", "unix:///s"], "cannot be used with"),
        (&["testdriver", "--driver-controller", "builtin"], "--driver <DRIVER>"),
        (&["rum"], "a similar subcommand exists: 'run'"),
        (
            &["image", "--rootfs", "/", "--out", "i"],
            "is removed: without a registry, make the image with `docker import`",
        ),
        (&["controller", "binder", "--http-endpoint", "8080"], "write :8080"),
        (&["controller", "nobody"], "there is no controller \"nobody\""),
        (
            &["controller", "binder", "-timeout=1m"],
            "--timeout is a flag of provisioner, attacher, resizer and snapshotter",
        ),
        (&["controller", "attacher", "-csi-addres=/csi.sock"], "'--csi-address'"),
        (&["controller", "attacher", "--feature-gates=Topology=true"], "unrecognized feature gate: Topology"),
        (&["registrar", "--csi-address", "/csi.sock"], "--kubelet-registration-path"),
    ];
    for (args, remedy) in table {
        let output = claimcheck(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", output_of(&output));
        assert!(output_of(&output).contains(remedy), "{args:?} said {}", output_of(&output));
    }
}

#[test]
fn a_failed_start_reports_the_reason_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let port = taken.local_addr().expect("an address").port().to_string();
    let full = tempfile::tempdir().expect("a folder");
    std::fs::write(full.path().join("summary.json"), "{}").expect("a file");
    let out = tempfile::tempdir().expect("a folder");
    let new = |name: &str| out.path().join(name).display().to_string();
    let full = full.path().display().to_string();
    let [a, b, c] = ["a", "b", "c"].map(new);
    let table: &[(Vec<&str>, &str)] = &[
        (vec!["run", "--out", &full], &full),
        (vec!["run", "--metrics-addr", &address, "--out", &a], &address),
        (vec!["cluster", "up", "--port", &port, "--out", &b], "choose another port"),
        (vec!["run", "--driver", "exec:/no/such/driver {endpoint}", "--out", &c], "/no/such/driver"),
        (vec!["controller", "attacher", "--kubeconfig", "/no/such/kubeconfig"], "/no/such/kubeconfig"),
    ];
    for (args, remedy) in table {
        let output = claimcheck(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {}", output_of(&output));
        assert!(output_of(&output).contains(remedy), "{args:?} said {}", output_of(&output));
        assert_eq!(output_of(&output).trim().lines().count(), 1, "{args:?} said {}", output_of(&output));
    }
}

#[test]
fn a_driver_that_ends_at_once_is_shown_by_its_log() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run").display().to_string();
    let driver = "exec:sh -c 'echo no licence for $1, $3 >&2; exit 1' sh {endpoint} --password hunter2";
    let output = claimcheck(&["run", "--driver", driver, "--out", &run]);
    assert_eq!(output.status.code(), Some(3), "{}", output_of(&output));
    let shown =
        ["exits immediately after it is started", "no licence for unix:///var/lib/kubelet", "--password ***"];
    assert!(shown.iter().all(|words| output_of(&output).contains(words)), "{}", output_of(&output));
    assert!(!output_of(&output).contains("hunter2"), "{}", output_of(&output));
}

/// Our own driver as a stranger would bring it: two processes, and what upstream's suite knows of it.
fn with_external_driver(name: &str) -> (tempfile::TempDir, Output) {
    let out = tempfile::tempdir().expect("a folder");
    let (run, file) = (out.path().join("run").display().to_string(), out.path().join("driver.yaml"));
    let text = format!(
        "StorageClass: {{FromName: true}}\nClientNodeName: node-2\nDriverInfo:\n  Name: {name}\n  \
         SupportedSizeRange: {{Min: 16Mi}}\n  Capabilities: {{persistence: true}}\n  TestTags: [slow]\n"
    );
    std::fs::write(&file, text).expect("a file");
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:{program} driver --driver-name stranger.example.com --endpoint {{endpoint}} --node-id {{node_id}} \
         --state-dir {{state_dir}}"
    );
    let file = file.display().to_string();
    let args = ["run", "volume_io::a file", "--driver", &driver, "--driver-controller", &driver];
    let output = claimcheck(&[&args[..], &["--driver-config", &file, "--out", &run]].concat());
    (out, output)
}

#[test]
fn an_external_driver_runs_as_declared_in_its_file() {
    let (out, output) = with_external_driver("stranger.example.com");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}{stdout}", output_of(&output));
    assert!(
        output_of(&output).contains("no case uses these fields of --driver-config: TestTags"),
        "{}",
        output_of(&output)
    );
    for words in
        ["the driver does not declare exec", "SupportedFsType of --driver-config has no ext4", "2 passed"]
    {
        assert!(stdout.contains(words), "{stdout}");
    }
    let log = out.path().join("run/cluster/driver-controller.log");
    assert!(log.exists(), "the controller has no log");
}

#[test]
fn a_file_of_another_driver_is_refused() {
    let (_, output) = with_external_driver("other.example.com");
    assert_eq!(output.status.code(), Some(3), "{}", output_of(&output));
    let why = "DriverInfo.Name of --driver-config is other.example.com, but GetPluginInfo returns stranger.example.com";
    assert!(output_of(&output).contains(why), "{}", output_of(&output));
}

/// A folder that says nothing of what made it: only the programs' names count.
fn assets(programs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    programs.iter().for_each(|program| std::fs::write(folder.path().join(program), "").expect("a file"));
    folder
}

#[test]
fn stock_programs_that_are_missing_are_named_with_their_remedy() {
    let table: &[(&[&str], &str, &str)] = &[
        (&[], "etcd is neither", "setup-envtest use"),
        (&["etcd", "kube-apiserver"], "kube-controller-manager is neither", "omit --controllers stock"),
    ];
    for (present, missing, remedy) in table {
        let folder = assets(present);
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
        command.env("CLAIMCHECK_NO_HISTORY", "1");
        command
            .args(["run", "--cluster", "envtest"])
            .env("PATH", "")
            .env("KUBEBUILDER_ASSETS", folder.path());
        if !present.is_empty() {
            command.args(["--controllers", "stock"]);
        }
        let output = command.output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(3), "{}", output_of(&output));
        assert!(
            output_of(&output).contains(missing) && output_of(&output).contains(remedy),
            "{}",
            output_of(&output)
        );
        assert_eq!(output_of(&output).trim().lines().count(), 1, "{}", output_of(&output));
    }
}

#[test]
fn runs_are_compared_and_a_worse_one_ends_with_4() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &str, result: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        let at = r#""at":{"mono_ns":1,"wall_ns":1}"#;
        let case = format!(
            r#"{{{at},"event":"case_finished","case":{{"suite":"volumes","name":"keeps"}},{result},"seconds":1}}"#
        );
        let end = format!(r#"{{{at},"event":"run_finished","seconds":1}}"#);
        std::fs::write(path.join("events.ndjson"), format!("{case}\n{end}\n")).expect("a file");
        path.display().to_string()
    };
    let good = run("good", r#""result":"passed""#);
    let bad = run("bad", r#""result":"failed","reason":"no""#);
    let codes = [
        (vec!["compare", &good, &bad, "--fail-on", "worse"], 4),
        (vec!["compare", &bad, &good, "--fail-on", "worse"], 0),
        (vec!["compare", &good, &bad], 0),
        (vec!["compare", &good, "/no/such/run"], 3),
    ];
    for (args, code) in codes {
        assert_eq!(claimcheck(&args).status.code(), Some(code), "{args:?}");
    }
    let json = claimcheck(&["compare", &good, &bad, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["verdict"], &json["cases"][0]["change"]), (&"worse".into(), &"broken".into()));
    let page = folder.path().join("page.html");
    let html = claimcheck(&["compare", &good, &bad, "--html", &page.display().to_string()]);
    assert!(html.status.success() && page.is_file(), "{}", output_of(&html));
}

#[test]
fn the_catalogue_is_listed_without_starting_anything() {
    let text = claimcheck(&["list"]);
    assert!(text.status.success());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("provisioning::") && text.contains("UPSTREAM"), "{text}");
    let json = claimcheck(&["list", "--format", "json", "volumes::"]);
    let list: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let listed = list["cases"].as_array().expect("cases");
    assert!(!listed.is_empty());
    assert!(
        listed
            .iter()
            .all(|case| case["case"]["suite"].as_str().is_some_and(|suite| suite.ends_with("volumes"))),
        "{listed:?}"
    );
    assert!(listed.iter().all(|case| case["upstream"].is_string()), "{listed:?}");
    assert!(!Path::new("runs").exists(), "a list has made a run folder");
}

#[test]
fn exit_codes_are_in_the_help() {
    let help = claimcheck(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for line in [
        "0    all cases passed",
        "1    a case or a volume",
        "2    the command line",
        "3    the cluster or the driver",
    ] {
        assert!(help.contains(line), "{help}");
    }
}
