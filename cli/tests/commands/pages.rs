//! The commands in blocks of README and the book that are marked `sh run`: each runs here and exits with 0.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// What each block may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace")
}

/// The marked blocks, each with its page.
fn blocks() -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> = ["README.md", "docs"].iter().map(|name| root().join(name)).collect();
    let mut blocks = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).expect("a page is text");
            let marked = text.split("```sh run\n").skip(1).filter_map(|rest| rest.split("```").next());
            blocks.extend(marked.map(|block| (path.display().to_string(), block.to_owned())));
        }
    }
    blocks.sort();
    blocks
}

#[test]
#[ignore = "takes a minute: ci/nightly runs it"]
fn commands_marked_run_exit_with_0() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["ci", "dashboards"] {
        symlink(root().join(name), folder.path().join(name)).expect("a link");
    }
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_claimcheck"), programs.join("claimcheck")).expect("a link");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let blocks = blocks();
    assert!(blocks.len() > 3, "only {} blocks: the search itself is broken", blocks.len());
    for (page, block) in blocks {
        let start = Instant::now();
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &block])
            .env("PATH", &path)
            .env("CLAIMCHECK_NO_HISTORY", "1")
            .current_dir(folder.path())
            .output()
            .expect("bash runs");
        let took = start.elapsed();
        let text = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{page}: {}\n{block}\n{}", ran.status, String::from_utf8_lossy(&text));
        assert!(took < LIMIT, "{page}: {took:?}\n{block}");
        println!("{page}: {took:.1?}\n{block}");
    }
}
