//! What the components beside a driver share when they call its controller service: how claims and
//! volumes read as CSI capabilities, where secrets come from, and what an error tells about the volume.

mod capability;
mod connect;
mod driver;
mod failure;
mod secret_names;
mod secrets;

pub use capability::{AccessModeError, access_mode, volume_capability};
pub use connect::connect;
pub use driver::DriverInfo;
pub use failure::{Certainty, RpcFailure};
pub use secret_names::{RESERVED, SecretNameError, Templates};
pub use secrets::credentials;
