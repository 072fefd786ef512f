//! Properties of captured and generated connections, in chunks of any length.

use std::io::Cursor;

use http::uri::Authority;
use proptest::{collection::vec, prelude::*, sample::Index};
use tokio::io::AsyncReadExt;

use super::{
    CAPTURES, Event, INVALID, PREFACE, VALID, capture,
    client::{connection, frame, requests},
    events, through, whole, without_invalid,
};
use crate::authority::AnyAuthority;

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

/// Kinds of frames, most of them of header blocks.
fn kinds() -> impl Strategy<Value = u8> {
    prop_oneof![Just(1_u8), Just(9), any::<u8>()]
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
