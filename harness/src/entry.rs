//! The first line of every `main`.

use std::process::ExitCode;

use claimcheck_substrate::{Lane, isolate};

use crate::component;

/// What `main` is to do.
#[derive(Debug)]
pub enum Entry {
    /// Go on. The lane is that of the private namespaces, if they were asked for.
    Go(Option<Lane>),
    /// Everything is done: exit with this.
    Exit(ExitCode),
}

/// Plays a component if this process was started as one; otherwise moves the process into private
/// namespaces if `needs_cluster` says so, which is asked after that.
///
/// To be called before any thread exists. Says why on standard error where the host does not permit
/// private namespaces.
pub fn entry(needs_cluster: impl FnOnce() -> bool) -> Entry {
    // One provider for all of rustls' users in this process. An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(code) = component::play() {
        return Entry::Exit(code);
    }
    if !needs_cluster() {
        return Entry::Go(None);
    }
    match isolate() {
        Ok(lane) => Entry::Go(Some(lane)),
        Err(error) => {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            eprintln!("claimcheck: {error}{why}");
            Entry::Exit(ExitCode::from(3))
        }
    }
}
