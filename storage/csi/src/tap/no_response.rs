//! Calls without a response from the driver: their status, and how to distinguish it from a response.

use std::{error::Error, sync::Arc};

use tonic::{Status, codegen::StdError};

/// Why a call has no response: the source of its status. A driver may return the same codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum NoResponse {
    /// The connection failed or broke.
    #[error("the connection failed")]
    ConnectionLost,
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Late,
}

impl NoResponse {
    /// Why a call has no response; `None` if the status is the driver's.
    pub fn of(status: &Status) -> Option<Self> {
        status.source()?.downcast_ref().copied()
    }

    fn status(self, mut status: Status) -> Status {
        status.set_source(Arc::new(self));
        status
    }
}

/// The status of a call past its deadline, with the text of grpc-go (`FromContextError` in `status/status.go`), which
/// upstream's components put into events and conditions.
pub(super) fn deadline_exceeded() -> Status {
    NoResponse::Late.status(Status::deadline_exceeded("context deadline exceeded"))
}

/// The status of a call with an interrupted response.
pub(super) fn connection_lost(status: Status) -> Status {
    let message = format!("the connection to the driver broke: {}", status.message());
    NoResponse::ConnectionLost.status(Status::unavailable(message))
}

/// The status of a call that could not be sent.
pub(super) fn unanswered(error: StdError) -> Status {
    let mut message = format!("no answer from the driver: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    NoResponse::ConnectionLost.status(Status::unavailable(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_response_has_the_text_of_grpc_go() {
        let status = deadline_exceeded();
        let expected = (tonic::Code::DeadlineExceeded, "context deadline exceeded");
        assert_eq!((status.code(), status.message()), expected);
    }

    #[test]
    fn errors_of_the_driver_are_distinguished_from_missing_responses() {
        assert_eq!(NoResponse::of(&deadline_exceeded()), Some(NoResponse::Late));
        assert_eq!(NoResponse::of(&connection_lost(Status::internal("x"))), Some(NoResponse::ConnectionLost));
        assert_eq!(NoResponse::of(&unanswered("refused".into())), Some(NoResponse::ConnectionLost));
        assert_eq!(NoResponse::of(&Status::unavailable("busy")), None);
    }
}
