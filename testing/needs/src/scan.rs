//! The tests of the workspace, from its sources, with the reason why each is ignored.
//!
//! `--list` of a test program does not print that reason; the sources have it in two forms: `#[ignore = "REASON"]` before
//! a function and, in programs with libtest-mimic, `.with_kind("REASON")` of trials that are ignored. A reason that begins
//! with `requires` lists what the test requires. Any other names who runs the test.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Need;

/// Why a test is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It requires these; `ci/test` runs it where they are.
    Requires(Vec<Need>),
    /// `ci/test` does not run it.
    Other(String),
}

impl Reason {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("requires ") {
            Some(needs) => Need::parse(needs).map(Self::Requires),
            None => Ok(Self::Other(text.to_owned())),
        }
    }
}

/// A test, or all ignored trials of a program that have one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its source, relative to the workspace.
    pub file: String,
    /// The end of its name in the test program, with the module if it is in one; of trials, the part that they share.
    pub name: String,
    /// None if it always runs.
    pub ignored: Option<Reason>,
}

/// All tests of the workspace that this crate was built in.
///
/// # Errors
/// A source that cannot be read, or an `#[ignore]` with an unknown word.
pub fn in_workspace() -> Result<Vec<Test>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    add_sources(&root, &mut sources).map_err(|error| format!("{}: {error}", root.display()))?;
    sources.sort();
    let mut tests = Vec::new();
    for source in sources {
        let text = fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        let relative = source.strip_prefix(&root).unwrap_or(&source);
        tests.extend(in_source(relative, &text)?);
    }
    Ok(tests)
}

fn add_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "runs"].contains(&name.as_str()) && !name.starts_with('.') {
                add_sources(&path, sources)?;
            }
        } else if name.ends_with(".rs") {
            sources.push(path);
        }
    }
    Ok(())
}

/// The tests of a source. rustfmt has formatted it: attributes are on separate lines, and only modules indent functions.
fn in_source(file: &Path, text: &str) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    let (mut is_test, mut ignored, mut inner) = (false, None, None);
    for (number, line) in text.lines().enumerate() {
        let parse = |text: &str| {
            Reason::parse(text).map_err(|error| format!("{}:{}: {error}", file.display(), number + 1))
        };
        let statement = line.trim_start();
        let test = |name: String, ignored| Test { file: file.display().to_string(), name, ignored };
        if statement.starts_with("//") {
            continue;
        }
        if let Some(kind) = between(statement, ".with_kind(\"", "\")") {
            tests.push(test(format!("[{kind}]"), Some(parse(kind)?)));
        } else if statement.starts_with("#[test]") || statement.starts_with("#[tokio::test") {
            is_test = true;
        } else if statement.starts_with("#[ignore") {
            ignored = Some(parse(between(statement, "\"", "\"]").unwrap_or_default())?);
        } else if let Some(name) = between(line, "mod ", " {").filter(|_| line.len() == statement.len()) {
            inner = Some(name.to_owned());
        } else if let Some(name) = function(statement) {
            let is_inner = line.len() > statement.len();
            let module = if is_inner { inner.clone() } else { None }.or_else(|| module(file));
            if is_test {
                let path = module.map_or_else(|| name.to_owned(), |module| format!("{module}::{name}"));
                tests.push(test(path, ignored.take()));
            }
            (is_test, ignored) = (false, None);
        }
    }
    Ok(tests)
}

/// The module of a file; none for the root of a crate.
fn module(file: &Path) -> Option<String> {
    let folder = file.parent()?;
    let name = |path: &Path| Some(path.file_stem()?.to_string_lossy().into_owned());
    match name(file)?.as_str() {
        "main" | "lib" => None,
        "mod" => name(folder),
        // A test program, unless it is a folder of a module.
        _ if folder.ends_with("tests") && folder.iter().all(|part| part != "src") => None,
        stem => Some(stem.to_owned()),
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// The name of the function that begins in this line.
fn function(statement: &str) -> Option<&str> {
    let declaration =
        ["pub ", "async "].iter().fold(statement, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let name = declaration.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = concat!(
        "fn helper() {}\n\n#[test]\nfn always() {}\n\n",
        "#[test]\n#[ignore = \"requires root, loop\"]\nfn real() {\n    let x = 1;\n}\n\n",
        "#[tokio::test(flavor = \"multi_thread\")]\n#[ignore = \"ci/x runs it\"]\nasync fn other() {}\n\n",
        "#[cfg(test)]\nmod inner {\n    #[ignore = \"requires xfs\"]\n    #[test]\n    fn deep() {}\n\n",
        "    fn helper() {}\n}\n",
    );

    #[test]
    fn tests_are_found_with_their_modules_and_reasons() {
        let requires = |needs: &[Need]| Some(Reason::Requires(needs.to_vec()));
        let expected = |module: &str| {
            let name = |name: &str| if module.is_empty() { name.into() } else { format!("{module}::{name}") };
            [
                (name("always"), None),
                (name("real"), requires(&[Need::Root, Need::Loop])),
                (name("other"), Some(Reason::Other("ci/x runs it".into()))),
                ("inner::deep".to_owned(), requires(&[Need::Xfs])),
            ]
        };
        for (file, module) in [
            ("a/tests/program.rs", ""),
            ("a/tests/program/main.rs", ""),
            ("a/tests/program/block.rs", "block"),
            ("a/tests/program/kills/mod.rs", "kills"),
            ("a/src/image/tests.rs", "tests"),
            ("a/src/install/tests/manifests.rs", "manifests"),
            ("a/src/lib.rs", ""),
        ] {
            let tests = in_source(Path::new(file), SOURCE).unwrap();
            assert!(tests.iter().all(|test| test.file == file), "{tests:?}");
            let found: Vec<_> = tests.into_iter().map(|test| (test.name, test.ignored)).collect();
            assert_eq!(found, expected(module), "{file}");
        }
    }

    #[test]
    fn trials_with_a_reason_are_one_entry() {
        let source = "    let trial = trial.with_kind(\"requires root\").with_ignored_flag(true);\n";
        let [trials] = &in_source(Path::new("a/tests/p.rs"), source).unwrap()[..] else {
            panic!("one entry")
        };
        assert_eq!(trials.name, "[requires root]");
        assert_eq!(trials.ignored, Some(Reason::Requires(vec![Need::Root])));
    }

    #[test]
    fn an_unknown_word_is_an_error_with_its_place() {
        let source = "#[test]\n#[ignore = \"requires kubctl\"]\nfn x() {}\n";
        let error = in_source(Path::new("a/tests/p.rs"), source).unwrap_err();
        assert!(error.starts_with("a/tests/p.rs:2: \"kubctl\" is not"), "{error}");
    }

    /// `ci/test` omits tests by these names, which test programs take as parts of names.
    #[test]
    fn the_name_of_an_ignored_test_is_part_of_no_other() {
        let tests = in_workspace().unwrap();
        assert!(tests.len() > 1000, "{} tests: the search itself fails", tests.len());
        for ignored in tests.iter().filter(|test| test.ignored.is_some()) {
            // Those with the same reason are omitted together.
            let is_other =
                |test: &&Test| test.ignored != ignored.ignored && test.name.contains(&ignored.name);
            let others: Vec<_> =
                tests.iter().filter(is_other).filter(|test| !test.name.starts_with('[')).collect();
            assert!(others.is_empty(), "{ignored:?} is part of the name of {others:?}: rename one of them");
        }
    }
}
