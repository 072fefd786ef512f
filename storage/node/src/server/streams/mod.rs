//! Streams of a client to a program or port: `exec`, `attach` and `portforward`.
//!
//! ```text
//! client ── WebSocket (v5, v4) ────────────┐
//!        ── SPDY/3.1 ──────────────────────┼─> Streams ─> exec, attach
//!        ── WebSocket ── SPDY/3.1 (tunnel) ┴─> SPDY streams ─> port_forward
//! ```
//!
//! A connection is upgraded ([`upgrade`]), and its transport turns messages or frames into the parts of [`Streams`].

pub mod exec;
pub mod port_forward;
pub mod spdy;
mod status;
pub mod upgrade;
pub mod websocket;

use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::mpsc;

/// How long a client may take to create its streams, or to close the connection after the last byte.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Parts in transit in each direction.
pub const QUEUE: usize = 16;
/// Bytes per read of a program's output.
pub const PIECE: usize = 32 * 1024;

/// One of the streams of `exec` and `attach`. The numbers are those of WebSocket messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The client's input.
    Stdin = 0,
    /// Output.
    Stdout = 1,
    /// Error output.
    Stderr = 2,
    /// The result, a `Status`.
    Error = 3,
    /// Sizes of the client's terminal.
    Resize = 4,
}

impl Channel {
    /// By its number.
    pub fn by_number(number: u8) -> Option<Self> {
        [Self::Stdin, Self::Stdout, Self::Stderr, Self::Error, Self::Resize].get(usize::from(number)).copied()
    }

    /// By the value of the header `streamtype` of SPDY.
    pub fn by_type(name: &str) -> Option<Self> {
        match name {
            "stdin" => Some(Self::Stdin),
            "stdout" => Some(Self::Stdout),
            "stderr" => Some(Self::Stderr),
            "error" => Some(Self::Error),
            "resize" => Some(Self::Resize),
            _ => None,
        }
    }
}

/// Data of a stream, or its end.
pub type Part = (Channel, Option<Bytes>);

/// The streams of one `exec` or `attach`.
pub struct Streams {
    /// From the client; ends when the client disconnects.
    pub input: mpsc::Receiver<Part>,
    /// To the client; the connection is closed when all senders are dropped.
    pub output: mpsc::Sender<Part>,
}

/// The query of `exec` and `attach`. Upstream: `NewOptions` in `cri-streaming/pkg/streaming/remotecommand`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Program and arguments; empty for `attach`.
    pub command: Vec<String>,
    /// The client sends input.
    pub stdin: bool,
    /// The client receives output.
    pub stdout: bool,
    /// The client receives error output.
    pub stderr: bool,
    /// Input and output are a terminal.
    pub tty: bool,
}

/// No stream is requested.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("you must specify at least 1 of stdin, stdout, stderr")]
pub struct NoStreams;

impl StreamOptions {
    /// Parses the query.
    ///
    /// # Errors
    /// See [`NoStreams`].
    pub fn parse(query: Option<&str>) -> Result<Self, NoStreams> {
        let mut options = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "command" => options.command.push(value.into_owned()),
                "input" => options.stdin = value == "1",
                "output" => options.stdout = value == "1",
                "error" => options.stderr = value == "1",
                "tty" => options.tty = value == "1",
                _ => {}
            }
        }
        // A terminal has one output.
        options.stderr &= !options.tty;
        match options.stdin || options.stdout || options.stderr {
            true => Ok(options),
            false => Err(NoStreams),
        }
    }

    /// The first stream to the client.
    pub fn first(&self) -> Channel {
        match (self.stdout, self.stderr) {
            (true, _) => Channel::Stdout,
            (false, true) => Channel::Stderr,
            (false, false) => Channel::Error,
        }
    }

    /// The streams that a SPDY client creates.
    pub fn expected(&self) -> Vec<Channel> {
        let optional = [
            (self.stdin, Channel::Stdin),
            (self.stdout, Channel::Stdout),
            (self.stderr, Channel::Stderr),
            (self.tty, Channel::Resize),
        ];
        let optional = optional.into_iter().filter_map(|(requested, channel)| requested.then_some(channel));
        std::iter::once(Channel::Error).chain(optional).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_as_upstream() {
        let all = StreamOptions::parse(Some("command=sh&command=-c&command=a%20b&input=1&output=1&error=1"));
        let all = all.unwrap();
        assert_eq!(all.command, ["sh", "-c", "a b"]);
        assert_eq!(all.expected(), [Channel::Error, Channel::Stdin, Channel::Stdout, Channel::Stderr]);
        let terminal = StreamOptions::parse(Some("output=1&error=1&tty=1")).unwrap();
        assert_eq!(terminal.expected(), [Channel::Error, Channel::Stdout, Channel::Resize]);
        for query in [None, Some("command=sh"), Some("output=true"), Some("tty=1&error=1")] {
            assert_eq!(StreamOptions::parse(query), Err(NoStreams), "{query:?}");
        }
    }

    #[test]
    fn channels_have_the_numbers_of_the_protocol() {
        for (number, name) in ["stdin", "stdout", "stderr", "error", "resize"].into_iter().enumerate() {
            let channel = Channel::by_type(name).unwrap();
            assert_eq!((channel as usize, Channel::by_number(number as u8)), (number, Some(channel)));
        }
        assert_eq!((Channel::by_number(5), Channel::by_type("data")), (None, None));
    }
}
