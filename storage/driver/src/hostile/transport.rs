//! Connections that fail: reset in the middle of a message, closed in one direction, or slow to a few bytes at a time.
//!
//! Each is a way in which a peer that is alive stops to respond; only some of them are visible to a caller before its
//! deadline.

use std::{
    io::{self, ErrorKind},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use claimcheck_csi::Accepted;
use rustix::net::{Shutdown, shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;

use super::{DRIP, Hostile, values::Dice};

/// How long a connection that is closed in one direction remains open in the other.
const LINGER: Duration = Duration::from_secs(2);
/// How many bytes a slow connection writes per [`DRIP`].
const DROP: usize = 8;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Course {
    Sound,
    /// It ends after so many bytes of both directions.
    Reset {
        left: usize,
    },
    /// After so many bytes one direction is shut down, and the rest [`LINGER`] later.
    HalfClosed {
        left: usize,
        direction: Shutdown,
    },
    /// So many bytes are slow.
    Slow {
        left: usize,
    },
}

impl Course {
    /// Some connections are sound, so that callers make progress. The first one is not: most callers have only
    /// one, until it ends.
    pub(super) fn random(number: u64, dice: &mut Dice) -> Self {
        // From the first message of HTTP/2 to some of the largest responses.
        let bits = 4 + dice.below(16);
        let left = usize::try_from(dice.below(1 << bits)).unwrap_or(usize::MAX);
        match dice.below(if number == 0 { 7 } else { 10 }) {
            0..=3 => Self::Reset { left },
            4 => Self::HalfClosed { left, direction: Shutdown::Read },
            5 => Self::HalfClosed { left, direction: Shutdown::Write },
            6 => Self::Slow { left: left.min(1 << 10) },
            _ => Self::Sound,
        }
    }
}

/// A connection with its course.
pub(super) struct Connection {
    io: Accepted,
    course: Course,
    driver: Hostile,
    /// Until the next bytes of a slow connection, or the end of one that is closed in one direction.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(io: Accepted, course: Course, driver: Hostile) -> Self {
        Self { io, course, driver, pause: None }
    }

    /// Its course from now on: a caller that cannot register the driver or create its first volumes makes no other
    /// calls.
    fn course(&self) -> Course {
        if self.driver.is_gentle() { Course::Sound } else { self.course }
    }

    /// Counts bytes that were transferred.
    fn passed(&mut self, bytes: usize) {
        if self.driver.is_gentle() {
            return;
        }
        match &mut self.course {
            Course::Sound | Course::Slow { .. } => {}
            Course::Reset { left } | Course::HalfClosed { left, .. } => *left = left.saturating_sub(bytes),
        }
    }

    /// Pending while a direction is closed; an error once the connection has ended.
    fn poll_alive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.course() {
            Course::Reset { left: 0 } => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            Course::HalfClosed { left: 0, direction } => {
                if self.pause.is_none() {
                    // It fails if the caller has closed the connection, which is another end.
                    let _ = shutdown(&self.io, direction);
                }
                ready!(self.poll_pause(LINGER, cx));
                Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
            }
            Course::Sound | Course::Reset { .. } | Course::HalfClosed { .. } | Course::Slow { .. } => {
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_pause(&mut self, length: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(length)));
        pause.as_mut().poll(cx)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_alive(cx))?;
        let before = buffer.filled().len();
        ready!(pin!(&mut self.io).poll_read(cx, buffer))?;
        let passed = buffer.filled().len() - before;
        self.passed(passed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_alive(cx))?;
        let most = match self.course() {
            Course::Sound | Course::Slow { left: 0 } => bytes.len(),
            Course::Reset { left } | Course::HalfClosed { left, .. } => left,
            Course::Slow { left } => {
                ready!(self.poll_pause(DRIP, cx));
                self.pause = None;
                left.min(DROP)
            }
        };
        let written = ready!(pin!(&mut self.io).poll_write(cx, &bytes[..bytes.len().min(most)]))?;
        self.passed(written);
        if let Course::Slow { left } = &mut self.course {
            *left = left.saturating_sub(written);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.io).poll_shutdown(cx)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixStream,
    };

    use super::*;

    fn connection(course: Course) -> (Connection, UnixStream) {
        let (served, caller) = UnixStream::pair().unwrap();
        let driver = Hostile::new(0, Default::default(), 0);
        (Connection::new(Box::new(served), course, driver), caller)
    }

    #[tokio::test]
    async fn a_reset_ends_both_directions_within_a_message() {
        let (mut served, mut caller) = connection(Course::Reset { left: 5 });
        caller.write_all(b"ab").await.unwrap();
        assert_eq!(served.read(&mut [0; 8]).await.unwrap(), 2);
        assert_eq!(served.write(b"response").await.unwrap(), 3);
        assert_eq!(served.write(b"onse").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(served.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        drop(served);
        let mut received = Vec::new();
        caller.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"res");
    }

    #[tokio::test]
    async fn one_direction_is_closed_before_the_other() {
        for direction in [Shutdown::Read, Shutdown::Write] {
            let (mut served, mut caller) = connection(Course::HalfClosed { left: 2, direction });
            assert_eq!(served.write(b"response").await.unwrap(), 2);
            let (began, ended) =
                (Instant::now(), tokio::spawn(async move { served.read(&mut [0; 8]).await }));
            let mut received = [0; 8];
            assert_eq!(caller.read(&mut received).await.unwrap(), 2);
            if direction == Shutdown::Write {
                assert_eq!(caller.read(&mut received).await.unwrap(), 0, "the end");
            } else {
                assert_eq!(caller.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
            assert!(!ended.is_finished());
            assert_eq!(ended.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
            assert!(began.elapsed() >= LINGER);
        }
    }

    #[tokio::test]
    async fn a_slow_connection_is_complete_in_the_end() {
        let (mut served, mut caller) = connection(Course::Slow { left: 3 * DROP });
        let began = Instant::now();
        served.write_all(&[7; 100]).await.unwrap();
        assert!(began.elapsed() >= 3 * DRIP);
        drop(served);
        let mut received = Vec::new();
        caller.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [7; 100]);
    }
}
