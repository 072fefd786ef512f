//! The server's side of SPDY against a client that writes frames.

use hyper::body::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
};

use super::*;
use crate::server::streams::port_forward::{self, Target};

/// The client's side of a connection.
struct Client {
    connection: DuplexStream,
    blocks: headers::Writer,
}

/// What the server sends: the kind of a control frame and its payload, or the data of a stream and whether it ends.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Control(u8, Vec<u8>),
    Data(u32, Vec<u8>, bool),
}

impl Client {
    fn new() -> (Self, DuplexStream) {
        let (connection, server) = duplex(1 << 16);
        (Self { connection, blocks: headers::Writer::new() }, server)
    }

    async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let block = self.blocks.write(headers);
        let length = u32::try_from(block.len() + 10).unwrap().to_be_bytes();
        let mut frame: Vec<u8> = vec![0x80, 3, 0, 1, 0];
        frame.extend(&length[1..]);
        frame.extend(stream.to_be_bytes());
        frame.extend([0; 6]);
        frame.extend(block);
        self.connection.write_all(&frame).await.unwrap();
    }

    async fn send(&mut self, stream: u32, data: &[u8], ends: bool) {
        self.connection.write_all(&frames::data(stream, data, ends)).await.unwrap();
    }

    /// The next frame; none at the end of the connection.
    async fn receive(&mut self) -> Option<Sent> {
        let mut head = [0; 8];
        self.connection.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize];
        self.connection.read_exact(&mut payload).await.unwrap();
        Some(match head[0] & 0x80 {
            0 => Sent::Data(
                u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
                payload,
                head[4] & 1 == 1,
            ),
            _ => Sent::Control(head[3], payload),
        })
    }
}

#[tokio::test]
async fn the_streams_of_exec_are_those_that_the_client_opens() {
    let (mut client, server) = Client::new();
    let expected = vec![Channel::Error, Channel::Stdin, Channel::Stdout];
    let work = |mut streams: Streams| async move {
        // Returns its input, then reports a result.
        while let Some((channel, Some(data))) = streams.input.recv().await {
            assert_eq!(channel, Channel::Stdin);
            streams.output.send((Channel::Stdout, Some(data))).await.unwrap();
        }
        let result = Bytes::from_static(b"result");
        streams.output.send((Channel::Error, Some(result))).await.unwrap();
    };
    let serving = tokio::spawn(async move {
        serve(server, |events, actions| remote_command(events, actions, expected, work)).await;
    });
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        client.open(stream, &[("streamtype", kind)]).await;
        let Some(Sent::Control(2, reply)) = client.receive().await else { panic!("{kind} is not accepted") };
        assert_eq!(reply[..4], u32::to_be_bytes(stream), "{kind}");
    }
    client.connection.write_all(&frames::pong(9)).await.unwrap();
    assert_eq!(client.receive().await, Some(Sent::Control(6, vec![0, 0, 0, 9])));
    client.send(3, b"text", false).await;
    assert_eq!(client.receive().await, Some(Sent::Data(5, b"text".to_vec(), false)));
    client.send(3, b"", true).await;
    assert_eq!(client.receive().await, Some(Sent::Data(1, b"result".to_vec(), false)));
    for stream in [5, 1] {
        assert_eq!(client.receive().await, Some(Sent::Data(stream, Vec::new(), true)));
    }
    assert_eq!(client.receive().await, Some(Sent::Control(7, vec![0, 0, 0, 5, 0, 0, 0, 0])));
    drop(client);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_work() {
    let (mut client, server) = Client::new();
    let expected = vec![Channel::Error, Channel::Stdout];
    let work = |mut streams: Streams| async move { assert_eq!(streams.input.recv().await, None) };
    let serving = tokio::spawn(async move {
        serve(server, |events, actions| remote_command(events, actions, expected, work)).await;
    });
    for (stream, kind) in [(1, "error"), (3, "stdout")] {
        client.open(stream, &[("streamtype", kind)]).await;
        client.receive().await.unwrap();
    }
    drop(client);
    serving.await.unwrap();
}

fn pair<'a>(kind: &'a str, port: &'a str, request: &'a str) -> [(&'a str, &'a str); 3] {
    [("streamtype", kind), ("port", port), ("requestid", request)]
}

#[tokio::test]
async fn ports_are_forwarded_by_pairs_of_streams() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let unused = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut text = Vec::new();
        connection.read_to_end(&mut text).await.unwrap();
        text.reverse();
        connection.write_all(&text).await.unwrap();
    });
    let (mut client, server) = Client::new();
    let target = Target { pod: "p".to_owned(), uid: "u".to_owned() };
    let serving = tokio::spawn(async move {
        serve(server, |events, actions| port_forward::run(target, events, actions)).await;
    });
    client.open(1, &pair("error", &port, "0")).await;
    client.open(3, &pair("data", &port, "0")).await;
    client.send(3, b"abc", true).await;
    let mut sent = Vec::new();
    while sent.len() < 5 {
        sent.push(client.receive().await.unwrap());
    }
    let data: Vec<_> = sent.into_iter().filter(|sent| matches!(sent, Sent::Data(..))).collect();
    let ended = |stream| Sent::Data(stream, Vec::new(), true);
    assert_eq!(data, [Sent::Data(3, b"cba".to_vec(), false), ended(3), ended(1)]);

    client.open(5, &pair("error", &unused, "1")).await;
    client.open(7, &pair("data", &unused, "1")).await;
    let error = loop {
        match client.receive().await.unwrap() {
            Sent::Data(5, data, false) => break String::from_utf8(data).unwrap(),
            Sent::Control(2, _) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(error.starts_with(&format!("error forwarding port {unused} to pod p, uid u: ")), "{error}");
    drop(client);
    serving.await.unwrap();
}
