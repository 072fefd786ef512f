//! Whether a run is kept for later, and where.

use std::path::PathBuf;

use claimcheck_report::history::default_path;
use clap::builder::FalseyValueParser;

/// The file of the history.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryFile {
    /// The file of what earlier runs came to [default: claimcheck/history.db in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_HISTORY")]
    history: Option<PathBuf>,
}

impl HistoryFile {
    /// Where it is; none where nobody says so, and the user has no home.
    pub fn path(&self) -> Option<PathBuf> {
        self.history.clone().or_else(default_path)
    }
}

/// Whether there is a history, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryArgs {
    /// Keep nothing of this run but its folder, and show no earlier ones
    #[arg(long, env = "CLAIMCHECK_NO_HISTORY", value_parser = FalseyValueParser::new())]
    no_history: bool,
    #[command(flatten)]
    file: HistoryFile,
}

impl HistoryArgs {
    /// Where it is; none where there shall be none.
    pub fn path(&self) -> Option<PathBuf> {
        self.file.path().filter(|_| !self.no_history)
    }

    /// The same where a file is named, and none where none is: for tests, which are no runs to look back at.
    pub fn named(&self) -> Option<PathBuf> {
        self.file.history.clone().filter(|_| !self.no_history)
    }
}
