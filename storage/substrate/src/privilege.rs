//! The privileges of this run on the host, determined by trying.

use serde::{Deserialize, Serialize};

/// How the namespaces were created; decides which cases can run and is shown in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// As root: loop devices, file systems, any owner.
    Root,
    /// As an unprivileged user in a user namespace: bind mounts and tmpfs, one user id, no loop devices.
    User,
}

impl Privilege {
    /// One line for the report.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Root => "root: all kinds of volumes",
            Self::User => "ordinary user, in a user namespace: no loop devices, no other owners",
        }
    }
}
