//! SPDY/3.1, the server's side, as far as clients of Kubernetes use it: streams that the client opens, without flow
//! control. Upstream: `moby/spdystream`, `streaming/pkg/httpstream/spdy`.

mod frames;
mod headers;
#[cfg(test)]
mod tests;

use std::{io, pin::pin};

use hyper::body::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::mpsc,
    time::timeout,
};

use self::frames::{Frame, Head};
pub use self::headers::Headers;
use super::{Channel, PATIENCE, Part, QUEUE, Streams};

/// What the client does.
#[derive(Debug)]
pub enum Event {
    /// It has opened a stream.
    Opened {
        /// Its number.
        stream: u32,
        /// Its headers, in lower case.
        headers: Headers,
    },
    /// It has sent data.
    Data(u32, Bytes),
    /// It sends no more on this stream.
    Ended(u32),
    /// It has discarded this stream.
    Reset(u32),
}

/// What is sent to the client.
#[derive(Debug)]
pub enum Action {
    /// Data.
    Data(u32, Bytes),
    /// Nothing more is sent on this stream.
    End(u32),
    /// The stream is discarded.
    Reset(u32),
}

/// Responses of the reader that the writer sends.
enum Response {
    Reply(u32),
    Pong(u32),
}

/// Serves the connection to `work`, and closes it when the work has ended.
pub async fn serve<I, F>(connection: I, work: impl FnOnce(mpsc::Receiver<Event>, mpsc::Sender<Action>) -> F)
where
    I: AsyncRead + AsyncWrite,
    F: Future<Output = ()>,
{
    let (reader, writer) = tokio::io::split(connection);
    let (sender, events) = mpsc::channel(QUEUE);
    let (actions, receiver) = mpsc::channel(QUEUE);
    let (responses, responding) = mpsc::unbounded_channel();
    // Writing ends when the work has dropped its sender, or with the connection.
    let served = async { tokio::join!(work(events, actions), write(writer, receiver, responding)) };
    let mut reading = pin!(read(reader, sender, responses));
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = &mut reading => {
            let _ = served.await;
            ended
        }
        ((), written) = &mut served => {
            if let Err(error) = written {
                tracing::debug!(%error, "client disconnected");
            }
            // Closing the connection with unread data would discard the last frames.
            timeout(PATIENCE, reading).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "SPDY connection ended");
    }
}

/// Reads until the connection ends. What nothing receives any more is discarded.
async fn read<I: AsyncRead>(
    mut connection: ReadHalf<I>,
    events: mpsc::Sender<Event>,
    responses: mpsc::UnboundedSender<Response>,
) -> io::Result<()> {
    let mut blocks = headers::Reader::new();
    loop {
        let mut head = [0; frames::HEAD];
        match connection.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let head = Head::parse(head);
        let mut payload = vec![0; head.length];
        connection.read_exact(&mut payload).await?;
        match head.frame(payload.into()).map_err(io::Error::other)? {
            Frame::Open { stream, ends, block } => {
                let headers = blocks.read(&block).map_err(io::Error::other)?;
                let _ = responses.send(Response::Reply(stream));
                let _ = events.send(Event::Opened { stream, headers }).await;
                if ends {
                    let _ = events.send(Event::Ended(stream)).await;
                }
            }
            Frame::Data { stream, ends, data } => {
                if !data.is_empty() {
                    let _ = events.send(Event::Data(stream, data)).await;
                }
                if ends {
                    let _ = events.send(Event::Ended(stream)).await;
                }
            }
            Frame::Reset { stream } => {
                let _ = events.send(Event::Reset(stream)).await;
            }
            Frame::Ping { id } => {
                let _ = responses.send(Response::Pong(id));
            }
            Frame::GoAway => return Ok(()),
            Frame::Other => {}
        }
    }
}

async fn write<I: AsyncWrite>(
    mut connection: WriteHalf<I>,
    mut actions: mpsc::Receiver<Action>,
    mut responses: mpsc::UnboundedReceiver<Response>,
) -> io::Result<()> {
    let mut blocks = headers::Writer::new();
    let mut last = 0;
    loop {
        let frame = tokio::select! {
            biased;
            Some(response) = responses.recv() => match response {
                Response::Reply(stream) => {
                    last = stream;
                    frames::reply(stream, &blocks.write(&[]))
                }
                Response::Pong(id) => frames::pong(id),
            },
            action = actions.recv() => match action {
                Some(Action::Data(stream, data)) => frames::data(stream, &data, false),
                Some(Action::End(stream)) => frames::data(stream, &[], true),
                Some(Action::Reset(stream)) => frames::reset(stream),
                None => break,
            },
        };
        connection.write_all(&frame).await?;
        connection.flush().await?;
    }
    connection.write_all(&frames::go_away(last)).await?;
    connection.shutdown().await
}

/// The streams of `exec` and `attach`, once the client has opened all `expected` ones.
/// Upstream: `v4ProtocolHandler` in `cri-streaming/pkg/streaming/remotecommand/httpstream.go`.
pub async fn remote_command<F: Future<Output = ()>>(
    mut events: mpsc::Receiver<Event>,
    actions: mpsc::Sender<Action>,
    expected: Vec<Channel>,
    work: impl FnOnce(Streams) -> F,
) {
    let mut opened: Vec<(Channel, u32)> = Vec::new();
    let (sender, input) = mpsc::channel::<Part>(QUEUE);
    let (output, mut parts) = mpsc::channel::<Part>(QUEUE);
    let opening = async {
        while !expected.iter().all(|channel| opened.iter().any(|(open, _)| open == channel)) {
            match events.recv().await? {
                Event::Opened { stream, headers } => {
                    opened.extend(channel(&headers).map(|channel| (channel, stream)));
                }
                // No client sends data before its streams are accepted.
                Event::Data(..) | Event::Ended(_) | Event::Reset(_) => {}
            }
        }
        Some(())
    };
    if !matches!(timeout(PATIENCE, opening).await, Ok(Some(()))) {
        return tracing::debug!("timed out waiting for client to create streams");
    }
    let channel_of =
        |stream: u32| opened.iter().find(|(_, open)| *open == stream).map(|(channel, _)| *channel);
    let stream_of =
        |channel: Channel| opened.iter().find(|(open, _)| *open == channel).map(|(_, stream)| *stream);
    let receiving = async {
        while let Some(event) = events.recv().await {
            let part = match event {
                Event::Data(stream, data) => (channel_of(stream), Some(data)),
                Event::Ended(stream) | Event::Reset(stream) => (channel_of(stream), None),
                Event::Opened { .. } => continue,
            };
            if let (Some(channel), data) = part {
                let _ = sender.send((channel, data)).await;
            }
        }
        drop(sender);
        std::future::pending::<()>().await;
    };
    let sending = async {
        while let Some((channel, data)) = parts.recv().await {
            let Some(stream) = stream_of(channel) else { continue };
            let action = data.map_or(Action::End(stream), |data| Action::Data(stream, data));
            if actions.send(action).await.is_err() {
                return parts.close();
            }
        }
        for channel in [Channel::Stdout, Channel::Stderr, Channel::Error] {
            if let Some(stream) = stream_of(channel) {
                let _ = actions.send(Action::End(stream)).await;
            }
        }
    };
    let served = async { tokio::join!(work(Streams { input, output }), sending) };
    tokio::select! {
        ((), ()) = served => {}
        () = receiving => {}
    }
}

/// The value of a header.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn channel(headers: &Headers) -> Option<Channel> {
    header(headers, "streamtype").and_then(Channel::by_type)
}
