//! Streams as WebSocket messages: the first byte is the number of the channel.
//! Upstream: `wsstream.Conn`, and `translator` in `streaming/pkg` for v5.

use std::pin::pin;

use futures::{SinkExt, Stream, StreamExt};
use hyper::{body::Bytes, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use super::{Channel, PATIENCE, PIECE, Part, QUEUE, Streams};

/// The channel of v5 that ends the stream of the channel in its second byte.
const CLOSE: u8 = 255;

type Socket = WebSocketStream<TokioIo<Upgraded>>;
type Sink = futures::stream::SplitSink<Socket, Message>;

async fn socket(connection: Upgraded) -> Socket {
    WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await
}

/// Serves the streams to `work`, and closes the connection when it has ended. `first`, if any, is the channel of
/// an empty message that informs the client of the connection, as in v4.
pub async fn serve<F: Future<Output = ()>>(
    connection: Upgraded,
    first: Option<Channel>,
    work: impl FnOnce(Streams) -> F,
) {
    let (sink, source) = socket(connection).await.split();
    let (sender, input) = mpsc::channel(QUEUE);
    let (output, parts) = mpsc::channel(QUEUE);
    // Sending ends when the work has dropped its sender, or with the connection.
    let served = async { tokio::join!(work(Streams { input, output }), send(sink, first, parts)) };
    with_client(receive(source, sender), served).await;
}

async fn send(mut sink: Sink, first: Option<Channel>, mut parts: mpsc::Receiver<Part>) {
    if let Some(channel) = first
        && sink.send(message(channel, &[])).await.is_err()
    {
        return;
    }
    while let Some((channel, data)) = parts.recv().await {
        // Only clients have a message for the end of a stream.
        let Some(data) = data else { continue };
        if let Err(error) = sink.send(message(channel, &data)).await {
            return tracing::debug!(%error, "client disconnected");
        }
    }
    let _ = sink.send(Message::Close(Some(normal()))).await;
}

/// Serves the bytes in messages to `work`, and closes the connection when it has ended.
pub async fn tunnel<F: Future<Output = ()>>(connection: Upgraded, work: impl FnOnce(DuplexStream) -> F) {
    let (mut sink, mut source) = socket(connection).await.split();
    let (near, far) = duplex(QUEUE * PIECE);
    let (mut outgoing, mut incoming) = tokio::io::split(near);
    let sending = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let length = outgoing.read(&mut buffer).await.unwrap_or_default();
            let closes = length == 0;
            let message = match closes {
                true => Message::Close(Some(normal())),
                false => Message::Binary(Bytes::copy_from_slice(&buffer[..length])),
            };
            if sink.send(message).await.is_err() || closes {
                return;
            }
        }
    };
    let receiving = async move {
        while let Some(Ok(message)) = source.next().await {
            if let Message::Binary(data) = message
                && incoming.write_all(&data).await.is_err()
            {
                break;
            }
        }
        let _ = incoming.shutdown().await;
        while let Some(Ok(_)) = source.next().await {}
    };
    with_client(receiving, async { tokio::join!(work(far), sending) }).await;
}

/// Waits for `served`, while the client's messages are received; then for the client to close the connection, since
/// closing it with unread data would discard the last messages.
async fn with_client<T>(receiving: impl Future<Output = ()>, served: impl Future<Output = T>) {
    let mut receiving = pin!(receiving);
    let mut served = pin!(served);
    tokio::select! {
        () = &mut receiving => {
            served.await;
        }
        _ = &mut served => {
            let _ = timeout(PATIENCE, receiving).await;
        }
    }
}

/// Passes on what the client sends until it disconnects. What nothing reads any more is discarded.
async fn receive(mut source: impl Stream<Item = Result<Message, Error>> + Unpin, parts: mpsc::Sender<Part>) {
    while let Some(Ok(message)) = source.next().await {
        if let Message::Binary(data) = message
            && let Some(part) = parse(data)
        {
            let _ = parts.send(part).await;
        }
    }
}

/// A message of the client; one of an unknown channel is ignored, as upstream.
fn parse(message: Bytes) -> Option<Part> {
    match *message.first()? {
        CLOSE => Some((Channel::by_number(*message.get(1)?)?, None)),
        number => Some((Channel::by_number(number)?, Some(message.slice(1..)))),
    }
}

fn message(channel: Channel, data: &[u8]) -> Message {
    let mut message = Vec::with_capacity(data.len() + 1);
    message.push(channel as u8);
    message.extend_from_slice(data);
    Message::Binary(message.into())
}

/// kubectl reports any other code as an error.
fn normal() -> CloseFrame {
    CloseFrame { code: CloseCode::Normal, reason: Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_begin_with_their_channel() {
        let rows: [(&[u8], Option<Part>); 6] = [
            (b"\0text", Some((Channel::Stdin, Some(Bytes::from_static(b"text"))))),
            (b"\x04{}", Some((Channel::Resize, Some(Bytes::from_static(b"{}"))))),
            (b"\xff\0", Some((Channel::Stdin, None))),
            (b"\xff", None),
            (b"\x09x", None),
            (b"", None),
        ];
        for (data, expected) in rows {
            assert_eq!(parse(Bytes::from_static(data)), expected, "{data:?}");
        }
        assert_eq!(message(Channel::Stderr, b"x"), Message::Binary(b"\x02x".to_vec().into()));
    }
}
