//! What the roles of an installation permit, by component.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_controllers::Name;
use claimcheck_deploy::install::{
    Options, Variant,
    accounts::{Components, account_objects},
    objects,
};
use claimcheck_model::{group_snapshot, snapshot::GROUP};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::DynamicObject;
use serde_json::Value;

use super::requests::{Request, Right};

/// On a role: rights that a run need not show, each with the error path that takes it.
const UNSEEN: &str = "claimcheck.dev/unseen-rights";

/// One permission.
#[derive(Debug)]
pub struct Permit {
    pub right: Right,
    /// Only in the namespace of the installation.
    pub namespaced: bool,
    /// Only for these names; all where there are none.
    pub names: Vec<String>,
}

impl Permit {
    /// Whether the request needs no more than this, where `home` is what stands for the installation's
    /// namespace.
    pub fn covers(&self, request: &Request, home: &str) -> bool {
        let named = |name: &String| self.names.contains(name);
        self.right == request.right
            && (!self.namespaced || request.namespace.as_deref() == Some(home))
            && (self.names.is_empty() || request.name.as_ref().is_some_and(named))
    }
}

/// What a component may do.
#[derive(Debug, Default)]
pub struct Roles {
    pub permits: Vec<Permit>,
    /// Rights that need not be seen.
    pub unseen: BTreeSet<Right>,
}

/// The objects of an installation, and of virtual nodes where they are not among these.
fn component_roles() -> Vec<DynamicObject> {
    let mut found = objects(&Options::new(Variant::Kind));
    let names = Name::ALL.into_iter().chain([Name::Garbage]);
    let controllers = names.map(|name| name.to_string()).collect();
    let virtual_nodes = account_objects(&Components { controllers, ..Components::default() });
    for object in virtual_nodes {
        let is_same = |other: &DynamicObject| {
            other.types == object.types && other.metadata.labels == object.metadata.labels
        };
        if !found.iter().any(is_same) {
            found.push(object);
        }
    }
    found
}

/// The roles by component: the label of their objects.
pub fn roles() -> BTreeMap<String, Roles> {
    let mut found = BTreeMap::<String, Roles>::new();
    for object in component_roles() {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        if !["ClusterRole", "Role"].contains(&kind) {
            continue;
        }
        let labels = object.metadata.labels.as_ref().expect("every object has labels");
        let roles = found.entry(labels["app.kubernetes.io/component"].clone()).or_default();
        let rules: Vec<PolicyRule> = serde_json::from_value(object.data["rules"].clone()).expect("rules");
        for rule in rules {
            roles.permits.extend(permits(&rule, kind == "Role"));
        }
        let annotations = object.metadata.annotations.iter().flatten();
        for (_, text) in annotations.filter(|(name, _)| *name == UNSEEN) {
            roles.unseen.extend(text.lines().map(unseen));
        }
    }
    found
}

fn permits(rule: &PolicyRule, namespaced: bool) -> Vec<Permit> {
    let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.clone().unwrap_or_default());
    let mut permits = Vec::new();
    for group in groups {
        for resource in &resources {
            for verb in &rule.verbs {
                assert!(
                    ![group, resource, verb].contains(&&"*".to_owned()),
                    "least privilege has no wildcards"
                );
                let names = rule.resource_names.clone().unwrap_or_default();
                permits.push(Permit { right: Right::new(verb, group, resource), namespaced, names });
            }
        }
    }
    permits
}

/// Reads `verb resource[.group]: why`.
fn unseen(line: &str) -> Right {
    let (right, why) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?} does not say why"));
    assert!(why.len() > 10, "{line:?} does not say why");
    let (verb, resource) = right.split_once(' ').unwrap_or_else(|| panic!("{line:?} is no right"));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    Right::new(verb, group, resource)
}

/// The rights that watching a kind takes.
pub fn watching(kind: &str) -> [Right; 2] {
    let (group, resource) = match kind {
        "PersistentVolumeClaim" => ("", "persistentvolumeclaims"),
        "PersistentVolume" => ("", "persistentvolumes"),
        "Pod" => ("", "pods"),
        "Node" => ("", "nodes"),
        "StorageClass" => ("storage.k8s.io", "storageclasses"),
        "VolumeAttachment" => ("storage.k8s.io", "volumeattachments"),
        "CSIDriver" => ("storage.k8s.io", "csidrivers"),
        "CSINode" => ("storage.k8s.io", "csinodes"),
        "CSIStorageCapacity" => ("storage.k8s.io", "csistoragecapacities"),
        "VolumeAttributesClass" => ("storage.k8s.io", "volumeattributesclasses"),
        "Lease" => ("coordination.k8s.io", "leases"),
        "VolumeSnapshot" => (GROUP, "volumesnapshots"),
        "VolumeSnapshotContent" => (GROUP, "volumesnapshotcontents"),
        "VolumeSnapshotClass" => (GROUP, "volumesnapshotclasses"),
        "VolumeGroupSnapshot" => (group_snapshot::GROUP, "volumegroupsnapshots"),
        "VolumeGroupSnapshotContent" => (group_snapshot::GROUP, "volumegroupsnapshotcontents"),
        "VolumeGroupSnapshotClass" => (group_snapshot::GROUP, "volumegroupsnapshotclasses"),
        other => panic!("add {other} here"),
    };
    [Right::new("list", group, resource), Right::new("watch", group, resource)]
}

/// What else stands on a role is a mistake.
#[test]
fn annotations_of_roles_are_rights_with_their_reasons() {
    for object in component_roles() {
        let value = serde_json::to_value(&object).expect("JSON");
        // Kinds of objects carry what the API server asks of those in Kubernetes' own groups.
        if value["kind"] == "CustomResourceDefinition" {
            continue;
        }
        let Some(annotations) = value["metadata"]["annotations"].as_object() else { continue };
        assert!(annotations.keys().all(|name| name == UNSEEN), "{annotations:?}");
        annotations.values().filter_map(Value::as_str).flat_map(str::lines).map(unseen).for_each(drop);
    }
    for (component, roles) in roles() {
        let granted: BTreeSet<_> = roles.permits.iter().map(|permit| &permit.right).collect();
        let idle: Vec<_> = roles.unseen.iter().filter(|right| !granted.contains(right)).collect();
        assert!(idle.is_empty(), "{component} explains what it may not do: {idle:?}");
    }
}
