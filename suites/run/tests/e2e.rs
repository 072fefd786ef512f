//! The catalogue as `cargo test --test e2e`: the same rows as `claimcheck run`, on libtest-mimic.

use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    claimcheck_run::e2e::main(Path::new(env!("CARGO_TARGET_TMPDIR")), Vec::new())
}
