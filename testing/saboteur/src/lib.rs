//! A CSI proxy with a seeded defect that stands before any driver: it shows whether a suite detects it.
//!
//! ```text
//! suite, kubelet ══ unix socket ══ Proxy ══ unix socket ══ driver
//!                                   │ ^
//!                       effects on  v │ rules of defects/*.yaml
//!                        the node     memory: what happened before
//! ```
//!
//! Defects are data: [`row`] describes them, `plan` decides whether a rule applies, `proxy` does what it says.

mod api;
pub mod api_row;
mod defects;
mod family;
mod fields;
mod memory;
mod node;
mod plan;
mod process;
mod proxy;
pub mod row;
mod world;

use std::{path::Path, sync::Arc};

use anyhow::Result;
use claimcheck_apiserver::Interference;
use claimcheck_csi::{Endpoint, Server};

pub use defects::{all, defect, legal, named, named_for_csi};
pub use process::Args;

/// What a defect does to requests to the embedded API server; none if it does nothing to them.
pub fn interference(defect: &row::Defect) -> Option<Arc<dyn Interference>> {
    let rules = defect.api.clone();
    (!rules.is_empty()).then(|| Arc::new(api::ApiSaboteur::new(rules)) as Arc<dyn Interference>)
}

/// Serves a proxy at a socket before a driver that runs already, until the program ends. `memory` is a file that all
/// endpoints of a driver share. Must be called within a tokio runtime.
///
/// # Errors
/// There is no such defect, or the socket or the file cannot be used.
pub fn serve(name: &str, listen: &Path, driver: &Endpoint, memory: &Path) -> Result<()> {
    let proxy = proxy::Proxy::new(defect(name)?, memory, driver, &Endpoint::Unix(listen.to_owned()), None)?;
    let server = Server::bind(listen)?;
    tokio::spawn(server.serve_any(proxy::Sabotaged(Arc::new(proxy)), std::future::pending()));
    Ok(())
}
