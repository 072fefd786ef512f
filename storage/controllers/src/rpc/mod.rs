//! Shared code of the controllers that call a driver's controller service, like upstream's sidecars: CSI
//! capabilities from claims and volumes, secrets, and the consequence of errors.

mod capability;
mod connect;
mod driver;
mod failure;
mod secret_names;
mod secrets;

pub use capability::{AccessModeError, access_mode, volume_capability};
pub use connect::connect;
pub use driver::{Details, DriverInfo, requested};
pub use failure::{Certainty, RpcFailure};
pub use secret_names::{DEFAULT_SECRET, RESERVED, SecretNameError, Templates};
pub use secrets::{SecretError, credentials};
