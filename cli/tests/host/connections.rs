//! `kubectl exec`, `cp`, `attach` and `port-forward` on an embedded cluster, over WebSocket and over SPDY.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: connects }
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    env: [{ name: GREETING, value: hello }]
    command: [sh, -c, "trap 'exit 0' TERM; while :; do echo tick; sleep 1 & wait $!; done"]
"#;

/// kubectl with a kubeconfig, and the transport of its connections.
struct Kubectl<'a> {
    kubeconfig: &'a Path,
    websocket: bool,
}

impl Kubectl<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        let websocket = if self.websocket { "true" } else { "false" };
        command
            .env("KUBECONFIG", self.kubeconfig)
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websocket)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websocket)
            .args(args)
            .stdout(Stdio::piped());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("kubectl runs")
    }

    fn accept(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "websocket {}: kubectl {args:?}: {printed}{errors}", self.websocket);
        printed
    }
}

#[test]
#[ignore = "requires kubectl"]
fn kubectl_connects_to_containers() {
    claimcheck_needs::require("kubectl");
    let _alone = alone();
    let mut run = Run::start("connects", &mut claimcheck(), &["cluster", "up", "--nodes", "1"]);
    let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
    let export = lines.find_map(|line| Some(line.ok()?.strip_prefix("export KUBECONFIG=")?.to_owned()));
    let kubeconfig = PathBuf::from(export.expect("the kubeconfig is printed"));
    let files = tempfile::tempdir().expect("a folder");
    let manifest = files.path().join("pod.yaml");
    fs::write(&manifest, POD).expect("a file");
    let manifest = manifest.display().to_string();
    for websocket in [true, false] {
        let kubectl = Kubectl { kubeconfig: &kubeconfig, websocket };
        kubectl.accept(&["apply", "--validate=false", "-f", &manifest]);
        kubectl.accept(&["wait", "--for=condition=Ready", "pod/connects", "--timeout=120s"]);
        executes(&kubectl);
        copies(&kubectl, files.path());
        attaches(&kubectl);
        forwards(&kubectl);
    }
    let kubectl = Kubectl { kubeconfig: &kubeconfig, websocket: true };
    kubectl.accept(&["delete", "-f", &manifest, "--timeout=120s"]);
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    assert_eq!(run.child.wait().expect("it was started here").code(), Some(0));
    nothing_left(&run.tag);
}

fn executes(kubectl: &Kubectl<'_>) {
    let script = "echo $GREETING $(cat /proc/sys/kernel/hostname); echo failed >&2; exit 3";
    let output = kubectl.output(&["exec", "connects", "--", "sh", "-c", script]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello connects\n");
    assert!(errors.contains("failed\n"), "{errors}");

    let mut command = kubectl.command(&["exec", "-i", "connects", "--", "sh", "-c", "wc -c"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("kubectl runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&vec![b'x'; 300_000]).expect("kubectl reads its input");
    drop(input);
    let output = child.wait_with_output().expect("kubectl runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");

    let output = kubectl.output(&["exec", "connects", "--", "no-such-program"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("no-such-program is not in"), "{errors}");
    let output = kubectl.output(&["exec", "connects", "-c", "other", "--", "true"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("other"), "{errors}");
}

fn copies(kubectl: &Kubectl<'_>, files: &Path) {
    let (from, to) = (files.join("from"), files.join("to"));
    let content: Vec<u8> = (0..500_000_u32).map(|number| number as u8).collect();
    fs::write(&from, &content).expect("a file");
    let _ = fs::remove_file(&to);
    kubectl.accept(&["cp", &from.display().to_string(), "connects:/tmp/copy"]);
    kubectl.accept(&["cp", "connects:/tmp/copy", &to.display().to_string()]);
    assert!(fs::read(&to).expect("the copy") == content, "the copy differs");
}

fn attaches(kubectl: &Kubectl<'_>) {
    let mut child = kubectl.command(&["attach", "connects"]).spawn().expect("kubectl runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ticks = lines.any(|line| line.is_ok_and(|line| line == "tick"));
    let _ = child.kill();
    let _ = child.wait();
    assert!(ticks, "the output of the container is not shown");
}

/// Pods have the network of the machine, so that the port is one of this process.
fn forwards(kubectl: &Kubectl<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let echo = thread::spawn(move || {
        for _ in 0..2 {
            let (mut connection, _) = listener.accept().expect("a connection");
            let mut text = Vec::new();
            connection.read_to_end(&mut text).expect("the client's data");
            connection.write_all(&text).expect("the client reads");
        }
    });
    let mut child = kubectl
        .command(&["port-forward", "pod/connects", &format!(":{port}")])
        .spawn()
        .expect("kubectl runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // Forwarding from 127.0.0.1:40000 -> 8080
    let local = lines.find_map(|line| {
        let line = line.ok()?;
        line.strip_prefix("Forwarding from 127.0.0.1:")?.split(' ').next()?.parse::<u16>().ok()
    });
    let local = local.expect("the local port is printed");
    for length in [5, 200_000] {
        let sent = vec![b'y'; length];
        let mut connection = TcpStream::connect(("127.0.0.1", local)).expect("kubectl listens");
        connection.write_all(&sent).expect("kubectl reads");
        connection.shutdown(Shutdown::Write).expect("connected");
        let mut received = Vec::new();
        connection.read_to_end(&mut received).expect("kubectl writes");
        assert!(received == sent, "{} of {length} bytes returned", received.len());
    }
    let _ = child.kill();
    let _ = child.wait();
    echo.join().expect("the port was connected to");
}
