//! Removes invalid `:authority` fields from a header block, and tracks the dynamic table to keep later blocks
//! correct.
//!
//! A field that is removed does not enter h2's dynamic table, so from then on the client's table and h2's
//! differ. The client's is tracked here: of each entry its size, whether its name is `:authority`, and whether
//! it was removed. Sizes decide evictions, so they suffice to know which entries the client can refer to.
//!
//! h2's table always holds those entries, except removed ones: h2 inserts the same entries in the same order
//! under the same limit, only fewer, so it evicts each no earlier than the client. An index therefore
//! translates by subtracting the number of newer entries that were removed. As indexes only shrink, a rewritten
//! block is never longer.
//!
//! The name of a literal may be an index into the dynamic table (grpc-go does that for `grpc-timeout`), so
//! `:authority` cannot be recognised without the table.

use std::{borrow::Cow, collections::VecDeque};

use http::uri::Authority;

use super::huffman;

const AUTHORITY: &[u8] = b":authority";
/// Its index in the static table, where its value is empty.
const AUTHORITY_INDEX: usize = 1;
/// The lengths of the names in the static table (RFC 7541, appendix A).
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14, 16, 13,
    12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3,
    16,
];
/// The limit of the dynamic table: SETTINGS_HEADER_TABLE_SIZE, which tonic leaves at its default.
const TABLE_LIMIT: usize = 4096;
/// The size of an entry apart from its name and value (RFC 7541, section 4.1).
const ENTRY_OVERHEAD: usize = 32;
/// The longest integer that h2 accepts.
const INTEGER_OCTETS: u32 = 5;

/// The block is not HPACK. h2 rejects it, too.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

/// The client's dynamic table, newest first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
    /// The number of entries that were removed, which h2 lacks.
    omitted: usize,
    is_shared: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Name,
    size: usize,
    omitted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    length: usize,
    authority: bool,
}

/// What a client's index refers to.
struct Reference {
    name: Name,
    /// The same in h2's tables.
    index: usize,
    /// Whether an indexed field has to be removed.
    omitted: bool,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, limit: TABLE_LIMIT, omitted: 0, is_shared: true }
    }
}

impl Table {
    /// Whether h2's table equals the client's. After a removal it may keep entries that the client evicted.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The block for h2, or `None` if nothing has to change.
    pub(super) fn rewrite(&mut self, block: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let mut fields = Reader { block, at: 0 };
        let mut rewritten = Vec::new();
        // How much of the block `rewritten` covers.
        let mut taken = 0;
        while let Some(first) = fields.peek() {
            let start = fields.at;
            match first {
                0x80.. => {
                    let index = fields.integer(7)?;
                    let meant = self.find(index)?;
                    if meant.omitted || meant.index != index {
                        rewritten.extend(&block[taken..start]);
                        if !meant.omitted {
                            write_integer(&mut rewritten, 0x80, 7, meant.index);
                        }
                        taken = fields.at;
                    }
                }
                0x20..0x40 => self.resize(fields.integer(5)?)?,
                _ => {
                    let indexed = first >= 0x40;
                    let (flags, prefix) = if indexed { (0x40, 6) } else { (first & 0x10, 4) };
                    let index = fields.integer(prefix)?;
                    let meant = if index == 0 { fields.name()? } else { self.find(index)? };
                    let value_at = fields.at;
                    let value = fields.text()?;
                    let omitted = meant.name.authority && !is_valid(&value.decoded()?);
                    if omitted || meant.index != index {
                        rewritten.extend(&block[taken..start]);
                        if !omitted {
                            write_integer(&mut rewritten, flags, prefix, meant.index);
                        }
                        taken = if omitted { fields.at } else { value_at };
                    }
                    if indexed {
                        let size = ENTRY_OVERHEAD + meant.name.length + value.length()?;
                        self.insert(Entry { name: meant.name, size, omitted });
                    }
                }
            }
        }
        if taken == 0 {
            return Ok(None);
        }
        rewritten.extend(&block[taken..]);
        Ok(Some(rewritten))
    }

    fn find(&self, index: usize) -> Result<Reference, Malformed> {
        let place = index.checked_sub(1).ok_or(Malformed)?;
        if let Some(&length) = STATIC_NAMES.get(place) {
            let authority = index == AUTHORITY_INDEX;
            let name = Name { length: length.into(), authority };
            return Ok(Reference { name, index, omitted: authority });
        }
        let place = place - STATIC_NAMES.len();
        let entry = self.entries.get(place).ok_or(Malformed)?;
        let index = if entry.omitted {
            AUTHORITY_INDEX
        } else if self.omitted == 0 {
            index
        } else {
            index - self.entries.range(..place).filter(|newer| newer.omitted).count()
        };
        Ok(Reference { name: entry.name, index, omitted: entry.omitted })
    }

    fn insert(&mut self, entry: Entry) {
        self.evict(entry.size);
        if self.size + entry.size <= self.limit {
            self.size += entry.size;
            self.omitted += usize::from(entry.omitted);
            self.is_shared &= !entry.omitted;
            self.entries.push_front(entry);
        }
    }

    fn resize(&mut self, limit: usize) -> Result<(), Malformed> {
        if limit > TABLE_LIMIT {
            return Err(Malformed);
        }
        self.limit = limit;
        self.evict(0);
        Ok(())
    }

    /// Evicts the oldest entries until the new one fits, or none is left.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.limit {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size;
            self.omitted -= usize::from(oldest.omitted);
        }
    }
}

/// Decides as h2 does, in the conversion of its server's requests.
fn is_valid(authority: &[u8]) -> bool {
    Authority::try_from(authority).is_ok()
}

fn write_integer(out: &mut Vec<u8>, flags: u8, prefix: u32, value: usize) {
    let most = (1 << prefix) - 1;
    if value < most {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

struct Reader<'a> {
    block: &'a [u8],
    at: usize,
}

/// A string literal, as encoded.
struct Text<'a> {
    encoded: &'a [u8],
    huffman: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.block.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Malformed> {
        let octet = self.peek().ok_or(Malformed)?;
        self.at += 1;
        Ok(octet)
    }

    fn integer(&mut self, prefix: u32) -> Result<usize, Malformed> {
        let most = (1 << prefix) - 1;
        let mut value = usize::from(self.next()?) & most;
        if value < most {
            return Ok(value);
        }
        for octet in 0..INTEGER_OCTETS - 1 {
            let next = usize::from(self.next()?);
            value += (next & 0x7f) << (7 * octet);
            if next < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn text(&mut self) -> Result<Text<'a>, Malformed> {
        let huffman = self.peek().ok_or(Malformed)? >= 0x80;
        let length = self.integer(7)?;
        let end = self.at + length;
        let encoded = self.block.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(Text { encoded, huffman })
    }

    /// A literal name.
    fn name(&mut self) -> Result<Reference, Malformed> {
        let name = self.text()?.decoded()?;
        let name = Name { length: name.len(), authority: *name == *AUTHORITY };
        Ok(Reference { name, index: 0, omitted: false })
    }
}

impl<'a> Text<'a> {
    fn decoded(&self) -> Result<Cow<'a, [u8]>, Malformed> {
        if !self.huffman {
            return Ok(Cow::Borrowed(self.encoded));
        }
        let octets: Option<Vec<u8>> = huffman::decode(self.encoded).collect();
        octets.map(Cow::Owned).ok_or(Malformed)
    }

    /// Its length once decoded.
    fn length(&self) -> Result<usize, Malformed> {
        if !self.huffman {
            return Ok(self.encoded.len());
        }
        huffman::decode(self.encoded)
            .try_fold(0, |length, symbol| symbol.map(|_| length + 1))
            .ok_or(Malformed)
    }
}
