//! What provisioner, attacher and resizer share when they call a driver's controller service: how claims and
//! volumes read as CSI capabilities, where secrets come from, and what an error tells about the volume.

mod capability;
mod connect;
mod driver;
mod failure;
mod secrets;

pub use capability::{AccessModeError, access_mode, volume_capability};
pub use connect::connect;
pub use driver::DriverInfo;
pub use failure::{Certainty, RpcFailure};
pub use secrets::credentials;
