//! `--sidecar-rbac` and `--sidecar-account`: the service accounts of stock programs, from a vendor's YAML.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde_json::{Value, json};

use super::command::Sidecar;
use super::yaml::documents;

/// The kinds that are applied, each with its API version and whether it is in a namespace. A vendor's file may contain
/// others, such as the Deployment of the program.
const KINDS: [(&str, &str, bool); 5] = [
    ("ServiceAccount", "v1", true),
    ("Role", "rbac.authorization.k8s.io/v1", true),
    ("RoleBinding", "rbac.authorization.k8s.io/v1", true),
    ("ClusterRole", "rbac.authorization.k8s.io/v1", false),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", false),
];

/// The namespace of objects without one, as for `kubectl apply`.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// Its user name.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `--sidecar-account NAME=NAMESPACE/SERVICEACCOUNT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarAccount {
    pub(super) sidecar: String,
    pub(super) account: Account,
}

/// An invalid `--sidecar-account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write NAME=NAMESPACE/SERVICEACCOUNT, for example provisioner=default/csi-provisioner")]
pub struct SidecarAccountError;

impl FromStr for SidecarAccount {
    type Err = SidecarAccountError;

    fn from_str(text: &str) -> Result<Self, SidecarAccountError> {
        let (sidecar, account) = text.trim().split_once('=').ok_or(SidecarAccountError)?;
        let (namespace, name) = account.split_once('/').ok_or(SidecarAccountError)?;
        let is_name = |part: &&str| {
            !part.is_empty() && !part.contains(['/', '=']) && !part.contains(char::is_whitespace)
        };
        match [sidecar, namespace, name].iter().all(is_name) {
            true => {
                let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
                Ok(Self { sidecar: sidecar.to_owned(), account })
            }
            false => Err(SidecarAccountError),
        }
    }
}

/// A file with roles cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RbacFileError {
    /// It cannot be read.
    #[error("--sidecar-rbac {}: the file cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML.
    #[error("--sidecar-rbac {} is not a YAML file of Kubernetes objects", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The cause, with its line.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// It has no objects of the required kinds.
    #[error(
        "--sidecar-rbac {}: the file contains no ServiceAccount, Role, ClusterRole or binding",
        path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
    },
    /// An object has no name.
    #[error("--sidecar-rbac {}: a {kind} has no metadata.name", path.display())]
    Nameless {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static str,
    },
}

/// The objects of a file that are applied.
pub fn read_roles(path: &Path) -> Result<Vec<Value>, RbacFileError> {
    let text =
        fs::read_to_string(path).map_err(|source| RbacFileError::Read { path: path.to_owned(), source })?;
    parse(&text, path)
}

/// The objects of this text that are applied; `path` is its file.
fn parse(text: &str, path: &Path) -> Result<Vec<Value>, RbacFileError> {
    let documents = documents(text)
        .map_err(|source| RbacFileError::Yaml { path: path.to_owned(), source: Box::new(source) })?;
    let mut objects = Vec::new();
    for document in documents {
        match document["items"].as_array() {
            Some(items) => objects.extend(items.iter().cloned()),
            None => objects.push(document),
        }
    }
    let mut of_roles = Vec::new();
    for object in objects {
        let Some((kind, ..)) = known(&object) else { continue };
        if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            return Err(RbacFileError::Nameless { path: path.to_owned(), kind });
        }
        of_roles.push(with_namespace(object));
    }
    match of_roles.is_empty() {
        true => Err(RbacFileError::Nothing { path: path.to_owned() }),
        false => Ok(of_roles),
    }
}

/// An object with its namespace, if its kind is one of those above; that of others is set when they are applied.
pub fn with_namespace(mut object: Value) -> Value {
    let is_namespaced = known(&object).is_some_and(|(_, _, is_namespaced)| is_namespaced);
    if is_namespaced && object["metadata"]["namespace"].as_str().is_none() {
        object["metadata"]["namespace"] = DEFAULT_NAMESPACE.into();
    }
    object
}

/// The entry of its kind.
fn known(object: &Value) -> Option<(&'static str, &'static str, bool)> {
    KINDS.into_iter().find(|(kind, version, _)| object["kind"] == *kind && object["apiVersion"] == *version)
}

/// The namespaces of the objects, as objects to create before them.
pub(super) fn namespaces(objects: &[Value]) -> Vec<Value> {
    let names: BTreeSet<&str> =
        objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    let namespace =
        |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    names.into_iter().map(namespace).collect()
}

/// The service accounts among these objects.
pub fn accounts(objects: &[Value]) -> BTreeSet<Account> {
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let account = |object: &Value| Account {
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
    };
    accounts.map(account).collect()
}

/// Why no service account can be chosen for a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountChoiceError {
    /// The files do not contain the account.
    #[error("--sidecar-account {sidecar}={account}: {}", self.remedy())]
    Absent {
        /// The program.
        sidecar: String,
        /// The account, as `NAMESPACE/NAME`.
        account: String,
        /// The accounts in the files.
        choices: Vec<String>,
    },
    /// The files contain several accounts.
    #[error("--sidecar {sidecar}: {}", self.remedy())]
    Ambiguous {
        /// The program.
        sidecar: String,
        /// The accounts in the files.
        choices: Vec<String>,
    },
}

impl AccountChoiceError {
    fn remedy(&self) -> String {
        match self {
            Self::Absent { choices, .. } if choices.is_empty() => {
                "no file has a ServiceAccount: add --sidecar-rbac FILE".to_owned()
            }
            Self::Absent { choices, .. } => {
                format!("no file has this ServiceAccount: use {}", choices.join(" or "))
            }
            Self::Ambiguous { sidecar, choices } => format!(
                "the files of --sidecar-rbac have {} ServiceAccounts: add --sidecar-account {sidecar}=ACCOUNT with one \
                 of {}",
                choices.len(),
                choices.join(", ")
            ),
        }
    }
}

/// The account of a program: the given one, else the only one. A program that does not connect to the API server
/// requires none.
pub(super) fn choose(
    sidecar: &Sidecar,
    given: Option<&Account>,
    available: &BTreeSet<Account>,
) -> Result<Option<Account>, AccountChoiceError> {
    let choices = || available.iter().map(Account::to_string).collect::<Vec<_>>();
    let name = || sidecar.name().to_owned();
    match (given, available.len()) {
        (Some(account), _) if available.contains(account) => Ok(Some(account.clone())),
        (Some(account), _) => {
            let account = account.to_string();
            Err(AccountChoiceError::Absent { sidecar: name(), account, choices: choices() })
        }
        (None, 0 | 1) => Ok(available.first().cloned()),
        (None, _) if !sidecar.uses_api() => Ok(None),
        (None, _) => Err(AccountChoiceError::Ambiguous { sidecar: name(), choices: choices() }),
    }
}

/// A service account with all rights, for an additional program without roles; and the objects to apply.
pub fn unlimited(sidecar: &str) -> (Account, [Value; 2]) {
    let account =
        Account { namespace: "kube-system".to_owned(), name: format!("claimcheck-sidecar-{sidecar}") };
    let Account { namespace, name } = &account;
    let objects = [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": name, "namespace": namespace },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        }),
    ];
    (account, objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: csi-provisioner, namespace: storage}
---
# A file may have empty documents.
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: runner}
rules: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: driver}
---
apiVersion: v1
kind: List
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: leases}}
";

    fn account(text: &str) -> Account {
        format!("x={text}").parse::<SidecarAccount>().unwrap().account
    }

    #[test]
    fn only_accounts_roles_and_bindings_are_applied() {
        let objects = parse(FILE, Path::new("f")).unwrap();
        let titles: Vec<String> = objects
            .iter()
            .map(|object| {
                format!(
                    "{} {} {}",
                    object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
                )
            })
            .collect();
        assert_eq!(
            titles,
            [
                r#""ServiceAccount" "storage" "csi-provisioner""#,
                r#""ClusterRole" null "runner""#,
                r#""Role" "default" "leases""#
            ]
        );
        assert_eq!(accounts(&objects), [account("storage/csi-provisioner")].into());
        let namespaces: Vec<Value> =
            namespaces(&objects).iter().map(|object| object["metadata"]["name"].clone()).collect();
        assert_eq!(namespaces, ["default", "storage"]);
    }

    #[test]
    fn unusable_files_are_errors_with_their_name() {
        let table = [
            ("a: [", "not a YAML file"),
            ("kind: Pod", "contains no ServiceAccount"),
            ("{apiVersion: v1, kind: ServiceAccount}", "a ServiceAccount has no metadata.name"),
        ];
        for (text, expected) in table {
            let error = parse(text, Path::new("/r.yaml")).unwrap_err().to_string();
            assert!(error.contains("--sidecar-rbac /r.yaml") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn accounts_are_written_with_their_namespace() {
        assert_eq!(account("ns/name"), Account { namespace: "ns".into(), name: "name".into() });
        for text in ["a", "a=b", "=a/b", "a=/b", "a=b/", "a=b/c/d", "a=b/c d"] {
            assert_eq!(text.parse::<SidecarAccount>(), Err(SidecarAccountError), "{text}");
        }
    }

    #[test]
    fn the_only_account_is_chosen_and_several_require_a_choice() {
        let [a, b, c] = ["n/a", "n/b", "n/c"].map(account);
        let with_api: Sidecar = "attacher=exec:a {kubeconfig}".parse().unwrap();
        let without: Sidecar = "registrar=exec:r {socket}".parse().unwrap();
        let (none, one, two) =
            (BTreeSet::new(), BTreeSet::from([a.clone()]), BTreeSet::from([a.clone(), b.clone()]));
        assert_eq!(choose(&with_api, None, &none), Ok(None));
        assert_eq!(choose(&with_api, None, &one), Ok(Some(a)));
        assert_eq!(choose(&with_api, Some(&b), &two), Ok(Some(b)));
        assert_eq!(choose(&without, None, &two), Ok(None));
        let error = |given, available| choose(&with_api, given, available).unwrap_err().to_string();
        assert_eq!(
            error(None, &two),
            "--sidecar attacher: the files of --sidecar-rbac have 2 ServiceAccounts: add --sidecar-account \
             attacher=ACCOUNT with one of n/a, n/b"
        );
        assert_eq!(
            error(Some(&c), &two),
            "--sidecar-account attacher=n/c: no file has this ServiceAccount: use n/a or n/b"
        );
        assert!(error(Some(&c), &none).ends_with("add --sidecar-rbac FILE"));
    }
}
