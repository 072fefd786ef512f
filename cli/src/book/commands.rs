//! Every command in README and the book is one that the program accepts: commands in blocks are parsed, and flags of
//! those in the text exist.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use claimcheck_component::normal;
use clap::{CommandFactory as _, Parser as _};

use super::workspace;
use crate::Cli;

/// Between arguments, and before each command, in what the shell reports.
const ARGUMENT: char = '\u{1f}';
const COMMAND: char = '\u{1e}';

/// Makes the shell report commands with their arguments, as it would pass them, in place of running them.
const PRELUDE: &str = r#"
report() { { printf '\036'; printf '%s\037' "$@"; } >>"$REPORT"; }
claimcheck() { report claimcheck "$@"; }
command_not_found_handle() { report "$@"; }
"#;

/// The pages with commands: their path from the root of the workspace, and their text.
fn pages() -> Vec<(String, String)> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "dashboards", "manifests", "docs", "ci/findings"]
            .iter()
            .map(|name| workspace().join(name))
            .collect();
    let mut pages = Vec::new();
    while let Some(path) = found.pop() {
        if path.is_dir() {
            found.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(workspace()).expect("below it").display().to_string();
            pages.push((name, fs::read_to_string(&path).expect("a page is text")));
        }
    }
    pages.sort();
    pages
}

/// The blocks of shell commands of a page.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (&mut open, line.trim_start()) {
            // Those marked `run` are also run, by `cli/tests/commands/pages.rs`.
            (None, "```sh" | "```sh run") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), _) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// The commands of a block with their arguments, as the shell would run them.
fn commands(folder: &Path, block: &str) -> Vec<Vec<String>> {
    let report = folder.join("report");
    fs::write(&report, "").expect("a file");
    let ran = Command::new("/bin/bash")
        .args(["--norc", "-c", &format!("{PRELUDE}{block}")])
        .env_clear()
        .envs([("PATH", folder), ("REPORT", report.as_path())])
        .current_dir(folder)
        .output()
        .expect("bash runs");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(!errors.contains("syntax error") && !errors.contains("unexpected EOF"), "{errors}\n{block}");
    let text = fs::read_to_string(&report).expect("text");
    text.split(COMMAND)
        .skip(1)
        .map(|command| command.trim_end_matches(ARGUMENT).split(ARGUMENT).map(str::to_owned).collect())
        .collect()
}

/// The arguments for claimcheck, if a command runs it, also as `cargo run -- ..`.
fn for_claimcheck(command: &[String]) -> Option<Vec<String>> {
    let arguments = match command.first()?.as_str() {
        "claimcheck" => command.get(1..)?,
        "cargo" if command.get(1).is_some_and(|name| name == "run") => {
            command.split(|argument| argument == "--").nth(1).unwrap_or_default()
        }
        _ => return None,
    };
    Some([&["claimcheck".to_owned()], arguments].concat())
}

#[test]
fn commands_in_blocks_are_parsed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut tried, mut wrong) = (0, Vec::new());
    for (name, text) in pages() {
        for block in blocks(&text) {
            for command in commands(folder.path(), &block) {
                let Some(arguments) = for_claimcheck(&command) else { continue };
                tried += 1;
                if let Err(error) = Cli::try_parse_from(normal(arguments.into_iter().map(Into::into))) {
                    wrong.push(format!("{name}: {}\n{error}", command.join(" ")));
                }
            }
            for script in block.split_whitespace().filter(|word| word.starts_with("ci/")) {
                if !workspace().join(script).exists() {
                    wrong.push(format!("{name}: {script} does not exist"));
                }
            }
        }
    }
    assert!(tried > 40, "only {tried} commands: the search itself is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The pieces of code in the prose of a page.
fn spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let prose = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let prose: Vec<&str> = prose.collect();
    let spans = prose.join("\n");
    spans
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The first flag of a command in prose, such as `claimcheck run --sidecars upstream`, that does not exist.
fn unknown_flag(span: &str) -> Option<String> {
    let mut command = Cli::command();
    command.build();
    let mut command = &command;
    for word in span.split_whitespace().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            command = below;
        } else if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split(['=', ',']).next().unwrap_or_default();
            let known = |arg: &clap::Arg| arg.get_long() == Some(flag);
            if !flag.is_empty() && !command.get_arguments().any(known) {
                return Some(format!("--{flag}"));
            }
        }
    }
    None
}

#[test]
fn flags_in_prose_exist() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (name, text) in pages() {
        for span in spans(&text).iter().filter(|span| span.starts_with("claimcheck ")) {
            tried += 1;
            wrong.extend(unknown_flag(span).map(|flag| format!("{name}: `{span}`: {flag}")));
        }
    }
    assert!(tried > 40, "only {tried} commands: the search itself is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(unknown_flag("claimcheck run --nodse 2"), Some("--nodse".to_owned()));
}

/// The commands of claimcheck in the lines of a script, which it calls by a variable.
fn commands_of_script(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let starts = text
        .to_lowercase()
        .match_indices("$claimcheck\" ")
        .map(|(at, found)| at + found.len())
        .collect::<Vec<_>>();
    let end = |rest: &str| rest.find(['\n', ';', '|', '>', '\'']).unwrap_or(rest.len());
    starts.into_iter().map(|at| format!("claimcheck {}", &text[at..at + end(&text[at..])])).collect()
}

#[test]
fn commands_of_scripts_exist() {
    let (mut tried, mut wrong) = (0, Vec::new());
    let scripts =
        fs::read_dir(workspace().join("ci")).expect("a folder").map(|entry| entry.expect("an entry").path());
    for script in scripts.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&script).expect("a script is text");
        for command in commands_of_script(&text) {
            tried += 1;
            let name = command.split_whitespace().nth(1).unwrap_or_default();
            let known = Cli::command().find_subcommand(name).is_some_and(|command| !command.is_hide_set());
            let unknown = if known { unknown_flag(&command) } else { Some(name.to_owned()) };
            wrong.extend(unknown.map(|word| format!("{}: `{command}`: {word}", script.display())));
        }
    }
    assert!(tried > 12, "only {tried} commands: the search itself is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test programs that pages name with `cargo test .. --test NAME`.
#[test]
fn test_programs_exist() {
    let crates: Vec<PathBuf> = ["cli", "model", "harness", "suites", "storage", "testing"]
        .iter()
        .flat_map(|name| {
            let folder = workspace().join(name);
            let below = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
            below.chain([folder.clone()]).collect::<Vec<_>>()
        })
        .collect();
    let exists = |name: &str| {
        let has = |krate: &PathBuf| {
            let tests = krate.join("tests");
            tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists()
        };
        crates.iter().any(has)
    };
    let mut tried = 0;
    for (page, text) in pages() {
        let lines =
            blocks(&text).into_iter().flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>());
        for line in spans(&text).into_iter().chain(lines).filter(|line| line.contains("cargo test")) {
            let mut words = line.split_whitespace().skip_while(|word| *word != "--test");
            if let Some(name) = words.nth(1) {
                tried += 1;
                assert!(exists(name), "{page}: {line}: no crate has a test program {name}");
            }
        }
    }
    assert!(tried > 3, "only {tried} commands: the search itself is broken");
    assert!(!exists("no-such-program"));
}
