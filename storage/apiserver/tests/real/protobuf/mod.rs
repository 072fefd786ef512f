//! Kubernetes' protobuf, decoded and encoded by the table of the crate (`src/schema/types.txt`), with
//! separate code.
//!
//! Fields that the table does not have are decoded, too: as `#<number>`. Zero values are dropped, since Go
//! writes those of fields that are no pointers, and the embedded server does not.

mod read;
mod write;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use read::{decode, decode_events};
pub use write::encode;

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";
const TYPES: &str = include_str!("../../../src/schema/types.txt");

static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

/// The types by their names with package, such as `core.PodSpec`.
struct Table {
    types: HashMap<String, Vec<Field>>,
}

struct Field {
    name: &'static str,
    /// `string`, `[core.Container]` or `{quantity}`; types have their package.
    shape: String,
    outer: u64,
    inner: Option<u64>,
}

impl Table {
    fn read() -> Self {
        let (mut types, mut package, mut current) = (HashMap::<_, Vec<Field>>::new(), "", String::new());
        for line in TYPES.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if !line.starts_with(' ') {
                if first == "package" {
                    package = words.next().unwrap_or_default();
                } else {
                    current = format!("{package}.{first}");
                    types.insert(current.clone(), Vec::new());
                }
                continue;
            }
            let shape = qualified(words.next().unwrap_or_default(), package);
            let Some(place) = words.find_map(|word| word.strip_prefix('#')) else { continue };
            let digits = place.trim_end_matches('?');
            let (outer, inner) = digits.split_once('.').map_or((digits, None), |(a, b)| (a, Some(b)));
            let number = |digits: &str| digits.parse::<u64>().unwrap();
            let name = first.trim_end_matches('!');
            let field = Field { name, shape, outer: number(outer), inner: inner.map(number) };
            types.entry(current.clone()).or_default().push(field);
        }
        Self { types }
    }

    /// The fields of a kind.
    fn fields(&self, version: &str, kind: &str) -> Option<&Vec<Field>> {
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
        // The names of packages of other versions than v1 end with the version.
        let of_version =
            || self.types.get(&format!("{package}{}.{kind}", version.rsplit('/').next().unwrap_or_default()));
        let found = self.types.get(&format!("{package}.{kind}")).or_else(of_version);
        found.or_else(|| self.types.get(&format!("meta.{kind}"))).filter(|fields| !fields.is_empty())
    }
}

/// A shape with the package of its type.
fn qualified(word: &str, package: &str) -> String {
    for (open, close) in [('[', ']'), ('{', '}')] {
        if let Some(inner) = word.strip_prefix(open).and_then(|word| word.strip_suffix(close)) {
            return format!("{open}{}{close}", qualified(inner, package));
        }
    }
    if word.contains('.') || word.starts_with(char::is_lowercase) {
        return word.to_owned();
    }
    format!("{package}.{word}")
}

/// The shape in brackets.
fn inner(shape: &str, open: char, close: char) -> Option<&str> {
    shape.strip_prefix(open)?.strip_suffix(close)
}

/// A field on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Double(_) | Self::Bytes(_) => 0,
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) | Self::Double(_) => &[],
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// The fields of a message with their numbers; `None` if it is malformed.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => {
                let (double, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Wire::Double(f64::from_le_bytes(*double))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (taken, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Wire::Bytes(taken)
            }
            _ => return None,
        };
        found.push((tag >> 3, wire));
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The bytes of the last field with this number.
fn field(bytes: &[u8], expected: u64) -> &[u8] {
    let fields = fields(bytes).unwrap_or_default();
    fields.iter().rev().find(|(number, _)| *number == expected).map_or(&[], |(_, wire)| wire.bytes())
}
