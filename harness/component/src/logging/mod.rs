//! Logs through tracing: for people on standard error, for components into their log files, as text or JSON.

mod json;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

use tracing_subscriber::{EnvFilter, fmt::format::JsonFields};

/// In the environment: the [`Format`], which components inherit.
const FORMAT: &str = "CLAIMCHECK_LOG_FORMAT";
/// In the environment: what is logged, in place of what we would choose.
const FILTER: &str = "RUST_LOG";
/// Everything, but for the connections below.
const EVERYTHING: &str = "debug,hyper=info,hyper_util=info,rustls=info,h2=info,tower=info";

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A person's terminal: errors, unless `RUST_LOG` or `-v` asks for more.
    Person {
        /// How often `-v` was given.
        verbosity: u8,
    },
    /// A component's log file: everything of note.
    Component,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people
    #[default]
    Human,
    /// An object a line, in which the volume, claim, pod or case that it is about is a field
    Json,
}

impl Format {
    /// What the environment asks for.
    pub fn of_environment() -> Self {
        let asked = std::env::var(FORMAT).ok();
        asked.and_then(|asked| clap::ValueEnum::from_str(&asked, true).ok()).unwrap_or_default()
    }
}

/// What components of this process are told.
static INHERITED: OnceLock<Vec<(String, OsString)>> = OnceLock::new();

/// Starts logging; to be called once.
pub fn start(style: Style, format: Format) {
    let default = match style {
        // The client logs as errors what the watches repeat by themselves, and the check of a collector's
        // certificate what is told at the end.
        Style::Person { verbosity: 0 } => "error,kube_client=off,rustls_platform_verifier=off",
        Style::Person { verbosity: 1 } => "info",
        Style::Person { verbosity: 2.. } => EVERYTHING,
        Style::Component => "info",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // An error says that somebody logs already.
    let _ = match (format, style) {
        (Format::Json, _) => log.fmt_fields(JsonFields::new()).event_format(json::Flat).try_init(),
        (Format::Human, Style::Person { .. }) => {
            log.with_ansi(io::stderr().is_terminal()).with_target(false).without_time().try_init()
        }
        (Format::Human, Style::Component) => log.with_ansi(false).try_init(),
    };
    let _ = INHERITED.set(inherited(style, format));
}

/// What components of this process have to have in their environment, to log as it does. Their filter is in its
/// own already, where there is one.
pub fn for_components() -> Vec<(String, OsString)> {
    INHERITED.get().cloned().unwrap_or_default()
}

fn inherited(style: Style, format: Format) -> Vec<(String, OsString)> {
    let name = match format {
        Format::Human => "human",
        Format::Json => "json",
    };
    let everything = matches!(style, Style::Person { verbosity: 2.. }) && std::env::var_os(FILTER).is_none();
    let filter = everything.then(|| (FILTER.to_owned(), EVERYTHING.into()));
    [(FORMAT.to_owned(), name.into())].into_iter().chain(filter).collect()
}
