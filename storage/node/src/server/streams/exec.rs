//! `exec` and `attach`: between the client's streams and a program, or the log of a container.

use std::{fs::File, io, os::fd::OwnedFd};

use claimcheck_runtime::{Execution, Exit, Runtime, Terminal};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::mpsc,
};

use super::{Channel, PIECE, Part, StreamOptions, Streams, status};
use crate::{logs::LogReader, pods::ContainerId};

/// The terminal of the client, in characters. Upstream: `TerminalSize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSize {
    width: u16,
    height: u16,
}

/// The agent's sides of the pipes of a program.
struct Pipes {
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

/// Runs a program in a container, and reports its exit code. A program continues when its client disconnects, but finds
/// its input and output closed, and its terminal hung up.
pub async fn exec<R: Runtime>(runtime: &R, id: &ContainerId, options: StreamOptions, streams: Streams) {
    let Streams { input, output } = streams;
    let ended = match options.tty {
        true => in_terminal(runtime, id, &options, input, &output).await,
        false => in_pipes(runtime, id, &options, input, &output).await,
    };
    let status = match ended {
        Ok(Some(exit)) => status::exited(&options.command, exit),
        // Its client has disconnected.
        Ok(None) => return,
        Err(error) => status::failed("executing command in", &error),
    };
    let _ = output.send((Channel::Error, Some(status))).await;
}

async fn in_pipes<R: Runtime>(
    runtime: &R,
    id: &ContainerId,
    options: &StreamOptions,
    input: mpsc::Receiver<Part>,
    output: &mpsc::Sender<Part>,
) -> Result<Option<Exit>, String> {
    let (Pipes { stdin, stdout, stderr }, stdio) =
        open(options).map_err(|error| format!("cannot open pipes: {error}"))?;
    let execution = Execution { argv: options.command.clone(), stdio, terminal: false };
    let exit = runtime.exec(&id.to_string(), execution).await.map_err(|error| error.to_string())?;
    let ended = async {
        let stdout = drain(stdout, Channel::Stdout, output);
        let stderr = drain(stderr, Channel::Stderr, output);
        let ((), (), exit) = tokio::join!(stdout, stderr, exit);
        exit.map(Some).map_err(|_| "the container runtime exited".to_owned())
    };
    tokio::select! {
        ended = ended => ended,
        () = feed(input, stdin) => Ok(None),
    }
}

async fn in_terminal<R: Runtime>(
    runtime: &R,
    id: &ContainerId,
    options: &StreamOptions,
    mut input: mpsc::Receiver<Part>,
    output: &mpsc::Sender<Part>,
) -> Result<Option<Exit>, String> {
    let failed = |error: io::Error| format!("cannot open a terminal: {error}");
    let (terminal, program) = Terminal::open().map_err(failed)?;
    let stdio = [program.try_clone().map_err(failed)?, program.try_clone().map_err(failed)?, program];
    let execution = Execution { argv: options.command.clone(), stdio, terminal: true };
    let exit = runtime.exec(&id.to_string(), execution).await.map_err(|error| error.to_string())?;
    let ended = async {
        let mut buffer = vec![0; PIECE];
        while let Ok(length @ 1..) = terminal.read(&mut buffer).await {
            let data = Bytes::copy_from_slice(&buffer[..length]);
            let _ = output.send((Channel::Stdout, Some(data))).await;
        }
        exit.await.map(Some).map_err(|_| "the container runtime exited".to_owned())
    };
    let fed = async {
        while let Some((channel, data)) = input.recv().await {
            let Some(data) = data else { continue };
            match channel {
                Channel::Stdin => drop(terminal.write_all(&data).await),
                Channel::Resize => resize(&terminal, &data),
                Channel::Stdout | Channel::Stderr | Channel::Error => {}
            }
        }
    };
    tokio::select! {
        ended = ended => ended,
        () = fed => Ok(None),
    }
}

/// Sizes follow each other without separator in a SPDY stream; only the last counts.
fn resize(terminal: &Terminal, sizes: &[u8]) {
    let sizes = serde_json::Deserializer::from_slice(sizes).into_iter::<TerminalSize>();
    if let Some(TerminalSize { width, height }) = sizes.map_while(Result::ok).last()
        && let Err(error) = terminal.resize(width, height)
    {
        tracing::debug!(%error, "a terminal cannot be resized");
    }
}

/// Shows what a container writes from now on, until it ends. Its standard input is /dev/null, so that input is
/// discarded.
pub async fn attach(log: io::Result<LogReader>, streams: Streams) {
    let Streams { mut input, output } = streams;
    let shown = show(log, &output);
    let disconnected = async { while input.recv().await.is_some() {} };
    let status = tokio::select! {
        shown = shown => match shown {
            Ok(()) => status::success(),
            Err(error) => status::failed("attaching to", &error.to_string()),
        },
        () = disconnected => return,
    };
    let _ = output.send((Channel::Error, Some(status))).await;
}

async fn show(log: io::Result<LogReader>, output: &mpsc::Sender<Part>) -> io::Result<()> {
    let mut log = log?;
    while let Some(data) = log.next().await? {
        if output.send((Channel::Stdout, Some(data.into()))).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Pipes for the requested streams; the program's others are /dev/null.
fn open(options: &StreamOptions) -> io::Result<(Pipes, [OwnedFd; 3])> {
    let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    let output = |requested: bool| {
        if !requested {
            return Ok((None, null()?));
        }
        let (reader, writer) = io::pipe()?;
        io::Result::Ok((Some(pipe::Receiver::from_owned_fd(reader.into())?), writer.into()))
    };
    let (stdin, program_stdin) = match options.stdin {
        true => {
            let (reader, writer) = io::pipe()?;
            (Some(pipe::Sender::from_owned_fd(writer.into())?), reader.into())
        }
        false => (None, null()?),
    };
    let (stdout, program_stdout) = output(options.stdout)?;
    let (stderr, program_stderr) = output(options.stderr)?;
    Ok((Pipes { stdin, stdout, stderr }, [program_stdin, program_stdout, program_stderr]))
}

/// Writes the client's input until it disconnects. A program that reads no more does not end that.
async fn feed(mut input: mpsc::Receiver<Part>, mut stdin: Option<pipe::Sender>) {
    while let Some((channel, data)) = input.recv().await {
        if channel != Channel::Stdin {
            continue;
        }
        let is_open = match (&data, &mut stdin) {
            (Some(data), Some(pipe)) => pipe.write_all(data).await.is_ok(),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if !is_open {
            stdin = None;
        }
    }
}

/// Sends output to its end.
async fn drain(pipe: Option<pipe::Receiver>, channel: Channel, output: &mpsc::Sender<Part>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; PIECE];
    while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
        let data = Bytes::copy_from_slice(&buffer[..length]);
        if output.send((channel, Some(data))).await.is_err() {
            return;
        }
    }
    let _ = output.send((channel, None)).await;
}
