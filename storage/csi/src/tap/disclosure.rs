//! Secrets and tokens in the output of programs. CSI requires that secrets are not logged (RPC Interface, "MUST be treated
//! as such"), and drivers have logged the tokens of pods (CVE-2023-2878, CVE-2024-3744).

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{KnownSecrets, redact::STRIPPED};

/// The number of characters that are quoted before and after the first secret of a line.
const AROUND: usize = 80;
/// The shortest configured value that output is searched for: shorter ones occur in ordinary text.
const SHORTEST: usize = 8;
/// The smallest number of different characters in it.
const DIFFERENT: usize = 5;
/// Names of keys with confidential values, in lower case and without separators. Other keys of a Secret often hold what is
/// logged on purpose: addresses, users, pools.
const CONFIDENTIAL: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
];
/// The same for whole names.
const CONFIDENTIAL_NAMES: [&str; 4] = ["key", "pass", "userkey", "adminkey"];

/// A line of a program's output with a secret or a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// The number of the line, from 1.
    pub line: usize,
    /// The part of the line around the first secret or token, without any.
    pub text: String,
}

impl fmt::Display for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl Disclosure {
    /// The line, if it contains one of the secrets that output is searched for, or a token of a service account.
    pub fn from_line(known: &KnownSecrets, line: usize, text: &str) -> Option<Self> {
        (known.is_disclosed(text) || has_account_token(text))
            .then(|| Self { line, text: around(&known.hide(text.trim_end())) })
    }

    /// All such lines of a program's output.
    pub fn all(known: &KnownSecrets, output: &str) -> Vec<Self> {
        let lines = output.lines().enumerate();
        lines.filter_map(|(number, line)| Self::from_line(known, number + 1, line)).collect()
    }
}

/// The part of a line around its first removed secret.
fn around(line: &str) -> String {
    let (before, after) = line.split_at(line.find(STRIPPED).unwrap_or_default());
    let cut_before = before.chars().count().saturating_sub(AROUND);
    let mut quoted: String = if cut_before > 0 { "…".to_owned() } else { String::new() };
    quoted.extend(before.chars().skip(cut_before));
    let mut rest = after.chars();
    quoted.extend(rest.by_ref().take(STRIPPED.len() + AROUND));
    if rest.next().is_some() {
        quoted.push('…');
    }
    quoted
}

/// Whether output is searched for a configured value of a Secret: one that is long enough not to occur by chance, under a
/// key that names something confidential.
pub fn is_searched_for(key: &str, value: &str) -> bool {
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let is_confidential = CONFIDENTIAL.iter().any(|name| key.contains(name))
        || CONFIDENTIAL_NAMES.iter().any(|name| key == *name);
    let mut different: Vec<char> = value.trim().chars().collect();
    let length = different.len();
    different.sort_unstable();
    different.dedup();
    is_confidential && length >= SHORTEST && different.len() >= DIFFERENT
}

/// Whether a text contains a JSON Web Token of a service account: one with a subject of that form, or with the claims that
/// the API server adds (`privateClaims` in pkg/serviceaccount/claims.go).
fn has_account_token(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices("eyJ").any(|(start, _)| {
        let mut parts = text[start..].split('.');
        let (Some(header), Some(claims)) = (parts.next(), parts.next()) else { return false };
        let claims = &claims[..claims.find(|c| !is_part(c)).unwrap_or(claims.len())];
        let decoded = URL_SAFE_NO_PAD.decode(claims).ok().filter(|_| header.chars().all(is_part));
        let claims = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        claims.is_some_and(|claims| {
            let subject = claims["sub"].as_str().unwrap_or_default();
            subject.starts_with("system:serviceaccount:") || claims.get("kubernetes.io").is_some()
        })
    })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const MARKER: &str = "cc-marker-0f-\"secret\"";

    fn known() -> KnownSecrets {
        let known = KnownSecrets::default();
        known.search_for(&[MARKER.to_owned()]);
        known.add(&["admin".to_owned()]);
        known
    }

    fn token(claims: &str) -> String {
        format!("eyJhbGciOiJSUzI1NiJ9.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn secrets_are_found_in_the_forms_in_which_programs_log_them() {
        let json = serde_json::json!({ "secrets": { "k": MARKER } }).to_string();
        let encoded = STANDARD.encode(MARKER);
        let go = format!("req={{secrets:{{key:\"k\" value:{MARKER:?}}}}}");
        let nested = format!("err={:?}", format!("GRPC request: {json}"));
        let account = token(r#"{"iss":"https://k","sub":"system:serviceaccount:ns:pod"}"#);
        for text in [MARKER, &json, &encoded, &go, &nested, &format!("tokens: {account}, x")] {
            let output = format!("started\n{text}\nGRPC response: ok\n");
            let found = Disclosure::all(&known(), &output);
            assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [2], "{text}");
            assert!(found[0].text.contains("[hidden by claimcheck]"), "{}", found[0]);
            assert!(
                !found[0].text.contains("cc-marker") && !found[0].text.contains(&account),
                "{}",
                found[0]
            );
        }
    }

    #[test]
    fn ordinary_lines_are_no_disclosures() {
        let other = token(r#"{"iss":"https://cloud","sub":"machine"}"#);
        let output = format!(
            "user admin logged in\nsecrets: [hidden by claimcheck]\n{other}\neyJ. eyJhbGciOiJSUzI1NiJ9.x\ncc-marker-0f\n"
        );
        assert_eq!(Disclosure::all(&known(), &output), []);
    }

    #[test]
    fn values_that_occur_in_ordinary_text_are_not_searched_for() {
        for (key, value, expected) in [
            ("password", "hunter2-hunter2", true),
            ("userKey", "AQBn3Zxk==", true),
            ("api-token\n", "0123456789", true),
            // Short, or of few characters.
            ("password", "admin", false),
            ("password", "true", false),
            ("password", "default\n", false),
            ("password", "aaaaaaaaaaaa", false),
            // Not confidential.
            ("userID", "kubernetes", false),
            ("endpoint", "https://storage.example.com:9000", false),
            ("region", "us-east-1", false),
        ] {
            assert_eq!(is_searched_for(key, value), expected, "{key}: {value}");
        }
    }

    #[test]
    fn long_lines_are_cut_around_the_first_secret() {
        let long = "é".repeat(1 << 16);
        let found = Disclosure::all(&known(), &format!("{long}{MARKER}{long}{MARKER}"));
        let part = "é".repeat(AROUND);
        assert_eq!(found[0].text, format!("…{part}{STRIPPED}{part}…"));
        assert_eq!(Disclosure::all(&known(), MARKER)[0].text, STRIPPED);
    }
}
