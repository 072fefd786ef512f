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
//!
//! # Cost
//! `benches/api.rs` measures it (release build, two cores with other work, server and clients in one process):
//!
//! | of | figure |
//! |---|---|
//! | a config map with 200 bytes of data, in a store of 100,000 | 4.1 kB with its JSON, and 0.5 kB more once read as protobuf |
//! | 1,000 pods listed | JSON 2.0 ms, protobuf 1.0 ms; the first list encodes: 5 ms and 20 ms |
//! | 1,000 pods as initial events of a watch | JSON 1.6 ms, protobuf 1.0 ms |
//! | all 100,000 config maps in pages of 500 | 0.20 s; 0.21 s during 1,000 writes per second |
//! | each of 50 watches of 100,000 config maps | 0.6 to 2 MB, with the client and the connection |
//!
//! Objects and their encodings are shared by all readers. A watch has a pointer per object while it sends the present
//! state, and at most a piece of its stream (256 KiB and one event); a page costs itself and the changes since its list
//! began.

mod admission;
mod api;
mod audit;
mod auth;
mod bootstrap;
mod custom;
mod denials;
mod discovery;
mod encoding;
mod faults;
mod fields;
mod gc;
mod handlers;
mod health;
mod interference;
mod json_patch;
pub mod kubeconfig;
mod kubelet;
mod names;
mod openapi;
mod pretty;
mod protobuf;
mod quantity;
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
mod unserved;

pub use audit::RequestCount;
pub use auth::IssueError;
pub use faults::{Fault, FaultRule, Faults};
pub use interference::{Asked, Course, Fate, Further, Interference};
pub use server::{Config, Server, StartError, start};
pub use tls::{Certificates, ClientCertificate, TlsError};
