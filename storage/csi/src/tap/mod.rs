//! The tap: records every RPC between a component and its driver, and can inject faults.
//!
//! ```text
//!  generated client ─> Tapped ─────────────────────────> channel ─> driver
//!                        │  ^
//!       facts (table) <──┤  └── Faults: delay, error, hang, drop_after
//!                        v
//!         Sink: none | socket ──/cc/tap.sock──> listen ─> TapRecord, ApiWrite ...
//!            (tee: channel) ^────── fault plans ─────┘   (or in a file: fault_file)
//! ```
//!
//! Messages of the driver are recorded without the secrets of their requests (`redact`). What a request carries is
//! recorded only while a rule asks for it, in the same way (`request`). Of a body the tap keeps at most what gRPC
//! accepts as a message.
//!
//! A call is recorded twice, when it starts and when it ends; the second record contains the first, but for what its
//! request carries. It is in the sink before the caller sees the result. So when a write to the API server that follows
//! from an RPC is observed, the record of the RPC is on its way already. It may still arrive later than the write:
//! counts of calls are complete once a marker has arrived that came the same way, a confirmation in the socket
//! ([`Barrier`]) or the newest line of a log ([`NewestLine`]).

mod body;
mod code;
mod disclosure;
mod facts;
mod fault;
mod fault_file;
mod known_secrets;
mod line;
mod listen;
mod no_response;
mod record;
mod redact;
mod request;
mod service;
mod sink;
#[cfg(test)]
mod size_tests;
mod summary;
#[cfg(test)]
mod timing_tests;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use claimcheck_model::ApiWrite;
use thiserror::Error;
use tokio::sync::mpsc;

pub use code::{code_from_name, code_name};
pub use disclosure::{Disclosure, is_searched_for};
pub use fault::{FaultAction, FaultPlan, FaultRule, Faults};
pub use fault_file::write_faults;
pub use known_secrets::KnownSecrets;
pub use line::{LineId, LineWriter, NEWEST_LINE, NewestLine, TapLine};
pub use listen::{Barrier, FaultControl, Telemetry, listen};
pub use no_response::NoResponse;
pub use record::{CallEnd, CallId, TapRecord};
pub use redact::{without_secrets, without_tokens};
pub use service::{ForClaim, Tapped};
pub use summary::CallSummaries;

pub(crate) use service::Context;
use sink::{Sink, Socket};

/// The environment variable that names the tap socket.
pub const TAP_ENV: &str = "CLAIMCHECK_TAP";
/// The environment variable that holds a [`FaultPlan`] as JSON.
pub const FAULTS_ENV: &str = "CLAIMCHECK_FAULTS";

/// Why the configured tap of a process is unavailable.
#[derive(Debug, Error)]
pub enum TapError {
    /// No process listens on the socket.
    #[error("cannot connect to the tap at {}: start its listener first, or unset {TAP_ENV}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The plan is invalid.
    #[error("{FAULTS_ENV} is not a fault plan: expected a JSON list of rules with `method` and `action`")]
    Faults(#[source] serde_json::Error),
}

/// The sink of this process's records and the faults in force; clones share both.
#[derive(Clone, Debug)]
pub struct Tap {
    sink: Arc<Sink>,
    faults: Faults,
}

impl Tap {
    /// Records nothing. Faults can still be injected.
    pub fn none() -> Self {
        Self::with_sink(Sink::None)
    }

    /// Records into a channel, for callers in the same process.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<TapRecord>) {
        Self::none().tee()
    }

    /// The same tap, which additionally records into a channel: a component has metrics even while a harness
    /// listens. Faults stay shared with the original tap.
    pub fn tee(self) -> (Self, mpsc::UnboundedReceiver<TapRecord>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let sink = Arc::new(Sink::Tee(self.sink, sender));
        (Self { sink, faults: self.faults }, receiver)
    }

    /// Records into the socket at `path`, created by [`listen`], and receives fault plans from it. If the
    /// socket breaks later, the process continues without records and warns once.
    ///
    /// # Errors
    /// [`TapError::Connect`] if no process listens there.
    pub fn connect(path: &Path) -> Result<Self, TapError> {
        let faults = Faults::default();
        let socket = Socket::connect(path, faults.clone())
            .map_err(|source| TapError::Connect { path: path.to_owned(), source })?;
        Ok(Self { sink: Arc::new(Sink::Socket(socket)), faults })
    }

    /// The tap configured by the environment: [`TAP_ENV`] and [`FAULTS_ENV`], each optional.
    ///
    /// # Errors
    /// [`TapError`] if a variable has an invalid value. Continuing without a tap would look like a driver that
    /// is never called.
    pub fn from_env() -> Result<Self, TapError> {
        Self::asked_for(std::env::var_os(TAP_ENV), std::env::var_os(FAULTS_ENV))
    }

    fn asked_for(socket: Option<OsString>, faults: Option<OsString>) -> Result<Self, TapError> {
        let tap = match socket {
            Some(path) => Self::connect(Path::new(&path))?,
            None => Self::none(),
        };
        match faults {
            Some(plan) => {
                let plan = serde_json::from_str(&plan.to_string_lossy()).map_err(TapError::Faults)?;
                Ok(tap.with_faults(plan))
            }
            None => Ok(tap),
        }
    }

    /// Records a write to the API server, if the tap is a socket.
    pub fn record_write(&self, write: &ApiWrite) {
        self.sink.write_api_write(write);
    }

    /// The same tap with this plan in force.
    pub fn with_faults(self, plan: FaultPlan) -> Self {
        self.faults.set(plan);
        self
    }

    /// The same tap with the plan of a file in force, see [`write_faults`].
    pub fn with_faults_of(self, path: PathBuf) -> Self {
        Self { faults: Faults::from_file(path), ..self }
    }

    /// The faults in force, to replace them at any time.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    fn with_sink(sink: Sink) -> Self {
        Self { sink: Arc::new(sink), faults: Faults::default() }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CsiMethod, Stamp};

    use super::*;

    fn call(component: &str, method: CsiMethod) -> TapRecord {
        TapRecord::started(CallId { pid: 1, seq: 1 }, component, method, Stamp::default())
    }

    #[test]
    fn the_environment_accepts_valid_faults_only() {
        let plan = r#"[{"method":"NodeStageVolume","action":"hang"}]"#;
        let tap = Tap::asked_for(None, Some(plan.into())).unwrap();
        let action = tap.faults().next(&call("node/a", CsiMethod::NodeStageVolume));
        assert_eq!(action, Some(FaultAction::Hang));

        let nonsense = Tap::asked_for(None, Some(r#"[{"method":"NodeStageVolume"}]"#.into()));
        assert!(matches!(nonsense, Err(TapError::Faults(_))));
        let nowhere = Tap::asked_for(Some("/no/tap.sock".into()), None);
        assert!(matches!(nowhere, Err(TapError::Connect { .. })));
    }

    #[test]
    fn a_tee_gets_what_the_first_gets_and_obeys_the_same_faults() {
        let (first, mut received) = Tap::channel();
        let (tap, mut second) = first.clone().tee();
        let record = call("attacher", CsiMethod::ControllerPublishVolume);
        tap.sink.write(record.clone());
        assert_eq!(received.try_recv().ok(), Some(record.clone()));
        drop(received);
        tap.sink.write(record.clone());
        assert_eq!(second.try_recv().ok(), Some(record.clone()));
        assert_eq!(second.try_recv().ok(), Some(record), "a dropped receiver does not affect the other");

        let plan = r#"[{"method":"NodeStageVolume","action":"hang"}]"#;
        first.faults().set(serde_json::from_str(plan).unwrap());
        let action = tap.faults().next(&call("node/a", CsiMethod::NodeStageVolume));
        assert_eq!(action, Some(FaultAction::Hang));
    }
}
