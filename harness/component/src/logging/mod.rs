//! Logging with tracing: to standard error for users, to log files for components, as text or JSON.

mod json;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

use tracing_subscriber::{EnvFilter, fmt::format::JsonFields};

/// Environment variable with the [`Format`], which components inherit.
const FORMAT: &str = "CLAIMCHECK_LOG_FORMAT";
/// Environment variable with the log filter, which overrides the default.
const FILTER: &str = "RUST_LOG";
/// Everything except for low-level connection logs.
const EVERYTHING: &str = "debug,hyper=info,hyper_util=info,rustls=info,h2=info,tower=info";

/// The destination of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A user's terminal: errors, unless `RUST_LOG` or `-v` requests more.
    Human {
        /// The number of `-v` flags.
        verbosity: u8,
    },
    /// A component's log file: more verbose.
    Component,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people
    #[default]
    Human,
    /// One JSON object per line, with the volume, claim, pod or case as fields
    Json,
}

impl Format {
    /// The format requested by the environment.
    pub fn from_environment() -> Self {
        let asked = std::env::var(FORMAT).ok();
        asked.and_then(|asked| clap::ValueEnum::from_str(&asked, true).ok()).unwrap_or_default()
    }
}

/// The environment variables for components of this process.
static INHERITED: OnceLock<Vec<(String, OsString)>> = OnceLock::new();

/// Starts logging; must be called once.
pub fn start(style: Style, format: Format) {
    let default = match style {
        // The client logs errors that watches retry by themselves, and the verification of a collector's
        // certificate errors that are reported at the end.
        Style::Human { verbosity: 0 } => "error,kube_client=off,rustls_platform_verifier=off",
        Style::Human { verbosity: 1 } => "info",
        Style::Human { verbosity: 2.. } => EVERYTHING,
        // Errors of watches are logged by who watches, with what follows from them.
        Style::Component => "info,kube_runtime::watcher=error,kube_client::client::builder=off",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Otherwise a log line that cannot be written is reported with `eprintln!`, which panics: a full disk, which has the
    // logs of a run, would end every component.
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false).with_writer(io::stderr);
    // An error means that logging is already initialized.
    let _ = match (format, style) {
        (Format::Json, _) => log.fmt_fields(JsonFields::new()).event_format(json::Flat).try_init(),
        (Format::Human, Style::Human { .. }) => {
            log.with_ansi(io::stderr().is_terminal()).with_target(false).without_time().try_init()
        }
        (Format::Human, Style::Component) => log.with_ansi(false).try_init(),
    };
    let _ = INHERITED.set(inherited(style, format));
}

/// The environment variables with which components log as this process does. Their filter is in its
/// own environment already, if set.
pub fn for_components() -> Vec<(String, OsString)> {
    INHERITED.get().cloned().unwrap_or_default()
}

fn inherited(style: Style, format: Format) -> Vec<(String, OsString)> {
    let name = match format {
        Format::Human => "human",
        Format::Json => "json",
    };
    let everything = matches!(style, Style::Human { verbosity: 2.. }) && std::env::var_os(FILTER).is_none();
    let filter = everything.then(|| (FILTER.to_owned(), EVERYTHING.into()));
    [(FORMAT.to_owned(), name.into())].into_iter().chain(filter).collect()
}
