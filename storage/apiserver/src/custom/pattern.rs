//! Regular expressions of definitions, which are written in the syntax of Go.
//!
//! The crate `regex` has nearly the same syntax. What differs is escaped: `[`, `&&`, `--` and `~~` have a meaning in its
//! classes, and a brace that is no repetition is an error there. `\d`, `\s` and `\w` know Unicode, unlike in Go.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// The size of a compiled pattern, in bytes: 1,000 repetitions of a class of Unicode exceed the default.
const LARGEST: usize = 64 << 20;

/// A pattern that strings are searched for.
#[derive(Debug)]
pub struct Pattern {
    /// As it was declared.
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), regex: compile(text)? })
    }

    /// Whether it is found in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The compiled pattern.
///
/// # Errors
/// As [`Pattern::new`].
pub fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)).size_limit(LARGEST).build().map_err(|error| {
        // The error of the parser has several lines.
        let error = error.to_string();
        let error = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("{error}: `{pattern}`")
    })
}

fn translate(pattern: &str) -> String {
    let mut translated = String::new();
    let mut rest = pattern;
    // Whether a class is open, and whether `]` would be a character of it.
    let (mut in_class, mut is_first) = (false, false);
    while let Some(next) = rest.chars().next() {
        let after = &rest[next.len_utf8()..];
        let mut length = next.len_utf8();
        match next {
            '\\' => {
                length += after.chars().next().map_or(0, char::len_utf8);
                translated.push_str(&rest[..length]);
            }
            '[' if !in_class => {
                (in_class, is_first) = (true, true);
                length += usize::from(after.starts_with('^'));
                translated.push_str(&rest[..length]);
                rest = &rest[length..];
                continue;
            }
            '[' if rest.starts_with("[:") => {
                length = rest.find(":]").map_or(length, |end| end + 2);
                translated.push_str(&rest[..length]);
            }
            ']' if in_class && !is_first => {
                in_class = false;
                translated.push(next);
            }
            '[' | ']' | '&' | '~' if in_class => translated.extend(['\\', next]),
            // A literal one, or the start of a range that ends with one.
            '-' if in_class && is_first && after.starts_with('-') => translated.push_str(r"\-"),
            '-' if in_class && after.starts_with('-') => {
                length += 1;
                translated.push_str(r"-\-");
            }
            '{' if !in_class && !is_repetition(after) => translated.push_str(r"\{"),
            _ => translated.push(next),
        }
        is_first = false;
        rest = &rest[length..];
    }
    translated
}

/// Whether `text`, after a brace, starts with `n}`, `n,}` or `n,m}`.
fn is_repetition(text: &str) -> bool {
    let Some((counts, _)) = text.split_once('}') else { return false };
    let (min, max) = counts.split_once(',').unwrap_or((counts, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    !min.is_empty() && is_number(min) && is_number(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let table = [
            ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
            ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-", false),
            ("b", "abc", true),
            ("^.{1,3}$", "abcd", false),
            (r"^\d{4}\/x$", "2026/x", true),
            // What is special in classes of the crate only.
            ("^[[a]$", "[", true),
            ("^[]a]$", "]", true),
            ("^[^]a]$", "b", true),
            ("^[a&&b]$", "&", true),
            ("^[a~~b]$", "~", true),
            ("^[+--]$", ",", true),
            ("^[[:alpha:]_]$", "q", true),
            ("^[\\]x]$", "]", true),
            // A brace that is no repetition.
            ("^{a}$", "{a}", true),
            ("^x{,3}$", "x{,3}", true),
            ("^(?P<name>a)$", "a", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(Pattern::new(pattern).unwrap().is_match(text), expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn invalid_patterns_are_named() {
        for pattern in ["(", "a)", "[z-a]", "*", "a{2,1}", r"\p{Nope}"] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(error.ends_with(&format!(": `{pattern}`")), "{error}");
        }
    }
}
