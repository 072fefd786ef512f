//! The output format: one JSON object per line on standard output.

use claimcheck_model::{KubeletPath, Stamp};
use serde::{Deserialize, Serialize};

/// A change of a node's mount table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Time of the observation, by the node's clocks: the change itself was earlier.
    pub at: Stamp,
    /// Number of the record in its process, from 0; records that are read twice are recognised by time and
    /// number.
    pub seq: u64,
    /// The node's name.
    pub node: String,
    /// The kind of change.
    pub change: Change,
    /// The mount.
    pub place: KubeletPath,
}

/// A change of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It existed when observation began, and was mounted at some time before.
    Found,
    /// It was mounted.
    Mounted,
    /// It was unmounted.
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
            place: KubeletPath::Publish { pod: "u".into(), volume: "pv".into() },
        };
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"at":{"mono_ns":1,"wall_ns":2},"seq":3,"node":"n1","change":"mounted","place":{"publish":{"pod":"u","volume":"pv"}}}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }
}
