//! The shared vocabulary of claimcheck: phases, events, metric and object names, capabilities.
//!
//! Pure data, no input or output (but for reading the clock in [`Stamp::now`]). Everything that two
//! crates must spell alike is spelt here, once.

mod names;
mod stamp;

pub use names::*;
pub use stamp::Stamp;
