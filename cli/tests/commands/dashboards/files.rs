//! The files as the tests need them.

use std::{fs, path::PathBuf};

use serde_json::Value;

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
    assert_eq!(all.len(), 5);
    all
}

/// A YAML file below `dashboards/`.
pub fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(folder().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The groups of rules, as Prometheus reads them.
pub fn groups() -> Value {
    yaml("prometheus/claimcheck.rules.yaml")["groups"].take()
}

/// Every rule of every group.
pub fn rules() -> Vec<Value> {
    let groups = groups();
    let groups = groups.as_array().expect("groups").iter();
    groups.flat_map(|group| list(group, "rules").to_vec()).collect()
}

/// What a variable asks for: the series, and which label's values.
pub fn label_values(variable: &Value) -> Option<(&str, &str)> {
    let query = variable["query"]["query"].as_str()?;
    let inner = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    let (series, label) = inner.rsplit_once(", ")?;
    Some((series, label))
}
