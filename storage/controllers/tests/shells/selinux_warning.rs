//! The SELinux warning controller as it runs: over HTTPS, against the embedded API server.

use claimcheck_controllers::{Name, Options};
use claimcheck_informer::testing::Notes;
use claimcheck_model::{Meter, meter::Reading, metric::SELINUX_VOLUME_CONFLICT};
use k8s_openapi::api::{
    core::v1::{Event, Pod},
    storage::v1::CSIDriver,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, until, until_gone},
    is_bound,
};

const SAME_NODE: &str = "If both pods land on the same node, only one of them may access the volume.";

/// A pod without a node that mounts the claim `c`.
async fn create(cluster: &Cluster, name: &str, context: Value) {
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "i", "volumeMounts": mounts}],
            "securityContext": context,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    cluster.pods().create(&PostParams::default(), &pod).await.unwrap();
}

/// Type, source and text of the events about a pod with this reason, once there is one.
async fn events(cluster: &Cluster, pod: &str, reason: &str) -> Vec<[String; 3]> {
    cluster.events(pod, &[reason]).await;
    let events = Api::<Event>::default_namespaced(cluster.client.clone());
    let fields = format!("involvedObject.name={pod},reason={reason}");
    let found = events.list(&ListParams::default().fields(&fields)).await.unwrap();
    let line = |event: Event| {
        let source = event.source.and_then(|source| source.component);
        [event.type_, source, event.message].map(Option::unwrap_or_default)
    };
    found.items.into_iter().map(line).collect()
}

/// The metric, as a scrape collects it, sorted by its labels.
async fn scraped(notes: &Notes) -> Vec<Reading> {
    let mut readings = Vec::new();
    for collector in notes.collectors() {
        readings.extend(collector.read().await);
    }
    readings.retain(|reading| reading.metric.name == SELINUX_VOLUME_CONFLICT.name);
    readings.sort_by(|a, b| a.labels.cmp(&b.labels));
    readings
}

fn conflict(labels: [&str; 7]) -> Reading {
    Reading::new(&SELINUX_VOLUME_CONFLICT, &labels, 1.0)
}

#[test]
fn it_is_off_by_default() {
    assert!(!Name::ALL.contains(&Name::SelinuxWarning));
    assert_eq!("selinux-warning".parse::<Name>().unwrap(), Name::SelinuxWarning);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_different_labels_of_a_volume_are_warned_about() {
    let mut cluster = Cluster::prepare().await;
    let driver = json!({"metadata": {"name": "csi.test"}, "spec": {"seLinuxMount": true}});
    let driver: CSIDriver = serde_json::from_value(driver).unwrap();
    Api::<CSIDriver>::all(cluster.client.clone()).create(&PostParams::default(), &driver).await.unwrap();
    cluster.volume("v", "", json!({})).await;
    let notes = Notes::default();
    let options = Options { meter: Meter::new(notes.clone()), ..Options::default() };
    cluster.run_with(&[Name::Binder, Name::SelinuxWarning], options).await;
    create(&cluster, "p", json!({"seLinuxOptions": {"level": "s0:c1,c2"}})).await;
    create(&cluster, "q", json!({"seLinuxOptions": {"level": "s0:c3,c4"}})).await;
    // The pods are known before their claim is bound.
    cluster.claim("c", "").await;
    until(&cluster.claims(), "c", is_bound).await;

    for (pod, label, other, other_label) in
        [("p", ":::s0:c1,c2", "q", ":::s0:c3,c4"), ("q", ":::s0:c3,c4", "p", ":::s0:c1,c2")]
    {
        let text = format!(
            "SELinuxLabel \"{label}\" conflicts with pod {other} that uses the same volume as this pod with \
             SELinuxLabel \"{other_label}\". {SAME_NODE}"
        );
        let expected = ["Normal", "selinux_warning", text.as_str()].map(str::to_owned);
        assert_eq!(events(&cluster, pod, "SELinuxLabelConflict").await, [expected], "{pod}");
    }
    let label = "SELinuxLabel";
    assert_eq!(
        scraped(&notes).await,
        [
            conflict([label, "default", "p", ":::s0:c1,c2", "default", "q", ":::s0:c3,c4"]),
            conflict([label, "default", "q", ":::s0:c3,c4", "default", "p", ":::s0:c1,c2"]),
        ]
    );

    cluster.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&cluster.pods(), "p").await;
    // Its event shows that the deletion of `p` is known.
    create(&cluster, "r", json!({"seLinuxChangePolicy": "Recursive"})).await;
    let text = format!(
        "SELinuxChangePolicy \"Recursive\" conflicts with pod q that uses the same volume as this pod with \
         SELinuxChangePolicy \"MountOption\". {SAME_NODE}"
    );
    let expected = ["Normal", "selinux_warning", text.as_str()].map(str::to_owned);
    assert_eq!(events(&cluster, "r", "SELinuxChangePolicyConflict").await, [expected]);
    let policy = "SELinuxChangePolicy";
    assert_eq!(
        scraped(&notes).await,
        [
            conflict([policy, "default", "q", "MountOption", "default", "r", "Recursive"]),
            conflict([policy, "default", "r", "Recursive", "default", "q", "MountOption"]),
            conflict([label, "default", "q", ":::s0:c3,c4", "default", "r", ""]),
            conflict([label, "default", "r", "", "default", "q", ":::s0:c3,c4"]),
        ]
    );
}
