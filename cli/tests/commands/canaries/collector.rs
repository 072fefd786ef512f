//! A collector of traces and metrics that accepts everything.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// The requests that a collector received: their heads and bodies.
pub(super) type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector of traces and metrics that accepts everything; returns its address.
pub(super) fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let received = Received::default();
    let all = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let all = Arc::clone(&all);
            thread::spawn(move || serve(stream, &all));
        }
    });
    (address, received)
}

fn serve(stream: TcpStream, received: &Received) {
    let mut answer = stream.try_clone().expect("a second handle");
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
        let length = pairs.find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        lines.read_exact(&mut body).expect("a body");
        received.lock().expect("no panic").push((head, body));
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a caller that waits");
    }
}
