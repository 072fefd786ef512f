//! Init containers of `--deployment`, with their credentials.

use super::{
    account::Account,
    command::Sidecar,
    credentials::{Credentials, CredentialsError, Issuer},
};

/// A program with its service account.
#[derive(Clone, Debug, PartialEq)]
pub struct InitProgram {
    /// The program.
    pub sidecar: Sidecar,
    /// The service account.
    pub account: Account,
}

/// The same with its credentials.
#[derive(Clone, Debug)]
pub struct Init {
    /// The program.
    pub program: InitProgram,
    /// Its credentials.
    pub credentials: Credentials,
}

impl Init {
    /// Gives these programs their credentials.
    pub async fn prepare(issuer: &Issuer, programs: &[InitProgram]) -> Result<Vec<Self>, CredentialsError> {
        let mut prepared = Vec::new();
        for program in programs {
            let credentials = Credentials::issue(issuer, program.sidecar.name(), &program.account).await?;
            prepared.push(Self { program: program.clone(), credentials });
        }
        Ok(prepared)
    }
}
