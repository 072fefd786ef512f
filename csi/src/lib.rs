//! CSI v1 over gRPC: bindings, unix-socket client and server, the recording tap.

pub mod v1;
