//! From the client of a component's process to the run: through the tap socket, as the CSI calls.

use std::{ffi::OsStr, path::Path};

use claimcheck_csi::tap::{Tap, TapError};
use claimcheck_model::ApiWrite;
use tokio::sync::mpsc;

/// The environment variable with the path of the tap socket, if writes are to be recorded.
pub const WRITES_ENV: &str = "CLAIMCHECK_WRITES";

/// The recipient of records of writes. Sending never blocks: they are associated with volumes after their deletion.
#[derive(Clone, Debug)]
pub struct ApiWriteRecorder(mpsc::UnboundedSender<ApiWrite>);

impl ApiWriteRecorder {
    /// Sends within this process.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ApiWrite>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends to the run that a component belongs to, if it records writes. If that fails, the component
    /// works nevertheless. Must be called within a tokio runtime.
    pub fn from_environment() -> Option<Self> {
        let path = std::env::var_os(WRITES_ENV)?;
        match Self::connect(&path) {
            Ok(recorder) => Some(recorder),
            Err(error) => {
                tracing::warn!(%error, "cannot connect to {WRITES_ENV}: API writes are not recorded");
                None
            }
        }
    }

    /// Sends to a tap socket.
    pub(super) fn connect(path: impl AsRef<OsStr>) -> Result<Self, TapError> {
        let tap = Tap::connect(Path::new(path.as_ref()))?;
        let (recorder, mut writes) = Self::channel();
        tokio::spawn(async move {
            while let Some(write) = writes.recv().await {
                tap.record_write(&write);
            }
        });
        Ok(recorder)
    }

    /// Sends a record of a write.
    pub fn record(&self, write: ApiWrite) {
        // The receiver may have been dropped at the end of the run.
        let _ = self.0.send(write);
    }
}
