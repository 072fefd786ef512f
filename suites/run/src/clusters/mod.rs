//! The kinds of cluster: each is one file here, and one row of [`KINDS`].
//!
//! ```text
//! --cluster NAME ─> Row ──place──> Place (before the start) ─> claimcheck_cluster::Cluster
//! ```

mod embedded;
pub(crate) mod existing;
mod kind;
mod place;
mod row;
mod target;

use claimcheck_model::ClusterKind;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use self::row::Row;
pub use self::{
    place::{Development, OptionsOf, Place},
    target::ClusterTarget,
};

/// The kinds of cluster, in the order of help texts.
const KINDS: [&Row; 4] = [&embedded::EMBEDDED, &embedded::ENVTEST, &kind::KIND, &existing::EXISTING];

/// The row of a kind of cluster.
pub(crate) fn row(kind: ClusterKind) -> &'static Row {
    KINDS.into_iter().find(|row| row.kind == kind).expect("--cluster accepts kinds of the list only")
}

/// The parser of `--cluster`.
pub(crate) fn parser() -> impl TypedValueParser<Value = ClusterKind> {
    let values = KINDS.map(|row| PossibleValue::new(row.kind.name()).help(row.description));
    PossibleValuesParser::new(values).map(|name| {
        let row = KINDS.into_iter().find(|row| row.kind.name() == name);
        row.expect("the parser accepts these names only").kind
    })
}
