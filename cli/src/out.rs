//! Standard output that may be closed early, as in `claimcheck list | head`.
//!
//! The macros replace those of std in this crate, which panic if a pipe is closed. A command that has more to do than to
//! print, such as deleting a cluster, does it all the same.

use std::{
    fmt::Arguments,
    io::{self, ErrorKind, Write as _},
};

macro_rules! print {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output.
pub fn write(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.expect("standard output can be written to"),
    }
}
