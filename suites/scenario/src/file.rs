//! The form of scenarios, and reading them.
//!
//! Every file in `scenarios/` is a list of scenarios. A scenario has a namespace of its name; `$s` in any text stands
//! for that name, `$uid(claim data)` for an object's uid, `$volume(data)` for the name of the volume that was
//! provisioned for a claim, `$content(snap)` for the content that was created for a snapshot, `$group-content(all)` for
//! that of a group, `$member(data of all)` for the snapshot of a claim in a group. `data#1` is the first object of the
//! name `data`, if it was created again. The capacity of a class and segment is `capacity c in <value of a label>`. The
//! object `claim other/data` is in a second namespace, `$s-other`.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::Value;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name and namespace.
    pub name: String,
    /// Objects without peculiarities that exist from the start, e.g. `class c`, `node a` (with its CSINode).
    #[serde(default)]
    pub given: Vec<String>,
    /// The script of the driver from the start.
    #[serde(default)]
    pub driver: Script,
    /// It changes what concerns all namespaces, such as the default class.
    #[serde(default)]
    pub alone: bool,
    /// It takes minutes, and runs with `--include-ignored` or `--ignored` only.
    #[serde(default)]
    pub slow: bool,
    /// It is about the condition `Unused` of claims, and runs with its feature gate, on other sides than the rest:
    /// upstream's binder loses a write to that condition, and waits for its resync, whenever a claim is created.
    #[serde(default)]
    pub unused: bool,
    /// How long nothing may have happened before it ends, in milliseconds.
    #[serde(default = "quiet")]
    pub quiet: u64,
    /// What happens.
    pub steps: Vec<Step>,
}

fn quiet() -> u64 {
    3000
}

/// The answers to the next calls of each method; then calls succeed.
pub type Script = BTreeMap<String, Vec<Answer>>;

/// How the driver answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Code and message of the error, e.g. `INTERNAL no slot`.
    pub fail: Option<String>,
    /// It does not answer: the caller's deadline passes.
    #[serde(default)]
    pub hang: bool,
    /// It answers after so many milliseconds.
    pub late: Option<u64>,
    /// Fields of the response.
    #[serde(default)]
    pub with: Value,
    /// For how many calls; 0 for all.
    #[serde(default = "once")]
    pub times: usize,
}

fn once() -> usize {
    1
}

/// A step: exactly one of `create`, `patch`, `delete`, `until`, `driver` and `settle`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Creates this object: kind and name.
    pub create: Option<String>,
    /// Patches this object.
    pub patch: Option<String>,
    /// Deletes this object.
    pub delete: Option<String>,
    /// Waits: for an object, `event <object>`, or `call <method>`.
    pub until: Option<String>,
    /// Replaces the driver's script for these methods.
    pub driver: Option<Script>,
    /// Waits until nothing has happened for so many milliseconds.
    pub settle: Option<u64>,
    /// Of `create` and `patch`: the changes.
    #[serde(default)]
    pub with: Value,
    /// Of `patch`: the status.
    #[serde(default)]
    pub status: bool,
    /// Of `delete`: the grace period of a pod.
    #[serde(default)]
    pub grace: u32,
    /// Of `until`: what the object has; null for a field that it lacks.
    pub has: Option<Value>,
    /// Of `until`: it does not exist.
    #[serde(default)]
    pub gone: bool,
    /// Of `until event`: the reason.
    pub reason: Option<String>,
    /// Of `until call`: how many.
    pub count: Option<usize>,
    /// Of `until`: the deadline in seconds.
    pub within: Option<u64>,
    /// Afterwards waits until nothing has happened for so many milliseconds, whatever came of the step.
    pub rest: Option<u64>,
    /// The API server rejects it.
    #[serde(default)]
    pub rejected: bool,
}

impl Step {
    /// The same patch, of the status.
    pub fn status(self) -> Self {
        Self { status: true, ..self }
    }

    /// Whether it creates an object of which kind and name begin with this.
    pub fn creates(&self, object: &str) -> bool {
        self.create.as_ref().is_some_and(|created| created.starts_with(object))
    }

    /// What it does, for reports.
    pub fn title(&self) -> String {
        let object = |verb: &str, name: &Option<String>| name.as_ref().map(|name| format!("{verb} {name}"));
        let until = || {
            let what = self.until.as_ref()?;
            let gone = if self.gone { " gone".to_owned() } else { String::new() };
            let has = self.has.as_ref().map(|has| format!(" {has}")).unwrap_or_default();
            let reason = self.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
            let count = self.count.map(|count| format!(" {count}")).unwrap_or_default();
            Some(format!("until {what}{gone}{has}{reason}{count}"))
        };
        object("create", &self.create)
            .or_else(|| object("patch", &self.patch))
            .or_else(|| object("delete", &self.delete))
            .or_else(until)
            .unwrap_or_else(|| if self.driver.is_some() { "driver".into() } else { "settle".into() })
    }
}

/// Reads all scenarios, in the order of files and lines.
pub fn read(folder: &Path) -> Vec<Scenario> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let of_file = |file: &std::path::PathBuf| -> Vec<Scenario> {
        let text = std::fs::read_to_string(file).unwrap();
        // Steps that scenarios share are aliases, which are no attack here.
        let options = serde_saphyr::options! { budget: None };
        serde_saphyr::from_str_with_options(&text, options)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let all: Vec<Scenario> = files.iter().flat_map(of_file).collect();
    let mut names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(twice.is_none(), "two scenarios have the same name: {twice:?}");
    all
}
