//! Errors of calls and their gRPC status codes (CSI specification, "Error Scheme").

use std::{error::Error as StdError, io, path::PathBuf};

use thiserror::Error;
use tonic::{Code, Status};

use crate::{filesystem::FsType, mount_options::OptionError};

/// Result of everything below an RPC.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call. Each variant is one line of the specification's tables.
#[derive(Debug, Error)]
pub enum Error {
    /// A required field is empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field has an invalid value.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field as the protocol spells it.
        field: &'static str,
        /// What is wrong and what is valid.
        reason: String,
    },
    /// A mount flag was rejected.
    #[error("volume_capability.mount.mount_flags")]
    MountFlags(#[from] OptionError),
    /// No volume has this id.
    #[error("volume {0:?} does not exist")]
    NoVolume(String),
    /// No snapshot has this id.
    #[error("snapshot {0:?} does not exist")]
    NoSnapshot(String),
    /// No group snapshot has this id.
    #[error("group snapshot {0:?} does not exist")]
    NoGroup(String),
    /// No driver process ever started with this node id.
    #[error("node {0:?} is unknown: no driver with --node-id {0} has started on this --state-dir")]
    NoNode(String),
    /// The volume path of a statistics call is not a path of the volume.
    #[error("volume {volume} is not mounted at {path}")]
    NotMountedThere {
        /// The volume's id.
        volume: String,
        /// The requested path.
        path: String,
    },
    /// An object of this identity exists and differs.
    #[error("{0}")]
    AlreadyExists(String),
    /// The system is not in the required state.
    #[error("{0}")]
    Precondition(String),
    /// The requested size is out of range.
    #[error("{0}")]
    OutOfRange(String),
    /// A limit is reached.
    #[error("{0}")]
    Exhausted(String),
    /// The caller is not authenticated.
    #[error("{0}")]
    Unauthenticated(String),
    /// A conflicting operation is in progress that the call cannot wait for.
    #[error("{0}")]
    Busy(String),
    /// The call was cancelled before it started.
    #[error("the call was cancelled before it started and had no effect; repeat it")]
    Cancelled,
    /// A page token that this driver did not issue.
    #[error("starting_token {0:?} was not issued by this driver; restart without one")]
    BadToken(String),
    /// A tool that creates or expands file systems is not installed.
    #[error("{tool} not found; install the Debian package {package} on this node (or in the driver's image)")]
    NoTool {
        /// The program.
        tool: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// The kernel does not let this process expand a mounted file system.
    #[error(
        "the kernel refuses to grow volume {volume} while its {fs} is mounted: that takes CAP_SYS_RESOURCE, \
         which the driver lacks. Give it that capability, or start it with --disable ONLINE_EXPANSION; the \
         volume grows when it is next staged"
    )]
    OnlineGrowth {
        /// The volume's id.
        volume: String,
        /// Its file system.
        fs: FsType,
    },
    /// Loop devices are unavailable.
    #[error(
        "volumes of kind \"image\" need loop devices, and /dev/loop-control cannot be opened; run the driver \
         as root with the host's /dev and the kernel module loop, or use kind \"directory\""
    )]
    NoLoop(#[source] io::Error),
    /// The operating system returned an error.
    #[error("cannot {doing} {}", .path.display())]
    Host {
        /// The failed operation: a verb that `path` completes.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system requires more privileges.
    #[error(
        "not permitted to {doing} {}; run the driver as root (for volumes of kind \"directory\" a user \
         namespace suffices)", .path.display()
    )]
    Denied {
        /// The failed operation: a verb that `path` completes.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A record in the state directory cannot be parsed.
    #[error("the record {} is damaged; restore it or remove the volume's directory", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
}

impl Error {
    /// An error for a field with an invalid value.
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    /// The status code that the specification requires.
    pub fn code(&self) -> Code {
        match self {
            Self::Missing(_) | Self::Invalid { .. } | Self::MountFlags(_) => Code::InvalidArgument,
            Self::NoVolume(_)
            | Self::NoSnapshot(_)
            | Self::NoGroup(_)
            | Self::NoNode(_)
            | Self::NotMountedThere { .. } => Code::NotFound,
            Self::AlreadyExists(_) => Code::AlreadyExists,
            Self::Precondition(_)
            | Self::NoTool { .. }
            | Self::OnlineGrowth { .. }
            | Self::NoLoop(_)
            | Self::Denied { .. } => Code::FailedPrecondition,
            Self::OutOfRange(_) => Code::OutOfRange,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::BadToken(_) | Self::Busy(_) => Code::Aborted,
            Self::Cancelled => Code::Cancelled,
            Self::Host { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Code::ResourceExhausted
            }
            Self::Host { .. } | Self::Damaged { .. } => Code::Internal,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new(error.code(), message)
    }
}

/// Adds the failed operation and its path to an operating system error.
pub(crate) trait Doing<T> {
    /// `doing` is a verb that `path` completes: "mount", "write".
    fn doing(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        let path = path.into();
        self.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied { doing, path, source },
            _ => Error::Host { doing, path, source },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_carries_code_and_causes() {
        let full: Result<()> =
            Err(io::Error::from(io::ErrorKind::StorageFull)).doing("write", "/state/volume.json");
        let status = Status::from(full.unwrap_err());
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "cannot write /state/volume.json: no storage space");

        let denied: Result<()> = Err(io::Error::from(io::ErrorKind::PermissionDenied)).doing("unmount", "/t");
        let status = Status::from(denied.unwrap_err());
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("not permitted to unmount /t; run the driver as root"));

        let refused = Status::from(Error::from(OptionError::NotAllowed("bind".into())));
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("mount_flags: mount option \"bind\""), "{}", refused.message());

        let tool = Status::from(Error::NoTool { tool: "mkfs.xfs", package: FsType::Xfs.package() });
        assert_eq!(tool.code(), Code::FailedPrecondition);
        assert!(tool.message().contains("package xfsprogs"), "{}", tool.message());
    }
}
