//! Words that help texts and public documentation do not use: see "Language" in CONTRIBUTING.

use std::{collections::BTreeSet, fs, process::Command};

use crate::files;

/// Each with what to write instead.
const BANNED: [(&str, &str); 17] = [
    ("tell", "emit, report, log, print"),
    ("tells", "emits, reports, logs, prints"),
    ("telling", "emitting, reporting"),
    ("told", "emitted, reported"),
    ("teller", "recorder"),
    ("whose", "of which, or name the owner"),
    ("ours", "built-in"),
    ("theirs", "the driver's, upstream's"),
    ("somebody", "a user, another component"),
    ("nobody", "no component, no user"),
    ("anybody", "any component, any user"),
    ("anew", "again"),
    ("lest", "so that .. does not"),
    ("beside", "next to, in addition to"),
    ("spoil", "disturb, corrupt"),
    ("spoils", "disturbs, corrupts"),
    ("spoilt", "disturbed, corrupted"),
];

/// The banned words of a text, without what stands in backticks.
fn banned(text: &str) -> BTreeSet<&'static str> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let lower = prose.to_lowercase();
    let words: BTreeSet<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').collect();
    BANNED.iter().map(|(word, _)| *word).filter(|word| words.contains(word)).collect()
}

fn report(offences: &[String]) {
    let instead: Vec<String> = BANNED.iter().map(|(word, instead)| format!("{word}: {instead}")).collect();
    assert!(offences.is_empty(), "{}\n\nInstead:\n{}", offences.join("\n"), instead.join("\n"));
}

#[test]
fn documentation_uses_the_terms_of_the_field() {
    let mut offences = Vec::new();
    let sources = files(|name| name.ends_with(".rs"));
    assert!(sources.len() > 500, "only {} files: the search itself is broken", sources.len());
    for file in &sources {
        let text = fs::read_to_string(file).expect("a source is text");
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
            let found = banned(&doc.replace("[default: ours]", ""));
            if !found.is_empty() {
                offences.push(format!("{}:{}: {found:?}", file.display(), number + 1));
            }
        }
    }
    for file in &files(|name| name.ends_with(".md")) {
        let text = fs::read_to_string(file).expect("a page is text");
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            // The list of these words, and what to write instead.
            let lists = (file.ends_with("CONTRIBUTING.md") || file.ends_with("contributors/glossary.md"))
                && (line.starts_with('|') || line.contains('*'));
            let found = banned(&line.replace("[default: ours]", ""));
            if !fenced && !lists && !found.is_empty() {
                offences.push(format!("{}:{}: {found:?}", file.display(), number + 1));
            }
        }
    }
    report(&offences);
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
    let mut seen = Vec::new();
    help(&[], &mut seen);
    assert!(seen.len() > 10, "only {} commands: the search itself is broken", seen.len());
    let mut offences = Vec::new();
    for (command, text) in seen {
        // The value of flags, which scripts use.
        let text = text.replace("- ours:", "").replace("[default: ours]", "").replace("controllers ours", "");
        for line in text.lines() {
            let found = banned(line);
            if !found.is_empty() {
                offences.push(format!("claimcheck {command} --help: {found:?}: {}", line.trim()));
            }
        }
    }
    report(&offences);
}

#[test]
fn words_are_found_in_prose_and_not_in_code() {
    for (text, expected) in [
        ("Tells whose it is.", &["tells", "whose"][..]),
        ("`--controllers ours` starts the built-in ones", &[]),
        ("hours, retold, besides", &[]),
    ] {
        assert_eq!(banned(text).into_iter().collect::<Vec<_>>(), expected, "{text}");
    }
}
