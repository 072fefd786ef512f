//! `--kubernetes` with several versions: a run per version, one after the other, each a process of its own, and their
//! summary.

use std::{env, ffi::OsString, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_files::write_private;
use claimcheck_kind::{Engine, Selection, Tools};
use claimcheck_model::ClusterKind;
use claimcheck_report::{RunFolder, Style, versions::Versions};
use tokio::process::Command;

use crate::interrupt;

/// The page of all versions, in the folder of their run folders.
const PAGE: &str = "versions.html";
/// The exit code if a run was killed.
const KILLED: u8 = 3;
/// The exit code of a run of which only an output could not be written: each other one says more.
const UNWRITTEN: u8 = 5;

/// Environment variables by which a run gets its version and its folder, or got the versions of all.
const NODE_IMAGE: &str = "CLAIMCHECK_NODE_IMAGE";
const OUT: &str = "CLAIMCHECK_OUT";
const KUBERNETES: &str = "CLAIMCHECK_KUBERNETES";

/// Runs this program with these arguments once per version, and prints the versions side by side. The run folders are in `out`, or in a new
/// folder below `folders`.
///
/// # Errors
/// A version has no node image, or the folder cannot be created: no run has started then.
pub async fn run(
    selected: &[Selection],
    out: Option<&Path>,
    folders: &Path,
    arguments: &[OsString],
) -> Result<ExitCode> {
    let images = Engine::find(&Tools::from_environment())?.node_images(selected).await?;
    let interrupted = interrupt::token()?;
    let program = env::current_exe().context("cannot determine the path of the running binary")?;
    let folder = RunFolder::choose(out, folders, ClusterKind::Kind)?;
    let (mut runs, mut codes) = (Vec::new(), Vec::new());
    for (version, image) in &images {
        if interrupted.is_cancelled() {
            break;
        }
        eprintln!("claimcheck: Kubernetes {version}");
        let of_version = folder.path().join(version.to_string());
        let mut command = Command::new(&program);
        command.args(arguments).env_remove(KUBERNETES).env(NODE_IMAGE, image).env(OUT, &of_version);
        let status = command.status().await;
        let status = status.with_context(|| format!("cannot start {}", program.display()))?;
        codes.push(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(KILLED));
        runs.push((version.to_string(), of_version));
    }
    let versions = Versions::read(runs.iter().map(|(version, path)| (version.clone(), path.as_path())));
    print!("{}", versions.to_text(Style::detect()));
    let page = folder.path().join(PAGE);
    let written = write_private(&page, versions.to_html().as_bytes());
    written.with_context(|| format!("cannot write {}", page.display()))?;
    println!(" {}", page.display());
    Ok(ExitCode::from(if interrupted.is_cancelled() { interrupt::INTERRUPTED } else { worst(&codes) }))
}

/// The exit code of all: the highest, but for [`UNWRITTEN`].
fn worst(codes: &[u8]) -> u8 {
    let known = |&&code: &&u8| code != UNWRITTEN;
    match codes.iter().filter(known).max() {
        None | Some(0) => codes.iter().copied().max().unwrap_or_default(),
        Some(code) => *code,
    }
}

/// The arguments of this process without these options, which have values.
pub fn arguments_without(options: &[&str]) -> Vec<OsString> {
    without(env::args_os().skip(1), options)
}

fn without(words: impl Iterator<Item = OsString>, options: &[&str]) -> Vec<OsString> {
    let mut words = words;
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if text == "--" {
            kept.push(word);
            kept.extend(words);
            break;
        }
        let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        match (options.contains(&name), value) {
            (true, None) => drop(words.next()),
            (true, Some(_)) => {}
            (false, _) => kept.push(word),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_run() {
        for (codes, expected) in
            [(&[][..], 0), (&[0, 0], 0), (&[0, 5], 5), (&[5, 1, 0], 1), (&[1, 3], 3), (&[0, 130], 130)]
        {
            assert_eq!(worst(codes), expected, "{codes:?}");
        }
    }

    #[test]
    fn options_of_all_runs_are_left_out_with_their_values() {
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        let given =
            words(&["run", "--kubernetes", "1.34,1.36", "a::", "--out=x", "--nodes", "2", "--", "--out"]);
        let kept = without(given.into_iter(), &["--kubernetes", "--out"]);
        assert_eq!(kept, words(&["run", "a::", "--nodes", "2", "--", "--out"]));
    }
}
