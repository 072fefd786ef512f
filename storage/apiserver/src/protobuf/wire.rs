//! The wire format of protobuf: a message is a sequence of fields, each a number and a value.

use super::ProtobufError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire<'a> {
    /// The field is missing.
    Missing,
    /// An integer or a boolean.
    Number(u64),
    /// The bits of a double.
    Double(u64),
    /// Bytes, a string, or a nested message.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    /// The number; zero if it is missing.
    pub fn number(self) -> Result<u64, ProtobufError> {
        match self {
            Self::Missing => Ok(0),
            Self::Number(number) => Ok(number),
            Self::Double(_) | Self::Bytes(_) => Err(ProtobufError::Malformed),
        }
    }

    /// The double; zero if it is missing.
    pub fn double(self) -> Result<f64, ProtobufError> {
        match self {
            Self::Missing => Ok(0.0),
            Self::Double(bits) => Ok(f64::from_bits(bits)),
            Self::Number(_) | Self::Bytes(_) => Err(ProtobufError::Malformed),
        }
    }

    /// The bytes; empty if they are missing.
    pub fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Missing => Ok(&[]),
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Double(_) => Err(ProtobufError::Malformed),
        }
    }

    /// The string; empty if it is missing.
    pub fn text(self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtobufError::Malformed)
    }
}

/// The next field of a message, and its number.
pub fn next<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Wire<'a>), ProtobufError> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        1 => {
            let (double, rest) = bytes.split_first_chunk().ok_or(ProtobufError::Malformed)?;
            *bytes = rest;
            Wire::Double(u64::from_le_bytes(*double))
        }
        2 => {
            let length = varint(bytes)?;
            Wire::Bytes(take(bytes, length)?)
        }
        // A float, which no kind has.
        5 => take(bytes, 4).map(|_| Wire::Missing)?,
        _ => return Err(ProtobufError::Malformed),
    };
    match tag >> 3 {
        0 => Err(ProtobufError::Malformed),
        number => Ok((number, wire)),
    }
}

/// The fields 1 to `N` of a message; all others are skipped.
pub fn fields<const N: usize>(mut bytes: &[u8]) -> Result<[Wire<'_>; N], ProtobufError> {
    let mut found = [Wire::Missing; N];
    while !bytes.is_empty() {
        let (number, wire) = next(&mut bytes)?;
        // A message has no field 0.
        let place = usize::try_from(number - 1).ok().and_then(|place| found.get_mut(place));
        if let Some(place) = place {
            *place = wire;
        }
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(ProtobufError::Malformed)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ProtobufError::Malformed)
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], ProtobufError> {
    let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

/// Appends a field with an integer or a boolean.
pub fn put_number(message: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(message, number << 3);
    put_varint(message, value);
}

/// Appends a field with a double.
pub fn put_double(message: &mut Vec<u8>, number: u64, value: f64) {
    put_varint(message, number << 3 | 1);
    message.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends a field with bytes, a string, or a nested message.
pub fn put_bytes(message: &mut Vec<u8>, number: u64, value: &[u8]) {
    put_head(message, number, value.len());
    message.extend_from_slice(value);
}

/// Appends the part of a field with bytes before those.
pub fn put_head(message: &mut Vec<u8>, number: u64, length: usize) {
    put_tag_of_bytes(message, number);
    put_varint(message, length as u64);
}

/// Appends the part of a field with bytes before their length.
pub fn put_tag_of_bytes(message: &mut Vec<u8>, number: u64) {
    put_varint(message, number << 3 | 2);
}

/// The length of a field with so many bytes, of which the number is below 16.
pub fn field_length(bytes: usize) -> usize {
    let bits = u64::BITS - (bytes as u64 | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + bytes
}

fn put_varint(message: &mut Vec<u8>, number: u64) {
    if number <= 0x7f {
        return message.push(number as u8);
    }
    let (bytes, length) = varint_of(number);
    message.extend_from_slice(&bytes[..length]);
}

/// A number as varint, and how many bytes it has.
pub fn varint_of(mut number: u64) -> ([u8; 10], usize) {
    let (mut bytes, mut length) = ([0; 10], 0);
    while number > 0x7f {
        bytes[length] = (number & 0x7f) as u8 | 0x80;
        number >>= 7;
        length += 1;
    }
    bytes[length] = number as u8;
    (bytes, length + 1)
}
