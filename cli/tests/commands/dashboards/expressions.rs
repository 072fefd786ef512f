//! A Prometheus that scrapes a run as `prometheus.yaml` says, and every expression put to it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use super::{
    files::{Dashboard, OF_THE_MONITOR, dashboards, folder, label_values, rules_of_runs, text},
    lint::Exposed,
};
use crate::http::free_address;

/// What the scrape configuration takes a run to listen on.
const USUAL: &str = "127.0.0.1:9464";
/// Cases that have a volume grow, on its controller and on its node, and one that gives a volume to a group: operations
/// that are in no others; and one with a class of its own.
const OTHER_OPERATIONS: [&str; 3] = [
    "binding::a PVC binds to a PV that supports its access modes",
    "volume_expand::a volume is expanded while a pod uses it",
    "fs_group::a volume and its new files get the fsGroup of the pod",
];
/// The time range of the dashboards, in seconds.
const RANGE: u64 = 900;
/// How often the cases are run at the most: how much a Prometheus sees of a short run is a matter of chance on a busy
/// machine, and what it has seen of earlier ones counts.
const RUNS: usize = 5;

pub fn promtool(args: &[&str]) -> Output {
    Command::new("promtool").args(args).output().expect("promtool runs")
}

/// A process that ends with the test.
struct Prometheus {
    child: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts it with our configuration, for a run at `address`.
    fn start(folder: &Path, address: &str) -> Self {
        for file in [
            "prometheus.yaml",
            "claimcheck.rules.yaml",
            "cluster.rules.yaml",
            "driver-time.rules.yaml",
            "slo.rules.yaml",
        ] {
            let text = fs::read_to_string(self::folder().join("prometheus").join(file)).expect("a file");
            // A run of tests is short.
            let text = text.replace(USUAL, address).replace("refresh_interval: 5s", "refresh_interval: 1s");
            fs::write(folder.join(file), text).expect("a file");
        }
        let config = folder.join("prometheus.yaml");
        assert_eq!(fs::read_to_string(&config).expect("a file").matches(address).count(), 3);
        let own = free_address().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={own}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).expect("a file"))
            .spawn()
            .expect("prometheus starts");
        let this = Self { child, url: format!("http://{own}") };
        assert!(
            comes(Duration::from_secs(60), || this.try_instant("vector(1)").is_ok()),
            "prometheus is not up"
        );
        this
    }

    fn answer(output: &Output) -> Result<Vec<Value>, String> {
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn try_instant(&self, expr: &str) -> Result<Vec<Value>, String> {
        Self::answer(&promtool(&["query", "-o", "json", "instant", &self.url, expr]))
    }

    fn instant(&self, expr: &str) -> Vec<Value> {
        self.try_instant(expr).unwrap_or_else(|error| panic!("{expr}: {error}"))
    }

    /// Asks for the last minutes, second by second.
    fn range(&self, expr: &str) -> Vec<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let (start, end) = (format!("--start={}", now - RANGE), format!("--end={now}"));
        let args = ["query", "-o", "json", "range", &start, &end, "--step=1s", &self.url, expr];
        Self::answer(&promtool(&args)).unwrap_or_else(|error| panic!("{expr}: {error}"))
    }

    /// The values of a label of the series that match.
    fn values(&self, series: &str, label: &str) -> Vec<String> {
        let expr = format!("count by ({label}) (last_over_time({series}[{RANGE}s]))");
        let of = |row: &Value| row["metric"][label].as_str().map(str::to_owned);
        self.instant(&expr).iter().filter_map(of).filter(|value| !value.is_empty()).collect()
    }
}

/// Whether it has come before the time is up.
fn comes(within: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > within {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

/// Whether an answer has at least one number.
fn has_data(rows: &[Value]) -> bool {
    let number = |pair: &Value| pair[1].as_str().is_some_and(|value| value != "NaN");
    rows.iter().any(|row| {
        number(&row["value"]) || row["values"].as_array().is_some_and(|pairs| pairs.iter().any(number))
    })
}

/// Variables with their values, the longest names first, since one may begin another.
struct Filled(BTreeMap<std::cmp::Reverse<String>, String>);

impl Filled {
    fn fill(&self, expr: &str) -> String {
        self.0
            .iter()
            .fold(expr.to_owned(), |expr, (name, value)| expr.replace(&format!("${}", name.0), value))
    }

    /// As Grafana fills them when a user opens the dashboard; or what has no values.
    fn of(dashboard: &Dashboard, prometheus: &Prometheus) -> Result<Self, String> {
        let mut filled = Self(BTreeMap::new());
        let set = |filled: &mut Self, name: &str, value: String| {
            filled.0.insert(std::cmp::Reverse(name.to_owned()), value);
        };
        set(&mut filled, "__rate_interval", "4s".into());
        set(&mut filled, "__range", format!("{RANGE}s"));
        for variable in dashboard.variables() {
            let Some((series, label)) = label_values(variable) else { continue };
            let values = prometheus.values(&filled.fill(series), label);
            if values.is_empty() {
                return Err(format!("{}: ${} has no values", dashboard.file, text(variable, "name")));
            }
            let all = format!("({})", values.join("|"));
            let value = variable["allValue"].as_str().map_or(all, str::to_owned);
            set(&mut filled, text(variable, "name"), value);
        }
        Ok(filled)
    }
}

#[test]
#[ignore = "requires prometheus"]
fn prometheus_accepts_configuration_and_rules_and_they_decide_as_they_should() {
    claimcheck_needs::require("prometheus");
    let path = |file: &str| folder().join("prometheus").join(file).display().to_string();
    let table = [
        ("check", "config", "prometheus.yaml"),
        ("check", "rules", "claimcheck.rules.yaml"),
        ("check", "rules", "cluster.rules.yaml"),
        ("check", "rules", "driver-time.rules.yaml"),
        ("check", "rules", "slo.rules.yaml"),
        ("test", "rules", "claimcheck_test.yaml"),
        ("test", "rules", "cluster_test.yaml"),
        ("test", "rules", "driver-time_test.yaml"),
        ("test", "rules", "slo_test.yaml"),
    ];
    for (command, kind, file) in table {
        let output = promtool(&[command, kind, &path(file)]);
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {kind} {file}: {printed}");
    }
}

#[test]
#[ignore = "requires prometheus"]
fn every_expression_has_an_answer_after_a_run() {
    claimcheck_needs::require("prometheus");
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_address().to_string();
    let prometheus = Prometheus::start(folder.path(), &address);
    let (mut exposed, mut wrong) = (Exposed::default(), Vec::new());
    for nth in 0..RUNS {
        let out = folder.path().join(format!("run-{nth}"));
        run(&out, &address, &mut exposed);
        let written = fs::read_to_string(out.join("metrics.prom")).expect("metrics.prom");
        assert!(!written.contains("=\"cc-"), "a name of a run is the value of a label:\n{written}");
        exposed.texts.insert("metrics.prom".to_owned(), written);
        wrong = unanswered(&prometheus);
        if wrong.is_empty() {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Controllers, and node agent and driver of two nodes, beside the run itself and its file.
    assert_eq!(exposed.texts.len(), 7, "{:?}", exposed.texts.keys());
    assert_eq!(exposed.missing(), [""; 0]);
    assert_eq!(exposed.missing_operations(), [""; 0]);
    assert_eq!(exposed.problems(), [""; 0]);
}

/// Runs some cases, and looks at what is exposed meanwhile.
fn run(out: &Path, address: &str, exposed: &mut Exposed) {
    // Long enough to be scraped several times, also by a machine that has nothing else to do.
    let printed = out.with_extension("said");
    let mut run = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["run", "volumes::", "provisioning::", "--repeat", "4"])
        .args(OTHER_OPERATIONS)
        .args(["--metrics-addr", address, "--out"])
        .arg(out)
        .stdout(fs::File::create(&printed).expect("a file"))
        .spawn()
        .expect("the binary runs");
    let ended = loop {
        exposed.look(address);
        match run.try_wait().expect("the binary runs") {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    assert!(ended.success(), "{}", fs::read_to_string(&printed).unwrap_or_default());
}

/// Expressions that have no answer, and alerts that are due.
fn unanswered(prometheus: &Prometheus) -> Vec<String> {
    let rules_are_evaluated = || has_data(&prometheus.instant("claimcheck:phase_apdex:ratio5m"));
    if !comes(Duration::from_secs(20), rules_are_evaluated) {
        return vec!["no rule has been evaluated".to_owned()];
    }
    let mut wrong = Vec::new();
    let of_runs = |dashboard: &Dashboard| !OF_THE_MONITOR.contains(&dashboard.file.as_str());
    for dashboard in dashboards().into_iter().filter(of_runs) {
        let filled = match Filled::of(&dashboard, prometheus) {
            Ok(filled) => filled,
            Err(empty) => {
                wrong.push(empty);
                continue;
            }
        };
        for target in dashboard.targets() {
            let expr = filled.fill(target.expr);
            assert!(!expr.contains('$'), "{expr}");
            let rows = if target.instant { prometheus.instant(&expr) } else { prometheus.range(&expr) };
            if !has_data(&rows) && !target.empty_when_healthy {
                wrong.push(format!("{}: {} shows nothing: {expr}", dashboard.file, target.panel));
            }
        }
    }
    for rule in rules_of_runs() {
        let rows = prometheus.instant(text(&rule, "expr"));
        // Cases that provoke failures have calls retried, but never so that an alert is due.
        if has_data(&rows) != rule["record"].is_string() {
            wrong.push(format!("{rule} gave {rows:?}"));
        }
    }
    wrong
}
