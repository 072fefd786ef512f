//! Frames of SPDY/3.1, as bytes. Pure.
//! <https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/>, 2.2 and 2.6.

use hyper::body::Bytes;

/// The first bytes of every frame.
pub const HEAD: usize = 8;
/// The last frame of a stream in this direction.
pub const FIN: u8 = 1;

const CONTROL: u8 = 0x80;
const VERSION: u8 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    kind: Kind,
    flags: u8,
    /// Number of bytes that follow.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data { stream: u32 },
    Control { kind: u16 },
}

/// A frame that the client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream, with its header block.
    Open {
        /// Its number.
        stream: u32,
        /// The client sends nothing on it.
        ends: bool,
        /// Compressed.
        block: Bytes,
    },
    /// Data of a stream.
    Data {
        /// Its number.
        stream: u32,
        /// The client sends no more.
        ends: bool,
        /// May be empty.
        data: Bytes,
    },
    /// The stream is discarded.
    Reset {
        /// Its number.
        stream: u32,
    },
    /// To be returned.
    Ping {
        /// Its number.
        id: u32,
    },
    /// The client closes the connection.
    GoAway,
    /// One without effect here: kubectl's streams have no windows, settings or trailers.
    Other,
}

/// A frame that is shorter than its kind requires.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SPDY frame of type {0} is truncated")]
pub struct Truncated(u16);

impl Head {
    /// Reads the first bytes.
    pub fn parse(head: [u8; HEAD]) -> Self {
        let [a, b, c, d, flags, length @ ..] = head;
        let kind = match a & CONTROL {
            0 => Kind::Data { stream: u32::from_be_bytes([a, b, c, d]) },
            _ => Kind::Control { kind: u16::from_be_bytes([c, d]) },
        };
        let [x, y, z] = length;
        Self { kind, flags, length: u32::from_be_bytes([0, x, y, z]) as usize }
    }

    /// The frame with the bytes that follow.
    ///
    /// # Errors
    /// See [`Truncated`].
    pub fn frame(self, payload: Bytes) -> Result<Frame, Truncated> {
        let ends = self.flags & FIN != 0;
        let kind = match self.kind {
            Kind::Data { stream } => return Ok(Frame::Data { stream, ends, data: payload }),
            Kind::Control { kind } => kind,
        };
        let number = || -> Result<u32, Truncated> {
            let first = payload.first_chunk().ok_or(Truncated(kind))?;
            Ok(u32::from_be_bytes(*first) & 0x7fff_ffff)
        };
        Ok(match kind {
            // Stream, associated stream, priority and slot.
            SYN_STREAM if payload.len() < 10 => return Err(Truncated(kind)),
            SYN_STREAM => Frame::Open { stream: number()?, ends, block: payload.slice(10..) },
            RST_STREAM => Frame::Reset { stream: number()? },
            PING => Frame::Ping { id: number()? },
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }
}

/// Data of a stream; the length of a frame has 24 bits.
pub fn data(stream: u32, data: &[u8], ends: bool) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.push(if ends { FIN } else { 0 });
    frame.extend(length(data.len()));
    frame.extend(data);
    frame
}

/// Accepts a stream.
pub fn reply(stream: u32, block: &[u8]) -> Vec<u8> {
    control(SYN_REPLY, &[&stream.to_be_bytes(), block].concat())
}

/// Discards a stream: status CANCEL.
pub fn reset(stream: u32) -> Vec<u8> {
    control(RST_STREAM, &[stream.to_be_bytes(), 5_u32.to_be_bytes()].concat())
}

/// Returns a ping.
pub fn pong(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

/// Closes the connection, in which `last` was the client's last stream: status OK.
pub fn go_away(last: u32) -> Vec<u8> {
    control(GOAWAY, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat())
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = kind.to_be_bytes();
    let mut frame = vec![CONTROL, VERSION, a, b, 0];
    frame.extend(length(payload.len()));
    frame.extend(payload);
    frame
}

fn length(length: usize) -> [u8; 3] {
    let [a, b, c, d] = u32::try_from(length).expect("a frame is below 16 MiB").to_be_bytes();
    assert_eq!(a, 0, "a frame is below 16 MiB");
    [b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(frame: &[u8]) -> Result<Frame, Truncated> {
        let (head, payload) = frame.split_first_chunk().unwrap();
        let head = Head::parse(*head);
        assert_eq!(head.length, payload.len(), "{frame:?}");
        head.frame(Bytes::copy_from_slice(payload))
    }

    #[test]
    fn frames_of_clients_are_parsed() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let open = b"\x80\x03\x00\x01\x01\x00\x00\x0d\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00abc";
        let rows: [(&[u8], Frame); 7] = [
            (open, Frame::Open { stream: 5, ends: true, block: text("abc") }),
            (b"\0\0\0\x05\0\0\0\x02hi", Frame::Data { stream: 5, ends: false, data: text("hi") }),
            (b"\0\0\0\x05\x01\0\0\0", Frame::Data { stream: 5, ends: true, data: text("") }),
            (b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x07\0\0\0\x05", Frame::Reset { stream: 7 }),
            (b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x09", Frame::Ping { id: 9 }),
            (b"\x80\x03\0\x07\0\0\0\x08\0\0\0\0\0\0\0\0", Frame::GoAway),
            (b"\x80\x03\0\x04\0\0\0\0", Frame::Other),
        ];
        for (bytes, frame) in rows {
            assert_eq!(parse(bytes), Ok(frame), "{bytes:?}");
        }
        assert_eq!(parse(b"\x80\x03\0\x06\0\0\0\x02\0\0"), Err(Truncated(PING)));
        assert_eq!(parse(b"\x80\x03\0\x01\0\0\0\x04\0\0\0\x01"), Err(Truncated(SYN_STREAM)));
    }

    #[test]
    fn frames_are_written() {
        assert_eq!(data(5, b"hi", true), b"\0\0\0\x05\x01\0\0\x02hi");
        assert_eq!(reply(5, b"x"), b"\x80\x03\0\x02\0\0\0\x05\0\0\0\x05x");
        assert_eq!(parse(&reset(7)), Ok(Frame::Reset { stream: 7 }));
        assert_eq!(parse(&pong(9)), Ok(Frame::Ping { id: 9 }));
        assert_eq!(parse(&go_away(3)), Ok(Frame::GoAway));
    }
}
