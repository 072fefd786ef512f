//! Arguments of the history: whether runs are recorded, and in which file.

use std::path::PathBuf;

use claimcheck_report::history::default_path;
use clap::builder::FalseyValueParser;

/// The heading of these options.
const HISTORY: &str = "History";

/// The file of the history.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryFile {
    /// History file with the results of earlier runs [default: claimcheck/history.ndjson in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_HISTORY", help_heading = HISTORY)]
    history: Option<PathBuf>,
}

impl HistoryFile {
    /// The path; none if no file is given and the user has no home directory.
    pub fn path(&self) -> Option<PathBuf> {
        self.history.clone().or_else(default_path)
    }
}

/// Whether runs are recorded, and in which file.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryArgs {
    /// Do not record this run in the history, and show no earlier runs
    #[arg(long, env = "CLAIMCHECK_NO_HISTORY", value_parser = FalseyValueParser::new(), help_heading = HISTORY)]
    no_history: bool,
    #[command(flatten)]
    file: HistoryFile,
}

impl HistoryArgs {
    /// The path; none if the history is disabled.
    pub fn path(&self) -> Option<PathBuf> {
        self.file.path().filter(|_| !self.no_history)
    }

    /// The path if a file is given explicitly: runs of tests are not recorded by default.
    pub fn named(&self) -> Option<PathBuf> {
        self.file.history.clone().filter(|_| !self.no_history)
    }
}
