//! Init containers of `--deployment`, with their credentials.

use super::{
    account::Account,
    command::Sidecar,
    credentials::{Credentials, CredentialsError, Issuer},
};

/// A program with its service account.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InitProgram {
    pub sidecar: Sidecar,
    pub account: Account,
}

/// The same with its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Init {
    pub program: InitProgram,
    pub credentials: Credentials,
}

impl Init {
    /// Gives these programs their credentials.
    pub(crate) async fn prepare(
        issuer: &Issuer,
        programs: &[InitProgram],
    ) -> Result<Vec<Self>, CredentialsError> {
        let mut prepared = Vec::new();
        for program in programs {
            let credentials = Credentials::issue(issuer, program.sidecar.name(), &program.account).await?;
            prepared.push(Self { program: program.clone(), credentials });
        }
        Ok(prepared)
    }
}
