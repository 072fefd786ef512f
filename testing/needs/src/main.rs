//! What the scripts in `ci/` ask about this machine.
//!
//! ```text
//! claimcheck-needs required        fails if something that CLAIMCHECK_REQUIRE lists is missing
//! claimcheck-needs missing NEEDS   prints NEED: REASON for each of a list that is missing
//! claimcheck-needs omitted         prints the names of the tests that ci/test omits, a line each
//! claimcheck-needs summary LOG     prints what did not run; LOG is the output of the scripts
//! ```

use std::{env, fs, process::ExitCode};

use claimcheck_needs::{Need, in_workspace, omitted, required, summary};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match answer(&arguments) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("claimcheck-needs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &[&str]) -> Result<String, String> {
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect();
    match arguments {
        ["required"] => {
            let list = env::var("CLAIMCHECK_REQUIRE").unwrap_or_default();
            let missing = |error| format!("CLAIMCHECK_REQUIRE is {list}:\n{error}");
            required(&list, Need::missing).map_err(missing).map(|()| String::new())
        }
        ["missing", needs] => {
            let line = |need: &Need| Some(format!("{}: {}", need.name(), need.missing()?));
            Ok(lines(Need::parse(needs)?.iter().filter_map(line).collect()))
        }
        ["omitted"] => {
            let tests = in_workspace()?;
            Ok(lines(omitted(&tests, Need::missing).into_iter().map(str::to_owned).collect()))
        }
        ["summary", log] => {
            let log = fs::read(log).map_err(|error| format!("{log}: {error}"))?;
            Ok(summary(&in_workspace()?, Need::missing, &String::from_utf8_lossy(&log)))
        }
        _ => Err("usage: claimcheck-needs required | missing NEEDS | omitted | summary LOG".to_owned()),
    }
}
