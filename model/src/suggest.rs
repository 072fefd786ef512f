//! Suggestions for misspelt names.

/// The known name that was probably meant: at most a third of its letters differ. Upper and lower case count as
/// the same letter, since that is the most common mistake and the parsers are case-sensitive.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let near = known.into_iter().map(|known| (edits(&name, &known.to_lowercase()), known)).min()?;
    (near.0 * 3 <= near.1.len()).then_some(near.1)
}

/// The message about a name that is not known: with the nearest one, or all.
pub fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} {name}: did you mean {nearest}?"),
        None => format!("unknown {what} {name}: known are {}", known.join(", ")),
    }
}

/// The number of letters to insert, delete or substitute (Levenshtein distance).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "", 2)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["volume-size", "access-types"];
        assert_eq!(nearest("Volume-Sise", known), Some("volume-size"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest("a", []), None);
    }
}
