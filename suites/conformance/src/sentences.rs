//! Tests of completeness: the cases against the text of the CSI specification, and against the tests of csi-sanity.

use std::collections::BTreeSet;

use crate::{
    catalogue,
    spec::{self, Sentence},
};

/// The sentences of the specification.
const SENTENCES: &str = include_str!("sentences.txt");
/// The tests of csi-sanity.
const CSI_SANITY: &str = include_str!("csi_sanity.txt");
/// A text of more characters is about the same as one that contains it.
const TYPICAL: usize = 14;

/// Whom a sentence binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binds {
    Driver,
    Caller,
    /// The driver, by another sentence, too.
    Repeat,
    None,
}

/// A sentence of the specification's text.
#[derive(Clone, Copy, Debug)]
struct Line {
    section: &'static str,
    binds: Binds,
    text: &'static str,
}

/// The lines of a file without comments.
fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().filter(|line| !line.is_empty() && (!line.starts_with('#') || line.starts_with("## ")))
}

fn sentences() -> Vec<Line> {
    let (mut section, mut all) = ("", Vec::new());
    for line in lines(SENTENCES) {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
            continue;
        }
        let (mark, text) = line.split_once(' ').unwrap();
        let binds = match mark {
            "driver" => Binds::Driver,
            "caller" => Binds::Caller,
            "repeat" => Binds::Repeat,
            "none" => Binds::None,
            _ => panic!("{line}"),
        };
        all.push(Line { section, binds, text: text.trim_start() });
    }
    all
}

/// The fields that a sentence is about, and the sentence without them: `required_bytes and limit_bytes: The value`.
fn fields(text: &str) -> (Vec<&str>, &str) {
    let is_field = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let named = text.split_once(": ").and_then(|(names, rest)| {
        let names: Vec<&str> = names.split(", ").flat_map(|names| names.split(" and ")).collect();
        names.iter().all(is_field).then_some((names, rest))
    });
    named.unwrap_or((Vec::new(), text))
}

/// The words of a sentence, without the addresses of links.
fn words(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        plain.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = plain.split(|c| !is_of_word(c)).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join(" ")
}

/// Whether a line of the specification and a sentence of the cases are the same, or one contains the other.
fn is_same(line: Line, rule: &Sentence) -> bool {
    let ((line_fields, line_text), (rule_fields, rule_text)) = (fields(line.text), fields(rule.text));
    let (one, other) = (words(line_text), words(rule_text));
    let contains = |whole: &str, part: &str| whole == part || (part.len() > TYPICAL && whole.contains(part));
    line.section == rule.section
        && (rule_fields.is_empty() || line_fields.iter().any(|field| rule_fields.contains(field)))
        && (contains(&one, &other) || contains(&other, &one))
}

/// Whether a sentence has a keyword of RFC 2119, or is a row of a table of errors; the other ones of the cases are what
/// Kubernetes requires, or permissions.
fn is_in_the_text(rule: &Sentence) -> bool {
    let keyword = ["MUST", "SHALL", "REQUIRED", "SHOULD", "RECOMMENDED"];
    let code = rule.text.rsplit_once(": ").and_then(|(_, code)| code.split(' ').next());
    rule.text.split(|c: char| !c.is_ascii_uppercase()).any(|word| keyword.contains(&word))
        || code.is_some_and(|number| number.parse::<u8>().is_ok())
}

#[test]
fn each_sentence_that_binds_a_driver_is_listed() {
    let lines = sentences();
    let count = |binds| lines.iter().filter(|line| line.binds == binds).count();
    assert!(count(Binds::Driver) >= 390, "{}", count(Binds::Driver));
    assert!(count(Binds::Caller) >= 200 && count(Binds::Repeat) >= 80 && count(Binds::None) < 30);
    let is_missing =
        |line: &&Line| line.binds == Binds::Driver && !spec::ALL.iter().any(|rule| is_same(**line, rule));
    let missing: Vec<String> =
        lines.iter().filter(is_missing).map(|line| format!("{}: {}", line.section, line.text)).collect();
    assert!(missing.is_empty(), "neither a case nor a reason:\n{}", missing.join("\n"));
}

#[test]
fn each_listed_sentence_is_in_the_specification() {
    let lines = sentences();
    let is_invented = |rule: &&&Sentence| {
        is_in_the_text(rule) && !lines.iter().any(|line| line.binds == Binds::Driver && is_same(*line, rule))
    };
    let invented: Vec<String> = spec::ALL.iter().filter(is_invented).map(ToString::to_string).collect();
    assert!(invented.is_empty(), "not in the specification:\n{}", invented.join("\n"));
    let headings: BTreeSet<&str> = lines.iter().map(|line| line.section).collect();
    let unknown: Vec<&str> = (spec::ALL.iter().filter(|rule| is_in_the_text(rule)))
        .map(|rule| rule.section)
        .filter(|section| !headings.contains(section))
        .collect();
    assert_eq!(unknown, [] as [&str; 0], "sections of no sentence");
}

#[test]
fn each_test_of_csi_sanity_is_named_by_a_case() {
    let tests: BTreeSet<&str> =
        lines(CSI_SANITY).map(|name| name.strip_prefix("pending ").unwrap_or(name)).collect();
    assert_eq!(lines(CSI_SANITY).filter(|name| !name.starts_with("pending ")).count(), 95);
    let named: BTreeSet<&str> = catalogue().iter().filter_map(|case| case.row.upstream).collect();
    assert_eq!(tests.difference(&named).collect::<Vec<_>>(), [] as [&&str; 0], "without a case");
    assert_eq!(named.difference(&tests).collect::<Vec<_>>(), [] as [&&str; 0], "no tests of csi-sanity");
}

#[test]
fn sentences_are_compared_by_their_words_and_fields() {
    let line = |text| Line { section: "CreateVolume", binds: Binds::Driver, text };
    assert!(is_same(line("volume_id: This field is **REQUIRED**."), spec::VOLUME_ID));
    assert!(!is_same(line("name: This field is REQUIRED."), spec::VOLUME_ID));
    assert!(is_same(line("limit_bytes: The value of this field MUST NOT be negative."), spec::SIZE_SIGN));
    assert!(is_same(line("This operation [MUST](#x) be\nidempotent"), spec::CREATE_TWICE));
    assert!(!is_same(
        Line { section: "DeleteVolume", ..line("This operation MUST be idempotent.") },
        spec::CREATE_TWICE
    ));
    assert!(
        !is_in_the_text(spec::EMPTY) && is_in_the_text(spec::SOURCE_GONE) && is_in_the_text(spec::CREATE)
    );
}
