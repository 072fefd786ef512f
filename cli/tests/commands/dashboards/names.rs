//! Which metrics and labels an expression names, and whether there are such.

use std::collections::BTreeSet;

use claimcheck_model::metric::{ALL, MetricKind};

use super::files::{dashboards, label_values, rules, text};

/// What Prometheus itself gives every series that it scrapes; those of components also have what `/targets` says, and
/// those of several clusters the external label `cluster`.
const TARGET_LABELS: [&str; 6] = ["job", "instance", "cluster", "cluster_kind", "component", "node"];
/// What takes a list of labels.
const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// The names in an expression of PromQL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// Each metric with the labels that choose among its series.
    selectors: Vec<(String, BTreeSet<String>)>,
    /// Labels of aggregations and matchings.
    lists: BTreeSet<String>,
}

/// A piece of an expression; numbers, durations and signs that mean nothing here are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Text,
    Sign(char),
}

fn tokens(mut rest: &str) -> Vec<Token<'_>> {
    let mut all = Vec::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => {
                all.push(Token::Text);
                let escaped = |(at, _): &(usize, _)| rest[..*at].ends_with('\\');
                let end = rest[1..].match_indices('"').map(|(at, quote)| (at + 1, quote));
                end.into_iter().find(|quote| !escaped(quote)).expect("a text ends").0 + 1
            }
            '[' => rest.find(']').expect("a range ends") + 1,
            '$' | '0'..='9' => 1 + rest[1..].find(|c| !is_name(c) && c != '.').unwrap_or(rest.len() - 1),
            c if is_name(c) => {
                let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                all.push(Token::Name(&rest[..length]));
                length
            }
            c => {
                if !c.is_whitespace() {
                    all.push(Token::Sign(c));
                }
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    all
}

fn names(expr: &str) -> Names {
    let all = tokens(expr);
    let mut names = Names::default();
    let mut at = 0;
    // The names from a bracket to the one that closes it.
    let within = |from: usize, close: char| {
        let end =
            from + all[from..].iter().position(|token| *token == Token::Sign(close)).expect("it closes");
        let inner = all[from..end].iter();
        (inner.filter_map(|token| if let Token::Name(name) = token { Some(*name) } else { None }), end)
    };
    while at < all.len() {
        if let Token::Name(name) = all[at] {
            let next = all.get(at + 1);
            if LABEL_LISTS.contains(&name) {
                let (labels, end) = within(at + 1, ')');
                names.lists.extend(labels.map(str::to_owned));
                at = end;
            } else if next == Some(&Token::Sign('{')) {
                let (labels, end) = within(at + 1, '}');
                names.selectors.push((name.to_owned(), labels.map(str::to_owned).collect()));
                at = end;
            } else if next != Some(&Token::Sign('(')) && !OPERATORS.contains(&name) && !aggregates(next) {
                names.selectors.push((name.to_owned(), BTreeSet::new()));
            }
        }
        at += 1;
    }
    names
}

/// Whether a name is an aggregation, since what comes next is its list of labels: `sum by (..) (..)`.
fn aggregates(next: Option<&Token<'_>>) -> bool {
    matches!(next, Some(Token::Name("by" | "without")))
}

/// The labels of a series, if the model or a rule in `dashboards/` declares it.
fn labels(series: &str) -> Option<BTreeSet<String>> {
    labels_within(series, &mut BTreeSet::new())
}

/// The labels of a series that a rule uses; without those of `seen` series, since rules of one name may use one another.
fn labels_within(series: &str, seen: &mut BTreeSet<String>) -> Option<BTreeSet<String>> {
    let own = |extra: &[&'static str], labels: &[&'static str]| {
        [labels, extra, TARGET_LABELS.as_slice()].concat().into_iter().map(str::to_owned).collect()
    };
    for metric in ALL {
        let (names, rest) = (metric.label_names(), series.strip_prefix(metric.name));
        match (metric.kind, rest) {
            (MetricKind::Counter | MetricKind::Gauge, Some("")) => return Some(own(&[], &names)),
            (MetricKind::Histogram(_), Some("_sum" | "_count")) => return Some(own(&[], &names)),
            (MetricKind::Histogram(_), Some("_bucket")) => return Some(own(&["le"], &names)),
            (MetricKind::Counter | MetricKind::Gauge | MetricKind::Histogram(_), _) => {}
        }
    }
    let recorded: Vec<_> = rules().iter().filter(|rule| rule["record"] == series).collect();
    let mut labels = BTreeSet::new();
    if !seen.insert(series.to_owned()) {
        return Some(labels);
    }
    for rule in &recorded {
        let names = names(text(rule, "expr"));
        labels.extend(names.lists);
        labels.extend(rule["labels"].as_object().into_iter().flatten().map(|(label, _)| label.clone()));
        for (other, _) in names.selectors.iter().filter(|(other, _)| other.starts_with("claimcheck:")) {
            labels.extend(labels_within(other, seen).expect("a rule of ours"));
        }
    }
    (!recorded.is_empty()).then_some(labels)
}

/// What an expression names that there is not.
fn undeclared(expr: &str) -> Vec<String> {
    let names = names(expr);
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    for (series, matched) in &names.selectors {
        let Some(labels) = labels(series) else {
            wrong.push(format!("metric {series}"));
            continue;
        };
        wrong.extend(matched.difference(&labels).map(|label| format!("label {label} of {series}")));
        known.extend(labels);
    }
    wrong.extend(names.lists.difference(&known).map(|label| format!("label {label}")));
    wrong
}

#[test]
fn expressions_are_understood() {
    let expr = r#"sum by (le, phase) (rate(a_bucket{b=~"x{y}\"z", c!="$d"}[$__rate_interval])) > 0.5
        and on (e) last_over_time(f[5m]) * 1e3 or vector(1) - group_x:y"#;
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let selectors = vec![
        ("a_bucket".to_owned(), set(&["b", "c"])),
        ("f".to_owned(), set(&[])),
        ("group_x:y".to_owned(), set(&[])),
    ];
    assert_eq!(names(expr), Names { selectors, lists: set(&["le", "phase", "e"]) });
    assert_eq!(
        undeclared(r#"sum by (rule) (claimcheck_leaked_objects{kind="x", nobody="y"}) / no_such"#),
        ["label nobody of claimcheck_leaked_objects", "metric no_such", "label rule"]
    );
    assert_eq!(undeclared("claimcheck_phase_duration_seconds"), ["metric claimcheck_phase_duration_seconds"]);
}

#[test]
fn only_what_is_declared_is_used() {
    let mut wrong = Vec::new();
    let mut check = |place: String, expr: &str| {
        assert!(!names(expr).selectors.is_empty() || expr.starts_with("vector("), "{place}: {expr}");
        wrong.extend(undeclared(expr).into_iter().map(|what| format!("{place}: {what}")));
    };
    for dashboard in dashboards() {
        for target in dashboard.targets() {
            check(format!("{}: {}", dashboard.file, target.panel), target.expr);
        }
        for variable in dashboard.variables().iter().filter(|variable| variable["type"] == "query") {
            let (series, label) = label_values(variable).expect("variables ask for the values of a label");
            check(
                format!("{}: ${}", dashboard.file, text(variable, "name")),
                &format!("sum by ({label}) ({series})"),
            );
        }
    }
    for rule in rules() {
        check(
            format!("rule {}", rule["record"].as_str().or(rule["alert"].as_str()).expect("a name")),
            text(rule, "expr"),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
