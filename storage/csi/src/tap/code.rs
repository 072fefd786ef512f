//! gRPC status codes by name, with the names that are usual in Kubernetes.
//!
//! The names are those of gRPC's Go library (`codes.Code.String`), which the CSI sidecars use in logs and in
//! the `grpc_status_code` label of their metrics; tonic's own `Debug` names differ in three places.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
use tonic::Code;

const NAMES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "Canceled"),
    (Code::Unknown, "Unknown"),
    (Code::InvalidArgument, "InvalidArgument"),
    (Code::DeadlineExceeded, "DeadlineExceeded"),
    (Code::NotFound, "NotFound"),
    (Code::AlreadyExists, "AlreadyExists"),
    (Code::PermissionDenied, "PermissionDenied"),
    (Code::ResourceExhausted, "ResourceExhausted"),
    (Code::FailedPrecondition, "FailedPrecondition"),
    (Code::Aborted, "Aborted"),
    (Code::OutOfRange, "OutOfRange"),
    (Code::Unimplemented, "Unimplemented"),
    (Code::Internal, "Internal"),
    (Code::Unavailable, "Unavailable"),
    (Code::DataLoss, "DataLoss"),
    (Code::Unauthenticated, "Unauthenticated"),
];

/// The name of a code, e.g. `OK`, `Canceled` or `DeadlineExceeded`.
pub fn code_name(code: Code) -> &'static str {
    NAMES.iter().find(|(c, _)| *c == code).map_or("Unknown", |(_, name)| name)
}

/// The code with that name, if it exists.
pub fn code_from_name(name: &str) -> Option<Code> {
    NAMES.iter().find(|(_, n)| *n == name).map(|(code, _)| *code)
}

pub(super) fn serialize<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code_name(*code))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    code_from_name(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is not a gRPC code")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_unique_name() {
        for number in 0..17 {
            let code = Code::from(number);
            assert_eq!(code_from_name(code_name(code)), Some(code), "code {number}");
        }
        assert_eq!(code_from_name("Ok"), None);
    }
}
