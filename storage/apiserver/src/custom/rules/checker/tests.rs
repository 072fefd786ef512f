//! Rules with the answers of kube-apiserver; see `answers.txt`.

use super::shape::Shape;
use super::{Checked, check};
use crate::custom::rules::program::{Fault, Purpose};
use crate::custom::schema::Schema;

/// The detail of an error without excerpts, and with the same name for all types of `self`.
fn summary(detail: &str) -> String {
    let lines: Vec<&str> = detail.lines().filter(|line| !line.starts_with(" | ")).collect();
    let text = lines.join("\n");
    let is_number = |c: char| c.is_ascii_digit() || c == 'N';
    let parts: Vec<&str> = text.split("selfType").collect();
    let rest = parts[1..].iter().map(|part| format!("selfType{}", part.trim_start_matches(is_number)));
    parts[0].to_owned() + &rest.collect::<String>()
}

#[test]
fn rules_have_the_answers_of_kube_apiserver() {
    let (schema, rules) = include_str!("answers.txt").split_once("---\n").unwrap();
    let schema: serde_json::Value = serde_saphyr::from_str(schema).unwrap();
    let shape = Shape::of(&Schema::read(&schema), false).unwrap();
    let mut lines = rules.lines().peekable();
    while let Some(rule) = lines.next() {
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("    ")) {
            expected.push(line.trim_start());
        }
        let found = match check(rule, Purpose::Rule, &shape, false) {
            Ok(Checked { fault: Some(fault), .. }) => fault,
            Ok(Checked { cost, .. }) => format!("cost {cost}"),
            Err(Fault::Invalid(detail)) => summary(&detail),
            Err(Fault::Unsupported(feature)) => feature,
        };
        assert_eq!(found, summary(&expected.join("\n")), "{rule}");
    }
}

#[test]
fn errors_show_an_excerpt() {
    let shape = Shape::of(&Schema::read(&serde_json::json!({ "type": "string" })), false).unwrap();
    let table = [
        ("1 == foo", "1:6: undeclared reference to 'foo' (in container '')\n | 1 == foo\n | .....^"),
        (
            "true &&\n\t1 == self",
            "2:4: found no matching overload for '_==_' applied to '(int, string)'\n |  1 == self\n | ...^",
        ),
        ("'é' == é", "1:8: Syntax error: token recognition error at: 'é'\n | 'é' == é\n | .．.....＾"),
        (
            "self == 'é' && x",
            "1:16: undeclared reference to 'x' (in container '')\n | self == 'é' && x\n | .........．.....^",
        ),
    ];
    for (rule, expected) in table {
        let Err(Fault::Invalid(detail)) = check(rule, Purpose::Rule, &shape, false) else { panic!("{rule}") };
        let expected = format!("compilation failed: ERROR: <input>:{expected}");
        assert!(detail.starts_with(&expected), "{rule}: {detail}");
    }
}

#[test]
fn the_old_value_may_be_optional() {
    let shape = Shape::of(&Schema::read(&serde_json::json!({ "type": "integer" })), false).unwrap();
    let uses_old = |rule, is_optional| {
        check(rule, Purpose::Rule, &shape, is_optional).ok().map(|Checked { uses_old, .. }| uses_old)
    };
    let table = [
        ("self > 1", Some(false), Some(false)),
        ("self > oldSelf", Some(true), None),
        ("self > oldSelf.orValue(0)", None, Some(true)),
        ("[1].all(oldSelf, oldSelf > self)", Some(true), Some(true)),
        ("oldSelf.hasValue()", None, Some(true)),
    ];
    for (rule, plain, optional) in table {
        assert_eq!([uses_old(rule, false), uses_old(rule, true)], [plain, optional], "{rule}");
    }
}
