//! The subset of the Prometheus text format that components use: one sample per line.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::collections::BTreeMap;

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric's name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Sample {
    /// The value of a label; empty if missing, which is equivalent.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// The samples of metrics with a name that starts with one of `families`. Other lines are ignored: a
/// component of another version may write unknown lines.
pub fn samples<'a>(text: &'a str, families: &'a [&str]) -> impl Iterator<Item = Sample> + 'a {
    let expected = |line: &&str| families.iter().any(|family| line.starts_with(family));
    text.lines().filter(expected).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    // A timestamp may follow.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.insert(name.trim().to_owned(), value);
        rest = after;
    }
}

/// A value up to its closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Option<Sample> {
        samples(line, &[""]).next()
    }

    #[test]
    fn samples_are_read() {
        type Expected = Option<(&'static str, &'static [(&'static str, &'static str)], f64)>;
        let cases: &[(&str, Expected)] = &[
            ("up 1", Some(("up", &[], 1.0))),
            ("up{} 2 1395066363000", Some(("up", &[], 2.0))),
            ("x_bucket{le=\"+Inf\"} 3", Some(("x_bucket", &[("le", "+Inf")], 3.0))),
            ("x{a=\"1\", b=\"2\",} 1.5e-3", Some(("x", &[("a", "1"), ("b", "2")], 0.0015))),
            (r#"x{p="C:\\d \"q\" {a},\n"} 4"#, Some(("x", &[("p", "C:\\d \"q\" {a},\n")], 4.0))),
            ("x{a=\"1\"} +Inf", Some(("x", &[("a", "1")], f64::INFINITY))),
            ("# HELP up Whether it is up", None),
            ("x{a=\"1\" 2", None),
            ("x{a=1} 2", None),
            ("x", None),
            ("x seven", None),
            ("", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(name, labels, value)| Sample {
                name: name.to_owned(),
                labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
                value,
            });
            assert_eq!(one(line), expected, "{line}");
        }
    }

    #[test]
    fn only_the_requested_families_are_parsed() {
        let text = "a_sum 1\nb_sum 2\nab_sum 3\n";
        let names: Vec<String> = samples(text, &["a_", "b_"]).map(|sample| sample.name).collect();
        assert_eq!(names, ["a_sum", "b_sum"]);
    }

    proptest! {
        #[test]
        fn what_the_library_writes_is_read_back(value in any::<f64>().prop_filter("not equal to itself", |v| !v.is_nan()), label in "[ -~\n]{0,20}") {
            let gauge = prometheus::GaugeVec::new(prometheus::Opts::new("m", "help"), &["l"]).unwrap();
            gauge.with_label_values(&[&label]).set(value);
            let families = prometheus::core::Collector::collect(&gauge);
            let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
            let read: Vec<Sample> = samples(&text, &["m"]).collect();
            prop_assert_eq!(read.len(), 1, "{}", text);
            prop_assert_eq!(read[0].label("l"), label);
            prop_assert_eq!(read[0].value, value);
        }

        #[test]
        fn no_line_is_too_strange(line in "\\PC{0,40}") {
            let _ = one(&line);
        }
    }
}
