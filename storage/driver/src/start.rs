//! Whether a call has started, or was cancelled before: one of the two, decided once.
//!
//! A cancelled call may still wait for its volume's lock, on a blocking thread, which cannot be stopped. Locks are
//! not granted in the order of the calls: a retry, and calls that undo its effect, may all come first. If the
//! cancelled call were executed then, it would leave a mount or a volume that no caller knows of.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It waits for its first lock, and has had no effect.
    #[default]
    Pending,
    /// It runs to its end, whether or not its caller waits for the response.
    Started,
    /// Its caller cancelled it before it started.
    Cancelled,
}

/// The start of one call. Clones are the same call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start(Arc<Mutex<State>>);

impl Start {
    /// Starts the call, if it has not started. The caller holds the first lock that the call requires.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the call was cancelled before.
    pub(crate) fn begin(&self) -> Result<()> {
        match self.replace(State::Started) {
            State::Pending | State::Started => Ok(()),
            State::Cancelled => Err(Error::Cancelled),
        }
    }

    /// Cancels the call when dropped, unless it has started.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    /// Changes the state of a pending call, and returns the state before.
    fn replace(&self, next: State) -> State {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        if before == State::Pending {
            *state = next;
        }
        before
    }
}

/// See [`Start::cancel_on_drop`]. The future of a call holds it: gRPC drops that future if the caller cancels the
/// call or disconnects.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Start);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.replace(State::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_either_starts_or_is_cancelled() {
        let started = Start::default();
        let waiting = started.cancel_on_drop();
        started.begin().unwrap();
        drop(waiting);
        // It requires a second lock.
        started.clone().begin().unwrap();

        let cancelled = Start::default();
        drop(cancelled.cancel_on_drop());
        assert!(matches!(cancelled.begin(), Err(Error::Cancelled)));
        assert!(matches!(cancelled.clone().begin(), Err(Error::Cancelled)));
    }
}
