//! Follows the HTTP/2 frames of a connection: rewrites header blocks, passes everything else in place.
//!
//! Unsupported input (no HTTP/2, malformed frames or HPACK) passes unchanged from there on, and h2 rejects it.
//! Once h2's dynamic table differs from the client's that would be unsafe: h2 could resolve a wrong index to a
//! header that the client never sent. The connection is closed instead.

use std::{borrow::Cow, mem};

use super::hpack::Table;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
/// SETTINGS_MAX_FRAME_SIZE, which hyper leaves at its default.
const FRAME_LIMIT: usize = 16_384;
/// Maximum number of CONTINUATION frames of a block. h2 rejects the seventh already, given hyper's limit for a
/// header list.
const BLOCK_FRAMES: usize = 16;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The length of the fields that the flag PRIORITY announces.
const PRIORITY_LENGTH: usize = 5;

/// The state of a connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    state: State,
    /// An incomplete frame head or header block.
    held: Vec<u8>,
    /// The length that `held` must reach before it is parsed again.
    needed: usize,
    /// Output that does not pass in place.
    ready: Vec<u8>,
    /// How much of it was delivered.
    delivered: usize,
    table: Table,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Octets of the preface seen so far.
    Preface(usize),
    /// A frame begins.
    Frame,
    /// Octets left of a frame that passes.
    Passing(usize),
    /// Invalid: everything passes.
    Anything,
    /// Invalid: nothing passes.
    Ended,
}

impl Default for State {
    fn default() -> Self {
        Self::Preface(0)
    }
}

/// What the octets at the start of a frame are.
enum FrameStart<'a> {
    /// Incomplete; this many are needed.
    Need(usize),
    /// A frame without headers, of this length.
    Other(usize),
    Headers(Headers<'a>),
    Unknown,
}

/// A HEADERS frame with its CONTINUATION frames.
struct Headers<'a> {
    /// Of all its frames together.
    length: usize,
    head: Head,
    priority: &'a [u8],
    block: Cow<'a, [u8]>,
}

#[derive(Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Frames {
    /// Takes input. Returns how many octets from its start pass in place; [`Self::ready`] follows them, and has
    /// to be delivered before the next call.
    pub(super) fn take(&mut self, chunk: &[u8]) -> usize {
        if self.held.is_empty() {
            return self.walk(chunk);
        }
        self.held.extend(chunk);
        if self.held.len() >= self.needed {
            let held = mem::take(&mut self.held);
            let kept = self.walk(&held);
            self.ready.splice(..0, held.into_iter().take(kept));
        }
        0
    }

    /// The input has ended; what is incomplete passes.
    pub(super) fn end(&mut self) {
        self.ready.append(&mut self.held);
    }

    /// The next output.
    pub(super) fn ready(&self) -> &[u8] {
        &self.ready[self.delivered..]
    }

    /// This much of [`Self::ready`] was delivered.
    pub(super) fn deliver(&mut self, length: usize) {
        self.delivered += length;
        if self.delivered == self.ready.len() {
            self.ready.clear();
            self.delivered = 0;
        }
    }

    /// Whether the connection has to be closed after [`Self::ready`].
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    fn walk(&mut self, chunk: &[u8]) -> usize {
        let (mut at, mut kept) = (0, 0);
        while at < chunk.len() {
            let rest = &chunk[at..];
            let passing = match self.state {
                State::Preface(seen) => {
                    let length = rest.len().min(PREFACE.len() - seen);
                    let seen = seen + length;
                    self.state = if !PREFACE[..seen].ends_with(&rest[..length]) {
                        State::Anything
                    } else if seen < PREFACE.len() {
                        State::Preface(seen)
                    } else {
                        State::Frame
                    };
                    length
                }
                State::Frame => match FrameStart::read(rest) {
                    FrameStart::Need(needed) => {
                        self.needed = needed;
                        self.held.extend(rest);
                        return kept;
                    }
                    FrameStart::Other(length) => {
                        self.state = State::Passing(length);
                        0
                    }
                    FrameStart::Headers(headers) => match self.table.rewrite(&headers.block) {
                        Ok(None) => headers.length,
                        Ok(Some(block)) => {
                            headers.write(&block, &mut self.ready);
                            at += headers.length;
                            0
                        }
                        Err(_) => self.give_up(),
                    },
                    FrameStart::Unknown => self.give_up(),
                },
                State::Passing(left) => {
                    let length = rest.len().min(left);
                    self.state = if length < left { State::Passing(left - length) } else { State::Frame };
                    length
                }
                State::Anything => rest.len(),
                State::Ended => break,
            };
            if self.ready.is_empty() {
                kept += passing;
            } else {
                self.ready.extend(&chunk[at..at + passing]);
            }
            at += passing;
        }
        kept
    }

    /// Returns how much passes: nothing yet, the new state decides.
    fn give_up(&mut self) -> usize {
        tracing::debug!(ends = !self.table.is_shared(), "a client sends invalid frames");
        self.state = if self.table.is_shared() { State::Anything } else { State::Ended };
        0
    }
}

impl<'a> FrameStart<'a> {
    fn read(octets: &'a [u8]) -> Self {
        let Some(head) = Head::read(octets) else { return Self::Need(HEAD) };
        if head.kind != HEADERS {
            return Self::Other(HEAD + head.length);
        }
        if head.length > FRAME_LIMIT {
            return Self::Unknown;
        }
        let mut length = HEAD + head.length;
        let Some(payload) = octets.get(HEAD..length) else { return Self::Need(length) };
        let Some((priority, first)) = head.split(payload) else { return Self::Unknown };
        let mut block = Cow::Borrowed(first);
        let mut last = head;
        for _ in 0..BLOCK_FRAMES {
            if last.flags & END_HEADERS != 0 {
                return Self::Headers(Headers { length, head, priority, block });
            }
            let Some(next) = Head::read(&octets[length..]) else { return Self::Need(length + HEAD) };
            if next.kind != CONTINUATION || next.stream != head.stream || next.length > FRAME_LIMIT {
                return Self::Unknown;
            }
            let start = length + HEAD;
            length = start + next.length;
            let Some(part) = octets.get(start..length) else { return Self::Need(length) };
            block.to_mut().extend(part);
            last = next;
        }
        Self::Unknown
    }
}

impl Head {
    fn read(octets: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = octets.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Self { length, kind, flags, stream: u32::from_be_bytes(*stream) & (u32::MAX >> 1) })
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend(&(self.length as u32).to_be_bytes()[1..]);
        out.extend([self.kind, self.flags]);
        out.extend(self.stream.to_be_bytes());
    }

    /// The priority fields and the fragment of the header block in the payload of a HEADERS frame.
    fn split(self, payload: &[u8]) -> Option<(&[u8], &[u8])> {
        let (padding, payload) = match payload {
            [padding, payload @ ..] if self.flags & PADDED != 0 => (usize::from(*padding), payload),
            [] if self.flags & PADDED != 0 => return None,
            payload => (0, payload),
        };
        let priority = if self.flags & PRIORITY == 0 { 0 } else { PRIORITY_LENGTH };
        let (priority, payload) = payload.split_at_checked(priority)?;
        let length = payload.len().checked_sub(padding)?;
        Some((priority, &payload[..length]))
    }
}

impl Headers<'_> {
    /// Writes the frames with another block, without padding, which only obscures lengths on a wire.
    fn write(&self, block: &[u8], out: &mut Vec<u8>) {
        let (part, mut rest) = block.split_at(block.len().min(FRAME_LIMIT - self.priority.len()));
        let end = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        let flags = self.head.flags & !(PADDED | END_HEADERS) | end(rest);
        Head { length: self.priority.len() + part.len(), flags, ..self.head }.write(out);
        out.extend(self.priority);
        out.extend(part);
        while !rest.is_empty() {
            let part;
            (part, rest) = rest.split_at(rest.len().min(FRAME_LIMIT));
            Head { length: part.len(), kind: CONTINUATION, flags: end(rest), ..self.head }.write(out);
            out.extend(part);
        }
    }
}
