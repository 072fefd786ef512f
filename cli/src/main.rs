//! The claimcheck binary: arguments in, exit code out.

use std::process::ExitCode;

use claimcheck::Cases;

fn main() -> ExitCode {
    claimcheck::main(Cases::default())
}
