//! Reading scenario files: strictly, with the line of each error and a suggestion.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::Value;
use serde_saphyr::{Error as Yaml, Spanned};

use crate::{
    check::{self, Slip},
    file::{API_VERSION, Given, KIND, Object, Scenario, Step, World},
    unknown,
};

/// Why a scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file, or one that it names, cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not a scenario.
    #[error("{}", listed(.path, .slips))]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        slips: Vec<Slip>,
    },
    /// Several files cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ScenarioError>),
    /// A folder without scenarios.
    #[error("{}: there is no scenario: a file ends with .yaml or .yml", .0.display())]
    Empty(PathBuf),
    /// Two scenarios have one name.
    #[error("{}:{line}: a scenario {name} is also in {}: names are unique", .path.display(), .other.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The name.
        name: String,
        /// The other file.
        other: PathBuf,
    },
}

impl ScenarioError {
    /// Something wrong at a line of a file.
    pub fn form(path: &Path, line: u64, what: impl Into<String>) -> Self {
        Self::Form { path: path.to_owned(), slips: vec![Slip { line, what: what.into() }] }
    }
}

fn listed(path: &Path, slips: &[Slip]) -> String {
    let lines = slips.iter().map(|slip| format!("{}:{}: {}", path.display(), slip.line, slip.what));
    lines.collect::<Vec<_>>().join("\n")
}

/// A scenario with its place.
#[derive(Clone, Debug)]
pub struct Read {
    /// The scenario.
    pub scenario: Scenario,
    /// Its file.
    pub path: PathBuf,
    /// The line at which it begins.
    pub line: u64,
}

/// The lines of a document.
#[derive(Deserialize)]
struct Lines {
    #[serde(default)]
    kind: Option<Spanned<String>>,
    #[serde(default)]
    name: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    given: Vec<Spanned<IgnoredAny>>,
    #[serde(default)]
    steps: Vec<Spanned<IgnoredAny>>,
    #[serde(default)]
    expect: Option<Spanned<IgnoredAny>>,
}

/// Reads the scenarios of files, and of all files in folders.
///
/// # Errors
/// A file cannot be read, or is not a scenario.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Read>, ScenarioError> {
    let mut all: Vec<Read> = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        let is_folder = path.is_dir();
        let mut found = !is_folder;
        for file in files(path)? {
            let text = fs::read_to_string(&file)
                .map_err(|source| ScenarioError::Read { path: file.clone(), source })?;
            // The folder may have manifests that scenarios name.
            if is_folder && !text.contains(GROUP) && !is_list(&text) {
                continue;
            }
            found = true;
            let found = parse(&file, &text).unwrap_or_else(|error| {
                errors.push(error);
                Vec::new()
            });
            for read in found {
                match all.iter().find(|other| other.scenario.name == read.scenario.name) {
                    Some(other) => errors.push(ScenarioError::Twice {
                        path: read.path,
                        line: read.line,
                        name: read.scenario.name,
                        other: other.path.clone(),
                    }),
                    None => all.push(read),
                }
            }
        }
        if !found {
            return Err(ScenarioError::Empty(path.clone()));
        }
    }
    match errors.len() {
        0 => Ok(all),
        1 => Err(errors.remove(0)),
        _ => Err(ScenarioError::Several(errors)),
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ScenarioError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |source| ScenarioError::Read { path: path.to_owned(), source };
    let entries =
        fs::read_dir(path).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let is_yaml = |file: &PathBuf| file.extension().is_some_and(|of| of == "yaml" || of == "yml");
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_yaml).collect();
    files.sort();
    match files.is_empty() {
        true => Err(ScenarioError::Empty(path.to_owned())),
        false => Ok(files),
    }
}

/// The scenarios of a text; files that it names are relative to `path`.
///
/// # Errors
/// It is not a scenario file.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Read>, ScenarioError> {
    let error = match parse_whole(path, text) {
        Err(ScenarioError::Form { slips, path }) => ScenarioError::Form { slips, path },
        other => return other,
    };
    // A document that cannot be read hides what is wrong in the others.
    let parts = if is_list(text) { Vec::new() } else { parts(text) };
    let wrong = parts.iter().filter_map(|part| match parse_whole(path, part) {
        Err(ScenarioError::Form { slips, .. }) => Some(slips),
        _ => None,
    });
    let slips: Vec<Slip> = wrong.flatten().collect();
    if slips.is_empty() { Err(error) } else { Err(ScenarioError::Form { path: path.to_owned(), slips }) }
}

/// The documents of a text, each with empty lines in place of those before it.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let is_content = |part: &str| {
        let mut lines = part.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with('#'))
    };
    for (number, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            parts.push(std::mem::replace(&mut part, "\n".repeat(number + 1)));
        } else {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts.push(part);
    parts.retain(|part| is_content(part));
    parts
}

fn parse_whole(path: &Path, text: &str) -> Result<Vec<Read>, ScenarioError> {
    let form = |line, what: String| ScenarioError::form(path, line, what);
    let lines: Vec<Lines> = documents(path, text)?;
    if let Some(kind) = lines.iter().filter_map(|of| of.kind.as_ref()).find(|kind| kind.value != KIND) {
        let what = "is no scenario: create it in one, or name its file there: `create: { file: .. }`";
        return Err(form(kind.referenced.line(), format!("a {} {what}", kind.value)));
    }
    let documents: Vec<Scenario> = documents(path, text)?;
    if documents.is_empty() {
        return Err(form(1, "the file has no scenario".to_owned()));
    }
    let is_list = is_list(text);
    let in_document = |slip: Slip, line| Slip { line: slip.line.max(line), ..slip };
    let (mut all, mut slips) = (Vec::new(), Vec::new());
    for (mut scenario, lines) in documents.into_iter().zip(lines) {
        let line_of = |of: &Spanned<IgnoredAny>| of.referenced.line();
        let line = lines.name.as_ref().map_or(1, line_of);
        if is_list {
            scenario.world = World::Controllers;
        } else if scenario.api_version != API_VERSION || scenario.kind != KIND {
            let what = format!("a scenario begins with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
            return Err(form(line, what));
        }
        for (step, of) in scenario.steps.iter_mut().zip(&lines.steps) {
            step.line = line_of(of);
        }
        scenario.expect_line = lines.expect.as_ref().map_or(0, line_of);
        let given = scenario.given.iter().zip(lines.given.iter().map(line_of));
        let given =
            given.filter_map(|(object, line)| Some(Slip { line, what: check::object(object).err()? }));
        slips.extend(given.chain(check::scenario(&scenario).into_iter().map(|slip| in_document(slip, line))));
        if !slips.is_empty() {
            continue;
        }
        expand(path, line, &mut scenario)?;
        if scenario.world == World::Cluster {
            slips.extend(unknown::names(&scenario).into_iter().map(|slip| in_document(slip, line)));
        }
        all.push(Read { scenario, path: path.to_owned(), line });
    }
    match slips.is_empty() {
        true => Ok(all),
        false => Err(ScenarioError::Form { path: path.to_owned(), slips }),
    }
}

/// Whether the file is one list, of scenarios of `world: controllers` without a header, which share steps.
fn is_list(text: &str) -> bool {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with('#') && *line != "---";
    text.lines().find(is_content).is_some_and(|line| line.starts_with("- "))
}

/// The documents of a file, or the items of its list.
fn documents<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<T>, ScenarioError> {
    // Steps that scenarios share are aliases, which are no attack here.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true, legacy_octal_numbers: true };
    let read = match is_list(text) {
        true => serde_saphyr::from_str_with_options(text, options),
        false => serde_saphyr::from_multiple_with_options(text, options),
    };
    read.map_err(|error| yaml(path, &error))
}

/// What the `apiVersion` of scenarios begins with.
const GROUP: &str = "claimcheck.dev/";

/// Replaces files by the manifests in them.
fn expand(path: &Path, line: u64, scenario: &mut Scenario) -> Result<(), ScenarioError> {
    let mut given = Vec::new();
    for object in std::mem::take(&mut scenario.given) {
        given.extend(manifests(path, line, &object)?.unwrap_or_else(|| vec![object]));
    }
    scenario.given = given;
    let mut steps = Vec::new();
    for step in std::mem::take(&mut scenario.steps) {
        let (object, creates) = match (&step.create, &step.apply) {
            (Some(object), _) => (object, true),
            (_, Some(object)) => (object, false),
            _ => {
                steps.push(step);
                continue;
            }
        };
        let Some(manifests) = manifests(path, step.line, object)? else {
            steps.push(step);
            continue;
        };
        let last = manifests.len().saturating_sub(1);
        for (number, manifest) in manifests.into_iter().enumerate() {
            // What the step waits for follows the last.
            let base =
                if number == last { step.clone() } else { Step { line: step.line, ..Step::default() } };
            steps.push(match creates {
                true => Step { create: Some(manifest), ..base },
                false => Step { apply: Some(manifest), ..base },
            });
        }
    }
    scenario.steps = steps;
    Ok(())
}

/// The manifests of an object that is a file.
fn manifests(path: &Path, line: u64, object: &Object) -> Result<Option<Vec<Object>>, ScenarioError> {
    let Ok(Given::File(name)) = object.form() else { return Ok(None) };
    let file = path.parent().unwrap_or(Path::new("")).join(name);
    let text = fs::read_to_string(&file).map_err(|error| {
        ScenarioError::form(path, line, format!("cannot read {}: {error}", file.display()))
    })?;
    let all: Vec<Value> = serde_saphyr::from_multiple_with_options(
        &text,
        serde_saphyr::options! { strict_booleans: true, legacy_octal_numbers: true },
    )
    .map_err(|error| yaml(&file, &error))?;
    let all = all.into_iter().filter(|manifest| !manifest.is_null()).map(Object);
    let all: Vec<Object> = all.collect();
    for object in &all {
        let what = check::object(object).err();
        let is_manifest = matches!(object.form(), Ok(Given::Manifest(_)));
        let what = what.or((!is_manifest).then(|| "it has no apiVersion and kind".to_owned()));
        if let Some(what) = what {
            return Err(ScenarioError::form(&file, 1, what));
        }
    }
    Ok(Some(all))
}

/// The parser's error as a message for the author of the file.
fn yaml(path: &Path, error: &Yaml) -> ScenarioError {
    let error = error.without_snippet();
    let line = error.location().map_or(1, |location| location.line());
    let what = match error {
        Yaml::SerdeUnknownField { field, expected, .. } => {
            claimcheck_model::unknown("field", field, expected)
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            claimcheck_model::unknown("value", variant, expected)
        }
        Yaml::SerdeMissingField { field, .. } => format!("the field {field} is missing"),
        Yaml::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("{key} is there twice"),
            None => "a field is there twice".to_owned(),
        },
        other => plain(&other.to_string()),
    };
    ScenarioError::form(path, line, what)
}

/// The parser's words in those of an author.
fn plain(text: &str) -> String {
    const WORDS: [(&str, &str); 6] = [
        ("invalid u64", "this is a whole number, without a unit"),
        ("invalid u32", "this is a whole number, without a unit"),
        ("invalid usize", "this is a whole number, without a unit"),
        ("expected sequence start", "this is a list: `[one, two]`, or lines that begin with `- `"),
        ("expected mapping start", "this has fields: `name: value`"),
        ("strict mode expects true/false", "this is true or false"),
    ];
    let found = WORDS.iter().find(|(word, _)| text.contains(word));
    found.map_or_else(|| text.to_owned(), |(_, plain)| (*plain).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: claimcheck.dev/v1alpha1\nkind: Scenario\nname: one\n";

    fn error(text: &str) -> String {
        parse(Path::new("a.yaml"), text).expect_err(text).to_string()
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_what_to_write() {
        let step = |step: &str| error(&format!("{HEAD}steps:\n  - create: claim data\n  - {step}\n"));
        for (of, message) in [
            ("creat: claim data", "a.yaml:6: unknown field creat: did you mean create?"),
            ("create: clam data", "a.yaml:6: clam data: there is no kind clam: did you mean claim?"),
            ("create: claim", "a.yaml:6: claim: write a name after the kind"),
            (
                "create: { kind: Pod }",
                "a.yaml:6: an object is `kind name`, a manifest with apiVersion and kind",
            ),
            ("create: { apiVersion: v1, kind: Pod }", "a.yaml:6: the Pod has no metadata.name"),
            (
                "create: { apiVersion: v1, kind: Lease, metadata: { name: a } }",
                "a.yaml:6: a Lease of v1 is not known",
            ),
            ("{}", "a.yaml:6: the step does nothing"),
            (
                "{ create: claim a, delete: claim b }",
                "a.yaml:6: a step has one action: create and delete are two steps",
            ),
            (
                "{ until: claim a, output: x }",
                "a.yaml:6: output belongs to exec, which the step does not have",
            ),
            ("{ exec: pod p }", "a.yaml:6: exec needs run"),
            ("{ exec: p, run: ls }", "a.yaml:6: p is no pod: write `pod` and its name"),
            (
                "{ until: call NodeStageVolum }",
                "a.yaml:6: there is no CSI call NodeStageVolum: did you mean NodeStageVolume?",
            ),
            ("{ until: phase atach }", "a.yaml:6: there is no phase atach: known are provision"),
            ("{ until: call Probe }", "a.yaml:6: calls of Probe belong to no claim"),
            (
                "{ until: call DeleteVolume of pod p }",
                "a.yaml:6: pod p: calls and phases are those of a claim",
            ),
            ("{ until: event claim a, has: {} }", "a.yaml:6: has does not belong to event claim a"),
            (
                "{ never: call NodePublishVolume, has: { readony: true } }",
                "a.yaml:6: NodePublishVolume: has: unknown field readony: did you mean readonly?",
            ),
            ("{ allow: claim a }", "a.yaml:6: no step before says `never: claim a`"),
            ("{ until: claim a, reason: x }", "a.yaml:6: reason does not belong to claim a"),
            (
                "{ disrupt: kubelet, how: kill }",
                "a.yaml:6: kubelet cannot be disrupted: known are controllers, agent",
            ),
            ("{ disrupt: agent, how: explode }", "a.yaml:6: unknown value explode: known are kill, stop"),
            ("{ disrupt: node, how: stop }", "a.yaml:6: how: stop is not for a node, only kill"),
            (
                "{ disrupt: registration, how: kill }",
                "a.yaml:6: how: kill is not for a registration, only stop and start",
            ),
            ("{ remove: pod p }", "a.yaml:6: remove: pod p is no claim: write `claim` and its name"),
            ("{ create: node n }", "a.yaml:6: node n is not a scenario's to write"),
            ("{ patch: claim a, with: {}, status: true }", "a.yaml:6: status is not a scenario's to write"),
            (
                "{ create: pod p, with: { spec: { nodeName: n } } }",
                "a.yaml:6: spec.nodeName is not a scenario's to write",
            ),
            (
                "driver: { CreateVolume: [{}] }",
                "a.yaml:6: CreateVolume: write one of fail, hang, late, lost and with",
            ),
            (
                "driver: { CreateVolume: [{ with: { volume: { capacity: 1 } } }] }",
                "a.yaml:6: CreateVolume: with: CreateVolumeResponse: unrecognized field name 'capacity'",
            ),
            ("driver: { CreateVolume: [{ fail: NO }] }", "a.yaml:6: CreateVolume: NO is no gRPC code"),
        ] {
            let error = step(of);
            assert!(error.starts_with(message), "{of}: {error}");
        }
    }

    #[test]
    fn a_file_is_a_scenario_with_a_name_and_steps() {
        for (text, message) in [
            ("", "a.yaml:1: the file has no scenario"),
            (
                "kind: Scenario\nname: one\nsteps: []\n",
                "a.yaml:2: a scenario begins with `apiVersion: claimcheck.dev",
            ),
            (&format!("{HEAD}steps: []\n"), "a.yaml:3: steps is empty"),
            (
                &format!("{HEAD}requires: {{ node: 2 }}\nsteps: []\n"),
                "a.yaml:4: unknown field node: did you mean nodes?",
            ),
            (&HEAD.replace("one", "One"), "a.yaml:3: the field steps is missing"),
            (
                &format!("{}steps: [{{ settle: 1 }}]\n", HEAD.replace("one", "One Two")),
                "a.yaml:3: name \"One Two\": use lower case letters",
            ),
            (
                &format!("{HEAD}given: [clas c]\nsteps: [{{ settle: 1 }}]\n"),
                "a.yaml:4: clas c: there is no kind clas",
            ),
            (
                &format!("{HEAD}given: [{{ file: none.yaml }}]\nsteps: [{{ settle: 1 }}]\n"),
                "a.yaml:3: cannot read none.yaml",
            ),
            (
                &format!("{HEAD}steps:\n  - {{ delete: driver $driver }}\n"),
                "a.yaml:5: driver $driver concerns all namespaces, where other cases run: write `alone: true`",
            ),
            (
                &format!(
                    "{HEAD}steps:\n  - {{ patch: class =fast, with: {{ metadata: {{ labels: {{ a: b }} }} }} }}\n"
                ),
                "a.yaml:5: class =fast concerns all namespaces",
            ),
        ] {
            let error = error(text);
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn all_mistakes_of_all_files_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let steps = "steps:\n  - exec: pod p\n  - delete: clam a\n";
        let other = HEAD.replace("one", "two");
        fs::write(folder.path().join("a.yaml"), format!("{HEAD}{steps}---\n{other}steps: []\n")).unwrap();
        fs::write(folder.path().join("b.yaml"), format!("{other}steps:\n  - until: claim a\n")).unwrap();
        let error = read_all(&[folder.path().to_owned()]).map(drop).unwrap_err().to_string();
        let expected = "a.yaml:5: exec needs run\n\
                        a.yaml:6: clam a: there is no kind clam: did you mean claim?\n\
                        a.yaml:10: steps is empty: a scenario does something\n\
                        b.yaml:5: no step creates a claim, so there is no claim a";
        assert_eq!(error.replace(&format!("{}/", folder.path().display()), ""), expected);
    }

    #[test]
    fn what_has_no_use_without_nodes_is_named() {
        let head = format!("{HEAD}world: controllers\n");
        let step = |step: &str| format!("{head}steps:\n  - create: claim data\n  - {step}\n");
        for (text, message) in [
            (step("{ never: claim data }"), "a.yaml:7: never needs `world: cluster`"),
            (step("{ create: pod p, uses: [data] }"), "a.yaml:7: uses needs `world: cluster`"),
            (step("{ allow: claim data }"), "a.yaml:7: allow needs `world: cluster`"),
            (step("{ until: phase attach }"), "a.yaml:7: phase attach needs `world: cluster`"),
            (
                step("{ until: call CreateVolume of claim data }"),
                "a.yaml:7: call CreateVolume of claim data needs `world: cluster`",
            ),
            (
                step("{ create: { apiVersion: v1, kind: Secret, metadata: { name: a } } }"),
                "a.yaml:7: a manifest needs `world: cluster`",
            ),
            (
                step("driver: { NodeStageVolume: [{ hang: true }] }"),
                "a.yaml:7: unknown call NodeStageVolume: known are CreateVolume",
            ),
            (
                step("driver: { CreateVolume: [{ with: { capacty: 1 } }] }"),
                "a.yaml:7: CreateVolume: with: unknown field capacty: did you mean capacity?",
            ),
            (
                step("driver: { DeleteVolume: [{ with: { capacity: 1 } }] }"),
                "a.yaml:7: DeleteVolume: with: the answer has no fields",
            ),
            (
                format!("{head}expect: {{ calls: {{ CreateVolume: 1 }} }}\nsteps: [settle: 1]\n"),
                "a.yaml:3: expect needs `world: cluster`",
            ),
        ] {
            let error = error(&text);
            assert!(error.starts_with(message), "{text}: {error}");
        }
        let text = step("{ until: call GetCapacity, count: 2 }");
        assert_eq!(parse(Path::new("a.yaml"), &text).unwrap()[0].scenario.world, World::Controllers);
    }

    #[test]
    fn a_list_has_scenarios_without_header_that_share_steps() {
        let text = "# Some.\n\n- name: one\n  steps:\n    - &claim\n      create: claim data\n- name: two\n  steps: [*claim]\n";
        let all = parse(Path::new("a.yaml"), text).unwrap();
        let names: Vec<_> =
            all.iter().map(|read| (read.scenario.name.as_str(), read.line, read.scenario.world)).collect();
        assert_eq!(names, [("one", 3, World::Controllers), ("two", 7, World::Controllers)]);
        assert_eq!(all[0].scenario.steps[0].title(), all[1].scenario.steps[0].title());
        let error = error("- name: one\n  steps:\n    - creat: claim data\n");
        assert_eq!(error, "a.yaml:3: unknown field creat: did you mean create?");
    }

    #[test]
    fn documents_have_lines_of_their_own_and_files_become_steps() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = "apiVersion: v1\nkind: Secret\nmetadata: { name: NAME }\n";
        let both = format!("{}---\n{}", manifest.replace("NAME", "a"), manifest.replace("NAME", "b"));
        fs::write(folder.path().join("both.yaml"), both).unwrap();
        let text = format!(
            "{HEAD}steps:\n  - settle: 1\n---\n{}steps:\n  - create: {{ file: both.yaml }}\n    until: secret b\n",
            HEAD.replace("one", "two")
        );
        let file = folder.path().join("a.yaml");
        fs::write(&file, text).unwrap();
        let all = read_all(std::slice::from_ref(&file)).unwrap();
        let lines: Vec<(u64, Vec<u64>)> = all
            .iter()
            .map(|read| (read.line, read.scenario.steps.iter().map(|step| step.line).collect()))
            .collect();
        assert_eq!(lines, [(3, vec![5]), (9, vec![11, 11])]);
        let titles: Vec<String> = all[1].scenario.steps.iter().map(Step::title).collect();
        assert_eq!(titles, ["create Secret a", "create Secret b"]);
        let waits: Vec<bool> = all[1].scenario.steps.iter().map(|step| step.until.is_some()).collect();
        assert_eq!(waits, [false, true]);
        // Manifests in the folder are no scenarios.
        assert_eq!(read_all(&[folder.path().to_owned()]).unwrap().len(), 2);
        let manifest = read_all(&[folder.path().join("both.yaml")]).map(drop).unwrap_err().to_string();
        assert!(manifest.contains("both.yaml:2: a Secret is no scenario"), "{manifest}");
        let twice = read_all(&[file.clone(), file]).map(drop).unwrap_err().to_string();
        assert!(twice.contains("a.yaml:3: a scenario one is also in"), "{twice}");
    }
}
