//! Removes credentials from messages: drivers quote the requests that they reject, in the formats of their languages.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeSet};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

/// The replacement for a secret. Not that of csi-lib-utils' protosanitizer, which a driver's own log may have.
pub(super) const STRIPPED: &str = "[hidden by claimcheck]";
/// The number of characters from which on a secret is removed wherever it occurs. A shorter one may be a part of other
/// words by chance, and their rest would disclose it: it is removed only where it is a word, or quoted.
const LONG: usize = 6;
/// Maximum length of a message in bytes; a status may have megabytes, and a log line should not.
const LONGEST: usize = 4096;

/// The beginning of `text`, without these secrets in any form in which programs quote a string, and without tokens.
pub(super) fn cleaned(text: &str, secrets: &[String]) -> String {
    without_tokens(&replaced(text, &forms_of(secrets), LONGEST)).into_owned()
}

/// `text` without these secrets, in any form in which programs quote a string.
pub fn without_secrets(text: &str, secrets: &[String]) -> String {
    replaced(text, &forms_of(secrets), usize::MAX)
}

/// The same for secrets of which the forms are known.
pub(super) fn without_forms(text: &str, forms: &[Form]) -> String {
    replaced(text, forms, usize::MAX)
}

/// The secret, and how it is quoted within a quoted text: a message in a log line of Go, or in an Event that one contains.
pub(super) fn nested(secret: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([secret.to_owned()]);
    for _ in 0..2 {
        let inner: Vec<String> = all.iter().flat_map(|text| [quoted(text), escaped(&json(text))]).collect();
        all.extend(inner);
    }
    all
}

/// JSON with the additional escapes of Go's `encoding/json`.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Whether `text` may contain a secret in one of these forms.
pub(super) fn is_quoted(text: &str, forms: &[Form]) -> bool {
    forms.iter().any(|form| text.contains(&form.text))
}

/// A form in which a program writes a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    text: String,
    /// The secret is short: the form counts only where it is a word.
    is_word: bool,
}

impl Form {
    /// The rest of `rest`, if it begins with the form; `before` is the text in front of it.
    fn stripped<'a>(&self, before: &str, rest: &'a str) -> Option<&'a str> {
        let after = rest.strip_prefix(self.text.as_str())?;
        let is_alone = || !ends_in_word(before) && !after.starts_with(is_of_word);
        (!self.is_word || is_alone()).then_some(after)
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a text ends within a word, and not with an escape such as `\n` or `\u003c`.
fn ends_in_word(text: &str) -> bool {
    let end = text.trim_end_matches(is_of_word);
    let word = &text[end.len()..];
    let is_escape = end.ends_with('\\')
        && match word.chars().next() {
            Some('x') => word.len() == 3,
            Some('u') => word.len() == 5,
            Some('U') => word.len() == 9,
            _ => word.len() == 1,
        };
    !word.is_empty() && !is_escape
}

/// The forms of these secrets, the longest first, since a secret may contain another.
pub(super) fn forms_of(secrets: &[String]) -> Vec<Form> {
    let mut forms: Vec<Form> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    forms.sort_unstable_by_key(|form| (Reverse(form.text.len()), form.clone()));
    forms.dedup();
    forms
}

/// The first `longest` bytes of `text`, without secrets in these forms.
fn replaced(text: &str, forms: &[Form], longest: usize) -> String {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if clean.len() >= longest {
            clean.push('…');
            break;
        }
        let before = &text[..text.len() - rest.len()];
        let secret = forms.iter().find_map(|form| form.stripped(before, rest));
        rest = if let Some(after) = secret {
            clean.push_str(STRIPPED);
            after
        } else {
            clean.push(first);
            &rest[first.len_utf8()..]
        };
    }
    clean
}

/// `text` without words that look like JSON Web Tokens: parts in base64url, joined by dots, of which the first is a
/// JSON object, so that it begins with `eyJ` (RFC 7519).
pub fn without_tokens(text: &str) -> Cow<'_, str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("eyJ") {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        clean.push_str(before);
        // The dot at the end of a sentence joins nothing.
        let is_token = word.trim_end_matches('.').contains('.');
        clean.push_str(if is_token { STRIPPED } else { word });
        rest = after;
    }
    if clean.is_empty() {
        return Cow::Borrowed(rest);
    }
    clean.push_str(rest);
    Cow::Owned(clean)
}

/// A secret as it is, in base64 and hexadecimal, and quoted as by Go's `%q` and `encoding/json`, and by Rust's `{:?}`. A
/// driver may have trimmed it: files of secrets often end with a newline.
fn forms(secret: &str) -> Vec<Form> {
    let is_word = secret.trim().chars().count() < LONG;
    let values = [secret, secret.trim()].into_iter().filter(|value| !value.trim().is_empty());
    let forms = values.flat_map(|value| {
        let json = json(value);
        let html = escaped(&json);
        // Without padding, so that both variants are found.
        let (base64, url) = (STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value));
        let rust = format!("{value:?}");
        let rust = rust[1..rust.len() - 1].to_owned();
        let hex = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        [value.to_owned(), quoted(value), rust, json, html, base64, url, hex]
    });
    forms.map(|text| Form { text, is_word }).collect()
}

/// The text within the quotes of a JSON string.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The text within the quotes of Go's `%q` (`strconv.Quote`).
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            // Rust escapes what Go does not regard as printable.
            c if !c.is_ascii() && c.escape_debug().len() > 1 => quoted.push_str(&match u32::from(c) {
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
            c => quoted.push(c),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str, secrets: &[&str]) -> String {
        cleaned(text, &secrets.iter().map(|&secret| secret.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn secrets_are_removed_longest_first_and_markers_stay() {
        assert_eq!(
            clean("bad key abcdef, or abc", &["abc", "abcdef"]),
            "bad key [hidden by claimcheck], or [hidden by claimcheck]"
        );
        assert_eq!(clean("a b", &["a", "[", "hidden", "claimcheck"]), "[hidden by claimcheck] b");
        assert_eq!(clean("nothing", &["", " \n"]), "nothing");
    }

    #[test]
    fn short_secrets_are_removed_where_they_are_words() {
        for (text, expected) in [
            ("cannot mount mo", "cannot mount [hidden by claimcheck]"),
            (
                "mo, password=mo; user:mo@host",
                "[hidden by claimcheck], password=[hidden by claimcheck]; user:[hidden by claimcheck]@host",
            ),
            ("map[password:mo]", "map[password:[hidden by claimcheck]]"),
            (r#"{"password":"mo","mode":"a"}"#, r#"{"password":"[hidden by claimcheck]","mode":"a"}"#),
            (
                r#"\"mo\" \nmo \x01mo \u003cmo\u003e"#,
                r#"\"[hidden by claimcheck]\" \n[hidden by claimcheck] \x01[hidden by claimcheck] \u003c[hidden by claimcheck]\u003e"#,
            ),
            ("memo mo_ 1mo émo", "memo mo_ 1mo émo"),
            // base64 of it, and of another text.
            ("token bW8= and bW8x", "token [hidden by claimcheck]= and bW8x"),
        ] {
            assert_eq!(clean(text, &["mo"]), expected, "{text}");
        }
        // Five characters, of which two are white space at the end.
        assert_eq!(clean("a12345b 123", &["123\n\n"]), "a12345b [hidden by claimcheck]");
        // Six characters.
        assert_eq!(clean("a123456b", &["123456"]), "a[hidden by claimcheck]b");
    }

    #[test]
    fn secrets_are_removed_in_all_forms() {
        let secret = "p\"q\\<&>\n\u{1}\u{7f}é\u{200b}\u{1f512}\u{e0001}";
        for form in [
            secret,
            // fmt.Sprintf("%q", secret)
            "p\\\"q\\\\<&>\\n\\x01\\x7fé\\u200b\u{1f512}\\U000e0001",
            // json.Marshal(secret)
            "p\\\"q\\\\\\u003c\\u0026\\u003e\\n\\u0001\u{7f}é\u{200b}\u{1f512}\u{e0001}",
            // JSON of other languages
            "p\\\"q\\\\<&>\\n\\u0001\u{7f}é\u{200b}\u{1f512}\u{e0001}",
        ] {
            assert_eq!(clean(&format!("a {form} z"), &[secret]), "a [hidden by claimcheck] z", "{form}");
        }
        // base64 -w0, with the padding that remains; the second has the characters that differ in URLs.
        for (secret, base64) in [("hunter2", "aHVudGVyMg"), ("??>>?", "Pz8+Pj8"), ("??>>?", "Pz8-Pj8")] {
            assert_eq!(clean(&format!("{base64}=="), &[secret]), "[hidden by claimcheck]==", "{base64}");
        }
        assert_eq!(clean("68756e74657232", &["hunter2"]), "[hidden by claimcheck]");
        assert_eq!(clean("login hunter2 failed", &["hunter2\n"]), "login [hidden by claimcheck] failed");
    }

    #[test]
    fn secrets_are_removed_from_long_texts_as_rust_quotes_them() {
        let (secret, long) = ("p\"q\u{1}", "x".repeat(2 * LONGEST));
        let clean = without_secrets(&format!("{long}{secret:?}{long}"), &[secret.to_owned()]);
        assert_eq!(clean, format!("{long}\"{STRIPPED}\"{long}"));
    }

    #[test]
    fn long_messages_are_cut_without_cutting_a_secret() {
        let text = format!("{}secret{}", "x".repeat(LONGEST - 1), "y".repeat(1 << 20));
        let clean = clean(&text, &["secret"]);
        assert!(clean.ends_with("x[hidden by claimcheck]…") && clean.len() < LONGEST + 30, "{}", clean.len());
    }

    #[test]
    fn tokens_are_removed_and_other_words_stay() {
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2QifQ.c2lnbmF0dXJl";
        for (text, expected) in [
            (format!("token {token}."), "token [hidden by claimcheck]"),
            (
                format!(r#"{{\"a\":{{\"token\":\"{token}\"}}}}"#),
                r#"{\"a\":{\"token\":\"[hidden by claimcheck]\"}}"#,
            ),
            (
                format!("{token} Bearer%20{token}, x"),
                "[hidden by claimcheck] Bearer%20[hidden by claimcheck], x",
            ),
            // The API server cuts long messages of Events.
            (format!("x {}", &token[..30]), "x [hidden by claimcheck]"),
            ("eyJ and eyJhbGci. It".to_owned(), "eyJ and eyJhbGci. It"),
            ("no token".to_owned(), "no token"),
        ] {
            assert_eq!(without_tokens(&text), expected, "{text}");
        }
        assert_eq!(clean(&format!("bad {token}"), &[]), "bad [hidden by claimcheck]");
    }
}
