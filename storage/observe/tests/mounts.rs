//! The watch against the kernel: real mounts, in a mount namespace of the test's own.
//!
//! A shell holds the namespace and executes commands; the watch reads the shell's table from outside, as
//! the component in a pod reads that of the node's first process.

#![expect(clippy::unwrap_used, reason = "helpers of a test are a test; a panic is its way to fail")]

use std::{
    io::{BufRead, BufReader, PipeWriter, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::Receiver,
    thread::JoinHandle,
    time::Duration,
};

use claimcheck_model::{KubeletPath, Stamp};
use claimcheck_observe::{Args, Change, Record, watch};
use tokio::sync::mpsc::unbounded_channel;

/// Only a broken watch takes so long.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A shell in a mount namespace of its own, with an empty tmpfs for a kubelet's directory. The namespace and
/// all in it go with the shell.
struct Namespace {
    shell: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    kubelet_dir: tempfile::TempDir,
}

impl Namespace {
    fn command() -> Command {
        let mut unshare = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--mount", "--propagation", "private"]);
        unshare
    }

    fn new() -> Self {
        claimcheck_needs::require("mounts");
        let kubelet_dir = tempfile::tempdir().unwrap();
        let mut shell =
            Self::command().arg("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut namespace = Self { shell, commands, answers, kubelet_dir };
        namespace.run("set -e; mount -t tmpfs none .");
        namespace
    }

    /// Runs commands in the kubelet's directory, to their end.
    fn run(&mut self, commands: &str) {
        writeln!(self.commands, "cd {}; {commands}\necho done", self.kubelet_dir.path().display()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "{commands}");
    }

    fn mount(&mut self, path: &str) {
        self.run(&format!("mkdir -p '{path}'; mount -t tmpfs none '{path}'"));
    }

    fn args(&self) -> Args {
        Args {
            node_name: "n1".into(),
            mountinfo: PathBuf::from(format!("/proc/{}/mountinfo", self.shell.id())),
            kubelet_dir: self.kubelet_dir.path().canonicalize().unwrap(),
            listen: None,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The records of a namespace, read with patience.
struct Watched {
    records: Receiver<Record>,
    watching: Option<JoinHandle<()>>,
    stop: Option<PipeWriter>,
}

impl Watched {
    fn new(namespace: &Namespace) -> Self {
        let (stopped, stop) = std::io::pipe().unwrap();
        let (sender, mut records) = unbounded_channel();
        let args = namespace.args();
        let name = format!("watch {}", namespace.shell.id());
        let watch = move || watch(&args, &stopped, sender).unwrap();
        let watching = std::thread::Builder::new().name(name).spawn(watch).unwrap();
        let (onward, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Some(record) = records.blocking_recv() {
                onward.send(record).unwrap();
            }
        });
        Self { records: receiver, watching: Some(watching), stop: Some(stop) }
    }

    fn next(&mut self) -> Record {
        self.records.recv_timeout(TIMEOUT).expect("a change is noticed")
    }

    fn next_is(&mut self, change: Change, place: &KubeletPath) -> Record {
        let record = self.next();
        assert_eq!((record.change, &record.place), (change, place), "{record:?}");
        record
    }

    /// Of the watch's thread.
    fn processor_time(&self) -> Duration {
        let name = self.watching.as_ref().and_then(|thread| thread.thread().name()).unwrap().to_owned();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|thread| thread.path());
        let is_ours = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).unwrap().trim() == name;
        let task = threads.into_iter().find(is_ours).unwrap();
        // Nanoseconds on a processor, nanoseconds in a queue, time slices.
        let times = std::fs::read_to_string(task.join("schedstat")).unwrap();
        Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
    }

    /// Ends the watch, which blocks until it is stopped.
    fn end(&mut self) {
        drop(self.stop.take());
        self.watching.take().unwrap().join().unwrap();
    }
}

fn publish(pod: &str) -> (String, KubeletPath) {
    let place = KubeletPath::Publish { pod: pod.into(), volume: "pv 1".into() };
    (format!("pods/{pod}/volumes/kubernetes.io~csi/pv 1/mount"), place)
}

fn stage() -> (String, KubeletPath) {
    let place = KubeletPath::Stage { driver: "d.io".into(), handle_sha256: "ab".into() };
    ("plugins/kubernetes.io/csi/d.io/ab/globalmount".into(), place)
}

/// A mount that the tests make to know that the watch has begun, or has seen the mounts before it. What came between
/// two looks is reported in the order of the places, so its name must be the last. Unmounts may be seen later.
fn mark(namespace: &mut Namespace, watched: &mut Watched, name: &str) -> Vec<Record> {
    let (path, place) = publish(name);
    namespace.mount(&path);
    let mut before = Vec::new();
    loop {
        let record = watched.next();
        if record.place == place {
            return before;
        }
        before.push(record);
    }
}

#[test]
#[ignore = "requires mounts"]
fn volumes_are_seen_to_come_and_go() {
    let mut namespace = Namespace::new();
    let mut watched = Watched::new(&namespace);
    mark(&mut namespace, &mut watched, "mark");
    let ((global, staged), (target, published)) = (stage(), publish("u1"));
    let block = "plugins/kubernetes.io/csi/volumeDevices/publish/pv 1/u1";

    let before = Stamp::now();
    namespace.mount(&global);
    let first = watched.next_is(Change::Mounted, &staged);
    namespace.run(&format!("mkdir -p '{target}'; mount --bind '{global}' '{target}'"));
    let second = watched.next_is(Change::Mounted, &published);
    assert!(before < first.at && first.at < second.at && second.at < Stamp::now(), "{first:?} {second:?}");
    assert_eq!((first.node.as_str(), second.seq), ("n1", first.seq + 1));

    // Mounts of other kinds are not reported: the next record is the unmount.
    namespace.mount("pods/u1/volumes/kubernetes.io~empty-dir/tmp");
    namespace.mount(&format!("{target}/inside"));
    namespace.run(&format!("umount '{target}/inside'"));
    namespace.run(&format!("umount '{target}'"));
    watched.next_is(Change::Unmounted, &published);
    namespace.run(&format!("umount '{global}'"));
    watched.next_is(Change::Unmounted, &staged);

    // A block volume is a file upon a file.
    namespace.run(&format!(
        "mkdir -p \"$(dirname '{block}')\"; : > '{block}'; : > device; mount --bind device '{block}'"
    ));
    watched.next_is(Change::Mounted, &published);
    namespace.run(&format!("umount '{block}'"));
    watched.next_is(Change::Unmounted, &published);
}

#[test]
#[ignore = "requires mounts"]
fn what_was_there_before_is_found() {
    let mut namespace = Namespace::new();
    let ((global, staged), (target, published)) = (stage(), publish("u1"));
    namespace.mount(&global);
    namespace.mount(&target);
    let mut watched = Watched::new(&namespace);
    assert_eq!(watched.next_is(Change::Found, &staged).seq, 0);
    watched.next_is(Change::Found, &published);
    namespace.run(&format!("umount '{target}'"));
    watched.next_is(Change::Unmounted, &published);
}

/// However little time is between them: what stays is seen, and nothing is seen twice.
#[test]
#[ignore = "requires mounts"]
fn a_burst_is_seen_whole() {
    let mut namespace = Namespace::new();
    let mut watched = Watched::new(&namespace);
    mark(&mut namespace, &mut watched, "mark");
    let all =
        "for i in $(seq 100); do p=\"pods/u$i/volumes/kubernetes.io~csi/pv 1/mount\"; mkdir -p \"$p\"; ";
    namespace.run(&format!("{all} mount -t tmpfs none \"$p\"; done"));
    let came = mark(&mut namespace, &mut watched, "z-between");
    let places: std::collections::BTreeSet<KubeletPath> =
        came.iter().map(|record| record.place.clone()).collect();
    assert_eq!((came.len(), places.len()), (100, 100));
    assert!(came.iter().all(|record| record.change == Change::Mounted));
    assert!(came.is_sorted_by_key(|record| (record.at, record.seq)));
    namespace.run(&format!("{all} umount \"$p\"; done"));
    let left: Vec<Record> = (0..100).map(|_| watched.next()).collect();
    assert!(left.iter().all(|record| record.change == Change::Unmounted));
    assert!(came.iter().chain(&left).is_sorted_by_key(|record| (record.at, record.seq)));
    assert_eq!(mark(&mut namespace, &mut watched, "z-after"), [], "nothing is seen twice");
}

/// The kernel gives the second mount the number of the first one. If both changes are within one reading, about a
/// millisecond, none may be seen; but never one without the other.
#[test]
#[ignore = "requires mounts"]
fn a_path_that_is_mounted_again_is_mounted() {
    let mut namespace = Namespace::new();
    let mut watched = Watched::new(&namespace);
    mark(&mut namespace, &mut watched, "mark");
    let (global, staged) = stage();
    namespace.mount(&global);
    for nth in 0..20 {
        // Also stacked, and both away.
        let first = if nth % 4 == 0 {
            format!("mount -t tmpfs none '{global}'; umount '{global}';")
        } else {
            String::new()
        };
        namespace.run(&format!("{first} umount '{global}'; mount -t tmpfs none '{global}'"));
    }
    namespace.run(&format!("umount '{global}'"));
    let (end, ended) = publish("end");
    let last = |records: &[Record], place: &KubeletPath| {
        records.iter().rev().find(|record| record.place == *place).map(|record| record.change)
    };
    let mut records = Vec::new();
    namespace.mount(&end);
    while last(&records, &ended).is_none() {
        records.push(watched.next());
    }
    // The reading that finds this finds all that was unmounted before.
    namespace.run(&format!("umount '{end}'"));
    while [&ended, &staged].iter().any(|place| last(&records, place) != Some(Change::Unmounted)) {
        records.push(watched.next());
    }
    let of_stage: Vec<Change> =
        records.iter().filter(|record| record.place == staged).map(|record| record.change).collect();
    let alternating = [Change::Mounted, Change::Unmounted].into_iter().cycle();
    assert_eq!(of_stage, alternating.take(of_stage.len()).collect::<Vec<_>>());
}

/// Mounts are seen before unmounts that precede them; in the end all that remains is mounted.
#[test]
#[ignore = "requires mounts"]
fn records_end_with_what_is_mounted() {
    let mut namespace = Namespace::new();
    let mut watched = Watched::new(&namespace);
    mark(&mut namespace, &mut watched, "mark");
    let path = |nth: &str| format!("\"pods/u{nth}/volumes/kubernetes.io~csi/pv 1/mount\"");
    let (this, other) = (path("$i"), path("$((i * 7 % 60))"));
    namespace.run(&format!(
        "for i in $(seq 0 59); do mkdir -p {this}; done; for i in $(seq 0 59) $(seq 0 59); do \
         mount -t tmpfs none {this}; umount {other} 2>/dev/null || true; done"
    ));
    let table = std::fs::read_to_string(namespace.args().mountinfo).unwrap();
    let in_table = |pod: usize| table.contains(&format!("/pods/u{pod}/volumes/"));
    let expected: std::collections::BTreeSet<KubeletPath> =
        (0..60).filter(|pod| in_table(*pod)).map(|pod| publish(&format!("u{pod}")).1).collect();
    let (mark, marked) = publish("z-after");
    namespace.mount(&mark);
    let expected: std::collections::BTreeSet<KubeletPath> =
        expected.into_iter().chain([marked.clone()]).collect();
    let mut mounted = std::collections::BTreeSet::new();
    let mut last = None;
    // Once the mark is seen, only unmounts are missing.
    while !mounted.contains(&marked) || mounted != expected {
        let record = watched.next();
        assert!(last < Some((record.at, record.seq)), "{record:?}");
        last = Some((record.at, record.seq));
        let changed = match record.change {
            Change::Unmounted => mounted.remove(&record.place),
            Change::Found | Change::Mounted => mounted.insert(record.place.clone()),
        };
        assert!(changed, "{record:?}");
    }
}

/// A watch that spins uses up processor time: that of its own thread.
#[test]
#[ignore = "requires mounts"]
fn nothing_happens_while_nothing_happens() {
    let mut namespace = Namespace::new();
    let mut watched = Watched::new(&namespace);
    mark(&mut namespace, &mut watched, "mark");
    let before = watched.processor_time();
    std::thread::sleep(Duration::from_millis(500));
    let used = watched.processor_time() - before;
    assert!(used < Duration::from_millis(100), "{used:?} for nothing in half a second");
    let (target, published) = publish("u1");
    namespace.mount(&target);
    watched.next_is(Change::Mounted, &published);
    watched.end();
}
