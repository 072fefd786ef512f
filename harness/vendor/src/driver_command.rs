//! `--driver`: the CSI driver of an embedded cluster, and its command line.

use std::{ffi::OsString, path::PathBuf, str::FromStr};

use serde::Serialize;

/// The placeholders of a driver command.
const PLACEHOLDERS: [&str; 5] = ["endpoint", "socket", "node_id", "state_dir", "node_root"];

/// The arguments of the built-in driver.
pub const BUILTIN: [&str; 7] =
    ["driver", "--endpoint", "{endpoint}", "--node-id", "{node_id}", "--state-dir", "{state_dir}"];

/// The socket of a driver behind the proxy of a saboteur.
const BEHIND: &str = "behind.sock";
/// The memory of a saboteur, in the state directory.
const MEMORY: &str = "saboteur";

/// A driver's command line, with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum DriverCommand {
    /// The built-in driver: this program, started as `driver ...`.
    #[default]
    Builtin,
    /// The built-in driver with these arguments, which may contain placeholders.
    OwnProgram(Vec<String>),
    /// A vendor's program and its arguments.
    Exec(Vec<String>),
    /// Any of these, behind a proxy with a defect.
    Sabotaged {
        /// The name of the defect.
        defect: String,
        /// The driver.
        driver: Box<DriverCommand>,
    },
}

/// An invalid `--driver`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverCommandError {
    /// Neither `builtin` nor `exec:`.
    #[error("--driver {0:?} is invalid: use `builtin`, or `exec:<command with {{endpoint}} {{node_id}}>`")]
    Unknown(String),
    /// Nothing after `exec:`.
    #[error("--driver exec: has no command: add a program and its arguments")]
    Empty,
    /// An unterminated quote.
    #[error("--driver exec: unterminated {0}")]
    Quote(char),
    /// A placeholder that does not exist.
    #[error(
        "--driver exec: {{{0}}} is not a placeholder: use {{endpoint}} or {{socket}}, {{node_id}}, {{state_dir}}, {{node_root}}"
    )]
    Placeholder(String),
    /// The socket is not passed to the driver.
    #[error(
        "--driver exec: the command contains neither {{endpoint}} (unix:///..) nor {{socket}} (its path): one of them is required"
    )]
    NoEndpoint,
}

impl FromStr for DriverCommand {
    type Err = DriverCommandError;

    fn from_str(text: &str) -> Result<Self, DriverCommandError> {
        if text == "builtin" {
            return Ok(Self::Builtin);
        }
        let command = text.strip_prefix("exec:").ok_or(DriverCommandError::Unknown(text.to_owned()))?;
        let words = split_words(command).map_err(DriverCommandError::Quote)?;
        if words.is_empty() {
            return Err(DriverCommandError::Empty);
        }
        if let Some(unknown) =
            words.iter().flat_map(|word| placeholders(word)).find(|p| !PLACEHOLDERS.contains(p))
        {
            return Err(DriverCommandError::Placeholder(unknown.to_owned()));
        }
        if !words.iter().any(|word| word.contains("{endpoint}") || word.contains("{socket}")) {
            return Err(DriverCommandError::NoEndpoint);
        }
        Ok(Self::Exec(words))
    }
}

/// The values of the placeholders on one node.
#[derive(Clone, Debug)]
pub struct PlaceholderValues {
    /// The socket to listen on, as seen by the driver.
    pub socket: PathBuf,
    /// The node's id for the driver.
    pub node_id: String,
    /// The state directory of the driver; the same for all nodes.
    pub state_dir: String,
    /// The node's kubelet directory, as seen by the driver.
    pub node_root: String,
}

impl DriverCommand {
    /// Whether it is the built-in driver of this program.
    pub fn is_builtin(&self) -> bool {
        match self {
            Self::Builtin | Self::OwnProgram(_) => true,
            Self::Exec(_) => false,
            Self::Sabotaged { driver, .. } => driver.is_builtin(),
        }
    }

    /// Program and arguments with these values; `ourselves` is the path of this program.
    pub fn at(&self, values: &PlaceholderValues, ourselves: &std::path::Path) -> (PathBuf, Vec<OsString>) {
        let fill = |words: &[String]| -> Vec<OsString> {
            words.iter().map(|word| values.fill(word).into()).collect()
        };
        match self {
            Self::Builtin => {
                (ourselves.to_owned(), BUILTIN.iter().map(|word| values.fill(word).into()).collect())
            }
            Self::OwnProgram(words) => (ourselves.to_owned(), fill(words)),
            Self::Exec(words) => {
                let (program, args) = words
                    .split_first()
                    .map_or((String::new(), &[][..]), |(first, rest)| (values.fill(first), rest));
                (program.into(), fill(args))
            }
            Self::Sabotaged { defect, driver } => {
                let behind =
                    PlaceholderValues { socket: values.socket.with_file_name(BEHIND), ..values.clone() };
                let (program, args) = driver.at(&behind, ourselves);
                let [listen, driver] =
                    [values, &behind].map(|values| format!("unix://{}", values.socket.display()));
                let memory = format!("{}/{MEMORY}", values.state_dir);
                let saboteur = ["saboteur", "--defect", defect, "--listen", &listen, "--driver", &driver];
                let saboteur = saboteur.into_iter().chain(["--memory", &memory, "--"]).map(OsString::from);
                (ourselves.to_owned(), saboteur.chain([program.into()]).chain(args).collect())
            }
        }
    }

    /// The driver itself, without a proxy before it.
    pub fn undisturbed(&self) -> &Self {
        match self {
            Self::Sabotaged { driver, .. } => driver.undisturbed(),
            Self::Builtin | Self::OwnProgram(_) | Self::Exec(_) => self,
        }
    }

    /// The same driver, behind a proxy with this defect.
    #[must_use]
    pub fn sabotaged(self, defect: Option<&str>) -> Self {
        match defect {
            Some(defect) => Self::Sabotaged { defect: defect.to_owned(), driver: Box::new(self) },
            None => self,
        }
    }
}

impl PlaceholderValues {
    /// The word with every placeholder replaced.
    fn fill(&self, word: &str) -> String {
        let socket = self.socket.display().to_string();
        let endpoint = format!("unix://{socket}");
        let values = [&endpoint, &socket, &self.node_id, &self.state_dir, &self.node_root];
        PLACEHOLDERS
            .iter()
            .zip(values)
            .fold(word.to_owned(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
    }
}

/// The names of the placeholders in a word.
pub(super) fn placeholders(word: &str) -> Vec<&str> {
    let inner = |part: &'_ str| part.find('}').map(|end| part[..end].len());
    word.split('{').skip(1).filter_map(|part| inner(part).map(|end| &part[..end])).collect()
}

/// Splits like a shell: at blanks, except within single and double quotes and after a backslash.
///
/// # Errors
/// This quote is unterminated.
pub fn split_words(command: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(open);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_and_checked() {
        let exec = |words: &[&str]| Ok(DriverCommand::Exec(words.iter().map(|&w| w.to_owned()).collect()));
        let table = [
            ("builtin", Ok(DriverCommand::Builtin)),
            ("exec:./d --endpoint={endpoint}", exec(&["./d", "--endpoint={endpoint}"])),
            (r#"exec:'a b' "c \" d" e\ f {endpoint} ''"#, exec(&["a b", "c \" d", "e f", "{endpoint}", ""])),
            ("bultin", Err(DriverCommandError::Unknown("bultin".into()))),
            ("exec:", Err(DriverCommandError::Empty)),
            ("exec:d '{endpoint}", Err(DriverCommandError::Quote('\''))),
            ("exec:d {endpoint} {nodeid}", Err(DriverCommandError::Placeholder("nodeid".into()))),
            ("exec:d", Err(DriverCommandError::NoEndpoint)),
            ("exec:d {socket}", exec(&["d", "{socket}"])),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<DriverCommand>(), expected, "{text}");
        }
    }

    #[test]
    fn placeholders_are_filled() {
        let values = PlaceholderValues {
            socket: "/s".into(),
            node_id: "n".into(),
            state_dir: "/d".into(),
            node_root: "/k".into(),
        };
        let command: DriverCommand =
            "exec:d -e {endpoint} {socket} {node_id}{node_id} {state_dir} {node_root}".parse().unwrap();
        let (program, args) = command.at(&values, std::path::Path::new("/us"));
        assert_eq!(program, PathBuf::from("d"));
        assert_eq!(args, ["-e", "unix:///s", "/s", "nn", "/d", "/k"]);
    }
}
