//! The protocol of agent and zygote: one JSON object per `SOCK_SEQPACKET` message, with descriptors
//! (`SCM_RIGHTS`). A sequenced packet keeps message and descriptors together, so neither side needs framing.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, recvmsg, sendmsg, setsockopt, sockopt,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Exit, State};

/// Largest message; the kernel bounds a packet by the socket's send buffer.
pub(crate) const MAX_MESSAGE: usize = 192 * 1024;
/// `SCM_MAX_FD`: descriptors that one message carries; the first is the log.
pub(crate) const MAX_FDS: usize = 253;
/// Entries of one `List` response, so that it stays below [`MAX_MESSAGE`].
pub(crate) const LIST_CHUNK: usize = 400;

/// From agent to zygote.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Chosen by the agent, repeated in the response.
    pub seq: u64,
    pub call: Call,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Descriptors: the log, then one per mount.
    Start(Container),
    /// Descriptors: standard input, output and error.
    Exec {
        id: String,
        argv: Vec<String>,
        terminal: bool,
    },
    Signal {
        id: String,
        signal: i32,
    },
    List,
    Remove {
        id: String,
    },
}

/// A [`super::ContainerSpec`] with its paths opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Container {
    pub id: String,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub mounts: Vec<Target>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub hostname: String,
}

/// The mount point of a passed descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    pub path: String,
    pub read_only: bool,
    pub directory: bool,
}

/// From zygote to agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done {
        seq: u64,
    },
    Refused {
        seq: u64,
        reason: String,
    },
    /// A part of the response to `List`; `Done` follows the last.
    Listed {
        seq: u64,
        containers: Vec<(String, State)>,
    },
    /// The program of an `Exec`, which was responded to by `Done`, has exited.
    Finished {
        seq: u64,
        exit: Exit,
    },
    /// A notification: a container has exited.
    Exited {
        id: String,
        state: State,
    },
}

/// Makes the send buffer large enough for [`MAX_MESSAGE`].
pub(crate) fn enlarge(socket: &OwnedFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::SndBuf, &(MAX_MESSAGE * 2))?)
}

/// Sends one message; `WouldBlock` if the peer does not keep up.
pub(crate) fn send<T: Serialize>(socket: RawFd, message: &T, fds: &[RawFd]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("message of {} bytes is over the limit of {MAX_MESSAGE}", bytes.len()),
        ));
    }
    let rights = [ControlMessage::ScmRights(fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    sendmsg::<()>(socket, &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one message and its descriptors; `None` at the end of the connection.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &OwnedFd,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    buffer.resize(MAX_MESSAGE, 0);
    let mut control = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut iov = [IoSliceMut::new(buffer)];
    let received =
        recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            fds.extend(raw.into_iter().map(own));
        }
    }
    let length = received.bytes;
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&buffer[..length]).map_err(io::Error::other)?;
    Ok(Some((message, fds)))
}

#[expect(unsafe_code, reason = "descriptors arrive from the kernel as plain numbers")]
pub(crate) fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: recvmsg or accept has just installed this descriptor for us; no other code knows its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Flags of every runtime socket.
pub(crate) fn socket_flags() -> SockFlag {
    SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK
}
