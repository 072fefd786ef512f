//! Rules of the workspace that no compiler checks.

mod book;
mod circles;
mod dependencies;
mod e2e_lists;
mod planners;
mod skipped;
mod slowest;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// The files of the workspace with names that a test asks for, except generated ones.
fn files(expected: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut folders = vec![workspace().to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            if !path.is_dir() {
                found.extend(expected(&name).then_some(path));
            } else if !["target", "runs", "generated"].contains(&&*name) && !name.starts_with('.') {
                folders.push(path);
            }
        }
    }
    found
}
