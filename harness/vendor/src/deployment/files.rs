//! What a manifest provides for its programs in the driver's state directory: folders for volumes, the files of
//! ConfigMaps and Secrets, and links from the paths of containers; and the CSIDriver object.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use claimcheck_csi::tap::is_searched_for;
use claimcheck_files::write_private;
use k8s_openapi::api::storage::v1::CSIDriver;

use super::{
    class_secrets::{self, MissingSecret},
    manifests::{Contents, Data, Key},
};
use crate::sidecars::{
    Account, Credentials, CredentialsError, Init, InitProgram, Issuer, Refresh, TokenFile, keep,
};

/// A file of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Relative to the state directory.
    pub path: String,
    pub contents: Contents,
    /// Its permissions for its owner.
    pub mode: u32,
}

/// A path of containers that shows a folder of the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The path of the container.
    pub at: String,
    /// Relative to the state directory.
    pub to: String,
}

/// The token of a projected volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectedToken {
    /// Relative to the state directory.
    pub path: String,
    pub account: Account,
    /// None for the API server.
    pub audience: Option<String>,
    /// In seconds.
    pub lifetime: i64,
}

/// What `--deployment` adds to a cluster, apart from programs and their rights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentObjects {
    /// The CSIDriver object of the files.
    pub csi_driver: Option<CSIDriver>,
    pub(super) files: Vec<File>,
    /// Paths that do not exist on this machine.
    pub(super) links: Vec<Link>,
    /// Folders of volumes, relative to the state directory.
    pub(super) folders: Vec<String>,
    pub(super) tokens: Vec<ProjectedToken>,
    /// The same as `links`, below `/var/run/secrets` of the driver and of init containers.
    pub(super) secret_links: Vec<Link>,
    /// The account of the driver on nodes, and of its controller.
    pub(super) driver_account: Option<Account>,
    pub(super) controller_account: Option<Account>,
    pub(super) init: Vec<InitProgram>,
    /// The Secrets of the files: logs, errors and reports do not show their values, whatever variable has one.
    pub(super) secrets: BTreeMap<Key, Data>,
}

/// The credentials of a driver's processes.
#[derive(Clone, Debug, Default)]
pub struct ProcessCredentials {
    /// Of the driver on nodes.
    pub node: Option<Credentials>,
    /// Of its controller.
    pub controller: Option<Credentials>,
}

/// The credentials of the programs of `--deployment` apart from sidecars.
pub struct IssuedCredentials {
    pub driver: ProcessCredentials,
    pub init: Vec<Init>,
    /// What renews the tokens of projected volumes.
    pub refreshed: Vec<Refresh>,
}

/// What `--deployment` provides cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PrepareDeploymentError {
    /// A file, folder or link.
    #[error("cannot create {} for the volumes of --deployment", path.display())]
    Create {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The CSIDriver object is that of another driver.
    #[error(
        "the --deployment files have CSIDriver {given}, but GetPluginInfo returns {driver}: use one name in the \
         manifest and in the driver's arguments"
    )]
    Name {
        /// The name of the object.
        given: String,
        /// The name of the driver.
        driver: String,
    },
}

impl DeploymentObjects {
    /// Creates folders, files and links before any program starts. The paths of the links are on the root of the run's
    /// private mount namespace, so nothing remains on the host.
    ///
    /// # Errors
    /// One of them cannot be created.
    pub fn prepare(&self, state_dir: &Path) -> Result<(), PrepareDeploymentError> {
        let failed = |path: &Path, source| PrepareDeploymentError::Create { path: path.to_owned(), source };
        let folder = |path: &Path| fs::create_dir_all(path).map_err(|source| failed(path, source));
        for path in &self.folders {
            folder(&state_dir.join(path))?;
        }
        for File { path, contents, mode } in &self.files {
            let path = state_dir.join(path);
            path.parent().map_or(Ok(()), folder)?;
            let written = write_private(&path, &contents.0);
            let written = written.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(*mode)));
            written.map_err(|source| failed(&path, source))?;
        }
        for Link { at, to } in &self.links {
            let at = Path::new(at);
            at.parent().map_or(Ok(()), folder)?;
            symlink(state_dir.join(to), at).map_err(|source| failed(at, source))?;
        }
        Ok(())
    }

    /// Gives the driver, the init containers and projected volumes their credentials, after the accounts exist. The volumes
    /// are below the state directory.
    ///
    /// # Errors
    /// A token cannot be requested or written.
    pub async fn issue(
        &self,
        issuer: &Issuer,
        state_dir: &Path,
    ) -> Result<IssuedCredentials, CredentialsError> {
        let mut credentials = ProcessCredentials::default();
        if let Some(account) = &self.driver_account {
            credentials.node = Some(Credentials::issue(issuer, "driver", account).await?);
        }
        if let Some(account) = &self.controller_account {
            credentials.controller = Some(Credentials::issue(issuer, "driver-controller", account).await?);
        }
        let init = Init::prepare(issuer, &self.init).await?;
        let of_driver = credentials.node.iter().chain(&credentials.controller);
        for credentials in of_driver.chain(init.iter().map(|init| &init.credentials)) {
            for Link { at, to } in &self.secret_links {
                credentials.link(at, &state_dir.join(to))?;
            }
        }
        let mut refreshed = Vec::new();
        for ProjectedToken { path, account, audience, lifetime } in &self.tokens {
            let path = state_dir.join(path);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(|source| CredentialsError::Write {
                    program: "a projected volume".to_owned(),
                    path: folder.to_owned(),
                    source,
                })?;
            }
            let (account, audience, lifetime) = (account.clone(), audience.clone(), *lifetime);
            let token = TokenFile { path, account, audience, lifetime };
            refreshed.push(keep(issuer, "a projected volume", token).await?);
        }
        Ok(IssuedCredentials { driver: credentials, init, refreshed })
    }

    /// The values of Secrets that are text.
    pub fn secrets(&self) -> Vec<String> {
        let values = self.secrets.values().flat_map(BTreeMap::values);
        values.filter_map(|contents| String::from_utf8(contents.0.clone()).ok()).collect()
    }

    /// Those among them that no program may log.
    pub fn confidential(&self) -> Vec<String> {
        let text = |(key, contents): (&String, &Contents)| {
            String::from_utf8(contents.0.clone()).ok().filter(|value| is_searched_for(key, value))
        };
        self.secrets.values().flatten().filter_map(text).collect()
    }

    /// Whether the cluster will have the Secrets that a storage class names.
    ///
    /// # Errors
    /// It will not: volumes of the class would wait without end.
    pub fn check_class(&self, parameters: &BTreeMap<String, String>) -> Result<(), MissingSecret> {
        class_secrets::missing(parameters, &self.secrets.keys().cloned().collect())
    }

    /// Whether there are manifests of workloads.
    pub fn is_given(&self) -> bool {
        self.driver_account.is_some()
    }

    /// The service accounts of the driver and of init containers.
    pub fn accounts(&self) -> impl Iterator<Item = Account> {
        let of_init = self.init.iter().map(|init| &init.account);
        self.driver_account.iter().chain(&self.controller_account).chain(of_init).cloned()
    }

    /// The CSIDriver object to install, if the files have one.
    ///
    /// # Errors
    /// It is that of another driver.
    pub fn csi_driver(&self, driver: &str) -> Result<Option<&CSIDriver>, PrepareDeploymentError> {
        let Some(object) = &self.csi_driver else { return Ok(None) };
        match object.metadata.name.as_deref().unwrap_or_default() {
            name if name == driver => Ok(Some(object)),
            given => Err(PrepareDeploymentError::Name { given: given.to_owned(), driver: driver.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_files_and_links_are_created() {
        let state = tempfile::tempdir().unwrap();
        let at = state.path().join("private/root").display().to_string();
        let objects = DeploymentObjects {
            files: vec![File {
                path: "config/sub/d.yaml".into(),
                contents: Contents(b"a: 1".to_vec()),
                mode: 0o500,
            }],
            links: vec![Link { at: at.clone(), to: "data".into() }],
            folders: vec!["data".into()],
            ..DeploymentObjects::default()
        };
        objects.prepare(state.path()).unwrap();
        let file = state.path().join("config/sub/d.yaml");
        assert_eq!(fs::read_to_string(&file).unwrap(), "a: 1");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o500);
        assert_eq!(fs::canonicalize(&at).unwrap(), fs::canonicalize(state.path().join("data")).unwrap());
        let error = objects.prepare(state.path()).unwrap_err().to_string();
        assert_eq!(error, format!("cannot create {at} for the volumes of --deployment"));
    }

    #[test]
    fn the_csi_driver_object_has_the_name_of_the_driver() {
        let mut objects = DeploymentObjects::default();
        assert_eq!(objects.csi_driver("d").unwrap(), None);
        let mut object = CSIDriver::default();
        object.metadata.name = Some("d".into());
        objects.csi_driver = Some(object.clone());
        assert_eq!(objects.csi_driver("d").unwrap(), Some(&object));
        let error = objects.csi_driver("e").unwrap_err().to_string();
        assert!(error.contains("CSIDriver d, but GetPluginInfo returns e"), "{error}");
    }
}
