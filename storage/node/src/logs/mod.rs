//! Containers' logs on the node's disk: their content with timestamps, and the part that a reader requests.
//!
//! ```text
//! container ──stdout, stderr──> <attempt>.log ──> reader: tail, since, timestamps, limit ──> server/
//!                                    └─inotify─> clock ──> <attempt>.times ──┘
//! ```
//!
//! A log is the plain file that the container writes to, without anything in between: no pipe that a process
//! has to keep open, no copy, and the agent may be killed at any time. The times of its lines are stored in a
//! second file next to it, written while the log grows.

mod clock;
mod lines;
mod options;
mod reader;
mod times;

pub use clock::LogClock;
pub use options::{LogOptions, OptionsError};
pub use reader::LogReader;
pub use times::times_path;
