//! Deployment to a real cluster: the embedded manifests, their installation and removal, the
//! permissions that a run requires there, and the image of the components.

pub mod image;
pub mod install;
pub mod rbac;
