//! Ids of objects that do not exist, in the format of a driver: one that validates ids may reject any other text as
//! invalid, before it looks for the object.

/// Characters after which a part of an id begins.
const SEPARATORS: [char; 4] = ['/', ':', '#', '|'];
/// The minimum number of random characters: fewer could be the id of an object that exists.
const RANDOM: usize = 6;

/// An id of the same format as this one, in which the last part is random; none, if that part is no number and no UUID.
pub(crate) fn like(id: &str) -> Option<String> {
    let start = id.rfind(SEPARATORS).map_or(0, |at| at + 1);
    let (head, last) = id.split_at(start);
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let random = last.chars().filter(|c| is_hex(*c)).count();
    let has_format = last.chars().all(|c| is_hex(c) || c == '-') && last.starts_with(is_hex);
    // Words of these letters are no numbers.
    if !has_format || random < RANDOM || !last.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let another = |c: char| match c {
        '1'..='9' => char::from(fastrand::u8(b'1'..=b'9')),
        'a'..='f' => char::from(fastrand::u8(b'a'..=b'f')),
        // A zero, or a dash.
        same => same,
    };
    Some(head.chars().chain(last.chars().map(another)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_an_id_is_random() {
        for id in ["41238765", "fr-par-1/5c1d8ab0-abcd-4f7e-b2a1-d0e8ffaa0c11", "projects/p/disks#987654321"]
        {
            let other = like(id).unwrap();
            assert_ne!(other, id);
            assert_eq!(other.len(), id.len());
            let shape = |text: &str| text.replace(|c: char| matches!(c, '1'..='9' | 'a'..='f'), "x");
            let start = id.rfind(SEPARATORS).map_or(0, |at| at + 1);
            assert_eq!((&other[..start], shape(&other[start..])), (&id[..start], shape(&id[start..])));
        }
    }

    #[test]
    fn names_and_short_numbers_have_no_other_of_their_format() {
        for id in ["", "claimcheck-0a1b2c3d-1-0", "vol-17", "123", "pool/", "facade-decade"] {
            assert_eq!(like(id), None, "{id}");
        }
    }
}
