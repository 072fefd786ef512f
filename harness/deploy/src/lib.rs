//! Deployment to a real cluster: the embedded manifests, their installation and removal, and the permissions that a run
//! requires there.

pub mod install;
pub mod rbac;
