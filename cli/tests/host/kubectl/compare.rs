//! Answers compared with the expected ones: everything that differs, by command.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    diff::unified,
    script::{Answer, Script},
};

/// The end of an expected line that may go on.
const ANY: &str = "<any>";

/// What differs, with the reasons that are given for commands without a difference. One text a command.
pub fn differences(script: &Script, expected: &[Answer], actual: &[Answer]) -> Vec<String> {
    let mut reports = Vec::new();
    for (((scenario, step), expected), actual) in script.steps().zip(expected).zip(actual) {
        let title = format!("{} [{scenario}] $ {}", step.place, step.command);
        match (&step.reason, expected == actual) {
            (None, false) => reports.push(format!("{title}\n{}", unified(expected, actual))),
            (Some(reason), true) => {
                reports.push(format!("{title}\n  no longer differs: remove `# differs: {reason}`"));
            }
            (None, true) | (Some(_), false) => {}
        }
    }
    reports
}

/// The answers in a recording, for the commands of the script; none for a command that it does not have.
pub fn recorded(script: &Script, recording: &Script) -> Vec<Option<Answer>> {
    // A scenario may have the same command several times.
    let mut answers: BTreeMap<(&str, &str), Vec<&Answer>> = BTreeMap::new();
    for (scenario, step) in recording.steps() {
        answers.entry((scenario, step.command.as_str())).or_default().push(&step.answer);
    }
    let mut next: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let of_step = script.steps().map(|(scenario, step)| {
        let key = (scenario, step.command.as_str());
        let number = next.entry(key).or_default();
        *number += 1;
        answers.get(&key)?.get(*number - 1).map(|answer| (*answer).clone())
    });
    of_step.collect()
}

/// The scenarios and commands with an answer that is not that of the base.
pub fn different<'a>(
    script: &'a Script,
    base: &[Option<Answer>],
    answers: &[Answer],
) -> BTreeSet<(&'a str, &'a str)> {
    let steps = script.steps().zip(base.iter().zip(answers));
    let differ = steps.filter(|(_, (base, answer))| base.as_ref() != Some(answer));
    differ.map(|((scenario, step), _)| (scenario, step.command.as_str())).collect()
}

/// The answer, with the lines that an expected line ending in `<any>` permits replaced by that line.
pub fn permitted(expected: &Answer, actual: &Answer) -> Answer {
    let open: Vec<&str> = expected.iter().filter_map(|line| line.strip_suffix(ANY)).collect();
    let replace = |line: &String| match open.iter().find(|start| line.starts_with(**start)) {
        Some(start) => format!("{start}{ANY}"),
        None => line.clone(),
    };
    actual.iter().map(replace).collect()
}

#[test]
fn differences_and_reasons_without_one_are_reported() {
    let text = "== s\n$ a\n# differs: b is new\n$ b\n# differs: c is new\n$ c\n$ d\n";
    let script = super::script::parse("s", text);
    let answer = |text: &str| vec![text.to_owned()];
    let expected = [answer("> 1"), answer("> 1"), answer("> 1"), answer("> 1")];
    let actual = [answer("> 1"), answer("> 2"), answer("> 1"), answer("> 2")];
    let reports = differences(&script, &expected, &actual);
    assert_eq!(
        reports,
        [
            "s.txt:6 [s] $ c\n  no longer differs: remove `# differs: c is new`",
            "s.txt:7 [s] $ d\n  -> 1\n  +> 2",
        ]
    );
    let recording = super::script::parse("r", "== s\n$ d\n> 1\n$ a\n> 2\n");
    let base = recorded(&script, &recording);
    assert_eq!(base, [Some(answer("> 2")), None, None, Some(answer("> 1"))]);
    let found = different(&script, &base, &[answer("> 2"), answer("> 2"), answer("> 1"), answer("> 1")]);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [("s", "b"), ("s", "c")]);
    assert_eq!(permitted(&answer("! no<any>"), &answer("! node")), answer("! no<any>"));
    assert_eq!(permitted(&answer("! no<any>"), &answer("! yes")), answer("! yes"));
}
