//! The last lines of a program's output that say why it exited.
//!
//! Programs in Go print more after the reason: the list of their flags (`PrintDefaults` of package flag), or, after a panic
//! or a fatal error of klog, the stacks of their goroutines.

use std::{fs, path::Path};

/// How many lines are quoted.
const LAST_LINES: usize = 5;

/// The last lines of output of a component that is not running; empty without output.
pub(super) fn last_lines(log: &Path) -> String {
    // The output of a vendor's program need not be UTF-8.
    let log = fs::read(log).unwrap_or_default();
    conclusion(&String::from_utf8_lossy(&log))
}

/// The last lines, without a list of flags or stacks after them.
fn conclusion(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let last = |end: usize| end.saturating_sub(LAST_LINES)..end;
    let quoted = match (flags(&lines), stacks(&lines)) {
        // Before it could be the list of the process that was restarted.
        (Some(at), _) if at > 0 => at - 1..at,
        (_, Some(at)) => last(at),
        (Some(_) | None, None) => last(lines.len()),
    };
    lines[quoted].join("\n").trim_end().to_owned()
}

/// Where the list of flags begins at the end of the output: each flag, and each line of its description, is indented.
fn flags(lines: &[&str]) -> Option<usize> {
    let at = lines.iter().rposition(|line| line.starts_with("Usage of "))?;
    let is_indented = |line: &&str| line.is_empty() || line.starts_with([' ', '\t']);
    lines[at + 1..].iter().all(is_indented).then_some(at)
}

/// Where the stacks begin at the end of the output.
fn stacks(lines: &[&str]) -> Option<usize> {
    let is_fatal = |line: &str| {
        line.starts_with("panic: ") || line.starts_with("fatal error: ") || severity(line) == Some('F')
    };
    let fatal = lines.iter().rposition(|line| is_fatal(line))?;
    let first = fatal + lines[fatal..].iter().position(|line| line.starts_with("goroutine "))?;
    // A program that continued its log has exited for another reason.
    lines[first..].iter().all(|line| severity(line).is_none()).then_some(first)
}

/// The severity of a line of klog, such as `F1127 23:58:12.858103       1 main.go:104] ..`.
fn severity(line: &str) -> Option<char> {
    let severity = line.chars().next().filter(|severity| "IWEF".contains(*severity))?;
    let date = line.get(1..5)?;
    (date.chars().all(|digit| digit.is_ascii_digit()) && line.get(5..6) == Some(" ")).then_some(severity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_precedes_lists_of_flags_and_stacks() {
        let flag = "flag provided but not defined: -feature-gates";
        let usage = "Usage of csi-snapshotter:\n  -v value\n    \tnumber for the log level\n";
        let fatal = "F1127 23:58:12.858103   28460 csi-provisioner.go:128] unrecognized feature gate: Nope";
        let stack = "goroutine 1 [running]:\nk8s.io/klog/v2.stacks(0x1)\n\tklog.go:1038 +0x8a\n";
        let entry = "I1127 23:58:13.000000       1 main.go:93] Version : v1.4.0";
        let table = [
            (String::new(), String::new()),
            ("a\nb\n".to_owned(), "a\nb".to_owned()),
            ("1\n2\n3\n4\n5\n6\n".to_owned(), "2\n3\n4\n5\n6".to_owned()),
            (format!("{flag}\n{usage}").repeat(2), flag.to_owned()),
            (format!("{entry}\n{fatal}\n{stack}"), format!("{entry}\n{fatal}")),
            (format!("panic: nil\n\n{stack}"), "panic: nil".to_owned()),
            // The program continued, and exited for another reason.
            (format!("{fatal}\n{stack}{entry}"), format!("{fatal}\n{stack}{entry}")),
            (usage.to_owned(), usage.trim_end().to_owned()),
            // As package pflag, which reports the flag again after the list.
            (format!("{usage}unknown flag: --x\n"), format!("{usage}unknown flag: --x")),
        ];
        for (output, expected) in table {
            assert_eq!(conclusion(&output), expected, "{output}");
        }
    }
}
