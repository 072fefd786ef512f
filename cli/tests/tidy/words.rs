//! Words that documentation, help texts and declared names do not use: `typos.toml` lists them; see "Language" in
//! CONTRIBUTING.
//!
//! Declared names are those of functions, types, variants, fields, constants, modules, files and folders, and not of local
//! variables. They are found line by line: fields at the beginning of a line or of braces.

use std::{collections::BTreeMap, fs, process::Command};

use regex::Regex;
use toml_edit::{Document, TableLike};

use crate::{files, workspace};

/// Words, each with what to write instead, if that is one word.
type Words = BTreeMap<String, String>;

/// What `typos.toml` contains.
struct Rules {
    prose: Words,
    names: Words,
    fields: Words,
    /// Names that may have a word.
    allowed: Words,
    /// Parts of the paths of files that are not checked.
    excluded: Vec<String>,
    /// Text that is not checked.
    ignored: Regex,
    word: Regex,
    /// Strings and comments.
    opaque: Regex,
    /// Declarations by keyword, variants, and fields, before their names.
    item: Regex,
    variant: Regex,
    field: Regex,
    /// A part of a name.
    segment: Regex,
}

impl Rules {
    fn new() -> Self {
        let text = fs::read_to_string(workspace().join("typos.toml")).expect("the workspace has it");
        let file = Document::parse(text).expect("it is TOML");
        let words = |table: &dyn TableLike, key: &str| -> Words {
            let words = table.get(key).and_then(|words| words.as_table_like()).expect(key).iter();
            words.map(|(word, instead)| (word.to_owned(), instead.as_str().expect(word).to_owned())).collect()
        };
        let of_type = |name: &str| {
            let mut all = words(file["type"][name].as_table_like().expect(name), "extend-words");
            all.extend(words(file["default"].as_table_like().expect("a table"), "extend-words"));
            all
        };
        let texts = |section: &str, key: &str| -> Vec<String> {
            let list = file[section][key].as_array().expect(key).iter();
            list.map(|text| text.as_str().expect(key).to_owned()).collect()
        };
        Self {
            prose: of_type("prose"),
            names: of_type("name"),
            fields: of_type("field"),
            allowed: words(file["default"].as_table_like().expect("a table"), "extend-identifiers"),
            excluded: texts("files", "extend-exclude"),
            ignored: pattern(&texts("default", "extend-ignore-re").join("|")),
            word: pattern(r"[\w-]+"),
            opaque: pattern(r#""(?:[^"\\]|\\.)*"|//.*"#),
            item: pattern(r"\b(?:fn|struct|enum|union|trait|type|const|static|mod)\s+(\w+)"),
            variant: pattern(r"^\s*([A-Z]\w*)(?:,|\s*[({]|$)"),
            field: pattern(r"(?:^\s*|\{ |\bpub(?:\([^)]*\))? )(\w+): "),
            segment: pattern("[A-Z]?[a-z]+|[A-Z]+"),
        }
    }

    /// The banned words of a text, with the numbers of their lines.
    fn in_prose(&self, text: &str) -> Vec<(usize, String)> {
        let blank = |ignored: &regex::Captures<'_>| "\n".repeat(ignored[0].matches('\n').count()) + " ";
        let text = self.ignored.replace_all(text, blank).to_lowercase();
        let lines = text.lines().zip(1..);
        let found = lines
            .flat_map(|(line, number)| self.word.find_iter(line).map(move |word| (number, word.as_str())));
        found.filter_map(|(line, word)| Some((line, advice(&self.prose, word)?))).collect()
    }

    /// The banned words in the names that a source declares, with the numbers of their lines.
    fn in_names(&self, source: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (line, number) in source.lines().zip(1..) {
            let line = self.opaque.replace_all(line, "");
            for (pattern, words) in [
                (&self.item, &self.names),
                (&self.variant, &self.names),
                (&self.field, &self.names),
                (&self.field, &self.fields),
            ] {
                let names = pattern.captures_iter(&line).map(|name| name[1].to_owned());
                found.extend(names.filter_map(|name| Some((number, self.in_name(&name, words)?))));
            }
        }
        found
    }

    /// The first banned word in a name.
    fn in_name(&self, name: &str, words: &Words) -> Option<String> {
        let mut segments = self.segment.find_iter(name).map(|segment| segment.as_str().to_lowercase());
        let found = segments.find_map(|segment| advice(words, &segment));
        found.filter(|_| !self.allowed.contains_key(name)).map(|advice| format!("{name} has {advice}"))
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect(text)
}

/// A banned word, with what to write instead.
fn advice(words: &Words, word: &str) -> Option<String> {
    let instead = words.get(word)?;
    Some(format!("{word}: write {}", if instead.is_empty() { "what typos.toml lists" } else { instead }))
}

#[test]
fn documentation_and_names_use_the_terms_of_the_field() {
    let rules = Rules::new();
    let all = files(|name| name.ends_with(".rs") || name.ends_with(".md"));
    assert!(all.len() > 500, "only {} files: the search itself fails", all.len());
    let mut offences = Vec::new();
    for file in all {
        let path = file.strip_prefix(workspace()).expect("a file of the workspace").display().to_string();
        if rules.excluded.iter().any(|part| path.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a text");
        let mut found = Vec::new();
        if path.ends_with(".rs") {
            let docs = text.lines().map(|line| match line.trim_start() {
                doc if doc.starts_with("///") || doc.starts_with("//!") => &doc[3..],
                _ => "",
            });
            found = rules.in_prose(&docs.collect::<Vec<_>>().join("\n"));
            found.extend(rules.in_names(&text));
            found.extend(
                path.split(['/', '.']).filter_map(|part| Some((0, rules.in_name(part, &rules.names)?))),
            );
        } else {
            found.extend(rules.in_prose(&text));
        }
        offences.extend(found.into_iter().map(|(line, advice)| format!("{path}:{line}: {advice}")));
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

/// The help of a command and of all below it.
fn help(command: &[&str], seen: &mut Vec<(String, String)>) {
    let mut claimcheck = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    let output = claimcheck.args(command).arg("--help").output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("help is text");
    let mut below = Vec::new();
    let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| line.starts_with("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
            below.push(name.to_owned());
        }
    }
    seen.push((command.join(" "), text));
    for name in below {
        help(&[command, &[name.as_str()]].concat(), seen);
    }
}

#[test]
fn help_texts_use_the_terms_of_the_field() {
    let (rules, mut seen) = (Rules::new(), Vec::new());
    help(&[], &mut seen);
    assert!(seen.len() > 10, "only {} commands: the search itself fails", seen.len());
    let offences = seen.iter().flat_map(|(command, text)| {
        let found = rules.in_prose(text).into_iter();
        found.map(move |(line, advice)| format!("claimcheck {command} --help, line {line}: {advice}"))
    });
    let offences: Vec<String> = offences.collect();
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn words_are_found_in_prose_and_in_names_and_not_in_code() {
    let rules = Rules::new();
    for (text, expected) in [
        ("\nTells whose it is.", &[2, 2][..]),
        ("`--controllers ours` starts the built-in ones\n```\ntold\n```\nlest", &[5]),
        ("hours, retold, besides", &[]),
    ] {
        let lines: Vec<usize> = rules.in_prose(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, expected, "{text}");
    }
    for (source, expected) in [
        ("fn tell_all() {}", 1),
        ("const WAKE_AT: u8 = 1; mod lane; struct Keptness;", 2),
        ("    TheirsToo { why: String },\n    HeardOf(u8),", 3),
        ("struct A { pub(crate) began: u64, pub kept: u8, spoken: u8 }\n    broken: 1,", 3),
        ("fn f(why: &str) { let told = says(why); a::tell::b(); }", 0),
        ("fn colours() {} fn retold() {} fn essay() {}", 0),
        ("// fn tell()\n\"fn \\\" fn tell()\"\n    Ours,", 0),
    ] {
        let found = rules.in_names(source);
        assert_eq!(found.len(), expected, "{source}: {found:?}");
    }
}
