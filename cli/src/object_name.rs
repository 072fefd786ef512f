//! Names of Kubernetes objects on the command line: an invalid one is reported before the first request.
//! Upstream: `k8s.io/apimachinery/pkg/util/validation`.

/// The name of a namespace.
pub fn namespace(text: &str) -> Result<String, String> {
    match is_label(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("expected at most 63 lower case letters, digits and '-', the first and last of them no '-'"
                .into())
        }
    }
}

/// The name of an object of most other kinds.
pub fn subdomain(text: &str) -> Result<String, String> {
    match text.len() <= 253 && text.split('.').all(is_part) {
        true => Ok(text.to_owned()),
        false => Err(
            "expected at most 253 lower case letters, digits, '-' and '.', no part empty or with '-' at an \
                      end"
            .into(),
        ),
    }
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_letter)
        && bytes.last().is_some_and(is_letter)
        && bytes.iter().all(|byte| is_letter(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_accepts() {
        for (text, is_namespace, is_subdomain) in [
            ("a", true, true),
            ("123", true, true),
            ("claimcheck-monitor", true, true),
            ("a.b-c", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("Upper", false, false),
            ("a_b", false, false),
            ("a/b", false, false),
            (&"a".repeat(64), false, true),
            (&"a".repeat(254), false, false),
        ] {
            assert_eq!(namespace(text).is_ok(), is_namespace, "{text:?}");
            assert_eq!(subdomain(text).is_ok(), is_subdomain, "{text:?}");
        }
    }
}
