//! The tokens of controllers that share a process, and each have an account.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use claimcheck_controllers::{Accounts, Name};

/// The environment variable with a folder: a file per controller, and `cache`, each with a bearer token. The kubeconfig
/// then has none.
pub const ACCOUNTS_ENV: &str = "CLAIMCHECK_ACCOUNTS";
/// The file with the token of the shared cache.
pub const CACHE: &str = "cache";

/// The accounts of these controllers, if the environment names a folder.
///
/// # Errors
/// The folder has no token for one of them.
pub(crate) fn from_environment(names: &[Name]) -> Result<Option<Accounts>> {
    env::var_os(ACCOUNTS_ENV).map(|folder| read(&PathBuf::from(folder), names)).transpose()
}

fn read(folder: &Path, names: &[Name]) -> Result<Accounts> {
    let token = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path)
            .with_context(|| format!("{ACCOUNTS_ENV}: {} cannot be read", path.display()))
    };
    let controllers = names.iter().map(|name| Ok((*name, token(name.as_str())?)));
    let controllers = controllers.collect::<Result<BTreeMap<_, _>>>()?;
    Accounts::new(&token(CACHE)?, &controllers)
        .with_context(|| format!("{ACCOUNTS_ENV}={}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_requires_a_token() {
        let folder = tempfile::tempdir().unwrap();
        for name in [CACHE, "binder"] {
            fs::write(folder.path().join(name), "token").unwrap();
        }
        assert!(read(folder.path(), &[Name::Binder]).is_ok());
        let error = read(folder.path(), &[Name::Binder, Name::Scheduler]).unwrap_err();
        assert!(error.to_string().ends_with("/scheduler cannot be read"), "{error}");
    }
}
