//! CSI v1 over gRPC: bindings, unix-socket client and server, the recording tap.
//!
//! ```text
//!   controllers, node agent                                        driver process
//!   Driver ─ .identity() .controller() .node() ─┐                ┌─ Services
//!                                               v                │
//!                       tap::Tapped ──> reconnecting channel ══ unix socket ══ Server
//!                          │    ^
//!               TapRecord  v    │ FaultPlan
//!                       tap socket ══ tap::listen (the harness)
//! ```
//!
//! Start with [`Driver`] to call a driver, with [`Server`] to implement one, and with [`tap`] to record calls.
//! The messages and generated clients and servers are in [`v1`]; their source is `proto/csi.proto`.

mod authority;
mod client;
mod endpoint;
pub mod message;
mod proxy;
mod server;
mod socket;
pub mod tap;
pub mod v1;

pub use client::{
    Driver, DriverService, KUBELET_DEADLINE, NotReady, NotReadyCause, SIDECAR_DEADLINE, connect,
};
pub use endpoint::{Endpoint, EndpointError};
pub use proxy::{NO_DEADLINE, proxy, serve_tapped};
pub use server::{Accepted, Connection, ServeError, Server, Services};
pub use socket::BindError;
pub use tonic::{Code, Status};
