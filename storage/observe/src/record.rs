//! What is written to standard output: one JSON object a line.

use claimcheck_model::{Place, Stamp};
use serde::{Deserialize, Serialize};

/// Something was seen in a node's mount table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When it was noticed, by the node's clocks: the change itself was earlier.
    pub at: Stamp,
    /// Numbers the records of one process, from 0; a log that is read again is recognised by time and number.
    pub seq: u64,
    /// The node's name.
    pub node: String,
    /// What happened.
    pub change: Change,
    /// Whose mount it is.
    pub place: Place,
}

/// What happened to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was there when observation began, and came at some time before.
    Found,
    /// It came.
    Mounted,
    /// It left.
    Unmounted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_that_reads_back() {
        let record = Record {
            at: Stamp { mono_ns: 1, wall_ns: 2 },
            seq: 3,
            node: "n1".into(),
            change: Change::Mounted,
            place: Place::Publish { pod: "u".into(), volume: "pv".into() },
        };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"at":{"mono_ns":1,"wall_ns":2},"seq":3,"node":"n1","change":"mounted","place":{"publish":{"pod":"u","volume":"pv"}}}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
