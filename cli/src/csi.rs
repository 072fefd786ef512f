//! Cases of single CSI calls, without a cluster.
//!
//! A [`Row`] has a name, the sentence that it checks and a function, which gets a [`Fixture`]; [`Row::all`] makes cases of
//! rows. Calls through the fixture are recorded, and what they create is deleted afterwards.

pub use claimcheck_conformance::{
    Access, Case, Fixture, Need, Row, Running, Sentence, Strength, catalogue, spec,
};
pub use claimcheck_csi::{Code, Status, v1};
