//! Output that passes through this process on its way into a log, so that no secret in it reaches the disk, even if the
//! run is killed.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    sync::Arc,
};

use nix::fcntl::{FcntlArg, fcntl};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe::Receiver,
    task::JoinHandle,
};

/// The size of the pipe, the largest without privileges: a program that logs much does not wait for this process.
const PIPE: i32 = 1 << 20;
/// A longer line is written in parts.
const LONGEST: u64 = 1 << 20;

/// What is logged in place of a line of output.
#[derive(Clone)]
pub struct LineFilter(Arc<dyn Fn(&str) -> String + Send + Sync>);

impl LineFilter {
    /// The result of this function.
    pub fn new(filter: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(filter))
    }

    /// What is logged in place of this line.
    pub fn apply(&self, line: &str) -> String {
        (self.0)(line)
    }
}

impl fmt::Debug for LineFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineFilter")
    }
}

/// The end of a pipe for a process, and the task that writes what comes from it into the log, until all processes have
/// closed their end.
pub(crate) fn filtered(log: File, filter: LineFilter) -> io::Result<(OwnedFd, JoinHandle<()>)> {
    let (reader, writer) = io::pipe()?;
    // A smaller one works, too.
    let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE));
    let reader = Receiver::from_owned_fd(reader.into())?;
    Ok((writer.into(), tokio::spawn(copy(reader, log, filter))))
}

async fn copy(reader: Receiver, mut log: File, filter: LineFilter) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A program that cannot write exits, so its output is read to the end whatever becomes of the log.
        match (&mut reader).take(LONGEST).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => drop(log.write_all(filter.apply(&String::from_utf8_lossy(&line)).as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;
    use crate::{Capabilities, ProcessSpec};

    #[tokio::test]
    async fn a_process_that_has_exited_has_logged_all_lines_filtered() {
        let log = env::temp_dir().join(format!("claimcheck-output-{}.log", process::id()));
        let script = "echo a secret; echo 'secrets' >&2; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; \
                      printf 'no end of secret'";
        let spec = ProcessSpec {
            name: "sh".to_owned(),
            program: "sh".into(),
            args: ["-c", script].map(Into::into).to_vec(),
            env: Vec::new(),
            log: log.clone(),
            filter: Some(LineFilter::new(|line| line.replace("secret", "***"))),
            namespace: None,
            run_directory: None,
            capabilities: Capabilities::All,
        };
        assert!(spec.spawn().unwrap().wait().await.unwrap().success());
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        assert!(text.starts_with("a ***\n***s\nline 0\n"), "{text}");
        assert!(text.ends_with("line 1999\nno end of ***"), "{text}");
        assert_eq!(text.lines().count(), 2003);
    }

    /// A program that outlives its parent holds the pipe open.
    #[tokio::test]
    async fn a_process_left_behind_delays_nothing_for_long() {
        let log = env::temp_dir().join(format!("claimcheck-left-{}.log", process::id()));
        let spec = ProcessSpec {
            name: "sh".to_owned(),
            program: "sh".into(),
            args: ["-c", "echo a; sleep 20 & exit 3"].map(Into::into).to_vec(),
            env: Vec::new(),
            log: log.clone(),
            filter: Some(LineFilter::new(str::to_owned)),
            namespace: None,
            run_directory: None,
            capabilities: Capabilities::All,
        };
        let began = std::time::Instant::now();
        assert_eq!(spec.spawn().unwrap().wait().await.unwrap().code(), Some(3));
        assert!(began.elapsed().as_secs() < 20);
        assert_eq!(fs::read_to_string(&log).unwrap(), "a\n");
        fs::remove_file(&log).unwrap();
    }
}
