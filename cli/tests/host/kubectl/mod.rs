//! Scripts of kubectl commands, of which the answers are those of a stock API server.
//!
//! The commands of `api/` run on the embedded API server, and on kube-apiserver with etcd if `KUBEBUILDER_ASSETS` names
//! a folder with them; standard output, standard error and exit code must be equal, except for what depends on the run
//! (`normalise.rs`) and commands with a reason (`script.rs`). The stock answers are recorded in `recorded/`, for machines
//! without a stock API server: all those to one version of kubectl, and of other versions those that differ from them.
//! `CLAIMCHECK_WRITE_KUBECTL=1` records them again.
//! `CLAIMCHECK_KUBECTL_SCRIPT` selects scripts by a part of their names.
//!
//! The commands require that `CLAIMCHECK_KUBECTL` is the path of kubectl, or that the folder `KUBEBUILDER_ASSETS` has it.
//!
//! The commands of `node/` run on an embedded cluster, those of `stock/` on one with a stock kube-controller-manager and
//! kube-scheduler; the expected answers are in the scripts.

mod compare;
mod diff;
mod normalise;
mod script;
mod side;
mod stock;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    thread,
};

use claimcheck_apiserver as apiserver;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use self::{
    compare::{differences, different, permitted, recorded},
    script::{Answer, Script, render},
    side::{Kubectl, Side},
    stock::Stock,
};
use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left};

/// The version of kubectl of which all answers are recorded. Record it first, then others.
const BASE: &str = "v1.36";
/// Records the stock answers.
const WRITE: &str = "CLAIMCHECK_WRITE_KUBECTL";
/// The scripts with kinds that would appear in what concurrent commands discover.
const ALONE: [&str; 2] = ["90-custom", "92-definitions"];
/// A part of the names of the scripts to run.
const ONLY: &str = "CLAIMCHECK_KUBECTL_SCRIPT";

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/kubectl")
}

/// The selected scripts of a folder.
fn scripts(folder: &str) -> Vec<Script> {
    let only = env::var(ONLY).unwrap_or_default();
    let mut scripts = script::read(&here().join(folder));
    scripts.retain(|script| script.name.contains(&only));
    scripts
}

/// The answers of a script in a file, for a reader of the report. Returns its path.
fn transcript(script: &Script, of: &str, answers: &[Answer]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(format!("{}.{of}.txt", script.name));
    let about = format!("The answers of {of}.");
    fs::write(&file, render(script, answers, &about, |_| true)).expect("a file");
    file
}

/// Fails with all reports at once.
fn conclude(reports: &[String], legend: &str) {
    let (count, text) = (reports.len(), reports.join("\n\n"));
    assert!(reports.is_empty(), "{count} commands differ ({legend}):\n\n{text}\n\n{count} commands differ");
}

#[test]
#[ignore = "requires kubectl-scripts"]
fn commands_are_answered_as_by_a_stock_api_server() {
    let kubectl = Kubectl::find();
    let _alone = alone();
    let recordings = here().join("recorded");
    let (assets, is_writing) = (stock::find(), env::var_os(WRITE).is_some());
    if let Err(missing) = &assets {
        assert!(!is_writing, "{WRITE} requires a stock API server, which answers the commands: {missing}");
        let is_recorded = recordings.join(&kubectl.minor).is_dir();
        assert!(is_recorded, "{missing}, and there is no recording for kubectl {}", kubectl.version);
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(apiserver::start(apiserver::Config::default()));
    let server = server.expect("the API server starts");
    let built_in = Side::new(&kubectl, &folder.path().join("built-in"), &server.kubeconfig());
    let stock = assets.ok().map(|assets| Stock::start(&kubectl, &assets, &folder.path().join("stock")));
    let mut reports = Vec::new();
    let (alone, concurrent): (Vec<Script>, Vec<Script>) =
        scripts("api").into_iter().partition(|script| ALONE.contains(&script.name.as_str()));
    let alone = alone.into_iter().map(|script| vec![script]);
    for scripts in std::iter::once(concurrent).chain(alone) {
        let (actual, expected) = thread::scope(|scope| {
            let actual = scope.spawn(|| built_in.play(&scripts));
            let expected = stock.as_ref().map(|stock| stock.side.play(&scripts));
            (actual.join().expect("the commands of the embedded API server run"), expected)
        });
        for (number, (script, actual)) in scripts.iter().zip(&actual).enumerate() {
            let log = transcript(script, "built-in", actual);
            let expected = expected.as_ref().map(|expected| expected[number].as_slice());
            if let Some(expected) = expected {
                let stock_log = transcript(script, "stock", expected);
                println!("{}: {} and {}", script.name, log.display(), stock_log.display());
                if is_writing {
                    record(script, &recordings, &kubectl, expected);
                }
                reports.extend(differences(script, expected, actual));
            }
            reports.extend(compare_recording(script, &recordings, &kubectl.minor, expected, actual));
        }
    }
    drop(stock);
    runtime.block_on(server.shutdown());
    conclude(&reports, "- stock API server, + embedded API server");
}

/// Writes the answers of a stock API server to a script: those to another version than [`BASE`] only where they differ.
fn record(script: &Script, recordings: &Path, kubectl: &Kubectl, answers: &[Answer]) {
    let file = |minor: &str| recordings.join(minor).join(format!("{}.txt", script.name));
    fs::create_dir_all(recordings.join(&kubectl.minor)).expect("a folder");
    let about = format!("The answers of a stock API server to kubectl {}.", kubectl.version);
    if kubectl.minor == BASE {
        fs::write(file(BASE), render(script, answers, &about, |_| true)).expect("a recording");
        return;
    }
    let base = read_recording(script, &file(BASE));
    let different = different(script, &base, answers);
    let about = format!("{about} Others are those of ../{BASE}.");
    let recording = render(script, answers, &about, |key| different.contains(&key));
    match different.is_empty() {
        true => drop(fs::remove_file(file(&kubectl.minor))),
        false => fs::write(file(&kubectl.minor), recording).expect("a recording"),
    }
}

/// The recorded answers to the commands of a script; none to those that the file does not have.
fn read_recording(script: &Script, file: &Path) -> Vec<Option<Answer>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    recorded(script, &script::parse(&script.name, &text))
}

/// Compares with the recording: the embedded API server, or a stock one, which shows that the recording is outdated, or
/// that something depends on the run.
fn compare_recording(
    script: &Script,
    recordings: &Path,
    minor: &str,
    stock: Option<&[Answer]>,
    built_in: &[Answer],
) -> Vec<String> {
    let read =
        |minor: &str| read_recording(script, &recordings.join(minor).join(format!("{}.txt", script.name)));
    let answers = read(minor).into_iter().zip(read(BASE)).map(|(answer, base)| answer.or(base));
    let mut reports = Vec::new();
    let mut known = Vec::new();
    for (((scenario, step), answer), place) in script.steps().zip(answers).zip(0_usize..) {
        let title = format!("{} [{scenario}] $ {}", step.place, step.command);
        let current: Option<&Answer> = stock.and_then(|stock| stock.get(place));
        match (&answer, current) {
            (None, _) => reports.push(format!("{title}\n  is not recorded: run this test with {WRITE}=1")),
            (Some(answer), Some(current)) if answer != current => reports.push(format!(
                "{title}\n  - recorded, + stock API server: run this test with {WRITE}=1, or see normalise.rs\n{}",
                diff::unified(answer, current)
            )),
            (Some(_), _) => {}
        }
        // One that is not recorded is reported above; it has no difference here.
        known.push(answer.unwrap_or_else(|| built_in[place].clone()));
    }
    if stock.is_none() {
        reports.extend(differences(script, &known, built_in));
    }
    reports
}

/// Ends the process group of a cluster if the test fails before it does that itself.
struct StopOnPanic(i32);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = kill(Pid::from_raw(-self.0), Signal::SIGINT);
        }
    }
}

#[test]
#[ignore = "requires kubectl-scripts"]
fn commands_on_a_node_are_answered_as_the_scripts_expect() {
    on_cluster("node", &[]);
}

#[test]
#[ignore = "requires root, stock, kubectl-scripts"]
fn workloads_run_with_stock_controllers() {
    claimcheck_needs::require("root, stock");
    on_cluster("stock", &["--controllers", "stock"]);
}

/// Runs the scripts of a folder on a cluster with these arguments.
fn on_cluster(folder_of_scripts: &str, args: &[&str]) {
    let kubectl = Kubectl::find();
    let _alone = alone();
    let tag = format!("kubectl-{folder_of_scripts}");
    let args = [&["cluster", "up", "--nodes", "1"], args].concat();
    let mut run = Run::start(&tag, &mut claimcheck(), &args);
    let stop = StopOnPanic(run.pid());
    let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
    let export = lines.find_map(|line| Some(line.ok()?.strip_prefix("export KUBECONFIG=")?.to_owned()));
    let kubeconfig = fs::read_to_string(export.expect("the kubeconfig is printed")).expect("a kubeconfig");
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let side = Side::new(&kubectl, &folder.path().join(folder_of_scripts), &kubeconfig);
    let mut reports = Vec::new();
    let scripts = scripts(folder_of_scripts);
    for (script, answers) in scripts.iter().zip(side.play(&scripts)) {
        println!("{}: {}", script.name, transcript(script, folder_of_scripts, &answers).display());
        let expected: Vec<Answer> = script.steps().map(|(_, step)| step.answer.clone()).collect();
        let actual: Vec<Answer> =
            expected.iter().zip(&answers).map(|(expected, actual)| permitted(expected, actual)).collect();
        reports.extend(differences(script, &expected, &actual));
    }
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    let code = run.child.wait().expect("it was started here").code();
    drop(stop);
    conclude(&reports, "- the script, + kubectl");
    assert_eq!(code, Some(0));
    nothing_left(&run.tag);
}

/// A namespace is that of one scenario, since it is deleted at its end.
#[test]
fn scripts_have_at_least_120_commands_and_scenarios_have_different_names() {
    let read = |folder: &str| script::read(&here().join(folder));
    let mut names = Vec::new();
    let mut commands = 0;
    for script in read("api").iter().chain(&read("node")).chain(&read("stock")) {
        names.extend(script.scenarios.iter().map(|scenario| scenario.name.clone()));
        commands += script.steps().count();
        let has_answers = script.steps().any(|(_, step)| !step.answer.is_empty());
        assert_eq!(
            has_answers,
            script.name.starts_with("node"),
            "{}: only node scripts have answers",
            script.name
        );
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two scenarios have the same name: {names:?}");
    assert!(commands >= 120, "{commands} commands");
}
