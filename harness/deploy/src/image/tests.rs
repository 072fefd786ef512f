//! Archives read back: digests, layers, names, and reproducibility.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use super::{layer::hex, *};

/// A root file system with all kinds of files.
fn rootfs(folder: &Path) -> PathBuf {
    let root = folder.join("rootfs");
    fs::create_dir_all(root.join("usr/sbin")).unwrap();
    fs::write(root.join("usr/sbin/mkfs.ext4"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("usr/sbin/mkfs.ext4"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("usr/sbin", root.join("sbin")).unwrap();
    fs::write(root.join("a name that is longer than a hundred characters, which the first tar archives could not hold at all, no"), "x").unwrap();
    root
}

/// Any program will do; the tests themselves are hundreds of megabytes.
fn program() -> PathBuf {
    fs::canonicalize("/bin/sh").unwrap()
}

fn options(rootfs: PathBuf, out: PathBuf) -> Options {
    let platform = Platform::native().expect("tests run on amd64 or arm64");
    Options { rootfs, binary: program(), tag: "claimcheck:dev".into(), platform, out }
}

/// The files of an archive.
fn read(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = Archive::new(File::open(archive).unwrap());
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 0);
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        assert!(files.insert(entry.path().unwrap().display().to_string(), bytes).is_none());
    }
    files
}

fn json(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Value {
    serde_json::from_slice(&files[path]).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Where a descriptor's blob lies, which has its size.
fn blob(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> String {
    let path = descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    assert_eq!(files[&path].len() as u64, descriptor["size"].as_u64().unwrap(), "{path}");
    path
}

#[test]
fn an_archive_is_what_engines_and_containerd_expect() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(rootfs(folder.path()), folder.path().join("image.tar"));
    let image = build(&options).unwrap();
    assert_eq!(image.notes, ["mkfs.xfs is missing: the driver cannot create such volumes"]);
    let files = read(&options.out);
    for (path, bytes) in &files {
        if let Some(digest) = path.strip_prefix("blobs/sha256/") {
            assert_eq!(digest, hex(&Sha256::digest(bytes)));
        }
    }
    assert_eq!(json(&files, "oci-layout")["imageLayoutVersion"], "1.0.0");
    let entry = &json(&files, "index.json")["manifests"][0];
    assert_eq!(entry["digest"], image.digest.as_str());
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "docker.io/library/claimcheck:dev");
    let manifest = json(&files, &blob(&files, entry));
    let config_path = blob(&files, &manifest["config"]);
    let config = json(&files, &config_path);
    assert_eq!(config["architecture"], options.platform.architecture());
    assert_eq!(config["config"]["Entrypoint"][0], ENTRYPOINT);
    let layers: Vec<String> =
        manifest["layers"].as_array().unwrap().iter().map(|layer| blob(&files, layer)).collect();
    let digests: Vec<String> = layers.iter().map(|path| path.replace("blobs/sha256/", "sha256:")).collect();
    assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!(digests), "the layers are not compressed");
    // The same image for `docker load`.
    let docker = &json(&files, "manifest.json")[0];
    assert_eq!(docker["Config"], config_path.as_str());
    assert_eq!(
        (&docker["RepoTags"][0], &docker["Layers"]),
        (&"claimcheck:dev".into(), &serde_json::json!(layers))
    );
    assert_eq!(files.len(), 3 + 2 + 2, "three documents, config and manifest, two layers");

    let mut binary = Archive::new(files[&layers[1]].as_slice());
    let mut entries = binary.entries().unwrap();
    let entry = entries.next().unwrap().unwrap();
    assert_eq!(entry.path().unwrap(), Path::new(ENTRYPOINT.trim_start_matches('/')));
    assert_eq!(entry.header().mode().unwrap(), 0o755);
    assert_eq!(entry.size(), fs::metadata(program()).unwrap().len());
}

/// Path, kind, mode and target of everything in a layer.
fn listed(layer: &[u8]) -> Vec<(String, EntryType, u32, Option<String>)> {
    let mut archive = Archive::new(layer);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let target = entry.link_name().unwrap().map(|target| target.display().to_string());
        (
            path.trim_end_matches('/').to_owned(),
            entry.header().entry_type(),
            entry.header().mode().unwrap(),
            target,
        )
    });
    entries.collect()
}

/// The base layer of an image.
fn base(image: &Path) -> Vec<u8> {
    let files = read(image);
    let layer = json(&files, "manifest.json")[0]["Layers"][0].as_str().unwrap().to_owned();
    files[&layer].clone()
}

#[test]
fn the_same_files_give_the_same_bytes_as_a_folder_or_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let first = options(rootfs(folder.path()), folder.path().join("first.tar"));
    build(&first).unwrap();
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let second = options(rootfs(&other), folder.path().join("second.tar"));
    build(&second).unwrap();
    assert!(
        fs::read(&first.out).unwrap() == fs::read(&second.out).unwrap(),
        "made at another time, elsewhere"
    );

    let tar = folder.path().join("rootfs.tar");
    let packed = Command::new("tar")
        .arg("-C")
        .arg(&first.rootfs)
        .args(["--sort=name", "-cf"])
        .arg(&tar)
        .arg(".")
        .status();
    assert!(packed.unwrap().success());
    let third = options(tar, folder.path().join("third.tar"));
    build(&third).unwrap();
    let of_folder = listed(&base(&first.out));
    let strip = |(path, kind, mode, target): (String, EntryType, u32, Option<String>)| {
        (path.trim_start_matches("./").to_owned(), kind, mode, target)
    };
    let of_archive: Vec<_> = listed(&base(&third.out)).into_iter().map(strip).collect();
    let sorted = |mut list: Vec<_>| {
        list.sort();
        list
    };
    assert_eq!(
        sorted(of_folder.iter().map(|entry| format!("{entry:?}")).collect()),
        sorted(of_archive.iter().map(|entry| format!("{entry:?}")).collect())
    );
    let link = of_folder.iter().find(|entry| entry.0 == "sbin").unwrap();
    assert_eq!((link.1, link.3.as_deref()), (EntryType::Symlink, Some("usr/sbin")));
}

#[test]
fn an_impossible_image_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let good = options(rootfs(folder.path()), folder.path().join("image.tar"));
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\necho this is no program of any machine\n").unwrap();
    let other = match good.platform {
        Platform::Amd64 => Platform::Arm64,
        Platform::Arm64 => Platform::Amd64,
    };
    let table = [
        (Options { binary: script.clone(), ..good.clone() }, "is not a program for linux/"),
        (Options { platform: other, ..good.clone() }, "build it for that and pass it with --binary"),
        (Options { binary: folder.path().join("none"), ..good.clone() }, "cannot read the binary"),
        (Options { rootfs: folder.path().join("none"), ..good.clone() }, "cannot read the root file system"),
        (Options { rootfs: script, ..good.clone() }, "an uncompressed tar archive"),
        (Options { out: folder.path().join("none/image.tar"), ..good }, "cannot write the image"),
    ];
    for (options, why) in table {
        let error = build(&options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!options.out.exists());
    }
}

/// Checks both forms with podman's library.
#[test]
#[ignore = "requires skopeo"]
fn skopeo_reads_both_forms() {
    claimcheck_needs::require("skopeo");
    let folder = tempfile::tempdir().unwrap();
    let options = options(rootfs(folder.path()), folder.path().join("image.tar"));
    build(&options).unwrap();
    for form in ["docker-archive", "oci-archive"] {
        let from = format!("{form}:{}", options.out.display());
        let to = format!("dir:{}", folder.path().join(form).display());
        let copied = Command::new("skopeo").args(["copy", "-q", &from, &to]).output().unwrap();
        assert!(copied.status.success(), "{form}: {}", String::from_utf8_lossy(&copied.stderr));
    }
}

/// Checks the archive with a container engine.
#[test]
#[ignore = "requires docker"]
fn an_engine_takes_it() {
    claimcheck_needs::require("docker");
    let folder = tempfile::tempdir().unwrap();
    let tag = format!("claimcheck-test-{}:dev", std::process::id());
    let options =
        Options { tag: tag.clone(), ..options(rootfs(folder.path()), folder.path().join("image.tar")) };
    build(&options).unwrap();
    let load = Command::new("docker").args(["load", "-i"]).arg(&options.out).output().unwrap();
    let inspect = Command::new("docker")
        .args(["image", "inspect", "--format", "{{.Architecture}}", &tag])
        .output()
        .unwrap();
    // Nothing is left in any case.
    let _ = Command::new("docker").args(["rmi", &tag]).output();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    assert_eq!(String::from_utf8_lossy(&inspect.stdout).trim(), options.platform.architecture());
}
