//! The rows of `defects/` and `legal/`, which are part of the program.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    env, fs,
    path::PathBuf,
};

use anyhow::{Context, Result, bail};

use crate::{
    family,
    row::{Defect, Suite},
};

/// The defects.
const DEFECTS: Folder =
    Folder { place: "testing/saboteur/defects", variable: "CLAIMCHECK_DEFECTS", files: &FILES };
/// Legal behaviour, which fails no case.
const LEGAL: Folder =
    Folder { place: "testing/saboteur/legal", variable: "CLAIMCHECK_LEGAL", files: &LEGAL_FILES };

/// The files, and what they contain.
const FILES: [(&str, &str); 40] = [
    ("capabilities.yaml", include_str!("../defects/capabilities.yaml")),
    ("clones.yaml", include_str!("../defects/clones.yaml")),
    ("concurrency.yaml", include_str!("../defects/concurrency.yaml")),
    ("controller_create.yaml", include_str!("../defects/controller_create.yaml")),
    ("controller_delete.yaml", include_str!("../defects/controller_delete.yaml")),
    ("controller_expand.yaml", include_str!("../defects/controller_expand.yaml")),
    ("controller_list.yaml", include_str!("../defects/controller_list.yaml")),
    ("controller_publish.yaml", include_str!("../defects/controller_publish.yaml")),
    ("declarations.yaml", include_str!("../defects/declarations.yaml")),
    ("groups.yaml", include_str!("../defects/groups.yaml")),
    ("identity.yaml", include_str!("../defects/identity.yaml")),
    ("interruptions.yaml", include_str!("../defects/interruptions.yaml")),
    ("lifecycle.yaml", include_str!("../defects/lifecycle.yaml")),
    ("metadata.yaml", include_str!("../defects/metadata.yaml")),
    ("node_expand.yaml", include_str!("../defects/node_expand.yaml")),
    ("node_publish.yaml", include_str!("../defects/node_publish.yaml")),
    ("node_stage.yaml", include_str!("../defects/node_stage.yaml")),
    ("node_stats.yaml", include_str!("../defects/node_stats.yaml")),
    ("pod.yaml", include_str!("../defects/pod.yaml")),
    ("replays.yaml", include_str!("../defects/replays.yaml")),
    ("robustness.yaml", include_str!("../defects/robustness.yaml")),
    ("snapshots.yaml", include_str!("../defects/snapshots.yaml")),
    ("upkeep.yaml", include_str!("../defects/upkeep.yaml")),
    ("required_fields.yaml", include_str!("../defects/required_fields.yaml")),
    ("missing_objects.yaml", include_str!("../defects/missing_objects.yaml")),
    ("repeated_calls.yaml", include_str!("../defects/repeated_calls.yaml")),
    ("concurrent_calls.yaml", include_str!("../defects/concurrent_calls.yaml")),
    ("answers.yaml", include_str!("../defects/answers.yaml")),
    ("refusals.yaml", include_str!("../defects/refusals.yaml")),
    ("cluster.yaml", include_str!("../defects/cluster.yaml")),
    ("cluster_attachment.yaml", include_str!("../defects/cluster_attachment.yaml")),
    ("cluster_binding.yaml", include_str!("../defects/cluster_binding.yaml")),
    ("cluster_data.yaml", include_str!("../defects/cluster_data.yaml")),
    ("cluster_deletion.yaml", include_str!("../defects/cluster_deletion.yaml")),
    ("cluster_failures.yaml", include_str!("../defects/cluster_failures.yaml")),
    ("cluster_growth.yaml", include_str!("../defects/cluster_growth.yaml")),
    ("cluster_nodes.yaml", include_str!("../defects/cluster_nodes.yaml")),
    ("cluster_placement.yaml", include_str!("../defects/cluster_placement.yaml")),
    ("cluster_snapshots.yaml", include_str!("../defects/cluster_snapshots.yaml")),
    ("inside.yaml", include_str!("../defects/inside.yaml")),
];

/// The same of legal behaviour.
const LEGAL_FILES: [(&str, &str); 3] = [
    ("csi.yaml", include_str!("../legal/csi.yaml")),
    ("cluster.yaml", include_str!("../legal/cluster.yaml")),
    ("api.yaml", include_str!("../legal/api.yaml")),
];

/// All defects, in the order of the files.
///
/// # Errors
/// A row is malformed, or the folder in the environment lacks a file.
pub fn all() -> Result<Vec<Defect>> {
    rows(&DEFECTS.texts()?)
}

/// All rows of legal behaviour.
///
/// # Errors
/// The same.
pub fn legal() -> Result<Vec<Defect>> {
    rows(&LEGAL.texts()?)
}

/// A folder of rows.
struct Folder {
    /// Its place in the repository.
    place: &'static str,
    /// A folder with other versions of the files, so that their authors can try them without a build.
    variable: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// A file of rows.
struct Text {
    file: String,
    content: Cow<'static, str>,
}

impl Folder {
    fn texts(&self) -> Result<Vec<Text>> {
        let (variable, folder) = (self.variable, env::var_os(self.variable).map(PathBuf::from));
        let text = |(file, built_in): &(&'static str, &'static str)| {
            let content = match &folder {
                Some(folder) => fs::read_to_string(folder.join(file))
                    .with_context(|| format!("{variable}: {file}"))?
                    .into(),
                None => Cow::Borrowed(*built_in),
            };
            Ok(Text { file: format!("{}/{file}", self.place), content })
        };
        self.files.iter().map(text).collect()
    }
}

fn rows<'a>(texts: impl IntoIterator<Item = &'a Text>) -> Result<Vec<Defect>> {
    let mut defects = Vec::new();
    for Text { file, content } in texts {
        let rows: Vec<serde_json::Value> =
            serde_saphyr::from_str(content).with_context(|| file.to_owned())?;
        for row in rows {
            let of = |row: &serde_json::Value| {
                let name = row["name"].as_str().unwrap_or("a row without a name");
                format!("{file}, {name}")
            };
            let family = of(&row);
            for row in family::members(row).context(family)? {
                let name = of(&row);
                defects.push(serde_json::from_value(row).context(name)?);
            }
        }
    }
    Ok(defects)
}

/// The files of all rows, each of which is read once a name may be in it: each process of a driver with a defect begins
/// with that.
struct Files {
    texts: Vec<Text>,
    read: BTreeMap<usize, Vec<Defect>>,
}

impl Files {
    fn new() -> Result<Self> {
        let mut texts = LEGAL.texts()?;
        texts.extend(DEFECTS.texts()?);
        Ok(Self { texts, read: BTreeMap::new() })
    }

    /// The files in the order in which a name is looked for: first those that contain it, then those that have the most parts
    /// of it, of which names in families are made.
    fn order(&self, name: &str) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.texts.len()).collect();
        let lacks = |part: &str, file: usize| !self.texts[file].content.contains(part);
        order.sort_by_cached_key(|&file| lacks(name, file));
        if lacks(name, order[0]) {
            let missing = |file: usize| name.split('-').filter(|part| lacks(part, file)).count();
            order.sort_by_cached_key(|&file| missing(file));
        }
        order
    }

    fn row(&mut self, name: &str) -> Result<Defect> {
        for file in self.order(name) {
            let rows = match self.read.entry(file) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => unread.insert(rows([&self.texts[file]])?),
            };
            if let Some(row) = rows.iter().find(|row| row.name == name) {
                return Ok(row.clone());
            }
        }
        bail!("there is no defect {name:?}: docs/defects.md lists them")
    }
}

/// The defect or legal row of this name, or one that does what several do: their names, with commas.
///
/// # Errors
/// There is none.
pub fn defect(name: &str) -> Result<Defect> {
    let mut files = Files::new()?;
    let mut named = name.split(',').map(|name| files.row(name));
    let first = named.next().context("a name is missing")??;
    named.try_fold(first, |row, other| Ok(row.and(other?)))
}

/// The name of a defect, for command lines.
///
/// # Errors
/// There is none of this name.
pub fn named(name: &str) -> Result<String, String> {
    proxied(name).map(|defect| defect.name)
}

/// The name of a defect of a driver, for command lines of `claimcheck csi`.
///
/// # Errors
/// There is none of this name, or it is one of components of a cluster.
pub fn named_for_csi(name: &str) -> Result<String, String> {
    match proxied(name)? {
        defect if defect.rules.is_empty() => Err(format!(
            "{name} is a defect of components of a cluster: use claimcheck run --sabotage {name}"
        )),
        defect => Ok(defect.name),
    }
}

/// The defect of this name, if it lies outside of the driver.
fn proxied(name: &str) -> Result<Defect, String> {
    let defect = defect(name).map_err(|error| format!("{error:#}"))?;
    let is_inside = defect.suite == Suite::Csi || defect.driver_args.is_empty();
    match defect.rules.is_empty() && defect.api.is_empty() && is_inside {
        true => Err(format!("{name} is a defect inside of the built-in driver: use its flag --defect")),
        false => Ok(defect),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use claimcheck_csi::message::Method;

    #[test]
    fn each_file_is_part_of_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("defects");
        let files =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let named = FILES.iter().map(|(file, _)| (*file).to_owned());
        assert_eq!(files.collect::<BTreeSet<_>>(), named.collect());
    }

    #[test]
    fn a_row_is_in_one_of_the_first_files_that_are_read() {
        let files = Files::new().unwrap();
        for (file, text) in files.texts.iter().enumerate() {
            // A sample, since each name is looked for in all texts.
            for row in rows([text]).unwrap().iter().step_by(9) {
                let place = files.order(&row.name).iter().position(|other| *other == file).unwrap();
                assert!(place < 4, "{}: {place} files are read before", row.name);
            }
        }
    }

    #[test]
    fn a_defect_of_a_cluster_is_refused_for_a_driver_alone() {
        assert_eq!(named_for_csi("delete-in-use"), Ok("delete-in-use".to_owned()));
        let defects = all().unwrap();
        let of_cluster =
            defects.iter().find(|defect| defect.rules.is_empty() && !defect.api.is_empty()).unwrap();
        assert!(named_for_csi(&of_cluster.name).unwrap_err().contains("claimcheck run --sabotage"));
        assert!(named_for_csi("no-such-defect").unwrap_err().contains("docs/defects.md"));
    }

    #[test]
    fn rows_are_complete_and_name_methods_that_exist() {
        let methods: BTreeSet<String> = Method::all().map(|method| method.name).collect();
        let mut names = BTreeSet::new();
        for defect in all().unwrap().into_iter().chain(legal().unwrap()) {
            assert!(names.insert(defect.name.clone()), "{} is there twice", defect.name);
            assert!(!defect.name.contains(','), "{}: commas separate names", defect.name);
            assert!(defect.does.ends_with('.'), "{}: `does` is a sentence", defect.name);
            assert_eq!(
                defect.fails.is_empty(),
                defect.permitted.is_some(),
                "{}: either it fails cases, or something permits it",
                defect.name
            );
            let is_inside = defect.driver_args.contains(&"--defect".to_owned());
            let has_rules = !defect.rules.is_empty() || !defect.api.is_empty();
            let is_setting = defect.permitted.is_some()
                && !(defect.args.is_empty()
                    && defect.driver_args.is_empty()
                    && defect.driver_config.is_none());
            assert!(
                if has_rules { !is_inside } else { is_inside || is_setting },
                "{}: either rules, or --defect or settings",
                defect.name
            );
            assert!(
                defect.api.iter().all(|rule| !rule.then.is_empty()),
                "{}: a rule does nothing",
                defect.name
            );
            for rule in &defect.rules {
                assert!(!rule.then.is_empty(), "{}: a rule does nothing", defect.name);
                let named = rule.on.iter().chain(&rule.when.after).chain(&rule.when.cancelled);
                let unknown: Vec<&String> =
                    named.filter(|method| *method != "any" && !methods.contains(*method)).collect();
                assert!(unknown.is_empty(), "{}: there are no methods {unknown:?}", defect.name);
            }
        }
    }
}
