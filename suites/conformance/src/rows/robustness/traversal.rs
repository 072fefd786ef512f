//! The files that ids and names with path traversal lead to, which must stay as they are.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::UP;
use crate::fixture::{Fixture, Kind, text};

/// The files that ids and names with path traversal lead to.
const FILES: [&str; 2] = ["nearby", "place/inside"];

/// The text of these files.
const PRESENT: &str = "a file that is not the driver's\n";

/// Ids with path traversal. A driver may follow one and delete or overwrite its target, so all of them lead to files of
/// this case, or to a path that does not exist.
pub(super) async fn elsewhere(f: &Fixture) -> Result<[String; 4]> {
    let root = sentinel(f).await?;
    let (place, file) = (text(&root.join("place")), text(&root.join(FILES[0])));
    let up = "../".repeat(UP);
    let up = up.trim_end_matches('/');
    Ok([format!("{up}{place}"), place, format!("{up}{file}"), format!("a/../../{}", f.unique())])
}

/// Creates the directory to which ids and names with path traversal lead, with files where the driver's paths are
/// accessible here.
pub(super) async fn sentinel(f: &Fixture) -> Result<PathBuf> {
    let root = sentinel_root(f);
    f.make_directory(&root.join("place")).await?;
    if f.config().paths.is_none() {
        for file in FILES {
            let file = root.join(file);
            fs::write(&file, PRESENT).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(root)
}

fn sentinel_root(f: &Fixture) -> PathBuf {
    f.target_root().join("elsewhere")
}

/// Checks that the directory to which such ids and names lead still exists and contains what it did.
pub(super) async fn untouched(f: &Fixture) -> Result<()> {
    let place = sentinel_root(f).join("place");
    ensure!(f.kind(&place).await? == Kind::Directory, "{} was deleted", changed(f));
    same_files(f)
}

/// The same for the files in it, where it is accessible here and [exists](sentinel).
pub(super) fn same_files(f: &Fixture) -> Result<()> {
    let root = sentinel_root(f);
    if f.config().paths.is_some() || !root.exists() {
        return Ok(());
    }
    let mut expected: BTreeMap<PathBuf, String> =
        FILES.into_iter().map(|file| (file.into(), PRESENT.to_owned())).collect();
    expected.insert("place".into(), DIRECTORY.to_owned());
    let found = tree(&root, &root).with_context(|| format!("cannot read {}", root.display()))?;
    ensure!(found == expected, "{} contained {expected:?}, and now contains {found:?}", changed(f));
    Ok(())
}

fn changed(f: &Fixture) -> String {
    let root = sentinel_root(f);
    format!(
        "a request with path traversal, or a shell command, to {} was followed: the directory, which is not the driver's,",
        root.display()
    )
}

/// What [`tree`] returns for a directory.
const DIRECTORY: &str = "a directory";

/// The paths below a directory, relative to `root`, with the beginning of the files' text.
fn tree(root: &Path, directory: &Path) -> io::Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?;
        let content = match () {
            () if kind.is_dir() => DIRECTORY.to_owned(),
            () if kind.is_file() => {
                let mut text = Vec::new();
                fs::File::open(&path)?.take(128).read_to_end(&mut text)?;
                String::from_utf8_lossy(&text).into_owned()
            }
            () => "neither a file nor a directory".to_owned(),
        };
        if kind.is_dir() {
            all.extend(tree(root, &path)?);
        }
        all.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), content);
    }
    Ok(all)
}

/// The outcome of calls with path traversal: that one was followed is a stronger finding than a wrong code.
pub(super) async fn unfollowed(f: &Fixture, calls: impl Future<Output = Result<()>>) -> Result<()> {
    let answers = calls.await;
    untouched(f).await?;
    answers
}
