//! Single header blocks and frames: malformed ones, indexes that the client evicted, and the limit of a frame.

use loona_hpack::Decoder;

use super::{
    PREFACE, SETTINGS,
    client::{frame, integer, request},
    events, through, whole, without_invalid,
};
use crate::authority::hpack;

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
