//! Security settings of the cases' pods, so that the Pod Security level of a cluster admits them
//! (kubernetes.io/docs/concepts/security/pod-security-standards).

use clap::ValueEnum;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

/// The user and group ID of pods that may not run as root: an arbitrary one.
const USER: i64 = 65532;

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PodSecurity {
    /// No restrictions: all cases can run
    #[default]
    Privileged,
    /// No access to the node: no hostPath volumes
    Baseline,
    /// Pods run as non-root without capabilities, with fsGroup set on volumes
    Restricted,
}

impl PodSecurity {
    /// The value in namespace labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Whether pods may have hostPath volumes.
    pub const fn admits_host_paths(self) -> bool {
        match self {
            Self::Privileged => true,
            Self::Baseline | Self::Restricted => false,
        }
    }

    /// Whether the processes of pods may run as root.
    pub const fn admits_root(self) -> bool {
        match self {
            Self::Privileged | Self::Baseline => true,
            Self::Restricted => false,
        }
    }

    /// Sets the fields that this level requires, unless the case has set them.
    pub fn dress(self, spec: &mut PodSpec) {
        match self {
            Self::Privileged | Self::Baseline => {}
            Self::Restricted => restrict(spec),
        }
    }
}

fn restrict(spec: &mut PodSpec) {
    let pod = spec.security_context.get_or_insert_with(PodSecurityContext::default);
    pod.run_as_non_root.get_or_insert(true);
    let user = *pod.run_as_user.get_or_insert(USER);
    // Otherwise a new volume could not be written, since it belongs to root.
    pod.fs_group.get_or_insert(user);
    pod.seccomp_profile.get_or_insert_with(|| SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        ..SeccompProfile::default()
    });
    let containers: [&mut dyn Iterator<Item = &mut Container>; 2] =
        [&mut spec.containers.iter_mut(), &mut spec.init_containers.iter_mut().flatten()];
    for container in containers.into_iter().flatten() {
        let context = container.security_context.get_or_insert_with(SecurityContext::default);
        context.allow_privilege_escalation.get_or_insert(false);
        context.capabilities.get_or_insert_with(|| Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The checks of `k8s.io/pod-security-admission/policy` that pods of cases can fail: the violations at a level.
    fn refused(level: PodSecurity, spec: &Value) -> Vec<&'static str> {
        let list = |name: &str| spec[name].as_array().cloned().unwrap_or_default();
        let containers = [list("containers"), list("initContainers")].concat();
        let every = |holds: &dyn Fn(&Value) -> bool| containers.iter().all(|c| holds(&c["securityContext"]));
        let (pod, volumes) = (&spec["securityContext"], list("volumes"));
        let no_volume = |kinds: &[&str]| volumes.iter().all(|v| kinds.iter().all(|kind| v[*kind].is_null()));
        let mut checks = Vec::new();
        if level != PodSecurity::Privileged {
            checks.extend([
                ("host namespaces", ["hostNetwork", "hostPID", "hostIPC"].iter().all(|h| spec[*h] != true)),
                ("hostPath volumes", no_volume(&["hostPath"])),
                ("privileged", every(&|context| context["privileged"] != true)),
            ]);
        }
        if level == PodSecurity::Restricted {
            let either = |name: &str, holds: &dyn Fn(&Value) -> bool| {
                every(&|context| {
                    if context[name].is_null() { holds(&pod[name]) } else { holds(&context[name]) }
                })
            };
            checks.extend([
                (
                    "restricted volume types",
                    no_volume(&["nfs", "iscsi", "rbd", "cephfs", "awsElasticBlockStore"]),
                ),
                ("allowPrivilegeEscalation", every(&|context| context["allowPrivilegeEscalation"] == false)),
                ("runAsNonRoot", either("runAsNonRoot", &|value| value == true)),
                ("runAsUser", either("runAsUser", &|value| value != 0)),
                ("seccompProfile", either("seccompProfile", &|value| value["type"] == "RuntimeDefault")),
                ("capabilities", every(&|context| context["capabilities"]["drop"] == json!(["ALL"]))),
            ]);
        }
        checks.into_iter().filter(|(_, holds)| !holds).map(|(what, _)| what).collect()
    }

    fn dressed(level: PodSecurity, spec: &Value) -> Value {
        let mut spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        level.dress(&mut spec);
        serde_json::to_value(spec).unwrap()
    }

    #[test]
    fn every_level_admits_the_pods_that_it_dresses() {
        let container = json!({ "name": "c", "image": "i" });
        let own = json!({ "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000 });
        let specs = [
            json!({ "containers": [container] }),
            json!({ "containers": [container, container], "initContainers": [container] }),
            json!({ "containers": [container], "securityContext": own }),
            json!({
                "containers": [container],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
            }),
        ];
        for level in [PodSecurity::Privileged, PodSecurity::Baseline, PodSecurity::Restricted] {
            for spec in &specs {
                assert_eq!(refused(level, &dressed(level, spec)), [""; 0], "{level:?} {spec}");
            }
        }
        // The oracle sees what is not dressed.
        assert_eq!(
            refused(PodSecurity::Restricted, &specs[1]),
            ["allowPrivilegeEscalation", "runAsNonRoot", "seccompProfile", "capabilities"]
        );
        let context = &dressed(PodSecurity::Restricted, &specs[2])["securityContext"];
        assert_eq!((&context["runAsUser"], &context["fsGroup"]), (&json!(1000), &json!(3000)), "its own");
    }

    #[test]
    fn volumes_of_the_host_are_for_privileged_pods() {
        let spec = json!({
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "hostPath": { "path": "/etc" } }],
        });
        for level in [PodSecurity::Privileged, PodSecurity::Baseline, PodSecurity::Restricted] {
            let admitted = refused(level, &dressed(level, &spec)).is_empty();
            assert_eq!(admitted, level.admits_host_paths(), "{level:?}");
        }
    }
}
