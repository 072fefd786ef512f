//! The platform of a program.

use std::{fs::File, io, io::Read, path::Path};

use super::Platform;

/// The platform of an ELF program, if it is one that images are made for.
pub(super) fn machine(program: &Path) -> io::Result<Option<Platform>> {
    // `Elf64_Ehdr`: the magic, the class and the order of bytes first, `e_machine` at 18.
    let mut header = [0; 20];
    match File::open(program)?.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    Ok(match u16::from_le_bytes([header[18], header[19]]) {
        62 => Some(Platform::Amd64),
        183 => Some(Platform::Arm64),
        _ => None,
    })
}
