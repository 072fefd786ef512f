//! Ephemeral containers: added to a pod that exists already, started whatever the state of the other containers,
//! and never restarted. Pure.
//!
//! Upstream: `EphemeralContainersToStart` in `pkg/kubelet/kuberuntime/kuberuntime_manager.go`.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

/// The pod's ephemeral containers in the form of the others.
pub fn ephemeral_containers(pod: &Pod) -> impl Iterator<Item = Container> {
    let spec = pod.spec.as_ref();
    spec.into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten()).map(as_container)
}

/// Whether the pod has an ephemeral container with this name.
pub fn has_ephemeral_container(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec.as_ref();
    let mut all = spec.into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.any(|container| container.name == name)
}

/// The fields that both have and that the API server accepts for an ephemeral container. The target container is not
/// among them: each container has a PID namespace of its own.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let from = ephemeral.clone();
    Container {
        name: from.name,
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        security_context: from.security_context,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
        ..Container::default()
    }
}
