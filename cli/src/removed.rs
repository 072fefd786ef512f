//! Commands that were removed: for one release they name their replacement.

use std::process::ExitCode;

/// The arguments of a removed command: any.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

/// Says what to use instead; the exit code is that of an invalid command line.
pub fn refuse(command: &str, replacement: &str) -> ExitCode {
    eprintln!("claimcheck: `claimcheck {command}` is removed: {replacement}");
    ExitCode::from(2)
}
