//! Words that are no part of an identifier: see "Language" in CONTRIBUTING.
//!
//! Checked are the names that a file declares (functions, types, variants, fields, constants, modules), and the names
//! of files and folders. Local variables are not.

use std::fs;

use crate::{files, workspace};

/// Each with what to write instead.
const BANNED: [(&str, &str); 36] = [
    ("tell", "emit, report, log, record"),
    ("tells", "emits, reports, logs, records"),
    ("telling", "emitting, reporting, recording"),
    ("told", "emitted, reported, recorded"),
    ("teller", "recorder"),
    ("hear", "observe, receive"),
    ("hears", "observes, receives"),
    ("heard", "observed, received"),
    ("say", "print, report"),
    ("says", "prints, reports"),
    ("said", "printed, reported"),
    ("saying", "printing, containing"),
    ("whose", "of which, or name the owner"),
    ("ours", "built-in"),
    ("theirs", "upstream, driver"),
    ("somebody", "a user, another component"),
    ("anybody", "any user, any component"),
    ("anew", "again"),
    ("lest", "so that .. does not"),
    ("heed", "obey, respect"),
    ("heeds", "obeys, respects"),
    ("wake", "enqueue, requeue, notify"),
    ("wakes", "enqueues, notifies"),
    ("woke", "enqueued, notified"),
    ("woken", "enqueued, notified"),
    ("lane", "privilege, or the row of a chart"),
    ("lanes", "privileges, rows"),
    ("beside", "next to"),
    ("besides", "additional"),
    ("yardstick", "calibration"),
    ("folk", "users"),
    ("kept", "met, retained, recorded"),
    ("broken", "corrupt, failing, lost; `reason` for why a threshold is not met"),
    ("began", "started"),
    ("begun", "started"),
    ("spoil", "disturb, corrupt"),
];
/// Only as a field, where it becomes a name in JSON.
const BANNED_FIELD: (&str, &str) = ("why", "reason");
/// Declared names that have one of these words, with the reason.
const ALLOWED: [(&str, &str); 3] = [
    ("Ours", "the value of --controllers and --sidecars"),
    ("Kept", "the state of a cluster with --keep, as it is printed"),
    ("Broken", "its name in the JSON of claimcheck compare"),
];
/// The keywords before a declared name.
const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];

/// A word, or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Mark(char),
}

/// The tokens of a source with the numbers of their lines, without comments, strings, characters and lifetimes.
fn tokens(source: &str) -> Vec<(usize, Token<'_>)> {
    let (mut rest, mut line, mut tokens) = (source, 1, Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = opaque(rest) {
            length
        } else if first.is_alphabetic() || first == '_' {
            tokens.push((line, Token::Word(&rest[..word(rest)])));
            word(rest)
        } else {
            if !first.is_whitespace() {
                tokens.push((line, Token::Mark(first)));
            }
            first.len_utf8()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// The length of the word at the start.
fn word(rest: &str) -> usize {
    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())
}

/// The length of the comment, string, character or lifetime at the start.
fn opaque(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |end| end + 2));
    }
    if let Some(after) = rest.strip_prefix('\'') {
        let mut chars = after.chars();
        return match (chars.next()?, chars.next()) {
            ('\\', _) => Some(2 + after[2..].find('\'')? + 2),
            (first, Some('\'')) => Some(first.len_utf8() + 2),
            _ => Some(1 + word(after)),
        };
    }
    let quoted = rest.trim_start_matches(['b', 'c', 'r']);
    let prefix = &rest[..rest.len() - quoted.len()];
    let body = quoted.trim_start_matches('#');
    let hashes = quoted.len() - body.len();
    let body = body.strip_prefix('"').filter(|_| hashes == 0 || prefix.contains('r'))?;
    let length = if prefix.contains('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        body.find(&end).map_or(body.len(), |at| at + end.len())
    } else {
        let mut is_escaped = false;
        let end = body.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        end.map_or(body.len(), |at| at + 1)
    };
    Some(prefix.len() + hashes + 1 + length)
}

/// The names that a source declares or assigns as fields: the line, the name, and whether it is a field.
fn declared(source: &str) -> Vec<(usize, &str, bool)> {
    let tokens = tokens(source);
    let (mut found, mut open, mut is_enum) = (Vec::new(), Vec::new(), false);
    for (at, &(line, token)) in tokens.iter().enumerate() {
        let near = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map(|(_, token)| *token);
        let (before, after) = (near(at.checked_sub(1)), near(Some(at + 1)));
        match token {
            Token::Mark(mark @ ('{' | '(' | '[')) => {
                open.push((mark, mark == '{' && std::mem::take(&mut is_enum)));
            }
            Token::Mark('}' | ')' | ']') => {
                open.pop();
            }
            Token::Mark(_) => {}
            Token::Word(name) => {
                is_enum |= name == "enum";
                let starts = matches!(before, Some(Token::Mark('{' | ',' | ']')));
                let has_type =
                    after == Some(Token::Mark(':')) && near(Some(at + 2)) != Some(Token::Mark(':'));
                let is_public = matches!(before, Some(Token::Word("pub") | Token::Mark(')')));
                let is_item = matches!(before, Some(Token::Word(keyword)) if KEYWORDS.contains(&keyword));
                let is_variant = starts && matches!(open.last(), Some((_, true)));
                let is_field = (starts || is_public) && has_type && matches!(open.last(), Some(('{', _)));
                if is_item || is_variant || is_field {
                    found.push((line, name, is_field));
                }
            }
        }
    }
    found
}

/// The segments of a name in snake case, kebab case or camel case, in lower case.
fn segments(name: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            segments.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if let (true, Some(last)) = (c.is_alphanumeric(), segments.last_mut()) {
            last.extend(c.to_lowercase());
        }
    }
    segments
}

/// The banned word in a name, with what to write instead.
fn banned(name: &str, is_field: bool) -> Option<(&'static str, &'static str)> {
    if ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
        return None;
    }
    let segments = segments(name);
    let has = |(word, _): &(&str, &str)| segments.iter().any(|segment| segment == word);
    BANNED.into_iter().find(has).or(Some(BANNED_FIELD).filter(|field| is_field && has(field)))
}

#[test]
fn identifiers_use_the_terms_of_the_field() {
    let mut offences = Vec::new();
    let sources = files(|name| name.ends_with(".rs"));
    assert!(sources.len() > 500, "only {} files: the search itself fails", sources.len());
    for file in &sources {
        let path = file.strip_prefix(workspace()).expect("a file of the workspace").display().to_string();
        for part in path.trim_end_matches(".rs").split('/') {
            if let Some((word, instead)) = banned(part, false) {
                offences.push(format!("{path}: {word}: write {instead}"));
            }
        }
        let source = fs::read_to_string(file).expect("a source is text");
        for (line, name, is_field) in declared(&source) {
            if let Some((word, instead)) = banned(name, is_field) {
                offences.push(format!("{path}:{line}: {name} has {word}: write {instead}"));
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn declared_names_are_found_and_others_are_not() {
    let found = |source| {
        let names = declared(source).into_iter();
        names.filter_map(|(_, name, is_field)| Some(banned(name, is_field)?.0)).collect::<Vec<_>>()
    };
    let cases: [(&str, &[&str]); 11] = [
        ("fn tell_all() {}", &["tell"]),
        ("const WAKE_AT: u8 = 1; mod lane; struct Keptness;", &["wake", "lane"]),
        (
            "enum Source { Upstream, TheirsToo { why: String }, #[a(b)] HeardOf(u8) }",
            &["theirs", "why", "heard"],
        ),
        ("struct A { pub(crate) began: u64, pub kept: u8, spoken: u8 }", &["began", "kept"]),
        ("let a = A { broken: 1 };", &["broken"]),
        // Local variables and parameters, segments of longer words, comments, strings and lifetimes.
        ("fn f(why: &str) { let told = says(why); }", &[]),
        ("fn colours() {} fn retold() {} fn essay() {}", &[]),
        ("// fn tell()\n/* fn tell() */ \"fn tell()\" r#\"\"fn tell()\"#", &[]),
        ("fn f<'tell>(a: &'tell str, b: char) { b == '\\'' || b == '\"' }", &[]),
        ("fn whom() { a::tell::b(); }", &[]),
        ("enum Sidecars { Ours, Upstream }", &[]),
    ];
    for (source, expected) in cases {
        assert_eq!(found(source), expected, "{source}");
    }
}
