//! `claimcheck load --against SIDE`: two loads in turn, and their comparison.
//!
//! Each side is a separate process (`claimcheck load --in-blocks`) with a separate cluster and run folder, so it may be
//! another program. It reads the number of volumes of its next block from standard input, and prints a line whenever it
//! is ready for the next one. Both clusters run all the time, but only one side creates volumes.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus, Stdio},
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use claimcheck_model::ClusterKind;
use claimcheck_report::{
    RunFolder, Style,
    compare::{Options, Side, compare},
    report_failed_start,
};
use claimcheck_run::{interrupt, with_sources};
use claimcheck_suites::load::Blocks;
use claimcheck_vendor::split_words;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

/// The line by which a side reports that it is ready for its next block.
const READY: &str = "ready";
/// The exit code if a side was killed.
const KILLED: u8 = 3;

/// What differs on the second side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondSide {
    /// Another claimcheck program, if it differs.
    program: Option<PathBuf>,
    /// Arguments in addition to those of the first side; they replace those that can be given only once.
    arguments: Vec<String>,
}

impl FromStr for SecondSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = split_words(text).map_err(|quote| format!("unterminated {quote}"))?;
        let mut words = words.into_iter().peekable();
        let program = words.next_if(|word| !word.starts_with('-')).map(PathBuf::from);
        let arguments: Vec<String> = words.collect();
        match (&program, arguments.as_slice()) {
            (None, []) => Err("write arguments of `load`, a claimcheck program, or both".to_owned()),
            (Some(_), _) | (None, [_, ..]) => Ok(Self { program, arguments }),
        }
    }
}

/// The blocks of one side, as its standard input requests them.
pub fn blocks_of_stdin() -> Blocks {
    let (sender, requests) = mpsc::channel::<usize>(1);
    // A thread instead of a task: reading cannot be cancelled, so the runtime would wait for it at the end.
    std::thread::spawn(move || {
        for volumes in io::stdin().lines().map_while(|line| line.ok()?.parse().ok()) {
            if sender.blocking_send(volumes).is_err() {
                break;
            }
        }
    });
    // If standard output is closed, so is standard input, which ends the load.
    Blocks { requests, ready: || drop(writeln!(io::stdout(), "{READY}")) }
}

/// Runs both sides in these blocks, and prints the comparison of the second side with the first.
pub async fn run(
    second: &SecondSide,
    blocks: &[usize],
    out: Option<&Path>,
    cluster: ClusterKind,
) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    let folder = RunFolder::choose(out, Path::new("runs"), cluster)
        .inspect_err(|error| report_failed_start(&with_sources(error)))?;
    let folders = ["a", "b"].map(|name| folder.path().join(name));
    let program = env::current_exe().context("cannot determine the path of the running binary")?;
    let of_a: Vec<OsString> = env::args_os().skip(1).collect();
    let of_b: Vec<OsString> = of_a.iter().cloned().chain(second.arguments.iter().map(Into::into)).collect();
    let a = SideProcess::start(&program, &of_a, &folders[0])?;
    let b = SideProcess::start(second.program.as_deref().unwrap_or(&program), &of_b, &folders[1])?;
    let mut sides = [a, b];
    eprintln!("claimcheck: both sides run {} blocks of {} volumes in turn", blocks.len(), blocks[0]);
    let completed = interrupted.run_until_cancelled(in_turn(&mut sides, blocks)).await;
    // Both sides clean up, also if one has failed or the run is interrupted.
    let [a, b] = sides;
    let statuses = tokio::try_join!(a.finish(), b.finish())?;
    let codes = [statuses.0, statuses.1].map(exit_code);
    // A side that tested nothing because the other one could not start exits with 1, a lower code.
    let code = codes.into_iter().max().unwrap_or(0);
    match completed.transpose()? {
        None => return Ok(ExitCode::from(interrupt::INTERRUPTED)),
        Some(false) if code == 0 => bail!("a side exited before its last block: see its messages above"),
        Some(false) => return Ok(ExitCode::from(code)),
        Some(true) => {}
    }
    let [a, b] = [Side::read(&folders[0])?, Side::read(&folders[1])?];
    print!("{}", compare(&a, &b, Options::default()).to_text(Style::detect()));
    let [a, b] = folders.each_ref().map(|folder| folder.display());
    eprintln!("claimcheck: for other formats: claimcheck compare {a} {b}");
    Ok(ExitCode::from(code))
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(KILLED)
}

/// Runs all blocks of both sides; false if a side has exited before.
async fn in_turn(sides: &mut [SideProcess; 2], blocks: &[usize]) -> Result<bool> {
    let [a, b] = &mut *sides;
    let (a_is_ready, b_is_ready) = tokio::try_join!(a.is_ready(), b.is_ready())?;
    if !a_is_ready || !b_is_ready {
        return Ok(false);
    }
    for (nth, volumes) in blocks.iter().enumerate() {
        for side in order(nth) {
            if !sides[side].run_block(*volumes).await? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The order of the sides in their `nth` block: A, B, B, A and so on, so that steady drift cancels within two blocks.
fn order(nth: usize) -> [usize; 2] {
    if nth.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

/// The process of one side.
struct SideProcess {
    process: Child,
    /// Closed after the last block.
    requests: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl SideProcess {
    fn start(program: &Path, arguments: &[OsString], folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).arg("--in-blocks").arg("--out").arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let requests = process.stdin.take();
        let stdout = process.stdout.take().expect("it is piped");
        Ok(Self { process, requests, lines: BufReader::new(stdout).lines() })
    }

    /// Waits until the side is ready for its next block; false if it exits.
    async fn is_ready(&mut self) -> Result<bool> {
        while let Some(line) = self.lines.next_line().await? {
            if line == READY {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs a block; false if the side exits.
    async fn run_block(&mut self, volumes: usize) -> Result<bool> {
        let Some(requests) = &mut self.requests else { return Ok(false) };
        // Writing fails if the side has exited; its exit code is the reason.
        match requests.write_all(format!("{volumes}\n").as_bytes()).await {
            Ok(()) => self.is_ready().await,
            Err(_) => Ok(false),
        }
    }

    /// Ends the side after its current block, and waits until it has cleaned up.
    async fn finish(mut self) -> Result<ExitStatus> {
        drop(self.requests.take());
        // A side that still prints must not block.
        while self.lines.next_line().await?.is_some() {}
        Ok(self.process.wait().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_program_arguments_or_both() {
        let side = |program: Option<&str>, arguments: &[&str]| {
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            Ok(SecondSide { program: program.map(PathBuf::from), arguments })
        };
        let table = [
            ("--nodes 3", side(None, &["--nodes", "3"])),
            ("./old", side(Some("./old"), &[])),
            ("./old --hold", side(Some("./old"), &["--hold"])),
            ("--driver 'exec:./d \"{endpoint}\"'", side(None, &["--driver", "exec:./d \"{endpoint}\""])),
            ("", Err("write arguments of `load`, a claimcheck program, or both".to_owned())),
            ("--class 'a", Err("unterminated '".to_owned())),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<SecondSide>(), expected, "{text}");
        }
    }

    #[test]
    fn each_side_is_first_in_every_second_block() {
        assert_eq!((0..4).flat_map(order).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1, 1, 0]);
    }
}
