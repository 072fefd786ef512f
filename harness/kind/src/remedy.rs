//! Remedies for well-known failures of `kind` and the engines.

/// Error messages and their remedies. The first match is used.
const KNOWN: [(&str, &str); 18] = [
    (
        "permission denied while trying to connect to",
        "join the group `docker` (and log in again), or run as root",
    ),
    (
        "Cannot connect to the Docker daemon",
        "start Docker (`systemctl start docker`, or Docker Desktop), or point DOCKER_HOST at a running daemon",
    ),
    (
        "unable to connect to Podman socket",
        "start it: `podman machine start`, or `systemctl start podman.socket`",
    ),
    ("rootless containerd not running", "start it: `containerd-rootless-setuptool.sh install`"),
    (
        "requires setting systemd property \"Delegate=yes\"",
        "configure systemd to delegate cgroups: https://kind.sigs.k8s.io/docs/user/rootless/",
    ),
    ("requires cgroup v2", "boot with systemd.unified_cgroup_hierarchy=1, or run the engine as root"),
    (
        "node(s) already exist for a cluster with the name",
        "`claimcheck cluster down NAME` removes it; or choose another --name",
    ),
    (
        "could not find a log line that matches",
        "a node does not start: raise fs.inotify.max_user_instances to 512 and fs.inotify.max_user_watches to \
         524288 with sysctl, and see https://kind.sigs.k8s.io/docs/user/known-issues/",
    ),
    (
        "too many open files",
        "raise fs.inotify.max_user_instances to 512 and fs.inotify.max_user_watches to 524288 with sysctl",
    ),
    ("no space left on device", "free space in the engine's data directory: `docker system df`"),
    (
        "is not a shared or slave mount",
        "the host's file system must be shared: `mount --make-rshared /`, or remove propagation from --kind-config",
    ),
    (
        "non-overlapping IPv4 address pool",
        "the engine has no addresses left for a network: `docker network prune` removes unused networks",
    ),
    ("port is already allocated", "another program uses the port: change it in --kind-config"),
    (
        "failed to pull image",
        "check --node-image, or pull it beforehand on a machine with access to the registry",
    ),
    ("not present locally", "build or pull the image first"),
    ("unable to decode config", "correct the file given by --kind-config"),
    ("failed to init node with kubeadm", "see the nodes' logs in cluster/kind of the run folder"),
    ("failed to join node with kubeadm", "see the nodes' logs in cluster/kind of the run folder"),
];

/// The remedy for a failure with this message.
pub(super) fn for_stderr(stderr: &[String]) -> Option<&'static str> {
    let fits = |needle: &str| stderr.iter().any(|line| line.contains(needle));
    KNOWN.iter().find(|(needle, _)| fits(needle)).map(|(_, remedy)| *remedy)
}
