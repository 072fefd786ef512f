//! Handling of Ctrl-C: the first ends a run in order, with its report; the second at once.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Signals within this time count as one.
const TWICE: Duration = Duration::from_millis(500);
/// The exit code of a program terminated by SIGINT, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// A token that is cancelled by SIGINT or SIGTERM. Must be called within a tokio runtime.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn token() -> Result<CancellationToken> {
    let interrupted = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let token = interrupted.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        token.cancel();
        let asked = Instant::now();
        // A second signal ends the process at once: the kernel cleans up. A signal to the whole process group
        // arrives twice at the same time, directly and forwarded, and counts as one.
        while asked.elapsed() < TWICE {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        eprintln!(
            "claimcheck: interrupted twice: `claimcheck cluster prune` deletes a kind cluster that is left"
        );
        std::process::exit(INTERRUPTED.into());
    });
    Ok(interrupted)
}
