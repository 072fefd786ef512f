//! What a manifest contains that has no effect on virtual nodes, for one warning.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Container;

use super::manifests::{Manifests, Workload};

/// What has no effect, and where.
#[derive(Debug, Default)]
pub(super) struct Idle(BTreeMap<String, BTreeSet<String>>);

impl Idle {
    pub(super) fn add(&mut self, what: &str, place: impl Into<String>) {
        self.0.entry(what.to_owned()).or_default().insert(place.into());
    }

    /// Adds objects, and fields of pods.
    pub(super) fn add_manifests(&mut self, manifests: &Manifests) {
        for title in &manifests.others {
            self.add("other objects", title);
        }
        for workload in &manifests.workloads {
            if workload.is_for_windows() {
                self.add("pods of Windows nodes", workload.title());
                continue;
            }
            let pod = &workload.pod;
            let fields = [
                ("affinity", pod.affinity.is_some()),
                ("nodeSelector", pod.node_selector.is_some()),
                ("hostPID", pod.host_pid == Some(true)),
                ("hostIPC", pod.host_ipc == Some(true)),
                ("shareProcessNamespace", pod.share_process_namespace == Some(true)),
                ("runtimeClassName", pod.runtime_class_name.is_some()),
                ("securityContext", pod.security_context.is_some()),
            ];
            for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
                self.add(field, workload.title());
            }
        }
    }

    /// Adds fields of a container.
    pub(super) fn add_container(&mut self, workload: &Workload, container: &Container) {
        let title = || format!("container {} of {}", container.name, workload.title());
        let fields = [
            ("livenessProbe", container.liveness_probe.is_some()),
            ("readinessProbe", container.readiness_probe.is_some()),
            ("startupProbe", container.startup_probe.is_some()),
            ("lifecycle", container.lifecycle.is_some()),
            ("resources", container.resources.is_some()),
            ("workingDir", container.working_dir.is_some()),
        ];
        for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
            self.add(field, title());
        }
    }

    /// The warning, if anything has no effect.
    pub(super) fn warning(self) -> Option<String> {
        let entry = |(what, places): (String, BTreeSet<String>)| {
            format!("{what} ({})", places.into_iter().collect::<Vec<_>>().join(", "))
        };
        let entries: Vec<String> = self.0.into_iter().map(entry).collect();
        let text = || format!("--deployment: these have no effect on virtual nodes: {}", entries.join("; "));
        (!entries.is_empty()).then(text)
    }
}
