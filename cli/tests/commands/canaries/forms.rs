//! The forms in which programs write a string, and the search for them.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use claimcheck_csi::tap::without_tokens;
use k8s_openapi::ByteString;
use serde_json::Value;

pub(super) fn base64(text: &str) -> String {
    let bytes = ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).expect("JSON").as_str().expect("a string").to_owned()
}

/// A secret as it is, in JSON of Rust and Go, as Go's `%q`, in HTML, in URLs and in base64.
fn forms(secret: &str) -> BTreeSet<String> {
    let quoted = Value::from(secret).to_string();
    let json = &quoted[1..quoted.len() - 1];
    let go = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // Quoted twice: a message that is part of a message, and a log line that is part of an event.
    let twice = Value::from(json).to_string();
    let base64 = base64(secret).trim_end_matches('=').to_owned();
    let base64_of_urls = base64.replace('+', "-").replace('/', "_");
    let mut all =
        BTreeSet::from([secret.to_owned(), json.to_owned(), json.replace('\u{7f}', "\\x7f"), go, html]);
    all.extend([twice[1..twice.len() - 1].to_owned(), base64, base64_of_urls]);
    all.extend([in_url(secret, "%20"), in_url(secret, "+")]);
    all
}

/// With the characters that neither a path nor a query may have as they are.
fn in_url(text: &str, space: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => escaped.push_str(space),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => write!(escaped, "%{byte:02X}").expect("a string grows"),
        }
    }
    escaped
}

/// All files below a folder, except kubeconfigs: those are made to contain a token.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.file_name().is_none_or(|name| name != "kubeconfig")).collect()
}

/// The content of all files below these folders, each with its path.
pub(super) fn texts(folders: &[PathBuf]) -> Vec<(String, String)> {
    let files = folders.iter().flat_map(|folder| files(folder));
    let read = |path: PathBuf| {
        let text = fs::read(&path).expect("readable");
        (path.display().to_string(), String::from_utf8_lossy(&text).into_owned())
    };
    files.map(read).collect()
}

/// Where one of the secrets is, in any form, or a token.
pub(super) fn found(secrets: &BTreeSet<String>, texts: &[(String, String)]) -> Vec<String> {
    let forms: BTreeSet<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    let mut found = Vec::new();
    for (place, text) in texts {
        for form in &forms {
            if let Some(at) = text.find(form) {
                let line = text[..at].matches('\n').count() + 1;
                let start = text[..at].char_indices().rev().nth(80).map_or(0, |(start, _)| start);
                found.push(format!("{form} in line {line} of {place}, after {:?}", &text[start..at]));
            }
        }
        if without_tokens(text) != *text {
            found.push(format!("a token in {place}"));
        }
    }
    found
}

#[test]
fn each_form_is_found() {
    let secrets = BTreeSet::from(["a \"b\"/\u{7f}?".to_owned()]);
    for text in [
        "x a \"b\"/\u{7f}? y",
        r#"{"a":"a \"b\"/"#,
        "a%20%22b%22%2F%7F%3F",
        "a+%22b%22%2F%7F%3F",
        "YSAiYiIvfz8=",
        "YSAiYiIvfz8",
        "a &quot;b&quot;/\u{7f}?",
    ] {
        let whole = text.replace(r#"{"a":"a \"b\"/"#, "{\"a\":\"a \\\"b\\\"/\u{7f}?\"}");
        assert_eq!(found(&secrets, &[(String::new(), whole.clone())]).len(), 1, "{whole}");
    }
    assert_eq!(found(&secrets, &[(String::new(), "a b".to_owned())]), Vec::<String>::new());
}
