//! Parses the output of container engines: of docker and nerdctl, and of podman.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::engine::CLUSTER_LABEL;

/// A container that is a node of a cluster, or the load balancer of its control planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name, which is the node's.
    pub name: String,
    /// The cluster's name.
    pub cluster: String,
    /// Whether it runs: incomplete ones and those from before a reboot do not.
    pub running: bool,
}

/// Information about an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Its version; empty if not reported.
    pub version: String,
    /// Whether it is rootless.
    pub rootless: bool,
    /// Whether the host has cgroup v2.
    pub cgroup_v2: bool,
    /// Those of the limits `memory`, `pids` and `cpu` that it cannot set.
    pub missing_limits: Vec<&'static str>,
    /// Its data directory with images and containers; empty if not reported.
    pub root: String,
}

/// The relevant part of `docker info --format '{{json .}}'`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct DockerInfo {
    server_version: String,
    cgroup_driver: String,
    cgroup_version: String,
    memory_limit: bool,
    pids_limit: bool,
    #[serde(rename = "CPUShares")]
    cpu_shares: bool,
    security_options: Option<Vec<String>>,
    docker_root_dir: String,
}

impl From<DockerInfo> for Info {
    fn from(info: DockerInfo) -> Self {
        // Without a cgroup driver the limits are meaningless: moby#42151.
        let limits = info.cgroup_driver != "none";
        let each = [("memory", info.memory_limit), ("pids", info.pids_limit), ("cpu", info.cpu_shares)];
        let options = info.security_options.unwrap_or_default();
        Self {
            version: info.server_version,
            rootless: options.iter().flat_map(|option| option.split(',')).any(|part| part == "name=rootless"),
            cgroup_v2: info.cgroup_version == "2",
            missing_limits: each
                .into_iter()
                .filter(|(_, has)| !(limits && *has))
                .map(|(name, _)| name)
                .collect(),
            root: info.docker_root_dir,
        }
    }
}

/// The relevant part of an entry of `podman ps --format json`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct PodmanContainer {
    names: Vec<String>,
    labels: BTreeMap<String, String>,
    state: String,
    pub(super) mounts: Vec<String>,
}

impl From<PodmanContainer> for Container {
    fn from(mut container: PodmanContainer) -> Self {
        let cluster = container.labels.remove(CLUSTER_LABEL).unwrap_or_default();
        let name = container.names.into_iter().next().unwrap_or_default();
        Self { name, cluster, running: container.state == "running" }
    }
}

/// The relevant part of `podman info --format json`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PodmanInfo {
    host: PodmanHost,
    store: PodmanStore,
    version: PodmanVersion,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodmanHost {
    cgroup_version: String,
    cgroup_controllers: Option<Vec<String>>,
    security: PodmanSecurity,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodmanSecurity {
    rootless: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodmanStore {
    graph_root: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct PodmanVersion {
    version: String,
}

impl From<PodmanInfo> for Info {
    fn from(info: PodmanInfo) -> Self {
        // Podman before 4.0 does not list them.
        let has = |name: &&str| {
            info.host.cgroup_controllers.as_ref().is_none_or(|all| all.iter().any(|one| one == name))
        };
        Self {
            version: info.version.version,
            rootless: info.host.security.rootless,
            cgroup_v2: info.host.cgroup_version == "v2",
            missing_limits: ["memory", "pids", "cpu"].into_iter().filter(|name| !has(name)).collect(),
            root: info.store.graph_root,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_of_engines_is_parsed() {
        let docker = r#"{"ServerVersion":"28.2.2","CgroupDriver":"systemd","CgroupVersion":"2","MemoryLimit":true,
            "PidsLimit":true,"CPUShares":true,"SecurityOptions":["name=apparmor","name=seccomp,profile=builtin"],
            "DockerRootDir":"/var/lib/docker","NCPU":8}"#;
        let info: Info = serde_json::from_str::<DockerInfo>(docker).unwrap().into();
        let expected = Info {
            version: "28.2.2".into(),
            rootless: false,
            cgroup_v2: true,
            missing_limits: Vec::new(),
            root: "/var/lib/docker".into(),
        };
        assert_eq!(info, expected);
        let rootless = r#"{"CgroupDriver":"none","CgroupVersion":"2","MemoryLimit":true,
            "SecurityOptions":["name=seccomp,profile=builtin","name=rootless"]}"#;
        let info: Info = serde_json::from_str::<DockerInfo>(rootless).unwrap().into();
        assert!(info.rootless);
        assert_eq!(info.missing_limits, ["memory", "pids", "cpu"]);
        let podman = r#"{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","pids"],
            "security":{"rootless":true}},"store":{"graphRoot":"/home/u/.local/share/containers/storage"},
            "version":{"Version":"5.4.0"}}"#;
        let info: Info = serde_json::from_str::<PodmanInfo>(podman).unwrap().into();
        assert_eq!((info.version.as_str(), info.rootless, info.cgroup_v2), ("5.4.0", true, true));
        assert_eq!(info.missing_limits, ["cpu"]);
    }
}
