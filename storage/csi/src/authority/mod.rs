//! Accepts any `:authority`: removes a value that h2 would reject before h2 reads it.
//!
//! A unix socket has no host, so clients make the value up. grpc-go percent-encodes the path it dialled: a
//! kubelet registers plugins with `%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock`. Older ones, 1.40 among
//! them, send the path as it is; grpcio sends `csi%2Fcsi.sock`. h2 parses the value as the authority of a URI
//! and resets the stream with PROTOCOL_ERROR if that fails, before any code of a server runs (hyperium/h2#487).
//! No setting prevents that.
//!
//! [`AnyAuthority`] sits between the socket and h2. It follows the HTTP/2 frames and removes an invalid
//! `:authority` from each header block. A request is valid without one (RFC 9113, section 8.3.1), and nothing
//! here reads it. A connection that has only valid values passes unchanged.
//!
//! ```text
//!   socket ──> frames: finds header blocks ──> hpack: removes fields ──> h2
//!                all else passes in place        huffman: decodes values, measures entries
//! ```
//!
//! Why not replace it by a valid value of the same length: an empty one has no such replacement, and a longer
//! one would make h2's dynamic table evict entries that the client still refers to. The price of removal is
//! that later blocks refer to other indexes (see `hpack`).
//!
//! It costs 0.1 µs per call when all headers are indexed, and 0.4 to 0.7 µs when each call adds a `grpc-timeout`
//! to the dynamic table, as those of grpc-go do. Memory per connection is bounded by the frames of one header
//! block and one read.

mod frames;
mod hpack;
mod huffman;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use self::frames::Frames;

/// A connection on which h2 sees no invalid authority.
#[derive(Debug)]
pub(crate) struct AnyAuthority<Io> {
    io: Io,
    frames: Frames,
}

/// Why a connection is closed.
#[derive(Debug, Error)]
#[error("the client sent headers that cannot be decoded")]
struct Undecodable;

impl<Io> AnyAuthority<Io> {
    /// Wraps a connection before anything is read from it.
    pub(crate) fn new(io: Io) -> Self {
        Self { io, frames: Frames::default() }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for AnyAuthority<Io> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, frames } = self.get_mut();
        let before = buf.filled().len();
        while buf.filled().len() == before && buf.remaining() > 0 {
            if frames.ready().is_empty() {
                if frames.has_ended() {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, Undecodable)));
                }
                ready!(Pin::new(&mut *io).poll_read(cx, buf))?;
                let came = &buf.filled()[before..];
                if came.is_empty() {
                    frames.end();
                    if frames.ready().is_empty() {
                        break;
                    }
                } else {
                    let kept = frames.take(came);
                    buf.set_filled(before + kept);
                }
            }
            let ready = frames.ready();
            let length = ready.len().min(buf.remaining());
            buf.put_slice(&ready[..length]);
            frames.deliver(length);
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl<Io: Connected> Connected for AnyAuthority<Io> {
    type ConnectInfo = Io::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}
