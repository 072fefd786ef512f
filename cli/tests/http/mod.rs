//! A client that is small enough for tests.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

/// The status and the text of a page; `None` while nobody answers.
pub fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    // 1.0, since then no answer comes in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").ok()?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).ok()?;
    let mut rest = String::new();
    answer.read_to_string(&mut rest).ok()?;
    Some((line.split(' ').nth(1)?.parse().ok()?, rest.split_once("\r\n\r\n")?.1.to_owned()))
}
