//! How a pod mounts one of its volumes, with regard to SELinux.

use k8s_openapi::api::core::v1::{Pod, PodSecurityContext, SELinuxOptions, SecurityContext, VolumeMount};

use super::label::Label;

/// The value of `securityContext.seLinuxChangePolicy` with which the container runtime changes the labels of all files.
const RECURSIVE: &str = "Recursive";

/// How the containers of a pod mount a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// No container mounts it. Raw block volumes are not mounted.
    Never,
    /// With this label. Containers without SELinux options do not count.
    With(Label),
    /// With different labels.
    WithSeveralLabels,
}

/// How the files of a volume get the label of a pod, if the driver supports the mount option: the effective
/// `PodSELinuxChangePolicy` of upstream's `syncVolume`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relabelling {
    /// The container runtime changes each file. This works with any label, so upstream has none for it.
    Recursive,
    /// The volume is mounted with this label, which is not empty.
    MountOption(Label),
}

impl Relabelling {
    /// That of a pod that mounts the volume with this label. A pod without a label does not use the mount option.
    pub fn of(pod: &Pod, label: Label) -> Self {
        let policy = context(pod).and_then(|context| context.se_linux_change_policy.as_deref());
        match label.is_empty() || policy == Some(RECURSIVE) {
            true => Self::Recursive,
            false => Self::MountOption(label),
        }
    }

    /// The value of `seLinuxChangePolicy`.
    pub fn policy(&self) -> &'static str {
        match self {
            Self::Recursive => RECURSIVE,
            Self::MountOption(_) => "MountOption",
        }
    }

    /// The label of the mount option; empty without one.
    pub fn label(&self) -> Label {
        match self {
            Self::Recursive => Label::default(),
            Self::MountOption(label) => label.clone(),
        }
    }
}

/// How the containers of a pod mount the volume with this name in the pod. Upstream: `GetPodVolumeNames` in
/// `pkg/volume/util/util.go`, `GetMountSELinuxLabel` in `pkg/volume/util/selinux.go`.
pub fn mounted(pod: &Pod, volume: &str) -> Mounted {
    let of_pod = context(pod).and_then(|context| context.se_linux_options.as_ref());
    let mut is_mounted = false;
    let mut label: Option<Label> = None;
    for (options, mounts) in containers(pod) {
        if !mounts.iter().any(|mount| mount.name == volume) {
            continue;
        }
        is_mounted = true;
        // The options of a container replace all of the pod's: `DetermineEffectiveSecurityContext`.
        let Some(found) = options.or(of_pod).map(Label::of) else { continue };
        if label.as_ref().is_some_and(|first| *first != found) {
            return Mounted::WithSeveralLabels;
        }
        label = Some(found);
    }
    match is_mounted {
        true => Mounted::With(label.unwrap_or_default()),
        false => Mounted::Never,
    }
}

fn context(pod: &Pod) -> Option<&PodSecurityContext> {
    pod.spec.as_ref()?.security_context.as_ref()
}

/// The SELinux options and mounts of all containers, including init containers and ephemeral containers.
fn containers(pod: &Pod) -> impl Iterator<Item = (Option<&SELinuxOptions>, &[VolumeMount])> {
    let spec = pod.spec.as_ref();
    let init = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let regular = spec.into_iter().flat_map(|spec| &spec.containers);
    let ephemeral = spec.into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let of_containers = init
        .chain(regular)
        .map(|container| (options(container.security_context.as_ref()), container.volume_mounts.as_deref()));
    let of_ephemeral = ephemeral
        .map(|container| (options(container.security_context.as_ref()), container.volume_mounts.as_deref()));
    of_containers.chain(of_ephemeral).map(|(options, mounts)| (options, mounts.unwrap_or_default()))
}

fn options(context: Option<&SecurityContext>) -> Option<&SELinuxOptions> {
    context?.se_linux_options.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    /// A container that mounts a volume with options of its own, if any.
    fn container(name: &str, volume: &str, options: Option<Value>) -> Value {
        let mounts = json!([{"name": volume, "mountPath": "/data"}]);
        json!({
            "name": name, "volumeMounts": mounts,
            "securityContext": options.map(|options| json!({"seLinuxOptions": options})),
        })
    }

    fn level(level: &str) -> Option<Value> {
        Some(json!({"level": level}))
    }

    #[test]
    fn a_volume_has_the_label_of_the_containers_that_mount_it() {
        let of_pod = json!({"seLinuxOptions": {"user": "user_u", "level": "s0:c1"}});
        let with = |label: &str| (label.to_owned(), true);
        let table = [
            ("no options", json!({"containers": [container("a", "v", None)]}), with("")),
            (
                "options of the pod",
                json!({"containers": [container("a", "v", None)], "securityContext": of_pod.clone()}),
                with("user_u:::s0:c1"),
            ),
            (
                "options of the container replace all of the pod's",
                json!({"containers": [container("a", "v", level("s0:c2"))], "securityContext": of_pod}),
                with(":::s0:c2"),
            ),
            (
                "a container without options does not count",
                json!({"containers": [container("a", "v", None), container("b", "v", level("s0:c2"))]}),
                with(":::s0:c2"),
            ),
            (
                "an init container",
                json!({"containers": [], "initContainers": [container("a", "v", level("s0:c2"))]}),
                with(":::s0:c2"),
            ),
            (
                "another volume",
                json!({"containers": [container("a", "w", level("s0:c2"))]}),
                (String::new(), false),
            ),
        ];
        for (what, spec, (label, is_mounted)) in table {
            let found = mounted(&pod(spec), "v");
            let expected = serde_json::from_value::<SELinuxOptions>(options_of(&label)).unwrap();
            let expected = if is_mounted { Mounted::With(Label::of(&expected)) } else { Mounted::Never };
            assert_eq!(found, expected, "{what}");
        }
    }

    /// The options of a label.
    fn options_of(label: &str) -> Value {
        let mut parts = label.splitn(4, ':').map(str::to_owned);
        let [user, role, kind, level] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        json!({"user": user, "role": role, "type": kind, "level": level})
    }

    #[test]
    fn containers_with_different_labels_are_found() {
        let two = |a, b| json!({"containers": [container("a", "v", a), container("b", "v", b)]});
        for (spec, expected) in [
            (two(level("s0:c1"), level("s0:c2")), true),
            (two(level("s0:c1"), level("s0:c1")), false),
            // Options without a value are options: `labels` in `GetMountSELinuxLabel` has an empty string then.
            (two(level("s0:c1"), Some(json!({}))), true),
            (
                json!({
                    "containers": [container("a", "v", level("s0:c1"))],
                    "ephemeralContainers": [container("b", "v", level("s0:c2"))],
                }),
                true,
            ),
        ] {
            let found = mounted(&pod(spec.clone()), "v");
            assert_eq!(found == Mounted::WithSeveralLabels, expected, "{spec}");
        }
    }

    #[test]
    fn the_mount_option_needs_a_label_and_no_recursive_policy() {
        let label = || Label::of(&serde_json::from_value(json!({"level": "s0:c1"})).unwrap());
        let of = |policy: Option<&str>, label| {
            let context = json!({"seLinuxChangePolicy": policy});
            Relabelling::of(&pod(json!({"containers": [], "securityContext": context})), label)
        };
        assert_eq!(of(None, label()), Relabelling::MountOption(label()));
        assert_eq!(of(Some("MountOption"), label()), Relabelling::MountOption(label()));
        assert_eq!(of(Some("Recursive"), label()), Relabelling::Recursive);
        assert_eq!(of(Some("MountOption"), Label::default()), Relabelling::Recursive);
    }
}
