//! An embedded Kubernetes API server for storage: real HTTPS, generic store, watch, admission.
//!
//! ```text
//! TLS, HTTP (server) -> path (request) -> faults, counters, audit (api)
//!        -> credentials, RBAC (auth)
//!        -> handlers/{create,get,list,update,patch,delete,watch}
//!               |  resources: one row per kind (defaults, validation, columns)
//!               |  admission: what the cluster adds or refuses
//!               |  custom: kinds that CustomResourceDefinitions bring, with rows of the same type
//!               |  schema: the fields of all kinds; fields: who owns them (server-side apply)
//!               |  protobuf: bodies as client-go writes and reads them, by the numbers in schema
//!               v
//!            store: objects by key, one version counter, a ring of changes per resource
//!               ^
//!              gc: owner references and terminating namespaces
//! ```
//!
//! Start with [`start`], then `api.rs` for the processing of a request, and `resources/mod.rs` for the served
//! kinds. It agrees with kube-apiserver 1.36 on everything that `tests/replay.rs` replays.

mod admission;
mod api;
mod audit;
mod auth;
mod bootstrap;
mod custom;
mod discovery;
mod encoding;
mod faults;
mod fields;
mod gc;
mod handlers;
mod json_patch;
pub mod kubeconfig;
mod kubelet;
mod names;
mod openapi;
mod protobuf;
mod quantity;
mod quote;
mod request;
mod resources;
mod response;
mod schema;
mod selectors;
mod server;
mod status;
mod store;
mod strategic;
mod table;
mod time;
mod tls;
mod tokens;

pub use audit::RequestCount;
pub use auth::IssueError;
pub use faults::{Fault, FaultRule, Faults};
pub use server::{Config, Server, StartError, start};
pub use tls::{Certificates, ClientCertificate, TlsError};
