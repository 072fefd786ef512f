//! Topology in error messages as Go's `%v` prints upstream's types, so that the messages are equal.

use std::collections::BTreeMap;

use super::topology::Segments;

/// A `topologyTerm`.
pub fn term(segments: &Segments) -> String {
    let segments = segments.iter().map(|(key, value)| format!("{{{key} {value}}}"));
    format!("[{}]", segments.collect::<Vec<_>>().join(" "))
}

/// A `[]topologyTerm`.
pub fn terms<'s>(terms: impl IntoIterator<Item = &'s Segments>) -> String {
    format!("[{}]", terms.into_iter().map(term).collect::<Vec<_>>().join(" "))
}

/// A `map[string]string`.
pub fn map(labels: Option<&BTreeMap<String, String>>) -> String {
    let labels = labels.into_iter().flatten().map(|(key, value)| format!("{key}:{value}"));
    format!("map[{}]", labels.collect::<Vec<_>>().join(" "))
}

/// A `[]string`.
pub fn list(keys: &[String]) -> String {
    format!("[{}]", keys.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_reads_as_upstream_prints_it() {
        let segments = |pairs: &[(&str, &str)]| -> Segments {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (one, two) = (segments(&[("zone", "a")]), segments(&[("rack", "1"), ("zone", "b")]));
        assert_eq!(term(&two), "[{rack 1} {zone b}]");
        assert_eq!(terms([&one, &two]), "[[{zone a}] [{rack 1} {zone b}]]");
        assert_eq!(map(Some(&two)), "map[rack:1 zone:b]");
        assert_eq!(map(None), "map[]");
        assert_eq!(list(&["rack".to_owned(), "zone".to_owned()]), "[rack zone]");
    }
}
