//! Kinds that CustomResourceDefinitions bring.
//!
//! ```text
//! definition: defaults and validation of a CustomResourceDefinition; structural: of its schemas
//!     names: accepted names and conditions (plan)
//!         registry: serves established kinds, removes deleted ones with their objects (run)
//!             row: the `Resource` of one version, with its `Kind`
//!                 schema: the parsed schema -> prune, default, validate, shape (server-side apply), openapi
//!                 columns, json_path, scale, rules (CEL)
//! ```
//!
//! The built-in table of `resources` is searched first, so requests for its kinds do not pass through here. Rows
//! of custom kinds have the same type, and live as long as the process: each change of a definition's spec costs
//! some kilobytes that are not released.
//!
//! Mirrors staging/src/k8s.io/apiextensions-apiserver.

mod columns;
mod default;
pub mod definition;
#[cfg(test)]
mod definition_tests;
mod duration;
mod format;
mod json_path;
mod kind;
mod names;
pub mod openapi;
mod pattern;
mod preinstalled;
mod prune;
mod registry;
mod row;
mod rules;
pub mod scale;
mod schema;
mod shape;
mod shelf;
mod structural;
#[cfg(test)]
mod tests;
mod validate;

pub use columns::DeclaredCell;
pub use kind::Kind;
pub use names::begin_deletion;
pub use preinstalled::{create_definitions, is_preinstalled};
pub use registry::{Kinds, Registry};
pub use row::{leak, leak_all, order};
pub use shelf::Shelf;

/// The finalizer of a definition until its objects are deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
