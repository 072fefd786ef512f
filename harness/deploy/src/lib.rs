//! Deployment to a real cluster: the embedded manifests, their installation and removal (`install` for the
//! components of a run, `monitor` for the monitor of a cluster in use), the permissions that
//! a run requires there, and the image of the components.

pub mod image;
pub mod install;
pub mod monitor;
pub mod rbac;
