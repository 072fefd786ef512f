//! The entry point of every `main`.

use std::{error::Error, process::ExitCode};

use claimcheck_substrate::{Privilege, isolate};

use claimcheck_cluster::detach_orphaned_loop_devices;
use claimcheck_component as component;

/// What `main` must do.
#[derive(Debug)]
pub enum Entry {
    /// Continue. The lane is that of the private namespaces, if requested.
    Go(Option<Privilege>),
    /// Exit with this code: everything is done.
    Exit(ExitCode),
}

/// Runs a component if this process was started as one; otherwise moves the process into private
/// namespaces if `needs_cluster` returns true, which is called after that.
///
/// Must be called before any thread exists. Prints the reason on standard error if the host does not permit
/// private namespaces.
pub fn entry(needs_cluster: impl FnOnce() -> bool) -> Entry {
    // One provider for all users of rustls in this process. An error means that it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(code) = component::play() {
        return Entry::Exit(code);
    }
    if !needs_cluster() {
        return Entry::Go(None);
    }
    tidy_up();
    match isolate() {
        Ok(privilege) => Entry::Go(Some(privilege)),
        Err(error) => {
            print(&error);
            Entry::Exit(ExitCode::from(3))
        }
    }
}

/// Detaches loop devices leaked by drivers of dead runs, while other processes are still visible. A failure is
/// not fatal.
fn tidy_up() {
    match detach_orphaned_loop_devices() {
        Ok(dead) => dead.iter().for_each(|dead| eprintln!("claimcheck: {dead}")),
        Err(error) => print(&error),
    }
}

fn print(error: &dyn Error) {
    let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
    eprintln!("claimcheck: {error}{why}");
}
