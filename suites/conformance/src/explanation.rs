//! `claimcheck csi --explain`: what a case checks and why, from its row, its suite and its sentence.

use claimcheck_engine::Case as _;

use crate::{
    case::Case,
    need::Need,
    spec::{Note, Sentence, Strength},
};

/// Verbs with which the expected result begins in the name of a case.
const VERBS: [&str; 48] = [
    "applies",
    "are",
    "attach",
    "attaches",
    "captures",
    "confirms",
    "contain",
    "contains",
    "continues",
    "copies",
    "counts",
    "create",
    "creates",
    "declares",
    "delete",
    "detach",
    "detaches",
    "do",
    "does",
    "has",
    "have",
    "holds",
    "includes",
    "is",
    "keep",
    "keeps",
    "leave",
    "leaves",
    "makes",
    "matches",
    "mount",
    "mounts",
    "preserves",
    "prevents",
    "provides",
    "publish",
    "reports",
    "restores",
    "return",
    "returns",
    "sets",
    "shows",
    "succeed",
    "succeeds",
    "survive",
    "survives",
    "unmount",
    "unmounts",
];

impl Case {
    /// What the case checks and why, as text.
    pub fn explanation(&self) -> String {
        let rule = self.row.rule;
        let (subject, expected) = split(self.row.name);
        let required = self.needs().filter(|need| !matches!(need, Need::Follows(_)));
        let needs: Vec<String> = required.map(Need::name).collect();
        let verdict = match rule.strength {
            Strength::Must | Strength::Kubernetes => "fails the case",
            Strength::Should => "is a warning; with --strict, it fails the case",
            Strength::May => "is a warning: the specification permits it",
        };
        let mut lines = vec![
            self.id().to_string(),
            String::new(),
            format!("{}: \"{}\"", rule.strength, rule.text),
            rule.source(),
            String::new(),
            format!("What it does     {subject}. {}", self.about),
            format!("What it expects  {expected}"),
            format!("Why it matters   {}", rule.why()),
            format!("How to fix it    {}", rule.advice.unwrap_or("No case checks the sentence.")),
            format!("A violation      {verdict}"),
        ];
        if !needs.is_empty() {
            lines.push(format!("What it requires {}", needs.join(", ")));
        }
        if let Some(waits) = self.waits() {
            lines.push(format!("It may wait for  {}, up to {}", waits.reason, waits.limit));
        }
        if let Some(alone) = self.row.alone {
            lines.push(format!("It runs alone    {}", alone.reason()));
        }
        if let Some(upstream) = self.row.upstream {
            lines.push(format!("In csi-sanity    {upstream}"));
        }
        lines.extend(self.row.also.iter().map(|rule| format!("It also checks   {rule}")));
        lines.join("\n")
    }
}

impl Sentence {
    /// Where it stands.
    fn source(&self) -> String {
        match self.link() {
            link if link == self.section => link,
            link => format!("CSI specification 1.12.0, {}: {link}", self.section),
        }
    }

    /// Why the sentence matters to users; if no case checks it, why not.
    pub fn why(&self) -> &'static str {
        match self.note {
            Note::Why(text) | Note::Untested(text) => text,
        }
    }
}

/// Splits the name of a case before the verb of its expected result. The verb of a relative clause belongs to the
/// condition.
fn split(name: &str) -> (&str, &str) {
    let (mut at, mut before) = (0, [""; 2]);
    for word in name.split(' ') {
        let relative = before.contains(&"that") || before[1] == "neither";
        if at > 0 && !relative && VERBS.contains(&word) {
            return (&name[..at - 1], &name[at..]);
        }
        (at, before) = (at + word.len() + 1, [before[1], word]);
    }
    (name, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn names_state_what_is_expected() {
        for (name, subject, expected) in [
            (
                "CreateVolume without a name returns InvalidArgument",
                "CreateVolume without a name",
                "returns InvalidArgument",
            ),
            (
                "CreateVolume that returns an error creates no volume",
                "CreateVolume that returns an error",
                "creates no volume",
            ),
            (
                "an RPC that CSI does not define returns Unimplemented",
                "an RPC that CSI does not define",
                "returns Unimplemented",
            ),
            (
                "a capability with neither mount nor block access is rejected by every call",
                "a capability with neither mount nor block access",
                "is rejected by every call",
            ),
            ("data survives a driver restart", "data", "survives a driver restart"),
        ] {
            assert_eq!(split(name), (subject, expected));
        }
        for case in catalogue() {
            assert_ne!(split(case.row.name).1, "", "{}: add its verb to VERBS", case.id());
        }
    }

    /// Cases that may wait for more than responses are named as such, and are the minority.
    #[test]
    fn few_cases_wait() {
        let cases = catalogue();
        let waiting: Vec<&Case> = cases.iter().filter(|case| case.waits().is_some()).collect();
        assert!(waiting.len() * 2 < cases.len(), "{} of {} cases wait", waiting.len(), cases.len());
        for suite in ["concurrency", "interruptions", "replays", "snapshots"] {
            assert!(waiting.iter().any(|case| case.suite == suite), "no case of {suite} waits");
        }
        for case in waiting {
            let text = case.explanation();
            let reason = case.waits().unwrap().reason;
            assert!(text.contains(&format!("It may wait for  {reason}, up to ")), "{text}");
        }
    }

    #[test]
    fn an_explanation_has_the_sentence_the_reason_and_a_link() {
        let cases = catalogue();
        let named =
            |name: &str| cases.iter().find(|case| case.row.name == name).expect("it is in the catalogue");
        let text = named("CreateVolume without a name returns InvalidArgument").explanation();
        for words in [
            "controller_create::CreateVolume without a name returns InvalidArgument\n",
            "MUST: \"Missing required field: 3 INVALID_ARGUMENT\"",
            "/spec/blob/v1.12.0/spec.md#error-scheme",
            "What it does     CreateVolume without a name. Creates volumes",
            "What it expects  returns InvalidArgument",
            "Why it matters   InvalidArgument reports a mistake",
            "How to fix it    Check at the beginning of the call that each REQUIRED field is set",
            "A violation      fails the case",
            "What it requires CREATE_DELETE_VOLUME",
            "In csi-sanity    Controller Service [Controller Server] CreateVolume should fail when no name is provided",
        ] {
            assert!(text.contains(words), "{words:?} is missing in:\n{text}");
        }
        let weaker =
            named("ControllerExpandVolume to a smaller size succeeds and keeps the size").explanation();
        assert!(
            weaker.contains("A violation      is a warning; with --strict, it fails the case"),
            "{weaker}"
        );
        assert!(weaker.contains("It also checks   Kubernetes (ControllerExpandVolume): "), "{weaker}");
    }
}
