//! All files that commands leave are for their owner only, whatever the umask is and whatever existed before.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it exists").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// A file that others can read.
fn earlier(path: &Path) {
    fs::write(path, "earlier").expect("a file");
    set_mode(path, 0o644);
}

/// Runs the binary with the umask of most users.
fn claimcheck(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"umask 022; exec "$0" "$@""#, env!("CARGO_BIN_EXE_claimcheck")]);
    command.args(arguments).current_dir(folder).env_remove("CLAIMCHECK_NO_HISTORY");
    command.env("XDG_STATE_HOME", folder.join("state")).env_remove("GITHUB_STEP_SUMMARY");
    let output = command.output().expect("the binary runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}: {printed}", output.status);
}

/// All files and folders below a folder, and itself.
fn all(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let below = entries.flat_map(|path| if path.is_dir() { all(&path) } else { vec![path] });
    below.chain([folder.to_owned()]).collect()
}

fn is_private(folder: &Path) {
    let open = all(folder).into_iter().filter(|path| mode(path) & 0o077 != 0);
    let open: Vec<String> = open.map(|path| format!("{:o} {}", mode(&path), path.display())).collect();
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn files_are_private_whatever_existed_before() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let (run, csi) = (root.join("run"), root.join("csi"));
    for folder in [&run, &csi] {
        fs::create_dir(folder).expect("a folder");
        set_mode(folder, 0o755);
    }
    claimcheck(root, &["run", "provisioning::", "--nodes", "1", "--out", "run"]);
    claimcheck(root, &["csi", "--driver", "builtin", "identity::", "--out", "csi"]);
    for folder in [&run, &csi] {
        assert!(all(folder).len() > 5, "{:?}", all(folder));
        is_private(folder);
    }
    is_private(&root.join("state"));

    // A page that others can read, and what a page that was never finished may have left.
    let other = root.join("other");
    earlier(&other);
    earlier(&run.join("report.html"));
    symlink(&other, run.join(".report.html.part")).expect("a link");
    claimcheck(root, &["report", "run"]);
    is_private(&run);
    assert!(!run.join(".report.html.part").exists());
    assert_eq!((fs::read_to_string(&other).expect("a file").as_str(), mode(&other)), ("earlier", 0o644));

    let page = root.join("comparison.html");
    earlier(&page);
    claimcheck(root, &["compare", "run", "run", "--html", "comparison.html"]);
    assert!(fs::read_to_string(&page).expect("a page").starts_with("<!DOCTYPE html>"));
    assert_eq!(mode(&page), 0o600);
}

/// Folders like `/tmp` are shared on purpose.
#[test]
fn shared_folders_and_devices_keep_their_modes() {
    let root = tempfile::tempdir().expect("a folder");
    let shared = root.path().join("shared");
    fs::create_dir(&shared).expect("a folder");
    set_mode(&shared, 0o1777);
    claimcheck(root.path(), &["csi", "--driver", "builtin", "identity::", "--out", "shared"]);
    assert_eq!(mode(&shared), 0o1777);
    set_mode(&shared, 0o700);
    is_private(&shared);

    let before = mode(Path::new("/dev/null"));
    claimcheck(root.path(), &["compare", "shared", "shared", "--html", "/dev/null"]);
    assert_eq!(mode(Path::new("/dev/null")), before);
}
