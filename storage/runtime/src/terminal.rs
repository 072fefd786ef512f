//! A terminal for a program: the side of the agent. Dropping it hangs up the program's side.

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::{Errno, ioctl_fionbio, read, write},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::client::watched;

/// The controlling side of a terminal.
pub struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// A new terminal, and the program's side of it.
    ///
    /// # Errors
    /// If this machine has no terminals left, or `/dev/ptmx` cannot be opened.
    pub fn open() -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags)?;
        unlockpt(&controller)?;
        let program = ioctl_tiocgptpeer(&controller, flags)?;
        ioctl_fionbio(&controller, true)?;
        Ok((Self(watched(controller)?), program))
    }

    /// Reads output; 0 once all programs have closed it.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.async_io(Interest::READABLE, |terminal| match read(terminal, &mut *buffer) {
            // The end of a terminal.
            Err(Errno::IO) => Ok(0),
            read => read.map_err(io::Error::from),
        });
        read.await
    }

    /// Writes all of the input.
    ///
    /// # Errors
    /// If all programs have closed it.
    pub async fn write_all(&self, mut input: &[u8]) -> io::Result<()> {
        while !input.is_empty() {
            let write = |terminal: &OwnedFd| write(terminal, input).map_err(io::Error::from);
            let written = self.0.async_io(Interest::WRITABLE, write).await?;
            input = &input[written..];
        }
        Ok(())
    }

    /// Sets its size, in characters; its programs receive SIGWINCH.
    ///
    /// # Errors
    /// As the kernel reports them.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }
}
