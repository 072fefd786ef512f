//! The difference of two answers, as `diff -u` prints it.

/// Unchanged lines that are printed next to a changed one.
const CONTEXT: usize = 3;
/// Lines of a difference that are printed; the rest is in the transcripts.
const LONGEST: usize = 60;

/// Lines with `-` are only in `from`, those with `+` only in `to`.
pub fn unified(from: &[String], to: &[String]) -> String {
    let edits = edits(from, to);
    let changed: Vec<usize> =
        edits.iter().enumerate().filter(|(_, (mark, _))| *mark != ' ').map(|(at, _)| at).collect();
    let is_near = |at: usize| changed.iter().any(|changed| changed.abs_diff(at) <= CONTEXT);
    let mut lines = Vec::new();
    let mut was_printed = true;
    for (at, (mark, line)) in edits.iter().enumerate() {
        let is_printed = is_near(at);
        if is_printed {
            lines.push(format!("  {mark}{line}"));
        } else if was_printed {
            lines.push("  @@".to_owned());
        }
        was_printed = is_printed;
    }
    if lines.len() > LONGEST {
        let more = lines.len() - LONGEST;
        lines.truncate(LONGEST);
        lines.push(format!("  ... {more} more lines"));
    }
    lines.join("\n")
}

/// All lines with a mark: those of a longest common subsequence are unchanged.
fn edits<'a>(from: &'a [String], to: &'a [String]) -> Vec<(char, &'a str)> {
    // The length of the longest common subsequence of what follows in both.
    let mut common = vec![vec![0_u32; to.len() + 1]; from.len() + 1];
    for (one, left) in from.iter().enumerate().rev() {
        for (other, right) in to.iter().enumerate().rev() {
            common[one][other] = if left == right {
                common[one + 1][other + 1] + 1
            } else {
                common[one + 1][other].max(common[one][other + 1])
            };
        }
    }
    let (mut one, mut other, mut edits) = (0, 0, Vec::new());
    while one < from.len() || other < to.len() {
        if one < from.len() && other < to.len() && from[one] == to[other] {
            edits.push((' ', from[one].as_str()));
            (one, other) = (one + 1, other + 1);
        } else if other == to.len() || (one < from.len() && common[one + 1][other] >= common[one][other + 1])
        {
            edits.push(('-', from[one].as_str()));
            one += 1;
        } else {
            edits.push(('+', to[other].as_str()));
            other += 1;
        }
    }
    edits
}

#[test]
fn changed_lines_are_printed_with_their_context() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let difference = unified(&lines("1 2 3 4 5 6 7 8 9"), &lines("1 2 3 4 5 six 7 8 9 10"));
    let expected = "  @@\n   3\n   4\n   5\n  -6\n  +six\n   7\n   8\n   9\n  +10";
    assert_eq!(difference, expected);
    assert_eq!(unified(&[], &lines("a")), "  +a");
}
