//! `--sidecar NAME=exec:COMMAND`: a stock program, and the placeholders of its command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::plan::{NameError, Placement, Replaceable, Role};
use crate::{
    deployment::flags,
    driver_command::{placeholders, split_words},
};

/// The placeholders of a command.
const PLACEHOLDERS: [&str; 9] = [
    "socket",
    "endpoint",
    "kubeconfig",
    "node_id",
    "node_name",
    "state_dir",
    "namespace",
    "registration_dir",
    "node_root",
];

/// A stock program that runs on a cluster with virtual nodes: its name, and its command line with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    name: String,
    role: Role,
    /// The program and its arguments; never empty.
    words: Vec<String>,
}

/// One or more programs: an environment variable has a line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarList(pub Vec<Sidecar>);

/// An invalid `--sidecar`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// It is not `NAME=exec:COMMAND`.
    #[error(
        "--sidecar is invalid: write NAME=exec:COMMAND, for example `provisioner=exec:csi-provisioner --csi-address={{socket}} --kubeconfig={{kubeconfig}}`"
    )]
    Form,
    /// The name is not accepted.
    #[error("--sidecar {name}: {reason}")]
    Name {
        /// The name.
        name: String,
        /// The reason, and the remedy.
        reason: String,
    },
    /// Nothing after `exec:`.
    #[error("--sidecar {0}=exec: has no command: add a program and its arguments")]
    Empty(String),
    /// An unterminated quote.
    #[error("--sidecar {name}=exec: unterminated {quote}")]
    Quote {
        /// The program.
        name: String,
        /// The quote.
        quote: char,
    },
    /// A placeholder that does not exist.
    #[error(
        "--sidecar {name}=exec: {{{placeholder}}} is not a placeholder: use {{socket}} or {{endpoint}}, {{kubeconfig}}, {{node_id}} or {{node_name}}, {{state_dir}}, {{namespace}}, {{registration_dir}}, {{node_root}}"
    )]
    Placeholder {
        /// The program.
        name: String,
        /// The placeholder.
        placeholder: String,
    },
}

impl FromStr for Sidecar {
    type Err = SidecarError;

    fn from_str(text: &str) -> Result<Self, SidecarError> {
        let (name, command) = text.trim().split_once("=exec:").ok_or(SidecarError::Form)?;
        let role = Role::of(name).map_err(|reason: NameError| SidecarError::Name {
            name: name.to_owned(),
            reason: reason.to_string(),
        })?;
        let name = name.to_owned();
        let words = match split_words(command) {
            Ok(words) => words,
            Err(quote) => return Err(SidecarError::Quote { name, quote }),
        };
        if words.is_empty() {
            return Err(SidecarError::Empty(name));
        }
        match words.iter().find_map(|word| unknown_placeholder(word)) {
            Some(placeholder) => Err(SidecarError::Placeholder { name, placeholder }),
            None => Ok(Self { name, role, words }),
        }
    }
}

impl FromStr for SidecarList {
    type Err = SidecarError;

    fn from_str(text: &str) -> Result<Self, SidecarError> {
        entries(text).iter().map(|entry| entry.parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// The first placeholder of a word that does not exist; `${x}` is a variable of a shell.
fn unknown_placeholder(word: &str) -> Option<String> {
    let word = word.replace("${", "$(");
    placeholders(&word).into_iter().find(|name| !PLACEHOLDERS.contains(name)).map(str::to_owned)
}

/// The entries of a text: each begins on a line with `NAME=exec:`; other lines continue the command before them.
fn entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in text.trim().split('\n') {
        let name = line.split_once("=exec:").map(|(name, _)| name.trim());
        let starts = name.is_some_and(|name| !name.is_empty() && !name.contains(char::is_whitespace));
        match entries.last_mut() {
            Some(last) if !starts => {
                last.push('\n');
                last.push_str(line);
            }
            Some(_) | None => entries.push(line.to_owned()),
        }
    }
    entries
}

/// The values of the placeholders for one process.
#[derive(Clone, Debug)]
pub struct Values {
    /// The CSI socket, as seen by the program.
    pub socket: PathBuf,
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The name and ID of the node.
    pub node: String,
    /// The state directory of the driver.
    pub state_dir: PathBuf,
    /// The namespace of the service account.
    pub namespace: String,
    /// The directory of registration sockets, as seen by the program.
    pub registration_dir: PathBuf,
    /// The node's kubelet directory, as seen by the program.
    pub node_root: PathBuf,
}

impl Values {
    /// The word with every placeholder replaced.
    fn fill(&self, word: &str) -> String {
        let text = |path: &Path| path.display().to_string();
        let values = [
            text(&self.socket),
            format!("unix://{}", self.socket.display()),
            text(&self.kubeconfig),
            self.node.clone(),
            self.node.clone(),
            text(&self.state_dir),
            self.namespace.clone(),
            text(&self.registration_dir),
            text(&self.node_root),
        ];
        PLACEHOLDERS
            .iter()
            .zip(values)
            .fold(word.to_owned(), |word, (name, value)| word.replace(&format!("{{{name}}}"), &value))
    }
}

impl Sidecar {
    /// A program of `--deployment`. Its words may contain braces that are no placeholders.
    pub fn planned(name: String, role: Role, words: Vec<String>) -> Self {
        Self { name, role, words }
    }

    /// Its name: that of the built-in component that it replaces, or another one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Program and arguments, with placeholders.
    #[cfg(test)]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// What it does.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Where it runs: upstream's provisioner and snapshotter run on every node with `--node-deployment`.
    pub fn placement(&self) -> Placement {
        match self.role.can_run_on_every_node() && flags::is_set(&self.words, "node-deployment") {
            true => Placement::EveryNode,
            false => self.role.placement(),
        }
    }

    /// Whether it may connect to the API server: by `{kubeconfig}` or, as in a pod, by default.
    pub fn uses_api(&self) -> bool {
        let is_of_driver =
            matches!(self.role, Role::Replaces(Replaceable::Registrar | Replaceable::LivenessProbe));
        !is_of_driver || self.words.iter().any(|word| word.contains("{kubeconfig}"))
    }

    /// The file name of its program; with `env NAME=VALUE PROGRAM`, of the latter.
    pub(super) fn program(&self) -> String {
        let mut words = self.words.iter().map(String::as_str);
        let program = match words.next() {
            Some("env") => words.find(|word| !word.contains('=')).unwrap_or("env"),
            Some(program) => program,
            None => "",
        };
        Path::new(program).file_name().map_or_else(String::new, |name| name.display().to_string())
    }

    /// Program and arguments with these values.
    pub fn at(&self, values: &Values) -> (PathBuf, Vec<OsString>) {
        let mut words = self.words.iter().map(|word| values.fill(word));
        let program = words.next().unwrap_or_default().into();
        (program, words.map(OsString::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_and_checked() {
        let words = |text: &str| text.parse::<Sidecar>().map(|sidecar| sidecar.words);
        let name = || "attacher".to_owned();
        assert_eq!(
            words("attacher=exec:'a b' -v=5 {socket}"),
            Ok(vec!["a b".into(), "-v=5".into(), "{socket}".into()])
        );
        assert!(words("x=exec:sh -c 'echo ${NODE_NAME#node-} {socket}'").is_ok());
        let table = [
            ("attacher", SidecarError::Form),
            ("exec:csi-attacher", SidecarError::Form),
            ("attacher=csi-attacher", SidecarError::Form),
            ("attacher=exec:", SidecarError::Empty(name())),
            ("attacher=exec:a 'b", SidecarError::Quote { name: name(), quote: '\'' }),
            (
                "attacher=exec:a {nodeid}",
                SidecarError::Placeholder { name: name(), placeholder: "nodeid".into() },
            ),
        ];
        for (text, expected) in table {
            assert_eq!(words(text), Err(expected), "{text}");
        }
        let error = "atacher=exec:a --password x".parse::<Sidecar>().unwrap_err().to_string();
        assert!(error.starts_with("--sidecar atacher: did you mean attacher?"), "{error}");
    }

    #[test]
    fn a_node_deployment_runs_on_every_node() {
        let placement = |text: &str| text.parse::<Sidecar>().unwrap().placement();
        assert_eq!(placement("provisioner=exec:p --node-deployment"), Placement::EveryNode);
        assert_eq!(placement("snapshotter=exec:s -node-deployment=true"), Placement::EveryNode);
        assert_eq!(placement("provisioner=exec:p --node-deployment=false"), Placement::FirstNode);
        // Upstream's other programs do not have the flag.
        assert_eq!(placement("attacher=exec:a --node-deployment"), Placement::FirstNode);
    }

    #[test]
    fn every_line_of_a_variable_with_a_name_begins_a_program() {
        let names = |text: &str| -> Vec<String> {
            let list: SidecarList = text.parse().unwrap();
            list.0.into_iter().map(|sidecar| format!("{} {:?}", sidecar.name, sidecar.words)).collect()
        };
        assert_eq!(
            names("\nattacher=exec:a {socket}\nprober=exec:sh -c 'x=1\nexec b'\n"),
            [r#"attacher ["a", "{socket}"]"#, r#"prober ["sh", "-c", "x=1\nexec b"]"#]
        );
        assert_eq!("".parse::<SidecarList>(), Err(SidecarError::Form));
    }

    #[test]
    fn placeholders_are_filled() {
        let values = Values {
            socket: "/s".into(),
            kubeconfig: "/k".into(),
            node: "n".into(),
            state_dir: "/d".into(),
            namespace: "ns".into(),
            registration_dir: "/r".into(),
            node_root: "/kubelet".into(),
        };
        let command: Sidecar =
            "x=exec:/bin/d {endpoint} {socket} {kubeconfig} {node_id}{node_name} {state_dir} {namespace} {registration_dir} {node_root}"
                .parse()
                .unwrap();
        let (program, args) = command.at(&values);
        assert_eq!(program, PathBuf::from("/bin/d"));
        assert_eq!(args, ["unix:///s", "/s", "/k", "nn", "/d", "ns", "/r", "/kubelet"]);
        assert_eq!((command.program().as_str(), command.uses_api()), ("d", true));
        for (text, expected) in [("x=exec:env A=b C=/d /bin/e --f=g", "e"), ("x=exec:env", "env")] {
            assert_eq!(text.parse::<Sidecar>().unwrap().program(), expected, "{text}");
        }
    }
}
