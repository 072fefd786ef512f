//! Scenario files: what users do with volumes, and what must come of it.
//!
//! ```text
//! file.rs     the form: Scenario, Step, Expect ──> read.rs, check.rs: strict, with lines; unknown.rs: names that nothing creates
//! actor.rs    creates, patches and deletes objects, and waits ──> matching.rs
//! reference.rs  `$uid(claim data)`, `$volume(data)`    name.rs, kind.rs: what objects are called
//! record.rs   each version of each object ──> normalise.rs: equal on two sides if they do the same
//!                                                 └─> recording.rs: a scenario of what was seen
//! ```
//!
//! Two front ends play them: the catalogue of cases in a cluster (`suites/cluster/src/scenario/`), where scheduler and
//! nodes act, and `testing/differential`, which compares storage controllers, where the scenario acts for them.

mod actor;
mod check;
mod compare;
mod fields;
mod file;
mod kind;
mod matching;
mod name;
mod normalise;
mod read;
mod record;
mod recording;
mod reference;
mod saved;
mod subject;
mod unknown;

pub use actor::{ActError, Actor, EventOf, Usual};
pub use check::{Slip, code};
pub use compare::{Difference, Outcome, Table, TableError, differences, final_differences, report};
pub use file::{
    API_VERSION, Answer, Expect, FileSystem, Given, How, KIND, Object, Requires, Scenario, Script, Seen,
    Step, Use, World,
};
pub use kind::{CAPACITY, KINDS, Kind};
pub use matching::{Mismatch, matches, mismatches};
pub use name::{Names, scenario_of};
pub use normalise::{Normal, normal};
pub use read::{Read, ScenarioError, parse, read_all};
pub use record::{Call, Record, Scope, Store, Version};
pub use recording::{RECORDED, Recording, recording};
pub use reference::{Key, References, split};
pub use saved::{Saved, end_differences};
pub use subject::Subject;

/// The JSON Schema of scenario files.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Scenario)
}
