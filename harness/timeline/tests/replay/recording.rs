//! `tests/data/lifecycles.ndjson.gz` as evidence: six lifecycles of upstream Kubernetes 1.36 with the
//! hostpath driver.
//!
//! The driver's log has only the methods of calls, not their objects or ends. The life
//! cycles ran one after another, so each call belongs to the object that it changes, and it
//! ended no later than that effect was observed. An upper bound: sufficient to check that driver time stays
//! inside its phase.

use std::{io::Read, path::Path};

use claimcheck_csi::{
    Code,
    tap::{CallEnd, CallId, TapRecord},
};
use claimcheck_model::{CsiMethod, KubeletPath, Stamp};
use claimcheck_timeline::evidence::{Change, Mount, Object, Observation};
use serde::Deserialize;
use serde_json::Value;

pub const DRIVER: &str = "hostpath.csi.k8s.io";
pub const NODE: &str = "node-1";

#[derive(Deserialize)]
struct Line {
    mono_ns: u64,
    wall: f64,
    #[serde(flatten)]
    stream: Stream,
}

#[derive(Deserialize)]
#[serde(tag = "stream", rename_all = "lowercase")]
enum Stream {
    Marker {},
    Watch { resource: String, r#type: String, object: Value },
    Rpc { text: String },
    Mountinfo { change: String, line: String },
}

impl Line {
    fn at(&self) -> Stamp {
        Stamp { mono_ns: self.mono_ns, wall_ns: (self.wall * 1e9) as u64 }
    }

    /// The object, if this is such a change of it.
    fn change(&self, of: &str, types: &[&str]) -> Option<&Value> {
        match &self.stream {
            Stream::Watch { resource, r#type, object }
                if resource == of && types.contains(&r#type.as_str()) =>
            {
                Some(object)
            }
            _ => None,
        }
    }

    /// The path of a CSI volume in a pod, if this is such a mount.
    fn csi_mount(&self, expected: &str) -> Option<&str> {
        match &self.stream {
            Stream::Mountinfo { change, line } if change == expected => {
                line.split_whitespace().nth(4).filter(|path| path.contains("kubernetes.io~csi"))
            }
            _ => None,
        }
    }
}

/// The recording.
pub struct Recording(Vec<Line>);

impl Recording {
    pub fn load() -> Self {
        let packed = &include_bytes!("../data/lifecycles.ndjson.gz")[..];
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        Self(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Everything, in the order of observation; a call is observed when it ends.
    pub fn evidence(&self) -> Vec<Observation> {
        let mut evidence: Vec<(u64, Observation)> = Vec::new();
        for (i, line) in self.0.iter().enumerate() {
            match &line.stream {
                Stream::Marker {} => {}
                Stream::Watch { resource, r#type, object } => {
                    let Some(object) = typed(resource, r#type, object) else { continue };
                    let change = Change { at: line.at(), object, deleted: r#type == "DELETED" };
                    evidence.push((line.mono_ns, Observation::Watch(Box::new(change))));
                }
                Stream::Mountinfo { change, line: entry } => {
                    let path = entry.split_whitespace().nth(4).unwrap();
                    let Some(place) = KubeletPath::of(Path::new(path)) else { continue };
                    let mount = Mount { at: line.at(), node: NODE.into(), place, mounted: change == "added" };
                    evidence.push((line.mono_ns, Observation::Mount(mount)));
                }
                Stream::Rpc { text } => {
                    let method = CsiMethod::from_name(text.rsplit('/').next().unwrap());
                    if let Some(rpc) = method.and_then(|method| self.call(i, method)) {
                        let at = rpc.end.as_ref().unwrap().at.mono_ns;
                        // The effect of a call is observed after it.
                        evidence.push((at - 1, rpc.into()));
                    }
                }
            }
        }
        evidence.sort_by_key(|(at, _)| *at);
        evidence.into_iter().map(|(_, evidence)| evidence).collect()
    }

    /// The call that the driver logged in line `i`.
    fn call(&self, i: usize, method: CsiMethod) -> Option<TapRecord> {
        let (before, after) = (&self.0[..i], &self.0[i + 1..]);
        let next_mount = |change| after.iter().find_map(|l| Some((l.csi_mount(change)?.to_owned(), l.at())));
        let volume_of = |path: &str| path.rsplit('/').nth(1).unwrap().to_owned();
        let next = |of: &str, types: &[&str], test: &dyn Fn(&Value) -> bool| {
            let found = after.iter().find_map(|l| Some((l.change(of, types).filter(|o| test(o))?, l.at())));
            found.unwrap_or_else(|| panic!("the {method} of line {i} has no effect"))
        };
        let (volume, target, end) = match method {
            CsiMethod::CreateVolume => {
                let (object, at) = next("persistentvolumes", &["ADDED"], &|_| true);
                return Some(rpc(method, name(object), "", self.0[i].at(), at));
            }
            CsiMethod::ControllerPublishVolume => {
                let last =
                    before.iter().rev().find_map(|l| l.change("volumeattachments", &["ADDED", "MODIFIED"]));
                let last = last.unwrap();
                let attached = last["status"]["attached"] == true;
                // The second call for an attached volume changes nothing: whatever is next bounds it.
                let at = if attached {
                    after[0].at()
                } else {
                    next("volumeattachments", &["MODIFIED"], &|o| o["status"]["attached"] == true).1
                };
                (
                    last["spec"]["source"]["persistentVolumeName"].as_str().unwrap().to_owned(),
                    String::new(),
                    at,
                )
            }
            // The kubelet calls the driver again only after staging has returned.
            CsiMethod::NodeStageVolume => (volume_of(&next_mount("added")?.0), String::new(), after[0].at()),
            CsiMethod::NodePublishVolume => {
                let (path, at) = next_mount("added")?;
                (volume_of(&path), path, at)
            }
            CsiMethod::NodeUnpublishVolume => {
                let (path, at) = next_mount("removed")?;
                (volume_of(&path), path, at)
            }
            // It has no prompt effect, and hostpath does nothing in it.
            CsiMethod::NodeUnstageVolume => {
                let path = before.iter().rev().find_map(|l| l.csi_mount("removed")).unwrap();
                (volume_of(path), String::new(), self.0[i].at())
            }
            CsiMethod::ControllerUnpublishVolume => {
                let (object, at) = next("volumeattachments", &["DELETED"], &|_| true);
                (
                    object["spec"]["source"]["persistentVolumeName"].as_str().unwrap().to_owned(),
                    String::new(),
                    at,
                )
            }
            CsiMethod::DeleteVolume => {
                let deleting = |o: &Value| o["metadata"]["deletionTimestamp"].is_string();
                let (object, at) = next("persistentvolumes", &["MODIFIED"], &deleting);
                (name(object).to_owned(), String::new(), at)
            }
            CsiMethod::ControllerExpandVolume => {
                let (object, at) = next("persistentvolumes", &["MODIFIED"], &|_| true);
                (name(object).to_owned(), String::new(), at)
            }
            _ => return None,
        };
        Some(rpc(method, &self.handle(&volume), &target, self.0[i].at(), end))
    }

    fn handle(&self, volume: &str) -> String {
        let of_volume = self.0.iter().filter_map(|l| l.change("persistentvolumes", &["ADDED"]));
        let handle =
            of_volume.filter(|o| name(o) == volume).map(|o| &o["spec"]["csi"]["volumeHandle"]).next();
        handle.and_then(Value::as_str).unwrap().to_owned()
    }
}

fn rpc(method: CsiMethod, volume: &str, target: &str, start: Stamp, end: Stamp) -> TapRecord {
    let name = method.as_str();
    let node = name.starts_with("Node") || name.contains("Publish") || name.contains("Unpublish");
    TapRecord {
        driver: Some(DRIVER.to_owned()),
        volume_id: Some(volume.to_owned()),
        volume_name: Some(volume.to_owned()),
        node: node.then(|| NODE.to_owned()),
        target: Some(target.to_owned()),
        end: Some(CallEnd::new(end, Code::Ok)),
        ..TapRecord::started(CallId { pid: 1, seq: 1 }, "", method, start)
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn typed(resource: &str, change: &str, object: &Value) -> Option<Object> {
    fn of<T: serde::de::DeserializeOwned + Into<Object>>(object: &Value) -> Object {
        serde_json::from_value::<T>(object.clone()).unwrap().into()
    }
    use k8s_openapi::api::{core::v1 as core, storage::v1 as storage};
    match resource {
        _ if change == "BOOKMARK" => None,
        "persistentvolumeclaims" => Some(of::<core::PersistentVolumeClaim>(object)),
        "persistentvolumes" => Some(of::<core::PersistentVolume>(object)),
        "pods" => Some(of::<core::Pod>(object)),
        "volumeattachments" => Some(of::<storage::VolumeAttachment>(object)),
        "csinodes" => Some(of::<storage::CSINode>(object)),
        _ => None,
    }
}
