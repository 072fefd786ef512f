//! The oracle: another HPACK decoder reads the same headers before and after, except invalid authorities. The
//! captures are the bytes of real clients, and the project's server has to answer them.
//!
//! ```text
//! client      generates connections that use every representation of HPACK
//! properties  of captures and generated connections      blocks  single header blocks and frames
//! server      answers captures, and calls with any authority
//! ```

mod blocks;
mod client;
mod properties;
mod server;

use http::uri::Authority;
use loona_hpack::Decoder;

use super::frames::Frames;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const CAPTURES: [(&str, &str); 3] = [
    ("%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock", include_str!("../captures/grpc-go.hex")),
    ("/var/lib/kubelet/plugins_registry/x.sock", include_str!("../captures/grpc-go-1.27.hex")),
    ("tmp%2Fcaps%2Fs", include_str!("../captures/grpc-python.hex")),
];
/// h2 refuses each of these.
const INVALID: [&str; 16] = [
    "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock",
    "/var/lib/kubelet/plugins/x/csi.sock",
    "unix:///csi/csi.sock",
    "",
    "a:b:c",
    ":::",
    "user@",
    "user@host%20",
    "[::1",
    "::1]",
    "a b",
    "localhost/",
    "ünïcode",
    "<>",
    "a?b",
    "\u{0}\n\\",
];
const VALID: [&str; 8] =
    ["localhost", "localhost:80", "user:secret@host:1", "us%20er@host", "[::1]:443", ":", ":80", "a"];

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn capture(hex: &str) -> Vec<u8> {
    let digits: String = hex.lines().filter(|line| !line.starts_with('#')).collect();
    let octet = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(octet).collect()
}

/// The output for input in chunks of these lengths, and whether the connection was closed.
fn through(sent: &[u8], lengths: impl IntoIterator<Item = usize>) -> (Vec<u8>, bool) {
    let (mut frames, mut got, mut rest) = (Frames::default(), Vec::new(), sent);
    let mut lengths = lengths.into_iter();
    while !rest.is_empty() {
        let length = lengths.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let (chunk, later) = rest.split_at(length);
        rest = later;
        let kept = frames.take(chunk);
        got.extend(&chunk[..kept]);
        got.extend(frames.ready());
        frames.deliver(frames.ready().len());
    }
    frames.end();
    got.extend(frames.ready());
    (got, frames.has_ended())
}

fn whole(sent: &[u8]) -> Vec<u8> {
    through(sent, None).0
}

/// A frame, or a decoded header block without padding.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Headers { stream: u32, flags: u8, priority: Vec<u8>, fields: Fields },
    Other { head: Vec<u8>, payload: Vec<u8> },
}

/// Decodes a connection after its preface.
fn events(octets: &[u8]) -> Vec<Event> {
    let mut rest = octets.strip_prefix(PREFACE).expect("the preface passes");
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    let mut open: Option<(u32, u8, Vec<u8>, Vec<u8>)> = None;
    while !rest.is_empty() {
        let (head, after) = rest.split_at(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= 16_384);
        let (mut payload, after) = after.split_at(length);
        rest = after;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        match kind {
            1 => {
                assert!(open.is_none());
                if flags & 8 != 0 {
                    payload = &payload[1..payload.len() - usize::from(payload[0])];
                }
                let (priority, block) = payload.split_at(if flags & 0x20 != 0 { 5 } else { 0 });
                open = Some((stream, flags & !0xc, priority.to_vec(), block.to_vec()));
            }
            9 => {
                let open = open.as_mut().unwrap();
                assert_eq!(open.0, stream);
                open.3.extend(payload);
            }
            _ => events.push(Event::Other { head: head.to_vec(), payload: payload.to_vec() }),
        }
        if matches!(kind, 1 | 9) && flags & 4 != 0 {
            let (stream, flags, priority, block) = open.take().unwrap();
            let fields = decoder.decode(&block).unwrap();
            events.push(Event::Headers { stream, flags, priority, fields });
        }
    }
    assert!(open.is_none());
    events
}

fn is_omitted((name, value): &(Vec<u8>, Vec<u8>)) -> bool {
    name == b":authority" && Authority::try_from(&value[..]).is_err()
}

/// The same without invalid authorities.
fn without_invalid(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        if let Event::Headers { fields, .. } = event {
            fields.retain(|field| !is_omitted(field));
        }
    }
    events
}
