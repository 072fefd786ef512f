//! Unix sockets of servers: replaces the socket of a dead predecessor, and removes its own at the end.

use std::{
    fs::Permissions,
    io,
    os::{
        fd::AsFd,
        unix::{
            fs::{FileTypeExt, PermissionsExt, chown},
            net,
        },
    },
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;

/// The longest path of a unix socket: `sun_path` has 108 bytes, the last of which is zero.
pub(crate) const PATH_LIMIT: usize = 107;

/// Why a server cannot listen on its socket.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another server responds there.
    #[error("another server already listens on {}: stop it, or choose another socket", .0.display())]
    InUse(PathBuf),
    /// The path is not a socket.
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The kernel's limit.
    #[error("socket path {} is longer than {PATH_LIMIT} bytes: choose a shorter directory", .0.display())]
    PathTooLong(PathBuf),
    /// The TCP port is unavailable.
    #[error("cannot listen at tcp://{address}: choose an address of this machine and a port that is free")]
    Tcp {
        /// The address.
        address: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot listen at {}: check that its directory exists and is writable", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A listening unix socket; dropping it removes its file.
#[derive(Debug)]
pub(crate) struct Listener {
    inner: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens on `path`, replacing a dead server's socket if necessary.
    pub(crate) fn bind(path: &Path) -> Result<Self, BindError> {
        if path.as_os_str().len() > PATH_LIMIT {
            return Err(BindError::PathTooLong(path.to_owned()));
        }
        let failed = |source| BindError::Io { path: path.to_owned(), source };
        remove_stale(path)?;
        let inner = UnixListener::bind(path).map_err(failed)?;
        Ok(Self { inner, path: path.to_owned() })
    }

    /// Lets the members of a group connect, too.
    pub(crate) fn share_with(&self, group: u32) -> Result<(), BindError> {
        let failed = |source| BindError::Io { path: self.path.clone(), source };
        chown(&self.path, None, Some(group)).map_err(failed)?;
        std::fs::set_permissions(&self.path, Permissions::from_mode(0o660)).map_err(failed)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        self.inner.accept().await.map(|(stream, _)| stream)
    }

    /// A connection that a client has made already; none if there is no more. Past tokio, which learns of a connection
    /// some time after it was made.
    pub(crate) fn accept_pending(&self) -> io::Result<Option<UnixStream>> {
        let listener = net::UnixListener::from(self.inner.as_fd().try_clone_to_owned()?);
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream).map(Some)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        // Only a connection shows whether a server listens on it.
        Ok(_) => match net::UnixStream::connect(path) {
            Ok(_) => Err(BindError::InUse(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        },
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // While still listening, so that it cannot be the file of a successor.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the socket file was removed already");
        }
    }
}

impl Stream for Listener {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unused_socket_is_replaced_but_not_an_active_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // A std listener leaves its file, as a killed process does.
        drop(net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = Listener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path), Err(BindError::InUse(p)) if p == path));
        drop(live);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn leaves_other_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Listener::bind(&path), Err(BindError::NotASocket(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        assert!(matches!(Listener::bind(&dir.path().join("no/dir")), Err(BindError::Io { .. })));
        let long = dir.path().join("x".repeat(PATH_LIMIT));
        assert!(matches!(Listener::bind(&long), Err(BindError::PathTooLong(_))));
    }
}
