//! `portforward`: each connection of the client is a pair of SPDY streams, for data and errors.
//! Upstream: `cri-streaming/pkg/streaming/portforward/httpstream.go`.

use std::{collections::HashMap, io};

use hyper::body::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
};

use super::{
    PIECE, QUEUE,
    spdy::{Action, Event, Headers, header},
};

/// The pod, for messages.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
}

/// A pair of streams that is not complete yet.
#[derive(Default)]
struct Pair {
    port: u16,
    data: Option<u32>,
    error: Option<u32>,
    /// Data that arrived before the second stream.
    received: Option<mpsc::Receiver<Bytes>>,
}

/// The type of a stream of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// A stream's place among the pairs.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    request: String,
    kind: Kind,
    port: u16,
}

/// Forwards until the client disconnects. Pods have the node's network.
pub async fn run(target: Target, mut events: mpsc::Receiver<Event>, actions: mpsc::Sender<Action>) {
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    // Data of the client, by the number of its stream.
    let mut inputs: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    let mut connections = JoinSet::new();
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            Some(_) = connections.join_next() => continue,
        };
        match event {
            None => return,
            Some(Event::Opened { stream, headers }) => match place(stream, &headers) {
                Err(reason) => {
                    tracing::debug!(stream, reason, "stream rejected");
                    let _ = actions.send(Action::Reset(stream)).await;
                }
                Ok(Place { request, kind, port }) => {
                    let pair = pairs.entry(request.clone()).or_default();
                    match kind {
                        Kind::Error => pair.error = Some(stream),
                        Kind::Data => {
                            let (input, received) = mpsc::channel(QUEUE);
                            inputs.insert(stream, input);
                            (pair.data, pair.port, pair.received) = (Some(stream), port, Some(received));
                        }
                    }
                    if pair.data.is_some() && pair.error.is_some() {
                        let pair = pairs.remove(&request).unwrap_or_default();
                        connections.spawn(forward(target.clone(), pair, actions.clone()));
                    }
                }
            },
            Some(Event::Data(stream, data)) => {
                if let Some(input) = inputs.get(&stream) {
                    let _ = input.send(data).await;
                }
            }
            Some(Event::Ended(stream) | Event::Reset(stream)) => drop(inputs.remove(&stream)),
        }
    }
}

/// Upstream: `httpStreamReceived` and `requestID`: old clients number their pairs by streams.
fn place(stream: u32, headers: &Headers) -> Result<Place, String> {
    let port = header(headers, "port").ok_or("\"port\" header is required")?;
    let number: u16 = port.parse().map_err(|error| format!("unable to parse {port:?} as a port: {error}"))?;
    if number == 0 {
        return Err(format!("port {port:?} must be > 0"));
    }
    let kind = match header(headers, "streamtype").ok_or("\"streamType\" header is required")? {
        "data" => Kind::Data,
        "error" => Kind::Error,
        other => return Err(format!("invalid stream type {other:?}")),
    };
    let request = match (header(headers, "requestid"), kind) {
        (Some(request), _) => request.to_owned(),
        (None, Kind::Error) => stream.to_string(),
        (None, Kind::Data) => stream.saturating_sub(2).to_string(),
    };
    Ok(Place { request, kind, port: number })
}

async fn forward(target: Target, pair: Pair, actions: mpsc::Sender<Action>) {
    let Pair { port, data: Some(data), error: Some(error), received: Some(received) } = pair else { return };
    if let Err(reason) = connect(port, data, received, &actions).await {
        let Target { pod, uid } = target;
        let text = format!("error forwarding port {port} to pod {pod}, uid {uid}: {reason}");
        let _ = actions.send(Action::Data(error, text.into())).await;
        let _ = actions.send(Action::End(error)).await;
        let _ = actions.send(Action::Reset(data)).await;
        return;
    }
    let _ = actions.send(Action::End(data)).await;
    let _ = actions.send(Action::End(error)).await;
}

/// Copies until the port has sent all, or no longer accepts data.
async fn connect(
    port: u16,
    stream: u32,
    mut received: mpsc::Receiver<Bytes>,
    actions: &mpsc::Sender<Action>,
) -> io::Result<()> {
    let mut connection = TcpStream::connect(("localhost", port)).await?;
    let (mut reader, mut writer) = connection.split();
    let incoming = async {
        while let Some(data) = received.recv().await {
            writer.write_all(&data).await?;
        }
        writer.shutdown().await?;
        // The port may still respond.
        std::future::pending::<io::Result<()>>().await
    };
    let outgoing = async {
        let mut buffer = vec![0; PIECE];
        loop {
            match reader.read(&mut buffer).await? {
                0 => return io::Result::Ok(()),
                length => {
                    let data = Bytes::copy_from_slice(&buffer[..length]);
                    if actions.send(Action::Data(stream, data)).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    };
    tokio::select! {
        result = incoming => result,
        result = outgoing => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_paired_as_upstream() {
        let owned = |headers: &[(&str, &str)]| -> Headers {
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let found = |request: &str, kind| Ok(Place { request: request.to_owned(), kind, port: 80 });
        let port = ("port", "80");
        let rows = [
            (vec![port, ("streamtype", "data"), ("requestid", "4")], found("4", Kind::Data)),
            (vec![port, ("streamtype", "error"), ("requestid", "4")], found("4", Kind::Error)),
            (vec![port, ("streamtype", "error")], found("7", Kind::Error)),
            (vec![port, ("streamtype", "data")], found("5", Kind::Data)),
            (vec![("streamtype", "data")], Err("\"port\" header is required".to_owned())),
            (vec![("port", "0")], Err("port \"0\" must be > 0".to_owned())),
            (vec![port], Err("\"streamType\" header is required".to_owned())),
            (vec![port, ("streamtype", "stdin")], Err("invalid stream type \"stdin\"".to_owned())),
        ];
        for (headers, expected) in rows {
            assert_eq!(place(7, &owned(&headers)), expected, "{headers:?}");
        }
        assert!(place(7, &owned(&[("port", "x")])).is_err());
    }
}
