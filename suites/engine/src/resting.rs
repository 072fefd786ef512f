//! Cases that only wait for time to pass: they are running, but other cases can start in their place.

use tokio::sync::watch;

/// The cases that only wait. Clones count the same cases.
#[derive(Clone, Debug, Default)]
pub struct Resting(watch::Sender<usize>);

/// A case that only waits, until this is dropped.
#[derive(Debug)]
#[must_use = "the case works again once it is dropped"]
pub struct Rest(Resting);

impl Resting {
    /// A case only waits from now on.
    pub fn rest(&self) -> Rest {
        self.0.send_modify(|resting| *resting += 1);
        Rest(self.clone())
    }

    /// Their number.
    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Changes when their number does.
    pub(crate) fn changes(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.0.0.send_modify(|resting| *resting -= 1);
    }
}
