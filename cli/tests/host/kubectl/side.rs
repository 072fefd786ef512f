//! A cluster on which scripts are run, and the kubectl that runs them.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    normalise::normal,
    script::{Answer, Scenario, Script, answer},
};

/// The deadline of a command, in seconds; its exit code is then 124.
const DEADLINE: &str = "90";
/// Scenarios that run at the same time on a side. Most of the time of a command is the start of kubectl.
const CONCURRENT: usize = 4;
/// The program to use.
const PROGRAM: &str = "CLAIMCHECK_KUBECTL";
/// The folder with it and, for a comparison, with a stock API server.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// In the kubeconfig; each scenario has another one.
const NAMESPACE: &str = "    namespace: default\n";

/// A kubectl program.
pub struct Kubectl {
    program: PathBuf,
    /// E.g. `v1.36`.
    pub minor: String,
    /// E.g. `v1.36.2`.
    pub version: String,
}

impl Kubectl {
    /// That of `CLAIMCHECK_KUBECTL`, else of `KUBEBUILDER_ASSETS`. One in `PATH` is not used, since the commands take
    /// minutes: `ci/test` runs them only where one of these variables is set.
    pub fn find() -> Self {
        claimcheck_needs::require("kubectl-scripts");
        let of_assets = || env::var_os(ASSETS).map(|folder| Path::new(&folder).join("kubectl"));
        let program = env::var_os(PROGRAM).map(PathBuf::from).or_else(of_assets).expect("it is required");
        let output = Command::new(&program).args(["version", "--client", "-o", "json"]).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let versions: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let version = versions["clientVersion"]["gitVersion"].as_str().expect("a version").to_owned();
        let minor = version.split('.').take(2).collect::<Vec<_>>().join(".");
        Self { program, minor, version }
    }
}

/// A cluster. Its kubectl has a separate home folder, and so a separate cache of discovery.
pub struct Side {
    folder: PathBuf,
    kubeconfig: String,
}

impl Side {
    /// With the folders of its commands below `folder`.
    pub fn new(kubectl: &Kubectl, folder: &Path, kubeconfig: &str) -> Self {
        assert!(kubeconfig.contains(NAMESPACE), "the kubeconfig has no line {NAMESPACE:?}");
        fs::create_dir_all(folder.join("bin")).expect("a folder");
        let program = fs::canonicalize(&kubectl.program).expect("it exists");
        // A multi-call binary selects the component by the name it is called by.
        symlink(program, folder.join("bin/kubectl")).expect("a link");
        Self { folder: folder.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs a command of a scenario.
    fn run(&self, scenario: &str, command: &str) -> Output {
        let folder = self.folder.join(scenario);
        let path = env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=5", DEADLINE, "sh", "-c", command]);
        shell.env_clear().env("PATH", format!("{}:{path}", self.folder.join("bin").display()));
        shell.env("HOME", &self.folder).env("TMPDIR", &folder).env("KUBECONFIG", folder.join("kubeconfig"));
        shell.env("LC_ALL", "C").env("TZ", "UTC").current_dir(&folder).stdin(Stdio::null());
        shell.output().expect("timeout, of coreutils, runs")
    }

    /// Runs a command that prepares the cluster, outside of a scenario.
    pub fn accept(&self, scenario: &str, command: &str) {
        self.prepare(scenario, "default");
        self.require(scenario, command);
    }

    /// Whether such a command succeeds.
    pub fn succeeds(&self, scenario: &str, command: &str) -> bool {
        self.prepare(scenario, "default");
        self.run(scenario, command).status.success()
    }

    fn require(&self, scenario: &str, command: &str) {
        let output = self.run(scenario, command);
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "[{scenario}] {command}: {printed}{errors}");
    }

    /// The folder of a scenario, with a kubeconfig that selects a namespace.
    fn prepare(&self, scenario: &str, namespace: &str) {
        let folder = self.folder.join(scenario);
        fs::create_dir_all(&folder).expect("a folder");
        let kubeconfig = self.kubeconfig.replace(NAMESPACE, &format!("    namespace: {namespace}\n"));
        fs::write(folder.join("kubeconfig"), kubeconfig).expect("a file");
    }

    /// Runs the scenarios of scripts, several at the same time. The answers of each script are in the order of
    /// [`Script::steps`], without what depends on the run.
    pub fn play(&self, scripts: &[Script]) -> Vec<Vec<Answer>> {
        let of_script = |(number, script): (usize, &Script)| vec![number; script.scenarios.len()];
        let owners: Vec<usize> = scripts.iter().enumerate().flat_map(of_script).collect();
        let scenarios: Vec<&Scenario> = scripts.iter().flat_map(|script| &script.scenarios).collect();
        // The longest first, so that none of them is left alone at the end.
        let mut order: Vec<usize> = (0..scenarios.len()).collect();
        order.sort_by_key(|at| Reverse(scenarios[*at].steps.len()));
        let (next, played) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let work = || {
            while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answers = self.play_scenario(scenarios[*at]);
                played.lock().expect("no scenario panics with it").insert(*at, answers);
            }
        };
        thread::scope(|scope| {
            for _ in 0..CONCURRENT {
                scope.spawn(work);
            }
        });
        let mut answers = vec![Vec::new(); scripts.len()];
        for (at, of_scenario) in played.into_inner().expect("no scenario panics with it") {
            answers[owners[at]].extend(of_scenario);
        }
        answers
    }

    fn play_scenario(&self, scenario: &Scenario) -> Vec<Answer> {
        let name = scenario.name.as_str();
        self.prepare(name, name);
        self.require(name, &format!("kubectl create namespace {name}"));
        // Controllers create both, and pods are refused before. Old versions have no `wait --for=create`.
        let objects = "serviceaccount/default configmap/kube-root-ca.crt";
        self.require(name, &format!("until kubectl get {objects} >/dev/null 2>&1; do sleep 0.1; done"));
        let home = self.folder.display().to_string();
        let folder = self.folder.join(name).display().to_string();
        let folders = [(folder.as_str(), "<folder>"), (home.as_str(), "<home>")];
        let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes), &folders);
        let mut answers = Vec::new();
        for step in &scenario.steps {
            let output = self.run(name, &step.command);
            // Of a program that is killed by a signal, as of a shell.
            let code = output.status.code().unwrap_or(128);
            answers.push(answer(&text(&output.stdout), &text(&output.stderr), code));
        }
        self.require(name, &format!("kubectl delete namespace {name} --wait=false"));
        answers
    }
}
