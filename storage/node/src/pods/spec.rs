//! Converts a container of a pod's spec to a container of the runtime. Pure: results of look-ups on the node
//! are arguments.
//!
//! Images are not pulled: every container sees the node's own root, read-only, and its program must exist
//! there, or stand for its image. A container without a command, which leaves that to its image, pauses.

use claimcheck_model::ObjectKey;
use claimcheck_runtime::{ContainerSpec, Mount};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::{
    containers::ContainerId,
    environment::{Environment, Facts, environment, expand},
    images::Entrypoint,
};
use crate::{
    layout::Layout,
    volumes::{Place, content::ObjectKind},
};

/// The command of a container without one, like `registry.k8s.io/pause`.
const PAUSE: &[&str] = &["sleep", "infinity"];
/// Upstream: `TerminationMessagePathDefault`.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Why a container cannot be started from its spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The spec names a volume that the pod does not have.
    #[error("volume {0:?} is not among the pod's volumes")]
    NoVolume(String),
    /// The `subPathExpr` refers to a variable that the container does not have.
    #[error("subPathExpr {expression:?} of container {container:?} refers to an undefined variable")]
    NoVariable {
        /// The container.
        container: String,
        /// The expression.
        expression: String,
    },
    /// The source object of variables does not exist.
    #[error("{kind} {name:?} not found")]
    NoObject {
        /// Its kind.
        kind: ObjectKind,
        /// The object, in the pod's namespace.
        name: String,
    },
    /// The source object of variables cannot be read.
    #[error("{kind} {name:?} cannot be read: {reason}")]
    Unreadable {
        /// Its kind.
        kind: ObjectKind,
        /// The object, in the pod's namespace.
        name: String,
        /// The API server's error.
        reason: String,
    },
    /// The source object of a variable does not have the key.
    #[error("couldn't find key {key} in {kind} {object}")]
    NoKey {
        /// The key.
        key: String,
        /// The object's kind.
        kind: ObjectKind,
        /// The object.
        object: ObjectKey,
    },
    /// The volume of a variable's file is not mounted.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoFileVolume(String),
    /// A variable's file cannot be read, or is not in the required format. Upstream logs the cause only.
    #[error("couldn't parse env file")]
    EnvFile,
    /// A variable's file does not have the key, or its value is empty.
    #[error("environment variable key {key:?} not found in file {file:?}")]
    NoFileKey {
        /// The key.
        key: String,
        /// The file.
        file: String,
    },
    /// The source field of a variable is not supported.
    #[error("cannot set a variable: {0}")]
    Field(String),
    /// An unsupported field of the spec.
    #[error("{what} of container {container:?} is not supported by this node")]
    Unsupported {
        /// The container.
        container: String,
        /// The field.
        what: &'static str,
    },
}

/// A container that is to be started.
#[derive(Debug)]
pub struct Prepared {
    /// The runtime's specification.
    pub spec: ContainerSpec,
    /// The mounts with a sub path, by their index: their source is still the whole volume. Resolving a sub path
    /// requires access to the node.
    pub parts: Vec<(usize, String)>,
}

/// The runtime's specification. `program` stands for that of the container's image; `mounted_at` returns the path of a
/// volume of the pod.
///
/// # Errors
/// If the spec refers to something that does not exist.
pub fn container_spec(
    container: &Container,
    id: &ContainerId,
    layout: &Layout,
    facts: &Facts<'_>,
    program: Option<Entrypoint>,
    mounted_at: impl Fn(&str) -> Option<Place>,
) -> Result<Prepared, SpecError> {
    if let Some(what) = unsupported(container) {
        return Err(SpecError::Unsupported { container: container.name.clone(), what });
    }
    let pod = facts.pod;
    let hostname = hostname(pod);
    let env = environment(container, &hostname, facts)?;

    let (mut mounts, mut parts) = (Vec::new(), Vec::new());
    for mount in container.volume_mounts.iter().flatten() {
        parts.extend(sub_path(container, mount, &env)?.map(|path| (mounts.len(), path)));
        let place = mounted_at(&mount.name).ok_or_else(|| SpecError::NoVolume(mount.name.clone()))?;
        let read_only = place.read_only || mount.read_only.unwrap_or(false);
        mounts.push(Mount { source: place.path, target: mount.mount_path.clone(), read_only });
    }
    for device in container.volume_devices.iter().flatten() {
        let place = mounted_at(&device.name).ok_or_else(|| SpecError::NoVolume(device.name.clone()))?;
        mounts.push(Mount { source: place.path, target: device.device_path.clone(), read_only: false });
    }
    let message = container.termination_message_path.clone().unwrap_or_else(|| TERMINATION_LOG.into());
    let source = layout.termination_message(&id.pod, &container.name, id.attempt);
    mounts.push(Mount { source, target: message, read_only: false });

    // As with an image: arguments alone are those of its program.
    let image =
        program.as_ref().filter(|_| container.command.is_none()).map(|program| program.target.clone());
    let words = container.command.iter().chain(&container.args).flatten();
    let argv: Vec<String> = match container.command.is_some() || container.args.is_some() || image.is_some() {
        true => image.into_iter().chain(words.map(|word| expand(word, &env))).collect(),
        false => PAUSE.iter().map(|word| (*word).to_owned()).collect(),
    };
    if let Some(Entrypoint { source, target }) = program {
        mounts.push(Mount { source, target, read_only: true });
    }
    let user = User::of(pod, container);
    let spec = ContainerSpec {
        id: id.to_string(),
        argv,
        env: env.into_iter().collect(),
        cwd: container.working_dir.clone(),
        mounts,
        log_path: layout.container_log(&id.pod, &container.name, id.attempt),
        uid: user.uid,
        gid: user.gid,
        groups: user.groups,
        hostname,
    };
    Ok(Prepared { spec, parts })
}

/// Features that require to start a program in a running container, which this node does not support: an error
/// is better than ignoring them.
fn unsupported(container: &Container) -> Option<&'static str> {
    let lifecycle = container.lifecycle.as_ref();
    let asked = [
        (container.startup_probe.is_some(), "startupProbe"),
        (container.readiness_probe.is_some(), "readinessProbe"),
        (container.liveness_probe.is_some(), "livenessProbe"),
        (lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some()), "lifecycle.postStart"),
        (lifecycle.is_some_and(|lifecycle| lifecycle.pre_stop.is_some()), "lifecycle.preStop"),
    ];
    asked.into_iter().find_map(|(asked, what)| asked.then_some(what))
}

/// The sub path of the mount; `None` for the whole volume.
fn sub_path(
    container: &Container,
    mount: &VolumeMount,
    env: &Environment,
) -> Result<Option<String>, SpecError> {
    let expression = mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty());
    let Some(expression) = expression else {
        return Ok(mount.sub_path.clone().filter(|path| !path.is_empty()));
    };
    let path = expand(expression, env);
    if path.contains("$(") {
        let (container, expression) = (container.name.clone(), expression.to_owned());
        return Err(SpecError::NoVariable { container, expression });
    }
    Ok(Some(path))
}

fn hostname(pod: &Pod) -> String {
    let expected = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = expected.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    // The kernel's limit, which upstream cuts at too.
    name.chars().take(63).collect()
}

/// User and groups of the container: its security context, else the pod's.
struct User {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Vec<u32>,
}

impl User {
    fn of(pod: &Pod, container: &Container) -> Self {
        let own = container.security_context.as_ref();
        let shared = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let number = |id: i64| u32::try_from(id).ok();
        let uid = own.and_then(|own| own.run_as_user).or(shared.and_then(|shared| shared.run_as_user));
        let gid = own.and_then(|own| own.run_as_group).or(shared.and_then(|shared| shared.run_as_group));
        let extra = shared
            .into_iter()
            .flat_map(|s| s.supplemental_groups.iter().flatten().copied().chain(s.fs_group));
        Self {
            uid: uid.and_then(number),
            gid: gid.and_then(number),
            groups: extra.filter_map(number).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use claimcheck_informer::testing;
    use k8s_openapi::api::core::v1::{EnvVar, Lifecycle, LifecycleHandler, PodSecurityContext, Probe};

    use super::*;

    fn prepare(pod: &Pod, container: &Container) -> Result<Prepared, SpecError> {
        let id = ContainerId { pod: "u".into(), container: container.name.clone(), attempt: 0 };
        let known = |name: &str| match name {
            "data" => Some(Place { path: "/somewhere/mount".into(), read_only: false }),
            "fixed" => Some(Place { path: "/fixed".into(), read_only: true }),
            _ => None,
        };
        let facts = Facts {
            pod,
            objects: &BTreeMap::new(),
            files: &BTreeMap::new(),
            allocatable: &BTreeMap::new(),
            host_ip: "127.0.0.1",
        };
        let program = container
            .image
            .as_deref()
            .filter(|image| *image == "agnhost")
            .map(|_| Entrypoint { source: "/programs/agnhost".into(), target: "/agnhost".into() });
        container_spec(container, &id, &Layout::new("/k"), &facts, program, known)
    }

    fn start(pod: &Pod, container: &Container) -> Result<ContainerSpec, SpecError> {
        prepare(pod, container).map(|prepared| prepared.spec)
    }

    #[test]
    fn a_container_gets_its_command_environment_and_mounts() {
        let mut pod = testing::pod("p", "n", &[]);
        pod.spec.as_mut().unwrap().security_context = Some(PodSecurityContext {
            run_as_user: Some(7),
            fs_group: Some(9),
            ..PodSecurityContext::default()
        });
        let variable = |name: &str, value: &str| EnvVar {
            name: name.into(),
            value: Some(value.into()),
            ..EnvVar::default()
        };
        let container = Container {
            name: "c".into(),
            command: Some(vec!["sh".into(), "-c".into(), "echo $(GREETING) $$(ME) $HOME $(NOBODY)".into()]),
            env: Some(vec![variable("ME", "p"), variable("GREETING", "hello $(ME)")]),
            volume_mounts: Some(vec![VolumeMount {
                name: "data".into(),
                mount_path: "/data".into(),
                read_only: Some(true),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        };
        let spec = start(&pod, &container).unwrap();
        assert_eq!(spec.argv[2], "echo hello p $(ME) $HOME $(NOBODY)");
        assert_eq!((spec.uid, spec.gid, spec.groups.as_slice()), (Some(7), None, &[9][..]));
        assert_eq!(spec.mounts[0].source, Path::new("/somewhere/mount"));
        assert!(spec.mounts[0].read_only && !spec.mounts[1].read_only);
        assert_eq!(spec.mounts[1].target, "/dev/termination-log");
        assert_eq!(spec.id, "u/c/0");
    }

    #[test]
    fn missing_objects_are_reported() {
        let pod = testing::pod("p", "n", &[]);
        let other = Container {
            volume_mounts: Some(vec![VolumeMount { name: "other".into(), ..VolumeMount::default() }]),
            ..Container::default()
        };
        assert_eq!(start(&pod, &other).unwrap_err(), SpecError::NoVolume("other".into()));
        assert_eq!(start(&pod, &Container::default()).unwrap().argv, ["sleep", "infinity"]);
        let hook = || Some(LifecycleHandler::default());
        let lifecycle = |lifecycle| Container { lifecycle: Some(lifecycle), ..Container::default() };
        let probe = || Some(Probe::default());
        let rows = [
            (Container { startup_probe: probe(), ..Container::default() }, "startupProbe"),
            (Container { readiness_probe: probe(), ..Container::default() }, "readinessProbe"),
            (Container { liveness_probe: probe(), ..Container::default() }, "livenessProbe"),
            (lifecycle(Lifecycle { post_start: hook(), ..Lifecycle::default() }), "lifecycle.postStart"),
            (lifecycle(Lifecycle { pre_stop: hook(), ..Lifecycle::default() }), "lifecycle.preStop"),
        ];
        for (container, what) in rows {
            let error = start(&pod, &container).unwrap_err();
            assert_eq!(error, SpecError::Unsupported { container: String::new(), what });
        }
    }

    #[test]
    fn what_stands_for_an_image_is_its_program() {
        let pod = testing::pod("p", "n", &[]);
        let container = |image: &str, command: &[&str], args: &[&str]| {
            let words = |words: &[&str]| -> Option<Vec<String>> {
                (!words.is_empty()).then(|| words.iter().map(|word| (*word).to_owned()).collect())
            };
            let image = Some(image.to_owned());
            Container { image, command: words(command), args: words(args), ..Container::default() }
        };
        for (image, command, args, expected) in [
            ("agnhost", &[][..], &["mounttest", "-x"][..], &["/agnhost", "mounttest", "-x"][..]),
            ("agnhost", &[], &[], &["/agnhost"]),
            ("agnhost", &["sh"], &["-c", "true"], &["sh", "-c", "true"]),
            ("other", &[], &["pause"], &["pause"]),
            ("other", &[], &[], &["sleep", "infinity"]),
        ] {
            let spec = start(&pod, &container(image, command, args)).unwrap();
            assert_eq!(spec.argv, expected);
            let program = spec.mounts.iter().find(|mount| mount.target == "/agnhost");
            assert_eq!(program.is_some(), image == "agnhost", "{image}");
            assert!(program.is_none_or(|mount| mount.read_only));
        }
    }

    #[test]
    fn a_mount_is_read_only_if_it_or_its_volume_is() {
        for (name, mount, expected) in [
            ("data", None, false),
            ("data", Some(true), true),
            ("fixed", None, true),
            ("fixed", Some(false), true),
        ] {
            let mount = VolumeMount { name: name.into(), read_only: mount, ..VolumeMount::default() };
            let container = Container { volume_mounts: Some(vec![mount]), ..Container::default() };
            let spec = start(&testing::pod("p", "n", &[]), &container).unwrap();
            assert_eq!(spec.mounts[0].read_only, expected, "{name}");
        }
    }

    #[test]
    fn parts_of_volumes_are_named() {
        let pod = testing::pod("p", "n", &[]);
        let part = |sub_path: Option<&str>, expression: Option<&str>| {
            let mount = VolumeMount {
                name: "data".into(),
                sub_path: sub_path.map(str::to_owned),
                sub_path_expr: expression.map(str::to_owned),
                ..VolumeMount::default()
            };
            let container = Container {
                volume_mounts: Some(vec![
                    VolumeMount { name: "data".into(), ..VolumeMount::default() },
                    mount,
                ]),
                ..Container::default()
            };
            prepare(&pod, &container).map(|prepared| prepared.parts)
        };
        assert_eq!(part(Some("a/b"), None), Ok(vec![(1, "a/b".into())]));
        assert_eq!(part(None, Some("of-$(HOSTNAME)")), Ok(vec![(1, "of-p".into())]));
        assert_eq!(part(Some(""), Some("")), Ok(vec![]));
        assert!(matches!(part(None, Some("$(NOBODY)")), Err(SpecError::NoVariable { .. })));
    }
}
