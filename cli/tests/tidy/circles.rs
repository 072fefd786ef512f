//! No circles of imports between files: what can be read alone can be understood and moved alone. Names that a module
//! passes on (`pub use`) are those of the file that declares them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::{files, workspace};

/// The crates without circles of more than two files. Circles of others are printed (`--nocapture`).
const WITHOUT_CIRCLES: [&str; 1] = ["harness/cluster"];

/// The segments of a path, from the root of the crate.
type Segments = Vec<String>;

/// The files of a crate by their modules, and what each module imports under which name.
#[derive(Default)]
struct Sources {
    files: BTreeMap<Segments, (String, String)>,
    imports: BTreeMap<(Segments, String), Segments>,
}

impl Sources {
    /// From the files of a crate with their paths below `src`.
    fn new(files: &BTreeMap<String, String>) -> Self {
        let mut sources = Self::default();
        for (path, text) in files {
            sources.files.insert(module(path), (path.clone(), code(text)));
        }
        for (module, (_, text)) in &sources.files {
            for import in imports(text) {
                let path = absolute(module, &import.path, &sources.files);
                sources.imports.insert((module.clone(), import.name), path);
            }
        }
        sources
    }

    /// The module that declares what a path names: through the modules that pass it on.
    fn declared_in(&self, path: &[String]) -> Option<&Segments> {
        let mut path = path.to_vec();
        // An import of itself would not end.
        for _ in 0..20 {
            let passed_on = (0..path.len()).find_map(|length| {
                let name = (path[..length].to_vec(), path[length].clone());
                let target =
                    self.imports.get(&name).filter(|_| !self.files.contains_key(&path[..=length]))?;
                Some([target, &path[length + 1..]].concat())
            });
            match passed_on {
                Some(target) if target != path => path = target,
                Some(_) | None => break,
            }
        }
        let longest = (0..=path.len()).rev().find_map(|length| self.files.get_key_value(&path[..length]));
        longest.map(|(module, _)| module)
    }

    /// The modules of which a module uses something.
    fn used(&self, module: &Segments) -> BTreeSet<&Segments> {
        let text = &self.files[module].1;
        let without_imports = without_imports(text);
        let names: BTreeSet<&str> = words(&without_imports).collect();
        let mut paths = Vec::new();
        for import in imports(text) {
            if !import.is_passed_on || names.contains(&*import.name) {
                paths.push(absolute(module, &import.path, &self.files));
            }
        }
        for path in written_paths(&without_imports) {
            let first = (module.clone(), path[0].clone());
            let is_known = ["crate", "self", "super"].contains(&&*path[0])
                || self.imports.contains_key(&first)
                || self.files.contains_key(&[module.as_slice(), &path[..1]].concat());
            if is_known {
                paths.push(match self.imports.get(&first) {
                    Some(target) => [target, &path[1..]].concat(),
                    None => absolute(module, &path, &self.files),
                });
            }
        }
        paths.iter().filter_map(|path| self.declared_in(path)).filter(|used| *used != module).collect()
    }

    /// The files that reach each other, as far as there are several.
    fn circles(&self) -> Vec<Vec<&str>> {
        let numbers: BTreeMap<&Segments, usize> = self.files.keys().zip(0..).collect();
        let arrows: Vec<Vec<usize>> = self
            .files
            .keys()
            .map(|module| self.used(module).iter().map(|used| numbers[used]).collect())
            .collect();
        let reached: Vec<BTreeSet<usize>> = (0..arrows.len()).map(|from| reached(&arrows, from)).collect();
        let names: Vec<&str> = self.files.values().map(|(path, _)| &**path).collect();
        let circle = |from: usize| -> Vec<&str> {
            reached[from]
                .iter()
                .filter(|other| reached[**other].contains(&from))
                .map(|at| names[*at])
                .collect()
        };
        let circles: BTreeSet<Vec<&str>> = (0..names.len()).map(circle).collect();
        circles.into_iter().filter(|circle| circle.len() > 1).collect()
    }
}

/// What can be reached by arrows.
fn reached(arrows: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::new(), arrows[from].clone());
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&arrows[file]);
        }
    }
    reached
}

/// A name that a module imports.
struct Import {
    name: String,
    path: Segments,
    is_passed_on: bool,
}

/// The module of a file.
fn module(path: &str) -> Segments {
    let mut segments: Segments = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| ["lib", "main", "mod"].contains(&&**last)) {
        segments.pop();
    }
    segments
}

/// A text without comments and unit tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The start and the end of each import, which begins a line.
fn import_spans(text: &str) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut spans = Vec::new();
    while let Some(found) = text[at..].find("use ") {
        let start = at + found;
        let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = text[line..start].trim();
        let end = text[start..].find(';').map_or(text.len(), |end| start + end);
        if before.is_empty() || (before.starts_with("pub") && !before.contains(' ')) {
            spans.push((line, end));
            at = end;
        } else {
            at = start + "use ".len();
        }
    }
    spans
}

fn imports(text: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for (start, end) in import_spans(text) {
        let (visibility, tree) = text[start..end].split_once("use ").expect("an import has the word");
        for path in expanded(tree) {
            let (path, renamed) = path.split_once(" as ").unwrap_or((&path, ""));
            let mut path: Segments = path.split("::").map(|segment| segment.trim().to_owned()).collect();
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name =
                if renamed.is_empty() { path[path.len() - 1].clone() } else { renamed.trim().to_owned() };
            imports.push(Import { name, path, is_passed_on: visibility.trim().starts_with("pub") });
        }
    }
    imports
}

/// The paths of a tree: `a::{b, c::{d, e}}`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.trim().split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for char in inner.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("it is never empty").push(char);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(part)).map(|part| format!("{prefix}{part}")).collect()
}

fn without_imports(text: &str) -> String {
    let (mut rest, mut at) = (String::new(), 0);
    for (start, end) in import_spans(text) {
        rest.push_str(&text[at..start]);
        at = end;
    }
    rest + &text[at..]
}

/// A path from the root of the crate. One of another crate leads to no module of this one.
fn absolute(module: &[String], path: &[String], files: &BTreeMap<Segments, (String, String)>) -> Segments {
    let (mut base, mut path) = (module.to_vec(), path);
    match &*path[0] {
        "crate" => (base, path) = (Vec::new(), &path[1..]),
        "self" | "super" => {
            while let Some(first @ ("self" | "super")) = path.first().map(String::as_str) {
                if first == "super" {
                    base.pop();
                }
                path = &path[1..];
            }
        }
        _ if files.contains_key(&[module, &path[..1]].concat()) => {}
        _ => base.push("::".to_owned()),
    }
    [base.as_slice(), path].concat()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_alphanumeric() && char != '_')
}

/// The paths with several segments in a text.
fn written_paths(text: &str) -> Vec<Segments> {
    let words = text.split(|char: char| !char.is_alphanumeric() && char != '_' && char != ':');
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Segments>());
    paths.filter(|path| path.len() > 1 && !path[0].is_empty()).collect()
}

/// The product files of a crate among these, with their paths below `src`.
fn sources_of(folder: &Path, files: &[PathBuf]) -> BTreeMap<String, String> {
    let source = folder.join("src");
    let is_test = |path: &str| path.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests"));
    let files = files.iter().filter_map(|path| Some((path.strip_prefix(&source).ok()?.to_str()?, path)));
    let files = files.filter(|(name, _)| !is_test(name));
    let text = |path: &PathBuf| fs::read_to_string(path).expect("a source file can be read");
    files.map(|(name, path)| (name.to_owned(), text(path))).collect()
}

#[test]
fn no_file_imports_itself_through_two_others() {
    let manifests = files(|name| name == "Cargo.toml");
    let (sources, mut found) = (files(|name| name.ends_with(".rs")), String::new());
    for folder in manifests.iter().filter_map(|manifest| manifest.parent()) {
        let name = folder.strip_prefix(workspace()).expect("it is in the workspace").display().to_string();
        let is_clean = WITHOUT_CIRCLES.contains(&&*name);
        for circle in Sources::new(&sources_of(folder, &sources)).circles() {
            let text = format!("{name}/src: {} files import each other: {}", circle.len(), circle.join(", "));
            println!("{text}");
            if is_clean && circle.len() > 2 {
                found += &format!("\n{text}");
            }
        }
    }
    assert!(found.is_empty(), "move what both sides need into a file of its own:{found}");
}

#[test]
fn circles_are_found_through_modules_that_pass_names_on() {
    let crate_of = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    let mut files = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::inner::{C, D as E};\n"),
        (
            "a.rs",
            "use crate::{\n    b::B,\n    E,\n};\npub struct A(B, E);\n#[cfg(test)]\nmod tests {\n use crate::x;\n}",
        ),
        ("b/mod.rs", "pub mod inner;\npub struct B;\nfn f() -> inner::C { inner::C }\n"),
        ("b/inner.rs", "// use crate::A;\npub struct C;\npub struct D;\n"),
    ]);
    assert!(Sources::new(&files).circles().is_empty(), "a name that is passed on is no import");
    files.insert("b/inner.rs".to_owned(), "pub struct C;\npub struct D(Box<crate::A>);\n".to_owned());
    assert_eq!(Sources::new(&files).circles(), [["a.rs", "b/mod.rs", "b/inner.rs"]]);
    files.insert("lib.rs".to_owned(), "mod a;\nmod b;\npub use a::A;\nfn f(a: A) {}\n".to_owned());
    files.insert("b/inner.rs".to_owned(), "use super::super::f;\npub struct C;\n".to_owned());
    files.insert("a.rs".to_owned(), "use crate::b::B;\npub struct A(B);\n".to_owned());
    assert_eq!(Sources::new(&files).circles(), [["lib.rs", "a.rs", "b/mod.rs", "b/inner.rs"]]);
}
