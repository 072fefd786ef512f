//! Redacts the secrets in a vendor's command line: it appears in errors and events, and drivers repeat it
//! in their logs.

/// The replacement for a secret.
const HIDDEN: &str = "***";

/// Names of arguments and variables with secret values, in lower case and without separators.
const NAMES: [&str; 8] =
    ["password", "passwd", "secret", "token", "apikey", "accesskey", "privatekey", "credential"];

/// Suffixes of names that only look secret: their values are the location of the secret.
const PLACES: [&str; 5] = ["file", "path", "dir", "name", "namespace"];

/// The secrets of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Values that follow a secret's name: `--password x`, `--password=x`, `PASSWORD=x`.
    pub(super) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = Vec::new();
        let mut awaited = false;
        for word in words {
            let flag = word.starts_with('-');
            match word.split_once('=') {
                Some((name, value)) if is_secret(name) => found.push(value),
                None if awaited && !flag => found.push(word),
                _ => {}
            }
            awaited = flag && !word.contains('=') && is_secret(word);
        }
        Self(found.into_iter().filter(|value| !value.is_empty()).map(str::to_owned).collect())
    }

    /// The values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }

    /// The text with secrets replaced.
    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

/// An argument without the secrets in its words.
pub fn without_secrets(text: &str) -> String {
    Secrets::of(text.split_whitespace()).hide(text)
}

fn is_secret(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    NAMES.iter().any(|secret| name.contains(secret)) && !PLACES.iter().any(|place| name.ends_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_after_secret_names_are_hidden_wherever_they_stand() {
        let table = [
            ("d --password hunter2 --user me", "d --password *** --user me"),
            ("d --api-key=k1 k1x", "d --api-key=*** ***x"),
            ("env CLIENT_SECRET=s3 d", "env CLIENT_SECRET=*** d"),
            ("d --secret-name s --token-file /t", "d --secret-name s --token-file /t"),
            ("d --secret --verbose", "d --secret --verbose"),
            ("d --endpoint unix:///s", "d --endpoint unix:///s"),
        ];
        for (line, expected) in table {
            assert_eq!(Secrets::of(line.split(' ')).hide(line), expected);
        }
    }
}
