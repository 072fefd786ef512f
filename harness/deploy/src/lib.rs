//! What is put into a real cluster: the manifests, which are built in, their installation and removal, the rights that
//! a run needs there, and the image of the components.

pub mod image;
pub mod install;
pub mod rbac;
