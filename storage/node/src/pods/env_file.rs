//! The files of `fileKeyRef`: variables that an init container left in a volume (KEP-3721). Pure.
//!
//! Upstream: `ParseEnv` in `pkg/kubelet/util/env/env_util.go` of 1.36. The format is a part of a POSIX shell's: every value
//! is in single quotes, in which nothing is replaced and which may span lines.

/// A file that is not in this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvFileError {
    #[error("invalid environment variable format at line {0}")]
    NoVariable(usize),
    #[error("invalid environment variable format at line {0}: whitespace before '=' is not allowed")]
    Whitespace(usize),
    #[error("invalid environment variable format at line {0}: value must be enclosed in single quotes")]
    NoQuote(usize),
    #[error("invalid environment variable format at line {0}: unexpected content after closing quote")]
    AfterQuote(usize),
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
}

/// The value of the first variable with this name; `None` if there is none. Lines after it are not checked.
pub(super) fn value_in_file<'a>(text: &'a str, key: &str) -> Result<Option<&'a str>, EnvFileError> {
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (current, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let declaration = current.trim_start_matches([' ', '\t']);
        if declaration.trim_end().is_empty() || declaration.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let (name, _) = declaration.split_once('=').ok_or(EnvFileError::NoVariable(line))?;
        if name.is_empty() {
            return Err(EnvFileError::NoVariable(line));
        }
        if name.ends_with(char::is_whitespace) {
            return Err(EnvFileError::Whitespace(line));
        }
        // The value may go on in the lines below.
        let begin = text.len() - rest.len() + (current.len() - declaration.len()) + name.len() + 1;
        let quoted = text[begin..].strip_prefix('\'').ok_or(EnvFileError::NoQuote(line))?;
        let (value, behind) = quoted.split_once('\'').ok_or(EnvFileError::Unclosed(line))?;
        line += value.matches('\n').count();
        let (remainder, after) = behind.split_once('\n').unwrap_or((behind, ""));
        let remainder = remainder.trim();
        if !remainder.is_empty() && !remainder.starts_with('#') {
            return Err(EnvFileError::AfterQuote(line));
        }
        if name == key {
            return Ok(Some(value));
        }
        (rest, line) = (after, line + 1);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_a_shell() {
        let table = [
            ("   A='1'\n\t\tB='2'\nC='3'\n", Some("2")),
            ("# comment\n\nA='foo'\n   # another\n \t\nB='bar'", Some("bar")),
            ("A='1'\n", None),
            ("", None),
            ("B='foo#no comment=$HOME ${X} \"y\" \\n'", Some("foo#no comment=$HOME ${X} \"y\" \\n")),
            ("B='  spaces  '  # comment\n", Some("  spaces  ")),
            ("B=''\n", Some("")),
            ("A='one\n\nB=two'\nB='x\n  y'\nnothing", Some("x\n  y")),
            ("B='1'\r\n", Some("1")),
            ("B='1'\nB='2'", Some("1")),
        ];
        for (text, expected) in table {
            assert_eq!(value_in_file(text, "B"), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_an_error() {
        use EnvFileError::{AfterQuote, NoQuote, NoVariable, Unclosed, Whitespace};
        let table = [
            ("A='1'\nnothing\nB='2'", NoVariable(2)),
            ("='1'\nB='2'", NoVariable(1)),
            ("A = '1'\nB='2'", Whitespace(1)),
            ("B= '1'", NoQuote(1)),
            ("A='1'\nB=2", NoQuote(2)),
            ("B=\"2\"", NoQuote(1)),
            ("B='1''2'", AfterQuote(1)),
            ("A='1\n2'\nB='x'y", AfterQuote(3)),
            ("B='bar\nC='baz'\n", AfterQuote(2)),
            ("\nB='bar\nbaz", Unclosed(2)),
        ];
        for (text, expected) in table {
            assert_eq!(value_in_file(text, "B"), Err(expected), "{text:?}");
        }
    }
}
