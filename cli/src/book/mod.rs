//! What the book states about the command line is checked against it: a page is made of the arguments, and the commands
//! in all pages are parsed.

mod command_line;
mod commands;
mod page;
mod schemas;

use std::path::Path;

/// The root of the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}
