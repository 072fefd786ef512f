//! Reads one log, to its end or until its container ends.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    time::SystemTime,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use rustix::fs::inotify::WatchFlags;

use super::{
    lines::{Lines, Shown},
    options::LogOptions,
    times::{Mark, Times, times_path},
};
use crate::inotify::Inotify;

/// Bytes per read.
const PIECE: usize = 64 * 1024;

/// A log that is being read.
pub struct LogReader {
    file: File,
    at: u64,
    lines: Lines,
    follow: Option<Follow>,
}

/// Wakes a reader at the end of a log.
struct Follow {
    growth: Inotify,
    ended: BoxFuture<'static, ()>,
}

impl LogReader {
    /// Opens a log, and finds the start offset: reads much of the file, so it must run on a blocking thread.
    /// With `ended`, which resolves when the container has ended, the log is followed until then.
    ///
    /// # Errors
    /// As the file system says.
    pub fn open(
        path: &Path,
        options: &LogOptions,
        ended: Option<BoxFuture<'static, ()>>,
    ) -> io::Result<Self> {
        let file = File::open(path)?;
        let follow = ended.map(|ended| {
            let growth = Inotify::new()?;
            growth.add(path, WatchFlags::MODIFY)?;
            io::Result::Ok(Follow { growth, ended })
        });
        let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX);
        let shown = Shown {
            timestamps: options.timestamps,
            since: options.since.map(|since| since.time(now)),
            limit: options.limit_bytes,
        };
        let times = match shown.timestamps || shown.since.is_some() {
            // It is made when something is written first.
            true => Times::parse(&fs::read_to_string(times_path(path)).unwrap_or_default()),
            false => Times::default(),
        };
        let at = match options.tail_lines {
            Some(lines) => tail(&file, lines)?,
            None => 0,
        };
        Ok(Self { file, at, lines: Lines::new(shown, times, at), follow: follow.transpose()? })
    }

    /// The next part of the output; `None` at the end.
    ///
    /// # Errors
    /// As the file system says.
    pub async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while !self.lines.is_full() {
            if let Some(bytes) = self.read()? {
                let out = self.lines.take(&bytes);
                if !out.is_empty() {
                    return Ok(Some(out));
                }
            } else if let Some(Follow { growth, ended }) = &mut self.follow {
                tokio::select! {
                    grown = growth.next() => drop(grown?),
                    // What it wrote last is read as that of any container that has ended.
                    () = ended => self.follow = None,
                }
            } else {
                let rest = self.lines.finish();
                return Ok((!rest.is_empty()).then_some(rest));
            }
        }
        Ok(None)
    }

    /// The next bytes of the file; none at its current end.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mark = Mark::of(&self.file.metadata()?);
        if mark.size < self.at {
            self.at = 0;
            self.lines.restart();
        }
        self.lines.times().push(mark);
        let left = usize::try_from(mark.size - self.at).unwrap_or(PIECE);
        let mut bytes = vec![0; left.min(PIECE)];
        let length = self.file.read_at(&mut bytes, self.at)?;
        bytes.truncate(length);
        self.at += length as u64;
        Ok((length > 0).then_some(bytes))
    }
}

/// The offset of the last `n` lines of a file. An incomplete one counts as a line.
fn tail(file: &File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut bytes = vec![0; PIECE];
    let (mut left, mut begin) = (lines, size);
    while lines > 0 && begin > 0 {
        let length = usize::try_from(begin).unwrap_or(PIECE).min(PIECE);
        let start = begin - length as u64;
        file.read_exact_at(&mut bytes[..length], start)?;
        for index in (0..length).rev() {
            let end = start + index as u64 + 1;
            // What ends the last line does not begin another.
            if bytes[index] == b'\n' && end < size {
                if left <= 1 {
                    return Ok(end);
                }
                left -= 1;
            }
        }
        begin = start;
    }
    Ok(begin)
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write};

    use tokio::sync::oneshot;

    use super::*;

    async fn all(mut reader: LogReader) -> String {
        let mut text = Vec::new();
        while let Some(bytes) = reader.next().await.unwrap() {
            text.extend(bytes);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn the_tail_is_counted_in_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let long = "x".repeat(PIECE);
        let rows = [
            ("", 3, ""),
            ("a\nb\nc\n", 0, ""),
            ("a\nb\nc", 0, ""),
            ("a\nb\nc\n", 1, "c\n"),
            ("a\nb\nc", 1, "c"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("\n\n\n", 2, "\n\n"),
            (&format!("a\n{long}\n{long}\n"), 2, &format!("{long}\n{long}\n")),
            (&format!("a\n{long}\n{long}\n"), 1, &format!("{long}\n")),
        ];
        for (content, lines, expected) in rows {
            fs::write(&log, content).unwrap();
            let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
            let shown = all(LogReader::open(&log, &options, None).unwrap()).await;
            assert!(shown == expected, "{lines} of {} bytes: {} bytes", content.len(), shown.len());
        }
    }

    #[tokio::test]
    async fn a_followed_log_is_read_until_its_container_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "before\n").unwrap();
        let mut writer = OpenOptions::new().append(true).open(&log).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let ended: BoxFuture<'static, ()> = Box::pin(async move { drop(ended.await) });
        let options = LogOptions { tail_lines: Some(1), ..LogOptions::default() };
        let mut reader = LogReader::open(&log, &options, Some(ended)).unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap(), b"before\n");
        let (next, ()) = tokio::join!(reader.next(), async { writer.write_all(b"then\nand").unwrap() });
        assert_eq!(next.unwrap().unwrap(), b"then\n");
        writer.write_all(b" last").unwrap();
        drop(end);
        assert_eq!(all(reader).await, "and last");
    }

    #[tokio::test]
    async fn a_truncated_log_is_read_from_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "a long first line\n").unwrap();
        let mut reader = LogReader::open(&log, &LogOptions::default(), None).unwrap();
        reader.next().await.unwrap().unwrap();
        fs::write(&log, "new\n").unwrap();
        assert_eq!(all(reader).await, "new\n");
    }

    #[tokio::test]
    async fn a_line_without_a_mark_is_as_old_as_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "line\n").unwrap();
        let mark = Mark::of(&fs::metadata(&log).unwrap());
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        let shown = all(LogReader::open(&log, &options, None).unwrap()).await;
        assert_eq!(shown, format!("{:.9} line\n", mark.at));
    }
}
