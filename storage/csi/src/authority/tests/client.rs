//! A client that uses every representation of HPACK, and connections of it with any headers and framing.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{INVALID, PREFACE, VALID};
use crate::authority::huffman;

/// A client that uses every representation of HPACK.
#[derive(Default)]
pub(super) struct Client {
    pub(super) decoded: VecDeque<(Vec<u8>, Vec<u8>)>,
    limit: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Encoding {
    /// A field of the static or dynamic table.
    Indexed(Index),
    /// A literal value; its name is a reference if wanted and possible, else literal.
    Literal { name: Vec<u8>, value: Vec<u8>, kind: u8, reference: Option<Index>, huffman: [bool; 2] },
    /// A dynamic table size update, moved to the start of the block.
    Resize(u16),
}

pub(super) fn integer(flags: u8, prefix: u32, value: usize) -> Vec<u8> {
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
    pub(super) fn new() -> Self {
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

    pub(super) fn encode(&mut self, encoding: &Encoding) -> Vec<u8> {
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
pub(super) struct Request {
    encodings: Vec<Encoding>,
    padding: Option<u8>,
    priority: Option<[u8; 5]>,
    end_stream: bool,
    cuts: Vec<Index>,
    follows: (u8, u8, Vec<u8>),
}

pub(super) fn requests() -> impl Strategy<Value = Request> {
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

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
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

pub(super) fn connection(requests: &[Request]) -> Vec<u8> {
    let mut client = Client::new();
    let mut octets = PREFACE.to_vec();
    for (request, stream) in requests.iter().zip((1..).step_by(2)) {
        octets.extend(request.frames(&mut client, stream));
    }
    octets
}

/// A HEADERS frame with END_HEADERS and END_STREAM.
pub(super) fn request(block: &[u8], stream: u32) -> Vec<u8> {
    frame(1, 5, stream, block)
}
