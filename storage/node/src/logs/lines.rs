//! Converts a log's bytes to a reader's output. Pure. Upstream: `logWriter` in
//! `staging/src/k8s.io/cri-client/pkg/logs/logs.go`.

use jiff::Timestamp;

use super::times::Times;

/// A longer line is output in parts, as container runtimes do, so that it need not be held in memory as a
/// whole.
const PART: usize = 16 * 1024;

/// Output options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Prefix each line with its time.
    pub timestamps: bool,
    /// Only lines that are not older.
    pub since: Option<Timestamp>,
    /// Maximum number of bytes in total.
    pub limit: Option<u64>,
}

/// Consumes a log in pieces of any size.
#[derive(Debug)]
pub struct Lines {
    shown: Shown,
    times: Times,
    /// The incomplete last line so far.
    line: Vec<u8>,
    /// The offset in the log at which that ends.
    end: u64,
    /// Parts of the line were consumed before; whether they were output.
    line_is_shown: Option<bool>,
}

impl Lines {
    /// Lines of a log from this offset on.
    pub fn new(shown: Shown, times: Times, start: u64) -> Self {
        Self { shown, times, line: Vec::new(), end: start, line_is_shown: None }
    }

    /// The marks that date the lines.
    pub fn times(&mut self) -> &mut Times {
        &mut self.times
    }

    /// Consumes the next bytes of the log; returns their output.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            self.end += part.len() as u64;
            if part.ends_with(b"\n") || self.line.len() >= PART {
                self.put(&mut out);
            }
        }
        self.limited(out)
    }

    /// The end of the log: returns its last line, if it is incomplete.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.line.is_empty() {
            self.put(&mut out);
        }
        self.limited(out)
    }

    /// The log was truncated, and is read from the start again.
    pub fn restart(&mut self) {
        self.line.clear();
        (self.end, self.line_is_shown) = (0, None);
    }

    /// There will be no further output.
    pub fn is_full(&self) -> bool {
        self.shown.limit == Some(0)
    }

    fn put(&mut self, out: &mut Vec<u8>) {
        let shows = self.line_is_shown.unwrap_or_else(|| {
            let time = self.times.of(self.end);
            let shows = self.shown.since.is_none_or(|since| time >= since);
            if shows && self.shown.timestamps {
                out.extend(format!("{time:.9} ").into_bytes());
            }
            shows
        });
        self.line_is_shown = (!self.line.ends_with(b"\n")).then_some(shows);
        if shows {
            out.append(&mut self.line);
        }
        self.line.clear();
    }

    fn limited(&mut self, mut out: Vec<u8>) -> Vec<u8> {
        if let Some(left) = &mut self.shown.limit {
            out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= out.len() as u64;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: &str = "4 1970-01-01T00:00:01Z\n8 1970-01-01T00:00:02.5Z\n14 1970-01-01T00:00:03Z\n";
    const LOG: &[u8] = b"one\ntwo\nthree\nfo";

    fn text(shown: Shown, piece: usize) -> String {
        let mut lines = Lines::new(shown, Times::parse(TIMES), 0);
        let mut out: Vec<u8> = LOG.chunks(piece).flat_map(|bytes| lines.take(bytes)).collect();
        out.extend(lines.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_shown_does_not_depend_on_the_pieces() {
        let since = |second| Timestamp::from_second(second).ok();
        let stamped = "1970-01-01T00:00:02.500000000Z two\n\
                       1970-01-01T00:00:03.000000000Z three\n\
                       1970-01-01T00:00:03.000000000Z fo";
        let rows = [
            (Shown::default(), "one\ntwo\nthree\nfo"),
            (Shown { since: since(2), ..Shown::default() }, "two\nthree\nfo"),
            (Shown { since: since(3), ..Shown::default() }, "three\nfo"),
            (Shown { since: since(4), ..Shown::default() }, ""),
            (Shown { since: since(2), timestamps: true, ..Shown::default() }, stamped),
            (Shown { limit: Some(5), ..Shown::default() }, "one\nt"),
            (Shown { limit: Some(7), timestamps: true, ..Shown::default() }, "1970-01"),
            (Shown { limit: Some(99), since: since(3), ..Shown::default() }, "three\nfo"),
        ];
        for (shown, expected) in rows {
            for piece in [1, 3, 5, 100] {
                assert_eq!(text(shown, piece), expected, "{shown:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_long_line_is_shown_in_parts_with_one_time() {
        let shown = Shown { timestamps: true, ..Shown::default() };
        let mut lines = Lines::new(shown, Times::parse("9 1970-01-01T00:00:01Z"), 0);
        let first = lines.take(&[b'x'; PART]);
        assert!(first.starts_with(b"1970-01-01T00:00:01.000000000Z xx"));
        assert_eq!(lines.take(b"end\n"), b"end\n");
        assert_eq!(lines.take(b"next\n"), b"1970-01-01T00:00:01.000000000Z next\n");
    }

    #[test]
    fn a_reader_at_its_limit_stops() {
        let mut lines = Lines::new(Shown { limit: Some(2), ..Shown::default() }, Times::default(), 0);
        assert!(!lines.is_full());
        assert_eq!(lines.take(b"one\n"), b"on");
        assert!(lines.is_full());
    }
}
