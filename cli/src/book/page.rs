//! A page of the book that is made of code or data.

use std::{env, fs, path::Path};

/// Set to write the pages: `ci/docs --write`.
const WRITE: &str = "CLAIMCHECK_WRITE_DOCS";

/// Compares a page, by its path from the root of the workspace, with what it would be now, or writes it.
pub fn check(workspace: &Path, name: &str, fresh: &str) {
    let path = workspace.join(name);
    if env::var_os(WRITE).is_some() {
        fs::write(&path, fresh).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    for (number, (has, expected)) in page.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(has, expected, "line {} of {name} is stale: run ci/docs --write", number + 1);
    }
    assert_eq!(page.len(), fresh.len(), "{name} is stale: run ci/docs --write");
}
