//! The consequence of a failed call: final, or perhaps still in progress.

use claimcheck_csi::tap::code_name;
use tonic::{Code, Status};

/// Whether the operation may still be in progress in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Final: nothing was done and no operation is in progress.
    Final,
    /// Final, for lack of capacity: another node or topology may have some.
    Exhausted,
    /// Final, because the request itself is invalid; retries will not succeed.
    Infeasible,
    /// Unknown: the call timed out, the connection broke, or the driver is still busy. The same call must be
    /// repeated until its result is known.
    Unknown,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct RpcFailure {
    /// Its consequence.
    pub certainty: Certainty,
    /// The gRPC status code's number.
    pub number: i32,
    /// The gRPC status code's name.
    pub code: String,
    /// The gRPC status's message.
    pub message: String,
}

impl RpcFailure {
    /// Whether the call has ended for certain, with no change: not for lack of room, which may be short for the moment
    /// only. Upstream: `isCSIFinalError` in external-snapshotter, `IsFinalError` in external-resizer.
    pub fn is_final(&self) -> bool {
        match self.certainty {
            Certainty::Final | Certainty::Infeasible => true,
            Certainty::Exhausted | Certainty::Unknown => false,
        }
    }
}

impl From<Status> for RpcFailure {
    /// Upstream: `checkError` in external-provisioner `pkg/controller/controller.go`. In addition, a status
    /// that tonic itself generated from a broken connection counts as unknown, whatever its code: the driver
    /// may have received the request.
    fn from(status: Status) -> Self {
        let local = std::error::Error::source(&status).is_some();
        let certainty = match status.code() {
            _ if local => Certainty::Unknown,
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => Certainty::Unknown,
            Code::ResourceExhausted => Certainty::Exhausted,
            Code::InvalidArgument => Certainty::Infeasible,
            Code::Ok
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated
            // What a Go driver answers that returns an error without a status: it has finished.
            | Code::Unknown => Certainty::Final,
        };
        let number = i32::from(status.code());
        Self {
            certainty,
            number,
            code: code_name(status.code()).to_owned(),
            message: status.message().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_driver_that_answered_is_final() {
        for (status, certainty) in [
            (Status::internal("disk on fire"), Certainty::Final),
            (Status::unknown("disk on fire"), Certainty::Final),
            (Status::already_exists("other size"), Certainty::Final),
            (Status::resource_exhausted("full"), Certainty::Exhausted),
            (Status::invalid_argument("what?"), Certainty::Infeasible),
            (Status::aborted("pending"), Certainty::Unknown),
            (Status::deadline_exceeded("slow"), Certainty::Unknown),
            (Status::unavailable("gone"), Certainty::Unknown),
            (Status::from_error("broken pipe".into()), Certainty::Unknown),
        ] {
            assert_eq!(RpcFailure::from(status.clone()).certainty, certainty, "{status:?}");
        }
    }

    #[test]
    fn reads_as_people_know_it_from_stock_components() {
        let failure = RpcFailure::from(Status::internal("disk on fire"));
        assert_eq!(failure.to_string(), "rpc error: code = Internal desc = disk on fire");
        let cancelled = RpcFailure::from(Status::cancelled("stopped"));
        assert_eq!(cancelled.to_string(), "rpc error: code = Canceled desc = stopped", "as in Go");
    }
}
