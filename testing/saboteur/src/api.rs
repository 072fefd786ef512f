//! What a defect does to requests to the embedded API server: the interference of the rules in a row.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use claimcheck_apiserver::{Asked, Course, Fate, Further, Interference};
use serde_json::{Value, json};

use crate::{
    api_row::{Action, Also, Rule},
    fields::{Around, at, change, satisfies},
    row::{Change, Number},
};

/// The user with the administrator's token, as which the cases act.
const SUITE: &str = "kubernetes-admin";
/// What the name of a node's user begins with.
const NODES: &str = "system:node:";
/// What the names of the controllers' users begin with.
const CONTROLLERS: &str = "system:serviceaccount:claimcheck-system:claimcheck-";
/// Changes of what is stored, in which rules see the object.
const STORED: [&str; 3] = ["create", "update", "patch"];

/// The rules of a defect, and how often each has matched.
#[derive(Debug)]
pub(crate) struct ApiSaboteur {
    rules: Vec<Rule>,
    matched: Mutex<BTreeMap<(usize, Stage, String), u64>>,
    /// The rules that have applied.
    applied: Mutex<BTreeSet<usize>>,
}

/// When a rule is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Before,
    Write,
    After,
}

impl ApiSaboteur {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self { rules, matched: Mutex::default(), applied: Mutex::default() }
    }

    /// The rules that match a request with an action for which this holds.
    fn matching(
        &self,
        stage: Stage,
        asked: &Asked,
        (stored, new): (&Value, &Value),
        acts: impl Fn(&Rule, &Action) -> bool,
    ) -> Vec<&Rule> {
        let mut matching = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let holds = is_about(rule, asked)
                && rule.then.iter().any(|action| acts(rule, action))
                && conditions_hold(rule, stored, new);
            if holds && self.is_due(rule, (number, stage), asked, new) {
                self.note_applied(number);
                matching.push(rule);
            }
        }
        matching
    }

    /// The rules about responses.
    fn shown(&self, asked: &Asked) -> impl Iterator<Item = &Rule> {
        let shown = self.rules.iter().enumerate().filter(|(_, rule)| sees(rule, asked));
        shown.map(|(number, rule)| {
            self.note_applied(number);
            rule
        })
    }

    fn note_applied(&self, number: usize) {
        if self.applied.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
            tracing::info!(rule = number, "a rule of the API applies");
        }
    }

    /// Whether this is the number of the request at which a rule acts.
    fn is_due(&self, rule: &Rule, (number, stage): (usize, Stage), asked: &Asked, new: &Value) -> bool {
        let Some(due) = rule.when.call else { return true };
        let name = Some(asked.name.as_str()).filter(|name| !name.is_empty());
        let name = name.or(new["metadata"]["name"].as_str()).unwrap_or_default();
        let object = format!("{}/{name}", asked.namespace);
        let mut matched = self.matched.lock().unwrap_or_else(PoisonError::into_inner);
        let count = matched.entry((number, stage, object)).or_default();
        *count += 1;
        match due {
            Number::Nth(nth) => *count == nth,
            Number::From { from } => *count >= from,
        }
    }
}

/// Whether a user is the one that a rule names.
fn is_by(name: &str, user: &str) -> bool {
    match name {
        "any" => true,
        "suite" => user == SUITE,
        "node" => user.starts_with(NODES),
        "controllers" => user.starts_with(CONTROLLERS),
        name => user.rsplit(':').next().is_some_and(|user| {
            user.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('-'))
        }),
    }
}

/// Whether a rule changes what a user sees in the response: also in those to its writes, since components keep them. The
/// controllers share one cache.
fn sees(rule: &Rule, asked: &Asked) -> bool {
    let changes = |action: &Action| {
        matches!(action, Action::See(_) | Action::Hide(true) | Action::Reverse(true) | Action::Late(_))
    };
    let by =
        |name: &String| is_by(name, &asked.user) || (name == "cache" && asked.user.starts_with(CONTROLLERS));
    let is_written = STORED.contains(&asked.verb)
        && rule.by.iter().any(by)
        && rule.verb.iter().any(|verb| verb == "read")
        && rule.of.iter().any(|resource| resource == asked.resource);
    rule.then.iter().any(changes) && (is_written || is_about(rule, asked))
}

/// Whether a rule is about such requests.
fn is_about(rule: &Rule, asked: &Asked) -> bool {
    let by = |name: &String| is_by(name, &asked.user);
    let verb = match asked.verb {
        "patch" => "update",
        "get" | "list" | "watch" => "read",
        verb => verb,
    };
    let of = |name: &String| match (name.split_once('/'), &asked.subresource) {
        (None, None) => name == asked.resource,
        (Some((resource, "*")), _) => resource == asked.resource,
        (Some((resource, part)), Some(subresource)) => resource == asked.resource && part == subresource,
        _ => false,
    };
    rule.by.iter().any(by)
        && rule.verb.iter().any(|it| it == verb || it == asked.verb)
        && rule.of.iter().any(of)
}

fn conditions_hold(rule: &Rule, stored: &Value, new: &Value) -> bool {
    let when = &rule.when;
    when.stored.iter().all(|(path, predicate)| satisfies(stored, path, predicate, None))
        && when.new.iter().all(|(path, predicate)| satisfies(new, path, predicate, Some(stored)))
        && when.changes.iter().all(|path| at(stored, path) != at(new, path))
}

/// Whether a request is one in which the rules see the object that is stored.
fn stores(asked: &Asked) -> bool {
    STORED.contains(&asked.verb)
        && !matches!(asked.subresource.as_deref(), Some("binding" | "eviction" | "token"))
}

/// Makes the changes of a row.
fn apply(row: &Change, stored: &Value, object: &mut Value) {
    let request = json!({ "stored": stored, "new": object.clone() });
    change(object, row, Around { request: &request, first: None, other: None });
}

/// Replaces paths of fields in braces by the fields.
fn filled(text: &str, around: &Value) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once('}').unwrap_or((part, ""));
        match at(around, path).first() {
            Some(Value::String(text)) => filled.push_str(text),
            Some(value) => filled.push_str(&value.to_string()),
            None => {}
        }
        filled.push_str(rest);
    }
    filled
}

fn fill(value: &mut Value, around: &Value) {
    match value {
        Value::String(text) => *text = filled(text, around),
        Value::Array(entries) => entries.iter_mut().for_each(|entry| fill(entry, around)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, around)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn further(also: &Also, stored: &Value, new: &Value) -> Further {
    let around = json!({ "stored": stored, "new": new });
    let mut body = also.body.clone();
    if let Some(row) = &also.copy {
        body = new.clone();
        apply(row, stored, &mut body);
    }
    fill(&mut body, &around);
    Further { method: also.method.clone(), path: filled(&also.path, &around), body }
}

impl Interference for ApiSaboteur {
    fn before(&self, asked: &Asked, stored: &Value, body: &Value) -> (Duration, Course) {
        let (mut delay, mut course) = (Duration::ZERO, Course::Proceed);
        let acts = |_: &Rule, action: &Action| match action {
            Action::Delay(_) | Action::Refuse(_) | Action::Lose(_) | Action::Accept(true) => true,
            Action::Drop(true) => !stores(asked),
            _ => false,
        };
        for action in
            self.matching(Stage::Before, asked, (stored, body), acts).iter().flat_map(|rule| &rule.then)
        {
            match action {
                Action::Delay(time) => delay += *time,
                Action::Refuse(refusal) => course = Course::Fail(refusal.code, refusal.message.clone()),
                Action::Lose(refusal) => course = Course::Lose(refusal.code, refusal.message.clone()),
                Action::Accept(true) => course = Course::Accept,
                Action::Drop(true) if !stores(asked) => course = Course::Pretend,
                _ => {}
            }
        }
        (delay, course)
    }

    fn write(&self, asked: &Asked, old: &Value, new: &mut Value) -> Fate {
        let acts = |_: &Rule, action: &Action| matches!(action, Action::Drop(true) | Action::Change(_));
        let mut fate = Fate::Stored;
        for action in self.matching(Stage::Write, asked, (old, new), acts).iter().flat_map(|rule| &rule.then)
        {
            match action {
                Action::Drop(true) => fate = Fate::Lost,
                Action::Change(row) => apply(row, old, new),
                _ => {}
            }
        }
        fate
    }

    fn after(&self, asked: &Asked, stored: &Value, result: &Value) -> Vec<Further> {
        let acts = |_: &Rule, action: &Action| matches!(action, Action::Also(_));
        let rules = self.matching(Stage::After, asked, (stored, result), acts);
        let also = rules.iter().flat_map(|rule| &rule.then).filter_map(|action| match action {
            Action::Also(also) => Some(further(also, stored, result)),
            _ => None,
        });
        also.collect()
    }

    fn shows(&self, asked: &Asked) -> bool {
        self.rules.iter().any(|rule| sees(rule, asked))
    }

    fn reverses(&self, asked: &Asked) -> bool {
        self.shown(asked).flat_map(|rule| &rule.then).any(|action| matches!(action, Action::Reverse(true)))
    }

    fn late(&self, asked: &Asked) -> Duration {
        let late = |action: &Action| if let Action::Late(time) = action { *time } else { Duration::ZERO };
        self.shown(asked).flat_map(|rule| &rule.then).map(late).sum()
    }

    fn show(&self, asked: &Asked, object: &mut Value) -> bool {
        let mut is_shown = true;
        for rule in self.shown(asked) {
            if !rule.when.stored.iter().all(|(path, predicate)| satisfies(object, path, predicate, None)) {
                continue;
            }
            for action in &rule.then {
                match action {
                    Action::See(row) => apply(row, &Value::Null, object),
                    Action::Hide(true) => is_shown = STORED.contains(&asked.verb),
                    _ => {}
                }
            }
        }
        is_shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saboteur(rule: Value) -> ApiSaboteur {
        ApiSaboteur::new(vec![serde_json::from_value(rule).unwrap()])
    }

    fn asked(user: &str, verb: &'static str, resource: &'static str, subresource: Option<&str>) -> Asked {
        let subresource = subresource.map(str::to_owned);
        let (namespace, name) = ("ns".to_owned(), "object".to_owned());
        Asked { user: user.to_owned(), verb, resource, subresource, namespace, name }
    }

    const BINDER: &str = "system:serviceaccount:claimcheck-system:claimcheck-binder";

    #[test]
    fn a_rule_is_about_a_component_a_verb_and_a_resource() {
        let rule = json!({"by": "binder", "verb": "update", "of": "pods/status", "then": [{"drop": true}]});
        let rule: Rule = serde_json::from_value(rule).unwrap();
        assert!(is_about(&rule, &asked(BINDER, "patch", "pods", Some("status"))));
        for (user, verb, resource, part) in [
            ("system:serviceaccount:claimcheck-system:claimcheck-rebinder", "patch", "pods", Some("status")),
            (BINDER, "create", "pods", Some("status")),
            (BINDER, "patch", "pods", None),
            (BINDER, "patch", "nodes", Some("status")),
        ] {
            assert!(
                !is_about(&rule, &asked(user, verb, resource, part)),
                "{user} {verb} {resource} {part:?}"
            );
        }
        let rule = json!({"by": ["node", "suite"], "verb": "read", "of": "pods", "then": [{"hide": true}]});
        let rule: Rule = serde_json::from_value(rule).unwrap();
        assert!(is_about(&rule, &asked("system:node:node-1", "watch", "pods", None)));
        assert!(is_about(&rule, &asked("kubernetes-admin", "get", "pods", None)));
        assert!(!is_about(&rule, &asked(BINDER, "get", "pods", None)));
    }

    #[test]
    fn what_is_stored_is_changed_or_lost() {
        let of_binder = asked(BINDER, "update", "pods", None);
        let change = saboteur(json!({
            "by": "binder", "verb": "update", "of": "pods",
            "when": {"changes": ["spec.a"]}, "then": [{"change": {"set": {"spec.a": {"request": "stored.spec.a"}}}}],
        }));
        let (old, mut new) = (json!({"spec": {"a": 1, "b": 1}}), json!({"spec": {"a": 2, "b": 2}}));
        assert_eq!(change.write(&of_binder, &old, &mut new), Fate::Stored);
        assert_eq!(new, json!({"spec": {"a": 1, "b": 2}}));
        let lost = saboteur(json!({
            "by": "binder", "verb": "update", "of": "pods", "when": {"call": {"from": 2}}, "then": [{"drop": true}],
        }));
        assert_eq!(lost.write(&of_binder, &old, &mut new), Fate::Stored);
        assert_eq!(lost.write(&of_binder, &old, &mut new), Fate::Lost);
        let other = Asked { name: "other".to_owned(), ..of_binder };
        assert_eq!(lost.write(&other, &old, &mut new), Fate::Stored, "calls are counted for each object");
    }

    #[test]
    fn what_is_read_is_changed_or_hidden() {
        let reads = asked("system:node:node-1", "watch", "pods", None);
        let rule = json!({
            "by": "node", "verb": "read", "of": "pods", "when": {"stored": {"metadata.annotations.a\\.b/c": "x"}},
            "then": [{"see": {"drop": ["spec.a"], "set": {"metadata.annotations.a\\.b/c": {"replace": ["x", "y"]}}}}],
        });
        let saboteur = saboteur(rule);
        assert!(saboteur.shows(&reads) && !saboteur.shows(&asked(BINDER, "watch", "pods", None)));
        assert!(saboteur.shows(&asked("system:node:node-1", "patch", "pods", Some("status"))));
        let mut pod = json!({"metadata": {"annotations": {"a.b/c": "x"}}, "spec": {"a": 1}});
        assert!(saboteur.show(&reads, &mut pod));
        assert_eq!(pod, json!({"metadata": {"annotations": {"a.b/c": "y"}}, "spec": {}}));
    }

    #[test]
    fn further_requests_have_fields_of_the_object() {
        let saboteur = saboteur(json!({
            "by": "binder", "verb": "delete", "of": "pods",
            "then": [{"also": {"method": "PATCH", "path": "/x/{stored.name}/y", "body": {"a": ["{new.b}"]}}}],
        }));
        let deletes = asked(BINDER, "delete", "pods", None);
        let further = saboteur.after(&deletes, &json!({"name": "n"}), &json!({"b": "c"}));
        let expected = Further { method: "PATCH".into(), path: "/x/n/y".into(), body: json!({"a": ["c"]}) };
        assert_eq!(further, [expected]);
    }
}
