//! Timestamps of a log's lines: a file next to the log, with a mark for each observed growth.
//!
//! A mark is the log's size and its time of modification, `<bytes> <RFC 3339>`, so it is correct however late
//! it is made: a byte is dated by the first mark behind it. A line is dated by its end.

use std::{
    collections::VecDeque,
    fs::{Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use jiff::Timestamp;

/// The size of a log at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last write.
    pub at: Timestamp,
}

/// The marks' file of a log.
pub fn times_path(log: &Path) -> PathBuf {
    log.with_extension("times")
}

impl Mark {
    /// The mark for a log's current state.
    pub fn of(log: &Metadata) -> Self {
        let nanoseconds = i32::try_from(log.mtime_nsec()).unwrap_or_default();
        let at = Timestamp::new(log.mtime(), nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { size: log.len(), at }
    }

    /// Appends the mark to those of a log.
    ///
    /// # Errors
    /// As the file system says.
    pub fn append(self, log: &Path) -> io::Result<()> {
        let line = format!("{} {:.9}\n", self.size, self.at);
        OpenOptions::new().create(true).append(true).open(times_path(log))?.write_all(line.as_bytes())
    }
}

/// A line that is not a mark.
#[derive(Debug)]
pub struct InvalidMark;

impl FromStr for Mark {
    type Err = InvalidMark;

    fn from_str(line: &str) -> Result<Self, InvalidMark> {
        let (size, at) = line.split_once(' ').ok_or(InvalidMark)?;
        Ok(Self { size: size.parse().map_err(|_| InvalidMark)?, at: at.parse().map_err(|_| InvalidMark)? })
    }
}

/// The marks of a log, for a reader that goes forward.
#[derive(Clone, Debug, Default)]
pub struct Times {
    marks: VecDeque<Mark>,
    passed: Timestamp,
}

impl Times {
    /// The marks of a marks' file. An invalid mark was truncated by a crash, and the next mark replaces it.
    pub fn parse(text: &str) -> Self {
        let mut times = Self::default();
        text.lines().filter_map(|line| line.parse().ok()).for_each(|mark| times.push(mark));
        times
    }

    /// Adds a newer mark. A log that has become smaller was truncated by its container, and restarts.
    pub fn push(&mut self, mark: Mark) {
        match self.marks.back() {
            Some(last) if last.size == mark.size => return,
            Some(last) if last.size > mark.size => self.marks.clear(),
            _ => {}
        }
        self.marks.push_back(mark);
    }

    /// The time of the byte before this offset. Offsets only grow.
    pub fn of(&mut self, end: u64) -> Timestamp {
        while let Some(mark) = self.marks.front() {
            self.passed = mark.at;
            if mark.size >= end {
                break;
            }
            self.marks.pop_front();
        }
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_byte_is_as_old_as_the_first_mark_behind_it() {
        let text = "3 1970-01-01T00:00:01.000000000Z\n\
                    9 1970-01-01T00:00:02.000000000Z\n\
                    9 1970-01-01T00:00:03.000000000Z\n\
                    cut o";
        let mut times = Times::parse(text);
        times.push(Mark { size: 12, at: second(4) });
        for (end, expected) in [(1, 1), (3, 1), (4, 2), (9, 2), (10, 4), (12, 4), (13, 4)] {
            assert_eq!(times.of(end), second(expected), "{end}");
        }
    }

    #[test]
    fn the_marks_of_a_truncated_log_start_again() {
        let mut times = Times::parse("9 1970-01-01T00:00:01Z\n4 1970-01-01T00:00:02Z\n");
        assert_eq!(times.of(2), second(2));
    }

    #[test]
    fn marks_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(&log, "four").unwrap();
        let mark = Mark::of(&std::fs::metadata(&log).unwrap());
        mark.append(&log).unwrap();
        let text = std::fs::read_to_string(dir.path().join("0.times")).unwrap();
        assert_eq!(text.trim_end().parse::<Mark>().unwrap(), mark);
    }
}
