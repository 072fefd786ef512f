//! URIs in the syntax of Go.
//!
//! Mirrors Go's net/url ParseRequestURI, which the format `uri` and the CEL library of URLs use.

/// The parts of a URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uri {
    /// The scheme, in lower case; empty without one.
    pub scheme: String,
    /// Host and port, decoded.
    pub host: String,
    /// The path, as it was given.
    pub path: String,
    /// The query, as it was given.
    pub query: String,
}

/// The characters of a user's name and password (`validUserinfo`).
const USER: &str = "-._:~!$&'()*+,;=%@";

/// The punctuation of a host that is not encoded (`shouldEscape`).
const HOST: &str = "-_.~!$&'()*+,;=:[]<>\"";

impl Uri {
    /// The URI in `text`, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return None;
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri =
            Self { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..Self::default() };
        if text == "*" {
            uri.path = text.to_owned();
            return Some(uri);
        }
        if !rest.starts_with('/') {
            // Opaque, such as `mailto:a@b.c`.
            return (!scheme.is_empty()).then_some(uri);
        }
        let mut path = rest;
        if let Some(authority) = rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            let end = authority.find('/').unwrap_or(authority.len());
            path = &authority[end..];
            uri.host = host_of(&authority[..end])?;
        }
        unescape(path)?;
        uri.path = path.to_owned();
        Some(uri)
    }
}

/// The scheme, and what follows it (`getScheme`).
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return None,
            b':' => return Some((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

/// The host of `authority`, with its port (`parseAuthority`).
fn host_of(authority: &str) -> Option<String> {
    let host = match authority.rsplit_once('@') {
        None => authority,
        Some((user, host)) => {
            let is_valid = user.chars().all(|c| c.is_ascii_alphanumeric() || USER.contains(c));
            unescape(user).filter(|_| is_valid)?;
            host
        }
    };
    let port = match host.starts_with('[') {
        true => &host[host.rfind(']')? + 1..],
        false => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let has_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(has_digits) {
        return None;
    }
    let is_valid = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || c == '%' || HOST.contains(c);
    let decoded = unescape(host).filter(|_| host.chars().all(is_valid))?;
    // In a host, only other characters than those of ASCII may be encoded; the zone of an address, too.
    let encoded = host.split('%').skip(1);
    let is_foreign =
        |code: &str| code.starts_with("25") || code.as_bytes().first().is_some_and(|digit| *digit > b'7');
    encoded.into_iter().all(is_foreign).then_some(decoded)
}

/// The text without percent-encoding, if that is valid.
pub fn unescape(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_parsed_as_in_go() {
        let uri = |scheme: &str, host: &str, path: &str, query: &str| {
            let own = str::to_owned;
            Some(Uri { scheme: own(scheme), host: own(host), path: own(path), query: own(query) })
        };
        let table = [
            ("https://a.b:80/c?d=e", uri("https", "a.b:80", "/c", "d=e")),
            ("HTTP://u:p@h", uri("http", "h", "", "")),
            ("/path/only", uri("", "", "/path/only", "")),
            ("//h/p", uri("", "", "//h/p", "")),
            ("mailto:a@b.c", uri("mailto", "", "", "")),
            ("https://[::1]:6443/", uri("https", "[::1]:6443", "/", "")),
            ("https://h/%41", uri("https", "h", "/%41", "")),
            ("*", uri("", "", "*", "")),
            ("relative", None),
            ("", None),
            (":80", None),
            ("https://a b/", None),
            ("https://h:x/", None),
            ("https://h/%zz", None),
            ("https://%41/", None),
            ("https://[::1", None),
            ("a\nb", None),
        ];
        for (text, expected) in table {
            assert_eq!(Uri::parse(text), expected, "{text}");
        }
    }
}
