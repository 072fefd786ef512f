//! The files as the tests need them.

use std::{fs, path::PathBuf, sync::LazyLock};

use serde_json::Value;

/// The dashboards of `claimcheck monitor`, which a run does not fill.
pub const OF_THE_MONITOR: [&str; 3] =
    ["canary-and-error-budget.json", "cluster-volumes.json", "stuck-and-leaking.json"];
/// The rules about runs.
const OF_RUNS: &str = "claimcheck.rules.yaml";
/// The rules that the monitor is installed with.
const OF_CLUSTERS: [&str; 2] = ["cluster.rules.yaml", "driver-time.rules.yaml"];
/// The rules that `claimcheck slo rules` makes of `slo.yaml`.
const OF_OBJECTIVES: &str = "slo.rules.yaml";
/// Says of a panel that it has nothing to show where nothing went wrong.
const HEALTHY: &str = "Empty on a healthy run.";

pub fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboards"))
}

/// One of Grafana's dashboards.
pub struct Dashboard {
    /// The name of its file.
    pub file: String,
    pub json: Value,
}

/// An expression of a panel.
pub struct Target<'a> {
    pub panel: &'a str,
    pub expr: &'a str,
    /// Asked for the end of the time range only.
    pub instant: bool,
    /// It has an answer only when something went wrong.
    pub empty_when_healthy: bool,
}

/// The list at `key`, which must be there.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

/// The text at `key`, which must be there.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key} in {value}"))
}

impl Dashboard {
    pub fn panels(&self) -> &[Value] {
        list(&self.json, "panels")
    }

    pub fn variables(&self) -> &[Value] {
        list(&self.json["templating"], "list")
    }

    pub fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        self.panels().iter().flat_map(|panel| {
            let empty_when_healthy = text(panel, "description").contains(HEALTHY);
            list(panel, "targets").iter().map(move |target| Target {
                panel: text(panel, "title"),
                expr: text(target, "expr"),
                instant: target["instant"] == true,
                empty_when_healthy,
            })
        })
    }
}

/// All dashboards, by the name of their file.
pub fn dashboards() -> Vec<Dashboard> {
    let entries = fs::read_dir(folder().join("grafana")).expect("dashboards/grafana");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let file = path.file_name().expect("a name").to_string_lossy().into_owned();
            let json = serde_json::from_slice(&fs::read(&path).expect("a file"));
            Dashboard { json: json.unwrap_or_else(|error| panic!("{file}: {error}")), file }
        })
        .collect();
    all.sort_by(|a, b| a.file.cmp(&b.file));
    assert_eq!(all.len(), 8);
    all
}

/// A YAML file below `dashboards/`.
pub fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(folder().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The groups of rules of each object of the operator, by the name of its file, as Prometheus reads them.
pub fn groups() -> [(&'static str, Value); 2] {
    let of_clusters = OF_CLUSTERS.iter().flat_map(|file| groups_of(file)).collect();
    [("prometheusrule.yaml", of_clusters), ("prometheusrule-runs.yaml", groups_of(OF_RUNS).into())]
}

/// All rule files.
fn files() -> impl Iterator<Item = &'static str> {
    [OF_RUNS, OF_OBJECTIVES].into_iter().chain(OF_CLUSTERS)
}

fn groups_of(file: &str) -> Vec<Value> {
    list(&yaml(&format!("prometheus/{file}")), "groups").to_vec()
}

/// Every rule of every group of a file.
fn rules_of(file: &str) -> Vec<Value> {
    groups_of(file).iter().flat_map(|group| list(group, "rules").to_vec()).collect()
}

/// The rules about runs.
pub fn rules_of_runs() -> Vec<Value> {
    rules_of(OF_RUNS)
}

/// Every rule of every file.
pub fn rules() -> &'static [Value] {
    // Looked up for each name in each expression.
    static RULES: LazyLock<Vec<Value>> = LazyLock::new(|| files().flat_map(rules_of).collect());
    &RULES
}

/// The paths of all rule files.
pub fn rule_files() -> Vec<String> {
    files().map(|file| folder().join("prometheus").join(file).display().to_string()).collect()
}

/// What a variable asks for: the series, and which label's values.
pub fn label_values(variable: &Value) -> Option<(&str, &str)> {
    let query = variable["query"]["query"].as_str()?;
    let inner = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (series, label) = inner.rsplit_once(", ")?;
    Some((series, label))
}
