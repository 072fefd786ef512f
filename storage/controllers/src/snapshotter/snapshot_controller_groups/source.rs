//! The claims and class of a group, and the content created from them.
//!
//! Upstream: `createGroupSnapshotContent`, `getVolumesFromVolumeGroupSnapshot` and `SetDefaultGroupSnapshotClass` in
//! `pkg/common-controller/groupsnapshot_controller_helper.go`. Unlike there the expressions of a selector count, too,
//! and not its labels alone.

use std::sync::Arc;

use claimcheck_informer::{ClaimBy, World, claim_label, key_of, reference};
use claimcheck_model::{
    GROUP_SNAPSHOT_CONTENT_PROTECTION,
    group_snapshot::{
        VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
        VolumeGroupSnapshotContentSource, VolumeGroupSnapshotContentSpec,
    },
    group_snapshot_content_name,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use crate::{
    claims::name,
    selector::selects,
    snapshotter::{
        claim::{self, ClaimTrouble},
        parameters::{Purpose, secret, secret_annotations},
        plan_binding,
        trouble::{DefaultTrouble, SourceTrouble},
    },
};

/// The claims that a group selects, ordered by their names.
pub fn claims<'w>(group: &VolumeGroupSnapshot, world: &'w World) -> Vec<&'w Arc<PersistentVolumeClaim>> {
    let selector = group.spec.source.selector.as_ref();
    let is_selected = |claim: &&Arc<PersistentVolumeClaim>| selects(selector, claim.metadata.labels.as_ref());
    let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
    let label = selector.and_then(|selector| selector.match_labels.as_ref()?.first_key_value());
    // Both are in order of names.
    match label {
        Some((key, value)) => {
            let term = claim_label(namespace, key, value);
            world.claims.by(ClaimBy::Label, &term).filter(is_selected).collect()
        }
        // Expressions alone have no index.
        None => world.claims.by(ClaimBy::Namespace, namespace).filter(is_selected).collect(),
    }
}

/// The volumes of these claims, in the same order.
fn volumes<'w>(
    group: &VolumeGroupSnapshot,
    world: &'w World,
) -> Result<Vec<&'w Arc<PersistentVolume>>, SourceTrouble> {
    let claims = claims(group, world);
    if claims.is_empty() {
        return Err(SourceTrouble::NoClaims(describe(group.spec.source.selector.as_ref())));
    }
    let volumes = claims.into_iter().map(|claim| claim::volume(claim, "group snapshot", world));
    Ok(volumes.collect::<Result<_, ClaimTrouble>>()?)
}

/// The name of the driver's only default class. Any volume has the driver: a group with volumes of several is refused
/// later.
pub fn default_class(group: &VolumeGroupSnapshot, world: &World) -> Result<String, DefaultTrouble> {
    let volumes = volumes(group, world)?;
    let csi = volumes.first().and_then(|volume| claim::csi(volume));
    let driver = &csi.ok_or_else(|| DefaultTrouble::NotCsi(key_of(group)))?.driver;
    plan_binding::default_class::<VolumeGroupSnapshotContent>(driver, world)
}

/// The content to be created for a group. Upstream adds its finalizer in a second step.
pub fn content(
    group: &VolumeGroupSnapshot,
    class: &VolumeGroupSnapshotClass,
    world: &World,
) -> Result<VolumeGroupSnapshotContent, SourceTrouble> {
    let volumes = volumes(group, world)?;
    let content = group_snapshot_content_name(group.metadata.uid.as_deref().unwrap_or_default());
    let secret = secret(Purpose::Group, class.parameters.as_ref(), &content, Some(&key_of(group)))?;
    let mut handles = Vec::new();
    for volume in volumes {
        let csi =
            claim::csi(volume).ok_or_else(|| SourceTrouble::NotCsiInGroup(name(&**volume).to_owned()))?;
        if csi.driver != class.driver {
            return Err(SourceTrouble::OtherDriverInGroup {
                group: key_of(group),
                class: class.driver.clone(),
                volume: name(&**volume).to_owned(),
                driver: csi.driver.clone(),
            });
        }
        handles.push(csi.volume_handle.clone());
    }
    Ok(VolumeGroupSnapshotContent {
        metadata: ObjectMeta {
            name: Some(content),
            annotations: secret.map(secret_annotations::<VolumeGroupSnapshotContent>),
            finalizers: Some(vec![GROUP_SNAPSHOT_CONTENT_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeGroupSnapshotContentSpec {
            deletion_policy: class.deletion_policy.clone(),
            driver: class.driver.clone(),
            source: VolumeGroupSnapshotContentSource {
                group_snapshot_handles: None,
                volume_handles: Some(handles),
            },
            volume_group_snapshot_class_name: class.metadata.name.clone(),
            volume_group_snapshot_ref: reference(group),
        },
        status: None,
    })
}

/// A selector as Kubernetes prints it (`FormatLabelSelector` in apimachinery `pkg/apis/meta/v1/helpers.go`).
fn describe(selector: Option<&LabelSelector>) -> String {
    let labels = selector.into_iter().flat_map(|selector| selector.match_labels.iter().flatten());
    let labels = labels.map(|(key, value)| (key.clone(), format!("{key}={value}")));
    let expressions = selector.into_iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let expressions = expressions.map(|one| {
        let key = &one.key;
        let mut values = one.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        let text = match one.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        (key.clone(), text)
    });
    let mut all: Vec<(String, String)> = labels.chain(expressions).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    match all.is_empty() {
        true => "<none>".to_owned(),
        false => all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn groups_select_the_claims_of_their_namespace_by_labels_and_expressions() {
        let mut world = World::default();
        for (namespace, name, label) in
            [("default", "a", "1"), ("default", "b", "2"), ("other", "c", "1"), ("default", "d", "1")]
        {
            let mut claim = testing::claim(name, "fast", "1Gi");
            let mut volume = testing::volume(&format!("pv-{name}"), "fast", "1Gi");
            claim.metadata.namespace = Some(namespace.to_owned());
            claim.metadata.labels = Some([("x".to_owned(), label.to_owned())].into());
            testing::bind(&mut claim, &mut volume);
            world.apply(claim);
            world.apply(volume);
        }
        let selected = |selector: Value| -> Vec<String> {
            let mut group = testing::group_snapshot("g", "groups");
            group.spec.source.selector = Some(serde_json::from_value(selector).unwrap());
            let found = volumes(&group, &world).unwrap_or_default();
            found.into_iter().map(|volume| name(&**volume).to_owned()).collect()
        };
        assert_eq!(selected(json!({ "matchLabels": { "x": "1" } })), ["pv-a", "pv-d"]);
        let not_one = json!({ "key": "x", "operator": "NotIn", "values": ["1"] });
        assert_eq!(selected(json!({ "matchExpressions": [not_one] })), ["pv-b"]);
        let of_both = json!({ "matchLabels": { "x": "1" }, "matchExpressions": [not_one] });
        assert_eq!(selected(of_both), [""; 0]);
    }

    #[test]
    fn selectors_are_printed_as_by_kubernetes() {
        for (selector, expected) in [
            (json!({}), "<none>"),
            (json!({ "matchLabels": { "b": "2", "a": "1" } }), "a=1,b=2"),
            (
                json!({
                    "matchLabels": { "m": "1" },
                    "matchExpressions": [
                        { "key": "z", "operator": "In", "values": ["y", "x"] },
                        { "key": "n", "operator": "NotIn", "values": ["x"] },
                        { "key": "e", "operator": "Exists" },
                        { "key": "d", "operator": "DoesNotExist" },
                    ],
                }),
                "!d,e,m=1,n notin (x),z in (x,y)",
            ),
        ] {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(describe(Some(&selector)), expected);
        }
    }
}
