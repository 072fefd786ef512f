//! The oracle: another HPACK decoder reads the same headers before and after, except invalid authorities. The
//! captures are the bytes of real clients, and the project's server has to answer them.

use std::{collections::VecDeque, io::Cursor, path::Path, time::Duration};

use http::uri::Authority;
use loona_hpack::Decoder;
use proptest::{collection::vec, prelude::*, sample::Index};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{frames::Frames, huffman, *};
use crate::{Endpoint, Server, Services};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const CAPTURES: [(&str, &str); 3] = [
    ("%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock", include_str!("captures/grpc-go.hex")),
    ("/var/lib/kubelet/plugins_registry/x.sock", include_str!("captures/grpc-go-1.27.hex")),
    ("tmp%2Fcaps%2Fs", include_str!("captures/grpc-python.hex")),
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

#[test]
fn authorities_are_valid_or_not_as_listed() {
    for authority in INVALID {
        assert!(Authority::try_from(authority).is_err(), "{authority}");
    }
    for authority in VALID {
        assert!(Authority::try_from(authority).is_ok(), "{authority}");
    }
}

#[test]
fn captures_hold_three_calls_with_an_invalid_authority() {
    for (authority, hex) in CAPTURES {
        let sent = capture(hex);
        let requests: Vec<_> =
            events(&sent).into_iter().filter(|event| matches!(event, Event::Headers { .. })).collect();
        assert_eq!(requests.len(), 3);
        for request in requests {
            let Event::Headers { fields, .. } = request else { unreachable!("it is filtered") };
            assert!(fields.contains(&(b":authority".to_vec(), authority.into())), "{fields:?}");
        }
    }
}

#[test]
fn captures_lose_only_the_authority_at_any_chunk_boundary() {
    for (_, hex) in CAPTURES {
        let sent = capture(hex);
        let got = whole(&sent);
        assert_ne!(got, sent);
        assert_eq!(events(&got), without_invalid(events(&sent)));
        for length in 1..sent.len() {
            assert_eq!(through(&sent, std::iter::repeat(length)).0, got);
            assert_eq!(through(&sent, [length]).0, got);
        }
    }
}

/// A client that uses every representation of HPACK.
#[derive(Default)]
struct Client {
    decoded: VecDeque<(Vec<u8>, Vec<u8>)>,
    limit: usize,
}

#[derive(Clone, Debug)]
enum Encoding {
    /// A field of the static or dynamic table.
    Indexed(Index),
    /// A literal value; its name is a reference if wanted and possible, else literal.
    Literal { name: Vec<u8>, value: Vec<u8>, kind: u8, reference: Option<Index>, huffman: [bool; 2] },
    /// A dynamic table size update, moved to the start of the block.
    Resize(u16),
}

fn integer(flags: u8, prefix: u32, value: usize) -> Vec<u8> {
    let most = (1 << prefix) - 1;
    if value < most {
        return vec![flags | value as u8];
    }
    let (mut octets, mut rest) = (vec![flags | most as u8], value - most);
    while rest > 127 {
        octets.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    octets.push(rest as u8);
    octets
}

fn text(text: &[u8], encoded: bool) -> Vec<u8> {
    let octets = if encoded { huffman::encode(text) } else { text.to_vec() };
    [integer(u8::from(encoded) << 7, 7, octets.len()), octets].concat()
}

impl Client {
    fn new() -> Self {
        Self { limit: 4096, ..Self::default() }
    }

    fn evict(&mut self) {
        let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 32;
        while self.decoded.iter().map(size).sum::<usize>() > self.limit {
            self.decoded.pop_back();
        }
    }

    fn block(&mut self, encodings: &[Encoding]) -> Vec<u8> {
        let mut block = Vec::new();
        let resizes = encodings.iter().filter(|encoding| matches!(encoding, Encoding::Resize(_)));
        let fields = encodings.iter().filter(|encoding| !matches!(encoding, Encoding::Resize(_)));
        for encoding in resizes.chain(fields) {
            block.extend(self.encode(encoding));
        }
        // The oracle requires a field after a size update, and others may be removed.
        block.push(0x83);
        block
    }

    fn encode(&mut self, encoding: &Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Resize(limit) => {
                self.limit = usize::from(*limit) % 4097;
                self.evict();
                integer(0x20, 5, self.limit)
            }
            Encoding::Indexed(index) => integer(0x80, 7, 1 + index.index(61 + self.decoded.len())),
            Encoding::Literal { name, value, kind, reference, huffman } => {
                let fixed = [&b":authority"[..], b":method", b":path"];
                let places = [1, 2, 4].into_iter().zip(fixed).filter(|(_, fixed)| fixed == name);
                let dynamic = self.decoded.iter().enumerate().filter(|(_, (other, _))| other == name);
                let places: Vec<usize> =
                    places.map(|(place, _)| place).chain(dynamic.map(|(place, _)| place + 62)).collect();
                let place = reference.filter(|_| !places.is_empty()).map(|index| *index.get(&places));
                let (flags, prefix) = [(0x40, 6), (0, 4), (0x10, 4)][usize::from(*kind)];
                let mut octets = integer(flags, prefix, place.unwrap_or(0));
                if place.is_none() {
                    octets.extend(text(name, huffman[0]));
                }
                octets.extend(text(value, huffman[1]));
                if *kind == 0 {
                    self.decoded.push_front((name.clone(), value.clone()));
                    self.evict();
                }
                octets
            }
        }
    }
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(&INVALID[..]).prop_map(|value| value.as_bytes().to_vec()),
        2 => prop::sample::select(&VALID[..]).prop_map(|value| value.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..200),
        1 => (any::<u8>(), 0..5000_usize).prop_map(|(octet, length)| vec![octet; length]),
    ]
}

fn literals() -> impl Strategy<Value = Encoding> {
    let names =
        [":authority", ":authority", ":authority", ":method", ":path", "grpc-timeout", "x-a", "x-authority"];
    let names = prop::sample::select(names.map(|name| name.as_bytes().to_vec()).to_vec());
    let reference = prop::option::weighted(0.8, any::<Index>());
    (names, values(), 0..3_u8, reference, any::<[bool; 2]>()).prop_map(
        |(name, value, kind, reference, huffman)| Encoding::Literal { name, value, kind, reference, huffman },
    )
}

fn encodings() -> impl Strategy<Value = Encoding> {
    prop_oneof![
        8 => literals(),
        8 => any::<Index>().prop_map(Encoding::Indexed),
        1 => prop_oneof![any::<u16>(), 0..300_u16].prop_map(Encoding::Resize),
    ]
}

/// The headers of a request, their framing, and a frame that follows.
#[derive(Clone, Debug)]
struct Request {
    encodings: Vec<Encoding>,
    padding: Option<u8>,
    priority: Option<[u8; 5]>,
    end_stream: bool,
    cuts: Vec<Index>,
    follows: (u8, u8, Vec<u8>),
}

fn requests() -> impl Strategy<Value = Request> {
    let follows =
        (prop_oneof![Just(0_u8), Just(4), Just(8), 10..=255_u8], any::<u8>(), vec(any::<u8>(), 0..300));
    let cuts = vec(any::<Index>(), 0..5);
    (vec(encodings(), 0..12), any::<Option<u8>>(), any::<Option<[u8; 5]>>(), any::<bool>(), cuts, follows)
        .prop_map(|(encodings, padding, priority, end_stream, cuts, follows)| Request {
            encodings,
            padding,
            priority,
            end_stream,
            cuts,
            follows,
        })
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Request {
    fn frames(&self, client: &mut Client, stream: u32) -> Vec<u8> {
        let block = client.block(&self.encodings);
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut.index(block.len() + 1)).collect();
        // No part is longer than a frame.
        cuts.extend((1..=block.len() / 16_000).map(|frame| frame * 16_000));
        cuts.extend([0, block.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &block[cut[0]..cut[1]]).collect();
        let mut octets = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            let end = if place + 1 == parts.len() { 4 } else { 0 };
            if place > 0 {
                octets.extend(frame(9, end, stream, part));
                continue;
            }
            let (mut flags, mut payload) = (end | u8::from(self.end_stream), Vec::new());
            if let Some(padding) = self.padding {
                flags |= 8;
                payload.push(padding);
            }
            if let Some(priority) = self.priority {
                flags |= 0x20;
                payload.extend(priority);
            }
            payload.extend(*part);
            payload.resize(payload.len() + usize::from(self.padding.unwrap_or(0)), 0);
            octets.extend(frame(1, flags, stream, &payload));
        }
        let (kind, flags, payload) = &self.follows;
        octets.extend(frame(*kind, *flags, stream, payload));
        octets
    }
}

/// Kinds of frames, most of them of header blocks.
fn kinds() -> impl Strategy<Value = u8> {
    prop_oneof![Just(1_u8), Just(9), any::<u8>()]
}

fn connection(requests: &[Request]) -> Vec<u8> {
    let mut client = Client::new();
    let mut octets = PREFACE.to_vec();
    for (request, stream) in requests.iter().zip((1..).step_by(2)) {
        octets.extend(request.frames(&mut client, stream));
    }
    octets
}

proptest! {
    #[test]
    fn only_invalid_authorities_are_removed(
        requests in vec(requests(), 0..8),
        lengths in vec(1..200_usize, 0..50),
    ) {
        let sent = connection(&requests);
        let (got, ended) = through(&sent, lengths);
        prop_assert!(!ended);
        prop_assert!(got.len() <= sent.len());
        prop_assert_eq!(&got, &whole(&sent));
        let events = events(&sent);
        let expected = without_invalid(events.clone());
        if events == expected {
            // Then every octet is the same.
            prop_assert_eq!(&got, &sent);
        }
        prop_assert_eq!(self::events(&got), expected);
    }

    #[test]
    fn output_does_not_depend_on_the_size_of_reads(
        requests in vec(requests(), 0..4),
        sizes in vec(1..50_usize, 1..20),
    ) {
        let sent = connection(&requests);
        let mut reader = AnyAuthority::new(Cursor::new(&sent));
        let mut got = Vec::<u8>::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for size in sizes.into_iter().cycle() {
                let mut buffer = vec![0; size];
                match reader.read(&mut buffer).await.unwrap() {
                    0 => break,
                    length => got.extend(&buffer[..length]),
                }
            }
        });
        prop_assert_eq!(got, whole(&sent));
    }

    #[test]
    fn input_other_than_http2_passes_unchanged(
        octets: Vec<u8>,
        seen in 0..24_usize,
        lengths in vec(1..20_usize, 0..20),
    ) {
        let octets = [&PREFACE[..seen], &[!PREFACE[seen]], &octets].concat();
        prop_assert_eq!(through(&octets, lengths), (octets, false));
    }

    #[test]
    fn arbitrary_frames_do_not_panic(
        frames in vec((kinds(), any::<u8>(), 0..4_u32, vec(any::<u8>(), 0..80)), 0..20),
        rest: Vec<u8>,
        lengths in vec(1..20_usize, 0..80),
    ) {
        let frames = frames.iter().flat_map(|(kind, flags, id, payload)| frame(*kind, *flags, *id, payload));
        let sent: Vec<u8> = PREFACE.iter().copied().chain(frames).chain(rest).collect();
        prop_assert_eq!(through(&sent, lengths), through(&sent, None));
    }

    #[test]
    fn damaged_captures_do_not_panic(
        client in 0..CAPTURES.len(),
        damages in vec((any::<Index>(), any::<u8>()), 1..5),
        lengths in vec(1..200_usize, 0..20),
    ) {
        let mut sent = capture(CAPTURES[client].1);
        for (place, octet) in damages {
            let length = sent.len();
            sent[place.index(length)] = octet;
        }
        prop_assert_eq!(through(&sent, lengths), through(&sent, None));
    }
}

/// A HEADERS frame with END_HEADERS and END_STREAM.
fn request(block: &[u8], stream: u32) -> Vec<u8> {
    frame(1, 5, stream, block)
}

#[test]
fn malformed_hpack_passes_unless_a_field_was_removed_before() {
    let valid = [&[0x83, 0x86, 0x44, 2][..], b"/a", &[0x41, 1], b"h"].concat();
    let wrong: [&[u8]; 6] = [
        // No such entry; index 0.
        &[0xff, 0x20],
        &[0x80],
        // An integer, a string and a table that are too long.
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        &[0x41, 9, b'x'],
        &[0x3f, 0xff, 0x7f],
        // No Huffman code.
        &[0x41, 0x81, 0],
    ];
    for wrong in wrong {
        let after = request(&[0x41, 1, b'/'], 5);
        let sent = [PREFACE, SETTINGS, &request(&valid, 1), &request(wrong, 3), &after].concat();
        assert_eq!(through(&sent, None), (sent, false), "{wrong:?}");
        let invalid = [&valid[..valid.len() - 1], b"/"].concat();
        let sent = [PREFACE, SETTINGS, &request(&invalid, 1), &request(wrong, 3), &after].concat();
        let until = [PREFACE, SETTINGS, &request(&valid[..valid.len() - 3], 1)].concat();
        assert_eq!(through(&sent, None), (until, true), "{wrong:?}");
    }
}

#[test]
fn a_connection_with_removals_is_closed_on_an_index_that_the_client_evicted() {
    let indexed = |name: u8| [0x40, 1, name, 1, b'x'];
    let known = [
        PREFACE,
        // Too small for all entries of the client, but large enough for those that h2 gets.
        &request(&[&integer(0x20, 5, 110)[..], &indexed(b'a'), &[0x41, 1, b'/']].concat(), 1),
        &request(&[indexed(b'b'), indexed(b'c')].concat(), 3),
        &request(&[0x80 | 62, 0x80 | 63], 5),
    ]
    .concat();
    let (got, ended) = through(&known, None);
    assert!(!ended);
    assert_eq!(events(&got), without_invalid(events(&known)));
    // The client has no third entry. To h2 it would be `a`.
    assert_eq!(through(&[&known[..], &request(&[0x80 | 64], 7)].concat(), None), (got, true));
}

#[test]
fn malformed_frames_pass_unchanged() {
    let after = request(&[0x41, 1, b'/'], 5);
    let wrong = [
        // More than a frame holds; more padding than payload; no room for a priority.
        frame(1, 4, 1, &[0x83; 16_385]),
        frame(1, 0xc, 1, &[3, 0x83, 0]),
        frame(1, 0xc, 1, &[]),
        frame(1, 0x24, 1, &[0; 4]),
        // Something between the parts of a block, or a part of another, or too many of them.
        [frame(1, 0, 1, &[0x83]), frame(0, 0, 1, &[])].concat(),
        [frame(1, 0, 1, &[0x83]), frame(9, 4, 3, &[])].concat(),
        [frame(1, 0, 1, &[0x83]), frame(9, 0, 1, &[]).repeat(100)].concat(),
    ];
    for wrong in wrong {
        let sent = [PREFACE, SETTINGS, &wrong, &after].concat();
        assert_eq!(through(&sent, None), (sent, false), "{wrong:?}");
    }
}

#[test]
fn a_rewritten_block_is_split_at_the_frame_limit() {
    // Without its first field, and after the priority, it needs one octet more than the first frame has.
    let filler = [&[0, 1, b'a'][..], &integer(0, 7, 16_370), &[b'x'; 16_370]].concat();
    let block = [&[0x01, 1, b'/'][..], &[0x83], &filler, &[0x86; 4]].concat();
    let (first, second) = block.split_at(16_379);
    let sent = [PREFACE, &frame(1, 0x21, 1, &[&[0; 5], first].concat()), &frame(9, 4, 1, second)].concat();
    let got = whole(&sent);
    assert_eq!(got.len(), sent.len() - 3);
    assert_eq!(events(&got), without_invalid(events(&sent)));
}

#[test]
fn static_names_have_the_lengths_of_the_oracle() {
    // A wrong length shows in a table that just fits the entry.
    for index in 1..=61 {
        let name = Decoder::new().decode(&integer(0x80, 7, index)).unwrap().remove(0).0.len();
        for (limit, left) in [(32 + name + 1, 1), (32 + name, 0)] {
            let limited = [integer(0x20, 5, limit), integer(0x40, 6, index), vec![1, b'a']].concat();
            let mut table = hpack::Table::default();
            assert_eq!(table.rewrite(&limited), Ok(None));
            assert_eq!(table.rewrite(&[0x80 | 62]).is_ok(), left == 1, "{index}");
        }
    }
}

/// The paths of the calls that the server answers.
async fn answered(server: Server, calls: usize, sent: &[u8]) -> Vec<String> {
    let endpoint = server.endpoint();
    tokio::spawn(server.serve(Services::default(), std::future::pending()));
    match endpoint {
        Endpoint::Unix(path) => answers(UnixStream::connect(path).await.unwrap(), calls, sent).await,
        Endpoint::Tcp(address) => answers(TcpStream::connect(address).await.unwrap(), calls, sent).await,
    }
}

async fn answers(mut io: impl AsyncRead + AsyncWrite + Unpin, calls: usize, sent: &[u8]) -> Vec<String> {
    io.write_all(sent).await.unwrap();
    let (mut decoder, mut paths) = (Decoder::new(), Vec::new());
    while paths.len() < calls {
        let mut head = [0; 9];
        timeout(Duration::from_secs(20), io.read_exact(&mut head)).await.unwrap().unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        io.read_exact(&mut payload).await.unwrap();
        assert!(!matches!(head[3], 3 | 7), "refused: {head:?} {}", payload.escape_ascii());
        if head[3] == 1 {
            let fields = decoder.decode(&payload).unwrap();
            let (_, message) = fields.into_iter().find(|(name, _)| name == b"grpc-message").unwrap();
            let message = String::from_utf8(message).unwrap();
            paths.push(message.strip_prefix("no%20service%20here%20has%20").unwrap().to_owned());
        }
    }
    // The order of the answers is not defined.
    paths.sort();
    paths
}

fn bind(folder: &Path) -> Server {
    Server::bind(&folder.join("s.sock")).unwrap()
}

#[tokio::test]
async fn server_answers_captures() {
    for (_, hex) in CAPTURES {
        let folder = tempfile::tempdir().unwrap();
        let sent = capture(hex);
        // Without the final GOAWAY of grpc-go.
        let sent = sent
            .strip_suffix(b"client transport shutdown")
            .map_or(&sent[..], |sent| &sent[..sent.len() - 17]);
        let paths = answered(bind(folder.path()), 3, sent).await;
        assert_eq!(paths, ["/pluginregistration.Registration/GetInfo"; 3]);
    }
}

/// Calls with each authority on one connection: literal with indexing, indexed, without indexing, never indexed.
fn calls() -> (Vec<String>, Vec<u8>) {
    let (mut client, mut paths) = (Client::new(), Vec::new());
    let mut sent = [PREFACE, SETTINGS].concat();
    let authorities = INVALID.iter().chain(&VALID).map(|authority| authority.as_bytes());
    for authority in authorities.chain([&b"\xff\xfe"[..]]) {
        for kind in [0, 0, 1, 2] {
            let stream = 2 * u32::try_from(paths.len()).unwrap() + 1;
            paths.push(format!("/{stream:03}"));
            let literal = |name: &str, value: &[u8], kind, reference| Encoding::Literal {
                name: name.into(),
                value: value.into(),
                kind,
                reference,
                huffman: [stream % 4 == 1; 2],
            };
            let path = paths[paths.len() - 1].as_bytes();
            let mut block = vec![0x83, 0x86];
            block.extend(client.encode(&literal(":path", path, 0, None)));
            let known =
                client.decoded.iter().position(|(name, value)| name == b":authority" && value == authority);
            match known.filter(|_| kind == 0) {
                Some(place) => block.extend(integer(0x80, 7, 62 + place)),
                None => block.extend(client.encode(&literal(":authority", authority, kind, None))),
            }
            block.extend(client.encode(&literal("grpc-timeout", path, 0, None)));
            sent.extend(request(&block, stream));
        }
    }
    (paths, sent)
}

#[tokio::test]
async fn server_answers_calls_with_any_authority_on_unix_and_tcp() {
    let (paths, sent) = calls();
    assert_eq!(events(&whole(&sent)), without_invalid(events(&sent)));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(answered(bind(folder.path()), paths.len(), &sent).await, paths);
    let server = Server::listen(&Endpoint::Tcp("127.0.0.1:0".into())).await.unwrap();
    assert_eq!(answered(server, paths.len(), &sent).await, paths);
}
