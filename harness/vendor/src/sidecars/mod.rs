//! `--sidecar`: stock programs on clusters with virtual nodes, in place of built-in sidecars or in addition to them.
//!
//! ```text
//! --sidecar NAME=exec:COMMAND ──command──> Sidecar ┐
//! --sidecar-rbac, --sidecar-account ──account──────┼─> StockSidecars ──embedded::sidecars──> Sidecars (processes, taps)
//! --deployment ──deployment::plan──────────────────┘
//!                                        plan: what each program replaces, and where it runs
//! ```

mod account;
mod apply;
mod command;
mod credentials;
mod init;
pub mod plan;
mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use claimcheck_deploy::install;
use serde_json::Value;

use self::plan::Replaceable;

pub use account::{
    Account, DEFAULT_NAMESPACE, accounts, read_roles, unlimited as unlimited_account, with_namespace,
};
pub use account::{AccountChoiceError, RbacFileError, SidecarAccount, SidecarAccountError};
pub use apply::ApplyError as ApplyObjectError;
pub use apply::apply_all;
pub use command::Values;
pub use command::{Sidecar, SidecarError, SidecarList};
pub use credentials::CredentialsError;
pub use credentials::{Credentials, Issuer, Refresh, TokenFile, keep};
pub use init::{Init, InitProgram};
pub use yaml::documents;

/// The stock programs of a cluster, with their service accounts and roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StockSidecars {
    /// The programs, in the order of their start.
    pub programs: Vec<Program>,
    /// Service accounts, roles and bindings, in the order of the files; with `--deployment` other objects, too.
    pub objects: Vec<Value>,
    /// The sidecars that no container of `--deployment` is, which are not replaced by built-in ones.
    absent: BTreeSet<Replaceable>,
}

/// The sidecars of a driver's controller that a deployment lacks: nothing makes their calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbsentSidecars {
    /// Nothing creates volumes for claims.
    pub provisioner: bool,
    /// Nothing attaches volumes, which the driver's CSIDriver object requires.
    pub attacher: bool,
    /// Nothing expands volumes.
    pub resizer: bool,
    /// Nothing makes snapshots.
    pub snapshotter: bool,
}

impl AbsentSidecars {
    /// None is absent.
    pub const NONE: Self = Self { provisioner: false, attacher: false, resizer: false, snapshotter: false };
}

/// A program with its service account.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The program.
    pub sidecar: Sidecar,
    /// That of the files.
    pub account: Option<Account>,
}

impl Program {
    /// The service account. One that `--sidecar-rbac` gives none has, in place of a built-in component, that with
    /// upstream's default rights (`manifests/rbac/upstream`), else one with all rights, since those that it requires are
    /// unknown.
    pub fn account(&self) -> Option<Account> {
        let default = || match self.sidecar.role() {
            plan::Role::Replaces(replaced) => {
                let name = install::accounts::account(replaced.component()?);
                Some(Account { namespace: install::NAMESPACE.to_owned(), name })
            }
            plan::Role::Additional(_) => {
                self.sidecar.uses_api().then(|| unlimited_account(self.sidecar.name()).0)
            }
        };
        self.account.clone().or_else(default)
    }
}

/// Options of stock programs that do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum StockSidecarsError {
    /// Two programs have one name.
    #[error("--sidecar {0} is given twice: each name is that of one program")]
    Twice(String),
    /// A program of the manifests has the name of another one.
    #[error(
        "--sidecar {0}: the --deployment files have it, too: remove one, or leave that of the files out with \
         --image-rootfs IMAGE=none"
    )]
    InDeployment(String),
    /// An account for a program that is not started.
    #[error("--sidecar-account {0}: there is no --sidecar {0}")]
    NoProgram(String),
    /// Two accounts for one program.
    #[error("--sidecar-account {0} is given twice: a program has one account")]
    TwoAccounts(String),
    /// Roles without a program.
    #[error("--sidecar-rbac is for the programs of --sidecar NAME=exec:COMMAND: add one")]
    OnlyRoles,
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] RbacFileError),
    /// No account can be chosen.
    #[error(transparent)]
    Account(#[from] AccountChoiceError),
}

impl StockSidecars {
    /// Reads the files, and chooses the service account of each program.
    ///
    /// # Errors
    /// [`StockSidecarsError`], if names occur twice, a file cannot be used, or the files have several accounts for a
    /// program without `--sidecar-account`.
    pub fn new(
        sidecars: Vec<Sidecar>,
        accounts: Vec<SidecarAccount>,
        files: &[PathBuf],
    ) -> Result<Self, StockSidecarsError> {
        let mut names = BTreeSet::new();
        for sidecar in &sidecars {
            if !names.insert(sidecar.name()) {
                return Err(StockSidecarsError::Twice(sidecar.name().to_owned()));
            }
        }
        if names.is_empty() && !files.is_empty() {
            return Err(StockSidecarsError::OnlyRoles);
        }
        let mut given = BTreeMap::new();
        for SidecarAccount { sidecar, account } in accounts {
            if !names.contains(sidecar.as_str()) {
                return Err(StockSidecarsError::NoProgram(sidecar));
            }
            if given.insert(sidecar.clone(), account).is_some() {
                return Err(StockSidecarsError::TwoAccounts(sidecar));
            }
        }
        let mut objects = Vec::new();
        for file in files {
            objects.extend(read_roles(file)?);
        }
        let available = account::accounts(&objects);
        let program = |sidecar: Sidecar| -> Result<Program, StockSidecarsError> {
            let account = account::choose(&sidecar, given.get(sidecar.name()), &available)?;
            Ok(Program { sidecar, account })
        };
        let programs = sidecars.into_iter().map(program).collect::<Result<_, _>>()?;
        Ok(Self { programs, objects, absent: BTreeSet::new() })
    }

    /// The programs of `--deployment` with their accounts, the objects to apply, and the sidecars that it lacks.
    pub fn planned(
        programs: Vec<(Sidecar, Option<Account>)>,
        objects: Vec<Value>,
        absent: BTreeSet<Replaceable>,
    ) -> Self {
        let program = |(sidecar, account)| Program { sidecar, account };
        Self { programs: programs.into_iter().map(program).collect(), objects, absent }
    }

    /// These programs of `--deployment`, and those of `--sidecar`.
    ///
    /// # Errors
    /// Two of them have one name.
    pub fn with(mut self, others: Self) -> Result<Self, StockSidecarsError> {
        let has = |name: &str| self.programs.iter().any(|program| program.sidecar.name() == name);
        if let Some(twice) = others.programs.iter().find(|program| has(program.sidecar.name())) {
            return Err(StockSidecarsError::InDeployment(twice.sidecar.name().to_owned()));
        }
        self.programs.extend(others.programs);
        self.objects.extend(others.objects);
        let replaced = self.replaced();
        self.absent.retain(|sidecar| !replaced.contains(sidecar));
        Ok(self)
    }

    /// A line for each program: `name (account): words`.
    #[cfg(test)]
    pub fn commands(&self) -> Vec<String> {
        let line = |Program { sidecar, account }: &Program| {
            let account = account.as_ref().map_or_else(|| "-".to_owned(), Account::to_string);
            format!("{} ({account}): {}", sidecar.name(), sidecar.words().join(" "))
        };
        self.programs.iter().map(line).collect()
    }

    /// The service accounts of the programs.
    pub fn accounts(&self) -> impl Iterator<Item = Account> {
        self.programs.iter().filter_map(Program::account)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// The built-in components that do not run: those that they replace, and those that stand for nothing of a deployment.
    pub fn without_builtin(&self) -> BTreeSet<Replaceable> {
        &self.replaced() | &self.absent
    }

    /// Whether nothing registers the driver with the kubelets, unless it does so itself.
    pub fn lacks_registrar(&self) -> bool {
        self.absent.contains(&Replaceable::Registrar)
    }

    /// The sidecars of the driver's controller that the deployment lacks.
    pub fn absent(&self) -> AbsentSidecars {
        let is_absent = |sidecar| self.absent.contains(&sidecar);
        AbsentSidecars {
            provisioner: is_absent(Replaceable::Provisioner),
            attacher: is_absent(Replaceable::Attacher),
            resizer: is_absent(Replaceable::Resizer),
            snapshotter: is_absent(Replaceable::Snapshotter),
        }
    }

    /// The built-in components that they replace.
    fn replaced(&self) -> BTreeSet<Replaceable> {
        let replaced = |program: &Program| match program.sidecar.role() {
            plan::Role::Replaces(replaced) => Some(replaced),
            plan::Role::Additional(_) => None,
        };
        self.programs.iter().filter_map(replaced).collect()
    }

    /// The built-in components with a replacement without a service account.
    pub fn without_account(&self) -> BTreeSet<Replaceable> {
        let without = |program: &Program| match (program.sidecar.role(), &program.account) {
            (plan::Role::Replaces(replaced), None) => Some(replaced),
            (plan::Role::Replaces(_), Some(_)) | (plan::Role::Additional(_), _) => None,
        };
        self.programs.iter().filter_map(without).collect()
    }

    /// Whether any of them replaces a sidecar of the driver's controller or the snapshot-controller, so that the
    /// cluster behaves like one with upstream's sidecars.
    pub fn replace_controllers(&self) -> bool {
        self.programs.iter().any(|program| program.sidecar.role().replaces_controller())
    }

    /// Names and programs, for the report: `attacher: csi-attacher, ..`; without arguments, which may contain secrets.
    pub fn description(&self) -> Option<String> {
        let describe =
            |program: &Program| format!("{}: {}", program.sidecar.name(), program.sidecar.program());
        let absent = self.absent.iter().map(|absent| format!("{}: absent", absent.name()));
        let programs: Vec<String> = self.programs.iter().map(describe).chain(absent).collect();
        (!programs.is_empty()).then(|| programs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Vec<Sidecar> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn options_that_do_not_fit_together_are_errors() {
        let roles = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(roles.path(), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}").unwrap();
        let files = [roles.path().to_owned()];
        type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [PathBuf], &'a str);
        let table: [Row<'_>; 6] = [
            (&["x=exec:a", "x=exec:b"], &[], &[], "--sidecar x is given twice"),
            (&["x=exec:a"], &["y=n/a"], &files, "there is no --sidecar y"),
            (&["x=exec:a"], &["x=default/a", "x=default/a"], &files, "a program has one account"),
            (&[], &[], &files, "add one"),
            (&["x=exec:a"], &["x=default/b"], &files, "use default/a"),
            (&["x=exec:a"], &[], &["/no/such.yaml".into()], "/no/such.yaml"),
        ];
        for (sidecars, accounts, files, expected) in table {
            let accounts = accounts.iter().map(|text| text.parse().unwrap()).collect();
            let error = StockSidecars::new(parse(sidecars), accounts, files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let sidecars = StockSidecars::new(parse(&["x=exec:a {kubeconfig}"]), Vec::new(), &files).unwrap();
        let account = sidecars.programs[0].account.as_ref().map(ToString::to_string);
        assert_eq!(account.as_deref(), Some("default/a"));
    }

    #[test]
    fn only_sidecars_of_the_controller_change_the_behaviour_of_the_cluster() {
        let table: [(&[&str], bool, Option<&str>); 4] = [
            (&[], false, None),
            (&["registrar=exec:/opt/registrar --token t"], false, Some("registrar: registrar")),
            (&["monitor=exec:a"], false, Some("monitor: a")),
            (
                &["attacher=exec:./csi-attacher -v=5", "monitor=exec:a"],
                true,
                Some("attacher: csi-attacher, monitor: a"),
            ),
        ];
        for (texts, expected, description) in table {
            let sidecars = StockSidecars::new(parse(texts), Vec::new(), &[]).unwrap();
            assert_eq!(sidecars.replace_controllers(), expected, "{texts:?}");
            assert_eq!(sidecars.description().as_deref(), description);
        }
    }
}
