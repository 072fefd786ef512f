//! A client that is small enough for tests, and addresses for those who serve.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicU16, Ordering},
};

/// The status and the text of a page; `None` while no server answers.
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

/// Below the ports that the kernel gives to whoever asks for none (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// An unused address that no other process gets until the intended server listens there.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Tests of several processes at a time begin at different places; cargo-nextest starts one per test.
    let begin = std::process::id().wrapping_mul(16) % u32::from(count);
    loop {
        let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + u16::try_from((begin + next) % u32::from(count)).expect("below the count");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
