//! The substrate, tried hard before anything stands on it: pods in hundreds, and kills at random moments.
//!
//! This binary plays all parts. As the test runner it starts itself as a *run* (which isolates itself),
//! the run starts itself as a *runtime* (the zygote) and as an *agent* in the node's mount namespace, and
//! the agent mounts volumes and starts pods, as a node agent and a driver would.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use claimcheck_runtime::{
    Args, Client, ContainerSpec, Execution, Exit, Mount, Runtime, State, Terminal, serve,
};
use claimcheck_substrate::{Capabilities, NodeNamespace, Privilege, ProcessSpec, isolate};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

const ROLE: &str = "SUBSTRATE_TEST_ROLE";
/// Marks the processes of one run, to find those that outlive it.
const TAG: &str = "SUBSTRATE_TEST_TAG";
const PODS: usize = 800;
/// Longer than anything takes, also on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(30);
/// Some user who is not root.
const NOBODY: u32 = 65_534;
const NODE: &str = "/cc/n/node-1";

fn main() -> ExitCode {
    match env::var(ROLE).as_deref() {
        Ok("run") => run(),
        Ok("runtime") => {
            let Err(error) = serve(&Args {
                socket: Path::new(NODE).join("runtime.sock"),
                kubelet_dir: Path::new(NODE).join("kubelet"),
                kubelet_at: "/var/lib/kubelet".into(),
            });
            eprintln!("runtime: {error:?}");
            ExitCode::FAILURE
        }
        Ok("agent") => block_on(agent()),
        Ok(other) => panic!("unknown role {other}"),
        Err(_) => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for root in [true, false] {
        let privilege = if root { "root" } else { "user" };
        let mut add = |name: &str, test: fn(bool) -> Result<(), Failed>| {
            let trial = Trial::test(format!("{name}[{privilege}]"), move || {
                if root {
                    claimcheck_needs::check("root")?;
                }
                test(root)
            });
            trials.push(match root {
                true => trial.with_kind("requires root").with_ignored_flag(true),
                false => trial,
            });
        };
        add("hundreds_of_pods", hundreds_of_pods);
        add("kill_9_leaves_nothing", kill_9_leaves_nothing);
        add("signals_and_status_pass_through", signals_and_status_pass_through);
    }
    trials
}

// ---- the test runner's side

fn start(root: bool, tag: &str, mode: &str) -> Result<Child, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.env(ROLE, "run").env(TAG, tag).env("SUBSTRATE_TEST_MODE", mode).stdout(Stdio::piped());
    // Of a process group of its own, as a shell would start it.
    command.process_group(0);
    if !root && geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Ok(command.spawn()?)
}

fn hundreds_of_pods(root: bool) -> Result<(), Failed> {
    let tag = tag("pods");
    let mut child = start(root, &tag, "pods")?;
    let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut passed = false;
    for line in output.lines() {
        let line = line?;
        passed |= line == "all well";
        println!("    {line}");
    }
    let status = child.wait()?;
    if !(status.success() && passed) {
        return Err(format!("the run ended with {status}").into());
    }
    nothing_left(&tag)
}

fn kill_9_leaves_nothing(root: bool) -> Result<(), Failed> {
    // A small generator with a fixed seed: the moments are random, the test repeats.
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        let tag = tag(&format!("kill-{round}"));
        let mut child = start(root, &tag, "forever")?;
        std::thread::sleep(Duration::from_millis(random(700)));
        // Mostly what a person would hit, the outermost one; every third time anything of the tree.
        let all: Vec<i32> = processes(&tag).into_iter().collect();
        let victim = match all.len() {
            0 => child.id().cast_signed(),
            _ if round % 3 != 0 => child.id().cast_signed(),
            n => all[random(n as u64) as usize],
        };
        let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
        if victim != child.id().cast_signed() {
            // A component's death alone is not the run's; now the run's.
            std::thread::sleep(Duration::from_millis(random(20)));
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        }
        let killed = Instant::now();
        child.wait()?;
        nothing_left(&tag)?;
        slowest = slowest.max(killed.elapsed());
    }
    println!("    20 kills, all gone after {} ms at the latest", slowest.as_millis());
    Ok(())
}

fn signals_and_status_pass_through(root: bool) -> Result<(), Failed> {
    let tag = tag("signal");
    let mut child = start(root, &tag, "forever")?;
    let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    // Once a pod is up, the run listens.
    let mut line = String::new();
    while !line.starts_with("pod") {
        line.clear();
        if output.read_line(&mut line)? == 0 {
            return Err("the run ended before a pod was up".into());
        }
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    // The run answers SIGTERM with status 42: see `node`.
    let status = child.wait()?;
    if status.code() != Some(42) {
        return Err(format!("SIGTERM did not reach the run: it ended with {status}").into());
    }
    nothing_left(&tag)
}

fn tag(name: &str) -> String {
    format!("claimcheck-substrate-{name}-{}", std::process::id())
}

/// Waits until neither process, mount, loop device nor file of a run is on the host. How long that takes is
/// printed, not judged: on a busy machine it says nothing.
fn nothing_left(tag: &str) -> Result<(), Failed> {
    let deadline = Instant::now() + LONG;
    loop {
        let left = leftovers(tag);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("left on the host after {} s: {}", LONG.as_secs(), left.join(", ")).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn leftovers(tag: &str) -> Vec<String> {
    let mut left: Vec<String> = processes(tag).iter().map(|pid| format!("process {pid}")).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_of_run =
        |line: &&str| line.contains(" claimcheck ") || line.contains("/cc/") || line.contains(tag);
    left.extend(mounts.lines().filter(is_of_run).map(|line| format!("mount {line}")));
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if backing.contains(tag) {
            left.push(format!("{:?} of {}", device.file_name(), backing.trim()));
        }
    }
    left.extend(["/cc", "/.host"].into_iter().filter(|path| Path::new(path).exists()).map(str::to_owned));
    left
}

fn processes(tag: &str) -> BTreeSet<i32> {
    let marker = format!("{TAG}={tag}");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
        })
        .collect()
}

// ---- the run's side

fn run() -> ExitCode {
    let privilege = match isolate() {
        Ok(privilege) => privilege,
        Err(error) => {
            eprintln!("run: {error:?}");
            return ExitCode::from(3);
        }
    };
    block_on(node(privilege))
}

fn block_on<F: Future<Output = Result<ExitCode, Box<dyn std::error::Error>>>>(future: F) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(future).unwrap_or_else(|error| {
        eprintln!("{}: {error:?}", env::var(ROLE).unwrap_or_default());
        ExitCode::FAILURE
    })
}

async fn node(privilege: Privilege) -> Result<ExitCode, Box<dyn std::error::Error>> {
    fs::create_dir_all(NODE)?;
    let spec = |role: &str, namespace| ProcessSpec {
        name: role.to_owned(),
        program: env::current_exe().expect("the test binary has a path"),
        args: Vec::new(),
        env: vec![
            (ROLE.to_owned(), OsString::from(role)),
            ("PRIVILEGE".to_owned(), format!("{privilege:?}").into()),
        ],
        log: PathBuf::from(format!("/cc/{role}.log")),
        filter: None,
        namespace,
        run_directory: None,
        capabilities: Capabilities::All,
    };
    let began = Instant::now();
    let mut runtime = spec("runtime", None).spawn_piped()?;
    let (mut stdin, stdout) = runtime.pipes().ok_or("pipes")?;
    let mut lines = tokio::io::BufReader::new(stdout).lines();
    if lines.next_line().await?.as_deref() != Some("node") {
        return Err(fs::read_to_string("/cc/runtime.log")?.into());
    }
    let namespace = NodeNamespace::of(runtime.pid().ok_or("the runtime is gone")?)?;
    stdin.write_all(b"\n").await?;
    if lines.next_line().await?.as_deref() != Some("ready") {
        return Err(fs::read_to_string("/cc/runtime.log")?.into());
    }
    println!("node ready after {:?}", began.elapsed());
    let mut agent = spec("agent", Some(namespace)).spawn_piped()?;
    let (_stdin, stdout) = agent.pipes().ok_or("pipes")?;
    let mut lines = tokio::io::BufReader::new(stdout).lines();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => println!("{line}"),
                None => break,
            },
            _ = terminated.recv() => return Ok(ExitCode::from(42)),
        }
    }
    if !agent.wait().await?.success() {
        return Err(fs::read_to_string("/cc/agent.log")?.into());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    if mounts.contains("/kubelet/pods") {
        return Err(format!("the node's mounts are seen by the run: {mounts}").into());
    }
    Ok(ExitCode::SUCCESS)
}

// ---- the agent's side

async fn agent() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let runtime = Client::connect(&Path::new(NODE).join("runtime.sock"))?;
    if env::var("SUBSTRATE_TEST_MODE")? == "forever" {
        return forever(&runtime).await;
    }
    // Cargo runs tests there, and a component is where the run is.
    let here = env::current_dir()?;
    if here != Path::new(env!("CARGO_MANIFEST_DIR")) {
        return Err(format!("the agent is in {}", here.display()).into());
    }
    let before = mounts()?;
    let mut exits = runtime.events();
    // One by one, so that the first pods' cost can be held against the last ones'.
    let mut costs = Vec::new();
    for pod in 0..PODS {
        let began = Instant::now();
        volume(pod, false)?;
        runtime.start(container(pod)).await?;
        costs.push(began.elapsed());
    }
    let mean = |part: &[Duration]| part.iter().sum::<Duration>() / part.len() as u32;
    println!(
        "{PODS} pods started; mean of the first 100 {:?}, of the last 100 {:?}",
        mean(&costs[..100]),
        mean(&costs[PODS - 100..])
    );
    if runtime.list().await?.len() != PODS {
        return Err("the runtime does not list all pods".into());
    }
    // A second agent sees the same containers: they belong to the runtime.
    drop(runtime);
    let runtime = Client::connect(&Path::new(NODE).join("runtime.sock"))?;
    let mut more = runtime.events();
    let began = Instant::now();
    for pod in 0..PODS {
        runtime.signal(&format!("pod-{pod}"), Signal::SIGTERM as i32).await?;
    }
    let mut mount_counts = BTreeSet::new();
    for _ in 0..PODS {
        let (id, state) = more.recv().await.ok_or("the runtime is gone")?;
        let State::Exited { exit: Exit::Code(7), .. } = state else {
            return Err(format!("{id} ended with {state:?} instead of 7").into());
        };
        let pod: usize = id.trim_start_matches("pod-").parse()?;
        let message = fs::read_to_string(pod_dir(pod).join("message"))?;
        let (volume, count) = message.trim().split_once(' ').ok_or("the message is short")?;
        if volume != id {
            return Err(format!("{id} found {volume} in its volume").into());
        }
        mount_counts.insert(count.to_owned());
        runtime.remove(&id).await?;
        // No process holds it any more: a plain umount must do.
        umount2(&pod_dir(pod).join("volume"), MntFlags::empty())?;
    }
    println!("{PODS} pods stopped and unmounted in {:?}; mounts in each: {mount_counts:?}", began.elapsed());
    if mount_counts.len() != 1 {
        return Err("a pod's mount table depends on the number of pods".into());
    }
    if exits.try_recv().is_ok() {
        return Err("the first agent's connection outlived it".into());
    }
    refusals(&runtime).await?;
    executions(&runtime).await?;
    let left = mounts()?;
    if left != before {
        return Err(format!("{left} mounts in the node, {before} before").into());
    }
    println!("all well");
    Ok(ExitCode::SUCCESS)
}

/// What cannot start says why, and leaves no container behind.
async fn refusals(runtime: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let spec = |id: &str, argv: &[&str], target: &str| ContainerSpec {
        id: id.to_owned(),
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        mounts: vec![Mount { source: pod_dir(0), target: target.to_owned(), read_only: true }],
        log_path: pod_dir(0).join("log"),
        hostname: id.to_owned(),
        ..ContainerSpec::default()
    };
    let cases = [
        (spec("missing", &["no-such-program"], "/data"), "no-such-program is not in"),
        (spec("empty", &[], "/data"), "no command given"),
        (spec("covered", &["true"], "/proc/no/such"), "/proc/no/such"),
    ];
    for (spec, why) in cases {
        let id = spec.id.clone();
        let error = runtime.start(spec).await.err().ok_or(format!("{id} has started"))?.to_string();
        if !error.contains(why) {
            return Err(format!("{id}: {error}").into());
        }
    }
    if !runtime.list().await?.is_empty() {
        return Err("a container that did not start is listed".into());
    }
    let mut events = runtime.events();
    let script = "echo x > /data/y; echo x > /y; echo done";
    runtime.start(spec("read-only", &["sh", "-c", script], "/data")).await?;
    events.recv().await.ok_or("the runtime is gone")?;
    let log = fs::read_to_string(pod_dir(0).join("log"))?;
    if log.matches("Read-only file system").count() != 2 || !log.contains("done") {
        return Err(format!("a read-only mount can be written: {log}").into());
    }
    runtime.remove("read-only").await?;
    // A program that does nothing about SIGTERM is ended by it, though it is the first of its namespace.
    runtime.start(spec("unprepared", &["sleep", "infinity"], "/data")).await?;
    runtime.signal("unprepared", Signal::SIGTERM as i32).await?;
    let (_, state) = events.recv().await.ok_or("the runtime is gone")?;
    if !matches!(state, State::Exited { exit: Exit::Signal(15), .. }) {
        return Err(format!("SIGTERM did not end a program that does not handle it: {state:?}").into());
    }
    runtime.remove("unprepared").await?;
    // Mount points that the root does not have: below a read-only directory of the host; a file, and then a directory.
    let file = Mount { source: pod_dir(0).join("log"), target: "/thing".to_owned(), read_only: true };
    let below = "test -f /usr/share/no/such/log && test $(ls /usr/share | wc -l) -gt 1";
    let directory =
        "test -f /thing/log && test -c /dev/null && test -d /proc/self && echo x > /tmp/x && ls /usr";
    let cases = [
        spec("below", &["sh", "-c", below], "/usr/share/no/such"),
        ContainerSpec { mounts: vec![file], ..spec("file", &["sh", "-c", "test -f /thing"], "/data") },
        spec("directory", &["sh", "-c", directory], "/thing"),
    ];
    for spec in cases {
        let id = spec.id.clone();
        runtime.start(spec).await?;
        let (_, state) = events.recv().await.ok_or("the runtime is gone")?;
        if !matches!(state, State::Exited { exit: Exit::Code(0), .. }) {
            let log = fs::read_to_string(pod_dir(0).join("log"))?;
            return Err(format!("the mount of {id}: {state:?}: {log}").into());
        }
        runtime.remove(&id).await?;
    }
    Ok(())
}

/// Further programs run in the namespaces of their container and as its user, and report their end.
async fn executions(runtime: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let user = (env::var("PRIVILEGE")? == "Root").then_some(NOBODY);
    let container = ContainerSpec {
        id: "executes".to_owned(),
        argv: ["sleep", "infinity"].map(str::to_owned).to_vec(),
        env: vec![("GREETING".to_owned(), "hello".to_owned())],
        cwd: Some("/data".to_owned()),
        mounts: vec![Mount { source: pod_dir(0), target: "/data".to_owned(), read_only: false }],
        log_path: pod_dir(0).join("log"),
        uid: user,
        gid: user,
        hostname: "of-exec".to_owned(),
        ..ContainerSpec::default()
    };
    runtime.start(container).await?;
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();

    let ((stdin, mut input), (mut output, stdout), (mut errors, stderr)) =
        (io::pipe()?, io::pipe()?, io::pipe()?);
    let script = "read line; echo $line $GREETING $(cat /proc/sys/kernel/hostname /proc/1/comm) $PWD $(id -u); \
                  echo failed >&2; exit 3";
    let stdio = [stdin.into(), stdout.into(), stderr.into()];
    let exit = runtime.exec("executes", Execution { argv: shell(script), stdio, terminal: false }).await?;
    writeln!(input, "input")?;
    let (mut text, mut error) = (String::new(), String::new());
    output.read_to_string(&mut text)?;
    errors.read_to_string(&mut error)?;
    let expected = format!("input hello of-exec sleep /data {}\n", user.unwrap_or_default());
    let found = (text, error, exit.await?);
    if found != (expected, "failed\n".to_owned(), Exit::Code(3)) {
        return Err(format!("a program in a container has other output: {found:?}").into());
    }

    let (terminal, program) = Terminal::open()?;
    terminal.resize(100, 40)?;
    let stdio = [program.try_clone()?, program.try_clone()?, program];
    let argv = shell("test -t 0 && stty size && read line < /dev/tty && echo got $line");
    let exit = runtime.exec("executes", Execution { argv, stdio, terminal: true }).await?;
    terminal.write_all(b"text\n").await?;
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        match terminal.read(&mut buffer).await? {
            0 => break,
            length => text.extend(&buffer[..length]),
        }
    }
    let text = String::from_utf8(text)?;
    if !(text.contains("40 100") && text.contains("got text") && exit.await? == Exit::Code(0)) {
        return Err(format!("a program has no terminal: {text:?}").into());
    }

    let null = || fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    for (id, argv, reason) in [
        ("executes", vec!["no-such-program".to_owned()], "no-such-program is not in"),
        ("executes", Vec::new(), "no command given"),
        ("unknown", shell("true"), "is unknown"),
    ] {
        let execution = Execution { argv, stdio: [null()?, null()?, null()?], terminal: false };
        let error = runtime.exec(id, execution).await.err().ok_or(format!("{reason}: it has started"))?;
        if !error.to_string().contains(reason) {
            return Err(format!("{reason}: {error}").into());
        }
    }

    let execution =
        Execution { argv: shell("sleep 1000"), stdio: [null()?, null()?, null()?], terminal: false };
    let exit = runtime.exec("executes", execution).await?;
    let mut events = runtime.events();
    runtime.signal("executes", Signal::SIGKILL as i32).await?;
    if exit.await? != Exit::Signal(9) {
        return Err("a program outlives its container".into());
    }
    let (id, _) = events.recv().await.ok_or("the runtime is gone")?;
    let execution = Execution { argv: shell("true"), stdio: [null()?, null()?, null()?], terminal: false };
    let error = runtime.exec(&id, execution).await.err().ok_or("a program starts in an exited container")?;
    if id != "executes" || !error.to_string().contains("is not running") {
        return Err(format!("{id}: {error}").into());
    }
    // Containers start in the zygote's PID namespace as before.
    let spec = ContainerSpec {
        id: "after".to_owned(),
        argv: shell("exit 5"),
        log_path: pod_dir(0).join("log"),
        ..ContainerSpec::default()
    };
    runtime.start(spec).await?;
    let ended = events.recv().await.ok_or("the runtime is gone")?;
    if !matches!(&ended, (id, State::Exited { exit: Exit::Code(5), .. }) if id == "after") {
        return Err(format!("a container after a program: {ended:?}").into());
    }
    runtime.remove("after").await?;
    runtime.remove("executes").await?;
    Ok(())
}

/// Mounts and starts pods without end, until it is killed.
async fn forever(runtime: &Client) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut pod = 0;
    loop {
        volume(pod, env::var("PRIVILEGE")? == "Root" && pod < 3)?;
        runtime.start(container(pod)).await?;
        println!("pod {pod}");
        pod += 1;
        if pod > 200 {
            std::future::pending::<()>().await;
        }
    }
}

fn pod_dir(pod: usize) -> PathBuf {
    PathBuf::from(format!("/var/lib/kubelet/pods/{pod}"))
}

/// A volume with a file in it, mounted where a driver would publish it.
fn volume(pod: usize, image: bool) -> Result<(), Box<dyn std::error::Error>> {
    let tag = env::var(TAG)?;
    let backend = PathBuf::from(format!("/cc/d/{tag}-{pod}"));
    let target = pod_dir(pod).join("volume");
    fs::create_dir_all(&target)?;
    if image {
        fs::create_dir_all("/cc/d")?;
        fs::File::create(&backend)?.set_len(8 << 20)?;
        let quiet = |program: &str, args: &[&str]| {
            let status = Command::new(program).args(args).arg(&backend).arg(&target).status();
            status.map(|status| status.success()).map_err(|error| format!("{program}: {error}"))
        };
        let made = Command::new("mkfs.ext4").arg("-q").arg(&backend).status()?.success();
        // mount makes the loop device, with autoclear.
        if !(made && quiet("mount", &["-o", "loop"])?) {
            return Err("an image cannot be mounted".into());
        }
    } else {
        fs::create_dir_all(&backend)?;
        mount(Some(&backend), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    fs::write(target.join("name"), format!("pod-{pod}"))?;
    fs::write(pod_dir(pod).join("message"), "")?;
    Ok(())
}

fn container(pod: usize) -> ContainerSpec {
    // A count of mounts with nothing but the shell.
    let script = "trap 'read name < /data/name; n=0; while read line; do n=$((n+1)); done < /proc/self/mountinfo; \
                  echo $name $n > /dev/termination-log; exit 7' TERM; sleep 1000 & wait";
    let at = |source: PathBuf, target: &str| Mount { source, target: target.to_owned(), read_only: false };
    ContainerSpec {
        id: format!("pod-{pod}"),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: vec![(TAG.to_owned(), env::var(TAG).unwrap_or_default())],
        mounts: vec![
            at(pod_dir(pod).join("volume"), "/data"),
            at(pod_dir(pod).join("message"), "/dev/termination-log"),
        ],
        log_path: pod_dir(pod).join("log"),
        hostname: format!("pod-{pod}"),
        ..ContainerSpec::default()
    }
}

fn mounts() -> io::Result<usize> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.lines().count())
}
