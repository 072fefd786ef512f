//! Rules of the workspace that no compiler checks.

mod dependencies;
mod planners;
mod words;

use std::path::Path;

/// The root of the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}
