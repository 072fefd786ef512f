//! Checks on the fields of requests before anything acts on them.
//!
//! Nothing that comes from outside becomes part of a path inside the state directory: volume ids are our own
//! and must look like it, node ids are compared with registered ones. Paths in requests (staging and target)
//! are the one exception, they name places of the container orchestrator's own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    id::{GroupId, SnapshotId},
    volume::{NodeId, VolumeId},
};

/// The longest string in bytes unless a field says otherwise (CSI specification, "Size Limits").
pub const MAX_STRING: usize = 128;
/// The largest map or list in bytes.
pub const MAX_MAP: usize = 4096;
/// The largest map of secrets or volume context in bytes. The specification says 4096, and three tokens of a
/// Kubernetes service account have more.
pub const MAX_LARGE_MAP: usize = 64 << 10;
/// The longest path in bytes (Linux `PATH_MAX`).
const MAX_PATH: usize = 4096;

/// A volume id, in a call about a volume that should exist.
///
/// An id that we cannot have made names no volume: `NotFound`, as for any other unknown one. Oversized ids
/// are refused without being repeated in the message.
pub fn volume_id(id: &str) -> Result<VolumeId> {
    if id.is_empty() {
        return Err(Error::Missing("volume_id"));
    }
    short("volume_id", id)?;
    VolumeId::parse(id).ok_or_else(|| Error::NoVolume(id.to_owned()))
}

/// A snapshot id, in a call about a snapshot that should exist; as [`volume_id`].
pub fn snapshot_id(field: &'static str, id: &str) -> Result<SnapshotId> {
    if id.is_empty() {
        return Err(Error::Missing(field));
    }
    short(field, id)?;
    SnapshotId::parse(id).ok_or_else(|| Error::NoSnapshot(id.to_owned()))
}

/// A group snapshot id, in a call about a group that should exist; as [`volume_id`].
pub fn group_id(id: &str) -> Result<GroupId> {
    if id.is_empty() {
        return Err(Error::Missing("group_snapshot_id"));
    }
    short("group_snapshot_id", id)?;
    GroupId::parse(id).ok_or_else(|| Error::NoGroup(id.to_owned()))
}

/// The name of a volume to create: any printable text of at most [`MAX_STRING`] bytes.
pub fn name(name: &str) -> Result<&str> {
    if name.is_empty() {
        return Err(Error::Missing("name"));
    }
    short("name", name)?;
    Ok(name)
}

/// A node id, in a call about a node that should be known.
pub fn node_id(id: &str) -> Result<NodeId> {
    if id.is_empty() {
        return Err(Error::Missing("node_id"));
    }
    // The specification allows node ids 256 bytes.
    bounded("node_id", id, 2 * MAX_STRING)?;
    NodeId::parse(id).ok_or_else(|| Error::NoNode(id.to_owned()))
}

/// A staging, target or volume path: absolute and without detours.
pub fn path(field: &'static str, path: &str) -> Result<PathBuf> {
    if path.is_empty() {
        return Err(Error::Missing(field));
    }
    bounded(field, path, MAX_PATH)?;
    if !path.starts_with('/') {
        return Err(Error::invalid(field, format!("{path:?} is not an absolute path")));
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Err(Error::invalid(field, format!("{path:?} contains \".\" or \"..\"")));
    }
    // Collected from components, so that "//a/" and "/a" are one path in the records.
    Ok(Path::new(path).components().collect())
}

/// A field that must not be empty.
pub fn some(field: &'static str, text: &str) -> Result<()> {
    if text.is_empty() { Err(Error::Missing(field)) } else { Ok(()) }
}

/// The path at which a volume is said to be. A relative one is nowhere, so that the volume is not there: NotFound,
/// as csi-sanity has it, where a path to be made is an invalid argument.
pub fn volume_path(volume: &VolumeId, text: &str) -> Result<PathBuf> {
    bounded("volume_path", text, MAX_PATH)?;
    if text.starts_with('/') {
        return path("volume_path", text);
    }
    Err(Error::NotMountedThere { volume: volume.to_string(), path: text.to_owned() })
}

/// A map of at most [`MAX_MAP`] bytes without control characters (CSI specification, "Size Limits").
pub fn map(field: &'static str, map: &BTreeMap<String, String>) -> Result<()> {
    sized(field, map, MAX_MAP)?;
    if map.iter().any(|(key, value)| key.chars().chain(value.chars()).any(char::is_control)) {
        return Err(Error::invalid(field, "contains control characters"));
    }
    Ok(())
}

/// A map whose values may be keys, certificates and tokens: at most [`MAX_LARGE_MAP`] bytes, with line ends.
pub fn large_map(field: &'static str, map: &BTreeMap<String, String>) -> Result<()> {
    sized(field, map, MAX_LARGE_MAP)?;
    if map.values().any(|value| value.contains('\0'))
        || map.keys().any(|key| key.chars().any(char::is_control))
    {
        return Err(Error::invalid(field, "contains control characters"));
    }
    Ok(())
}

/// A list of at most [`MAX_MAP`] bytes.
pub fn list(field: &'static str, list: &[String]) -> Result<()> {
    limited(field, list.iter().map(String::len).sum(), MAX_MAP)
}

fn sized(field: &'static str, map: &BTreeMap<String, String>, limit: usize) -> Result<()> {
    limited(field, map.iter().map(|(key, value)| key.len() + value.len()).sum(), limit)
}

fn limited(field: &'static str, bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::invalid(field, format!("has {bytes} bytes, at most {limit} are allowed")))
}

/// The beginning of a text from outside: messages should not grow with what somebody sent.
pub fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

/// At most [`MAX_STRING`] bytes without control characters.
pub fn short(field: &'static str, value: &str) -> Result<()> {
    bounded(field, value, MAX_STRING)
}

fn bounded(field: &'static str, value: &str, limit: usize) -> Result<()> {
    limited(field, value.len(), limit)?;
    if value.chars().any(char::is_control) {
        return Err(Error::invalid(field, "contains control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn volume_ids_are_ours_or_unknown() {
        let ours = VolumeId::from_name("pvc-1").to_string();
        assert_eq!(volume_id(&ours).unwrap().to_string(), ours);
        let cases = [
            ("", Code::InvalidArgument),
            ("../../etc/passwd", Code::NotFound),
            ("vol-1", Code::NotFound),
            ("a\nb", Code::InvalidArgument),
            (&"x".repeat(129), Code::InvalidArgument),
            (&"x".repeat(1 << 20), Code::InvalidArgument),
        ];
        for (id, code) in cases {
            let error = volume_id(id).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().len() < 256, "the message repeats an oversized id");
        }
    }

    #[test]
    fn names_have_128_bytes() {
        name(&"x".repeat(128)).unwrap();
        name("any text, även så /../").unwrap();
        for bad in ["", &"x".repeat(129), "tab\there", "nul\0", "c1 \u{9b}"] {
            assert_eq!(name(bad).unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn maps_have_4_kib() {
        let of = |value: String| BTreeMap::from([("k".to_owned(), value)]);
        map("parameters", &of("x".repeat(4095))).unwrap();
        for bad in ["x".repeat(4096), "x".repeat(1 << 20), "a\nb".into(), "a\0".into()] {
            assert_eq!(map("parameters", &of(bad)).unwrap_err().code(), Code::InvalidArgument);
        }
        large_map("secrets", &of("-----BEGIN\n".repeat(1000))).unwrap();
        for bad in ["x".repeat(1 << 20), "a\0".into()] {
            assert_eq!(large_map("secrets", &of(bad)).unwrap_err().code(), Code::InvalidArgument);
        }
        let flags = vec!["noatime".to_owned(); 1000];
        assert_eq!(list("mount_flags", &flags).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn node_ids() {
        node_id("node-1.example_2").unwrap();
        assert_eq!(node_id("").unwrap_err().code(), Code::InvalidArgument);
        for unknown in ["..", "a/b", ".hidden", "some random node"] {
            assert_eq!(node_id(unknown).unwrap_err().code(), Code::NotFound, "{unknown}");
        }
    }

    #[test]
    fn paths_are_absolute_and_straight() {
        assert_eq!(path("target_path", "/a//b/").unwrap(), Path::new("/a/b"));
        for bad in ["", "a/b", "/a/../b", "/a/.", "/a\u{1}", &format!("/{}", "x".repeat(4096))] {
            assert_eq!(path("target_path", bad).unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
        }
    }
}
