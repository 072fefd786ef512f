//! Quotes as Go's `strconv.Quote`, which the messages of upstream's errors contain.

use std::fmt::Write;

/// `text` in double quotes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{feff}' => quoted.push_str("\\ufeff"),
            low if low.is_ascii_control() => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(low));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_does() {
        let table =
            [("a\u{7}b", r#""a\ab""#), ("\u{1}\n\"\\", r#""\x01\n\"\\""#), ("ä", "\"ä\""), ("", "\"\"")];
        for (text, expected) in table {
            assert_eq!(quote(text), expected);
        }
    }
}
