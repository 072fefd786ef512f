//! Decodes HPACK's Huffman code (RFC 7541, appendix B). It is canonical: the lengths of the codes define it.
//!
//! Own code, because h2 keeps its decoder private and the published crates are not maintained (httlib-huffman,
//! 2020) or do a hash lookup per bit (loona-hpack, the oracle of the tests).

/// Symbols by the length of their code in bits, in the order of their codes. The code after the last is EOS,
/// which is invalid in a string.
const CODES: [(u32, &[u8]); 21] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\x00$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (22, b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9"),
    (23, b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef"),
    (24, b"\x09\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, b"\xc7\xcf\xea\xeb"),
    (26, b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"),
    (27, b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"),
    (28, b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9"),
    (30, b"\x0a\x0d\x16"),
];

/// The code of the first symbol of each length, left-aligned.
const FIRST: [u32; CODES.len()] = {
    let mut first = [0; CODES.len()];
    let mut group = 1;
    while group < CODES.len() {
        let (length, symbols) = CODES[group - 1];
        first[group] = first[group - 1] + ((symbols.len() as u32) << (32 - length));
        group += 1;
    }
    first
};

/// The decoded octets, ending with `None` where the input is invalid.
pub(super) fn decode(encoded: &[u8]) -> impl Iterator<Item = Option<u8>> {
    let mut rest = encoded.iter();
    // The bits not decoded yet, left-aligned and followed by ones, as padding is.
    let (mut bits, mut count) = (u64::MAX, 0);
    std::iter::from_fn(move || {
        while count <= 32 {
            let Some(byte) = rest.next() else { break };
            bits ^= u64::from(!byte) << (56 - count);
            count += 8;
        }
        if count < 8 && bits == u64::MAX {
            return None;
        }
        let next = (bits >> 32) as u32;
        let group = FIRST.partition_point(|first| *first <= next) - 1;
        let (length, symbols) = CODES[group];
        let symbol = symbols.get(((next - FIRST[group]) >> (32 - length)) as usize).copied();
        if symbol.is_none() || count < length {
            // Ends the iteration after this.
            (bits, count) = (u64::MAX, 0);
            rest = [].iter();
            return Some(None);
        }
        bits = bits << length | ((1 << length) - 1);
        count -= length;
        Some(symbol)
    })
}

/// The code of a text.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let (mut encoded, mut bits, mut count) = (Vec::new(), 0_u64, 0);
    for symbol in text {
        let group = CODES.iter().position(|(_, symbols)| symbols.contains(symbol)).unwrap();
        let (length, symbols) = CODES[group];
        let place = symbols.iter().position(|other| other == symbol).unwrap() as u64;
        bits = bits << length | (u64::from(FIRST[group] >> (32 - length)) + place);
        count += length;
        while count >= 8 {
            count -= 8;
            encoded.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        encoded.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use loona_hpack::huffman::HuffmanDecoder;
    use proptest::prelude::*;

    use super::*;

    fn all(encoded: &[u8]) -> Option<Vec<u8>> {
        decode(encoded).collect()
    }

    #[test]
    fn every_octet_is_decoded_as_by_others() {
        for octet in 0..=u8::MAX {
            for text in [vec![octet], vec![octet; 9], vec![b'a', octet, 0xff, octet, b'0']] {
                let encoded = encode(&text);
                assert_eq!(all(&encoded), Some(text.clone()));
                assert_eq!(HuffmanDecoder::new().decode(&encoded), Ok(text));
            }
        }
    }

    #[test]
    fn padding_is_fewer_than_eight_ones() {
        assert_eq!(all(b""), Some(vec![]));
        assert_eq!(all(&[0b0000_0111]), Some(b"0".to_vec()));
        for wrong in [&[0b0000_0110][..], &[0b0000_0111, 0xff], &[0xff], &[0xff; 4], &[0xff; 9]] {
            assert_eq!(all(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_taken_and_refused_as_by_others(encoded: Vec<u8>) {
            prop_assert_eq!(all(&encoded), HuffmanDecoder::new().decode(&encoded).ok());
        }

        #[test]
        fn any_text_comes_back(text: Vec<u8>) {
            prop_assert_eq!(all(&encode(&text)), Some(text));
        }
    }
}
