//! Containers' logs on the node's disk: what was written when, and what a reader gets of it.
//!
//! ```text
//! container ──stdout, stderr──> <attempt>.log ──> reader: tail, since, timestamps, limit ──> server/
//!                                    └─inotify─> clock ──> <attempt>.times ──┘
//! ```
//!
//! A log is the plain file that the container writes to, so nothing stands between the two: no pipe that
//! somebody has to keep open, no copy, and the agent may be killed under it. When lines were written is kept
//! beside it, by whoever sees the file grow.

mod clock;
mod lines;
mod options;
mod reader;
mod times;

pub use clock::LogClock;
pub use options::{LogOptions, OptionsError};
pub use reader::LogReader;
pub use times::times_path;
