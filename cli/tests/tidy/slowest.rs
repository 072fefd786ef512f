//! `ci/slowest`, which `ci/test` runs at its end, on an output of `cargo test`.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::process::Command;

use crate::workspace;

/// What it prints for this output.
fn slowest(output: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), output).unwrap();
    let ran = Command::new(workspace().join("ci/slowest")).arg(file.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_ten_slowest_programs_and_slow_tests_are_printed() {
    let mut output = String::new();
    for nth in 1..=12 {
        let result = if nth == 12 { "FAILED. 3 passed; 1 failed" } else { "ok. 4 passed; 0 failed" };
        output += &format!(
            "     Running tests/t{nth}.rs (target/debug/deps/t{nth}-0a)\n\nrunning 4 tests\n\
             test result: {result}; 0 ignored; 0 measured; 0 filtered out; finished in {nth}.50s\n\n"
        );
    }
    output += "   Doc-tests claimcheck_model\n\ntest a::slow has been running for over 60 seconds\n\
        test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 100.25s\n";
    let printed = slowest(&output);
    let lines: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).skip(1).map(str::trim).collect();
    let mut expected = vec!["100.25 s  Doc-tests claimcheck_model".to_owned()];
    let program = |nth: u32| format!("{nth}.50 s  tests/t{nth}.rs (target/debug/deps/t{nth}-0a)");
    expected.extend((4..=12).rev().map(program));
    expected.push("test a::slow has been running for over 60 seconds".to_owned());
    assert_eq!(lines, expected);
}

#[test]
fn an_output_without_results_prints_nothing() {
    assert_eq!(slowest("error: could not compile `claimcheck`\n"), "");
}
