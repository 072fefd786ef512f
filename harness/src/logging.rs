//! Logs through tracing: for people on standard error, for components into their log files.

use std::io;

use tracing_subscriber::EnvFilter;

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A person's terminal: warnings, unless `RUST_LOG` or `-v` asks for more.
    Person {
        /// How often `-v` was given.
        verbosity: u8,
    },
    /// A component's log file: everything of note.
    Component,
}

/// Starts logging; to be called once.
pub fn start(style: Style) {
    let default = match style {
        // The client logs as errors what the watches repeat by themselves.
        Style::Person { verbosity: 0 } => "error,kube_client=off",
        Style::Person { verbosity: 1 } => "info",
        Style::Person { verbosity: 2.. } => "debug,hyper=info,hyper_util=info,rustls=info,h2=info,tower=info",
        Style::Component => "info",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // An error says that somebody logs already.
    let _ = match style {
        Style::Person { .. } => log.with_target(false).without_time().try_init(),
        Style::Component => log.with_ansi(false).try_init(),
    };
}
