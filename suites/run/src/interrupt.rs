//! What Ctrl-C means: the first ends a run in order, with its report; the second at once.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::run::Outcome;

/// Signals closer together than this are one wish.
const TWICE: Duration = Duration::from_millis(500);
/// What a shell says of a program that ended by SIGINT.
const INTERRUPTED: u8 = 130;
/// All went well, and too slowly or too often.
const BROKEN: u8 = 4;

/// Cancelled once somebody wants the run to end. To be called on a runtime.
///
/// # Errors
/// The signals cannot be listened to.
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
        // Whoever asks twice does not want to wait: the kernel cleans up. A signal to the whole process
        // group comes twice at once, by itself and forwarded, and is one wish.
        while asked.elapsed() < TWICE {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        std::process::exit(INTERRUPTED.into());
    });
    Ok(interrupted)
}

/// The exit code of a run that has reported.
pub fn exit_code(interrupted: &CancellationToken, outcome: &Outcome) -> ExitCode {
    match (interrupted.is_cancelled(), outcome.is_good(), outcome.keeps_thresholds()) {
        (true, _, _) => ExitCode::from(INTERRUPTED),
        (false, false, _) => ExitCode::from(1),
        (false, true, false) => ExitCode::from(BROKEN),
        (false, true, true) => ExitCode::SUCCESS,
    }
}
