//! The first line of every `main`.

use std::{error::Error, process::ExitCode};

use claimcheck_substrate::{Lane, isolate};

use claimcheck_cluster::detach_dead_loops;
use claimcheck_component as component;

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
    tidy_up();
    match isolate() {
        Ok(lane) => Entry::Go(Some(lane)),
        Err(error) => {
            say(&error);
            Entry::Exit(ExitCode::from(3))
        }
    }
}

/// Detaches what drivers of dead runs have left, while other processes can still be seen. That something stays is
/// no reason not to run.
fn tidy_up() {
    match detach_dead_loops() {
        Ok(dead) => dead.iter().for_each(|dead| eprintln!("claimcheck: {dead}")),
        Err(error) => say(&error),
    }
}

fn say(error: &dyn Error) {
    let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
    eprintln!("claimcheck: {error}{why}");
}
