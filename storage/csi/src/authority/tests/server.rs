//! The project's server answers the calls of captures, and calls with any authority.

use std::{path::Path, time::Duration};

use loona_hpack::Decoder;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{
    CAPTURES, INVALID, PREFACE, SETTINGS, VALID, capture,
    client::{Client, Encoding, integer, request},
    events, whole, without_invalid,
};
use crate::{Endpoint, Server, Services};

/// The paths of the calls that the server answers.
async fn answered(server: Server, calls: usize, sent: &[u8]) -> Vec<String> {
    let endpoint = server.endpoint();
    tokio::spawn(server.serve(Services::default(), std::future::pending()));
    match endpoint {
        Endpoint::Unix(path) => answers(UnixStream::connect(path).await.unwrap(), calls, sent).await,
        Endpoint::Tcp(address) => answers(TcpStream::connect(address).await.unwrap(), calls, sent).await,
    }
}

async fn answers(mut io: impl AsyncRead + AsyncWrite + Unpin, calls: usize, sent: &[u8]) -> Vec<String> {
    io.write_all(sent).await.unwrap();
    let (mut decoder, mut paths) = (Decoder::new(), Vec::new());
    while paths.len() < calls {
        let mut head = [0; 9];
        timeout(Duration::from_secs(20), io.read_exact(&mut head)).await.unwrap().unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        io.read_exact(&mut payload).await.unwrap();
        assert!(!matches!(head[3], 3 | 7), "refused: {head:?} {}", payload.escape_ascii());
        if head[3] == 1 {
            let fields = decoder.decode(&payload).unwrap();
            let (_, message) = fields.into_iter().find(|(name, _)| name == b"grpc-message").unwrap();
            let message = String::from_utf8(message).unwrap();
            paths.push(message.strip_prefix("no%20service%20here%20has%20").unwrap().to_owned());
        }
    }
    // The order of the answers is not defined.
    paths.sort();
    paths
}

fn bind(folder: &Path) -> Server {
    Server::bind(&folder.join("s.sock")).unwrap()
}

#[tokio::test]
async fn server_answers_captures() {
    for (_, hex) in CAPTURES {
        let folder = tempfile::tempdir().unwrap();
        let sent = capture(hex);
        // Without the final GOAWAY of grpc-go.
        let sent = sent
            .strip_suffix(b"client transport shutdown")
            .map_or(&sent[..], |sent| &sent[..sent.len() - 17]);
        let paths = answered(bind(folder.path()), 3, sent).await;
        assert_eq!(paths, ["/pluginregistration.Registration/GetInfo"; 3]);
    }
}

/// Calls with each authority on one connection: literal with indexing, indexed, without indexing, never indexed.
fn calls() -> (Vec<String>, Vec<u8>) {
    let (mut client, mut paths) = (Client::new(), Vec::new());
    let mut sent = [PREFACE, SETTINGS].concat();
    let authorities = INVALID.iter().chain(&VALID).map(|authority| authority.as_bytes());
    for authority in authorities.chain([&b"\xff\xfe"[..]]) {
        for kind in [0, 0, 1, 2] {
            let stream = 2 * u32::try_from(paths.len()).unwrap() + 1;
            paths.push(format!("/{stream:03}"));
            let literal = |name: &str, value: &[u8], kind, reference| Encoding::Literal {
                name: name.into(),
                value: value.into(),
                kind,
                reference,
                huffman: [stream % 4 == 1; 2],
            };
            let path = paths[paths.len() - 1].as_bytes();
            let mut block = vec![0x83, 0x86];
            block.extend(client.encode(&literal(":path", path, 0, None)));
            let known =
                client.decoded.iter().position(|(name, value)| name == b":authority" && value == authority);
            match known.filter(|_| kind == 0) {
                Some(place) => block.extend(integer(0x80, 7, 62 + place)),
                None => block.extend(client.encode(&literal(":authority", authority, kind, None))),
            }
            block.extend(client.encode(&literal("grpc-timeout", path, 0, None)));
            sent.extend(request(&block, stream));
        }
    }
    (paths, sent)
}

#[tokio::test]
async fn server_answers_calls_with_any_authority_on_unix_and_tcp() {
    let (paths, sent) = calls();
    assert_eq!(events(&whole(&sent)), without_invalid(events(&sent)));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(answered(bind(folder.path()), paths.len(), &sent).await, paths);
    let server = Server::listen(&Endpoint::Tcp("127.0.0.1:0".into())).await.unwrap();
    assert_eq!(answered(server, paths.len(), &sent).await, paths);
}
