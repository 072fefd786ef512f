//! Parses metrics as written by kubelet and controller manager 1.36.

use super::*;

const DRIVER: &str = "hostpath.csi.k8s.io";

/// Some lines of a kubelet's metrics; `n` successes and `failed` failures of each operation.
fn kubelet(n: u64, failed: u64, volumes: u64) -> String {
    let tried = n + failed;
    format!(
        r#"# HELP csi_operations_seconds [ALPHA] Container Storage Interface operation duration with gRPC error code status total
# TYPE csi_operations_seconds histogram
csi_operations_seconds_bucket{{driver_name="hostpath.csi.k8s.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false",le="0.1"}} {n}
csi_operations_seconds_bucket{{driver_name="hostpath.csi.k8s.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false",le="0.25"}} {n}
csi_operations_seconds_bucket{{driver_name="hostpath.csi.k8s.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false",le="+Inf"}} {n}
csi_operations_seconds_sum{{driver_name="hostpath.csi.k8s.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"}} 0.25
csi_operations_seconds_count{{driver_name="hostpath.csi.k8s.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"}} {n}
csi_operations_seconds_bucket{{driver_name="other.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false",le="+Inf"}} 77
csi_operations_seconds_count{{driver_name="other.io",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"}} 77
# HELP storage_operation_duration_seconds [ALPHA] Storage operation duration
# TYPE storage_operation_duration_seconds histogram
storage_operation_duration_seconds_bucket{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io",le="0.1"}} 0
storage_operation_duration_seconds_bucket{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io",le="0.25"}} {n}
storage_operation_duration_seconds_bucket{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io",le="+Inf"}} {n}
storage_operation_duration_seconds_sum{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io"}} {n}
storage_operation_duration_seconds_count{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io"}} {n}
storage_operation_duration_seconds_bucket{{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io",le="0.25"}} 0
storage_operation_duration_seconds_bucket{{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io",le="+Inf"}} {failed}
storage_operation_duration_seconds_sum{{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io"}} {tried}
storage_operation_duration_seconds_count{{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:hostpath.csi.k8s.io"}} {failed}
storage_operation_duration_seconds_count{{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/projected"}} 900
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{{plugin_name="kubernetes.io/csi:hostpath.csi.k8s.io",state="actual_state_of_world"}} {volumes}
volume_manager_total_volumes{{plugin_name="kubernetes.io/csi:hostpath.csi.k8s.io",state="desired_state_of_world"}} {volumes}
volume_manager_total_volumes{{plugin_name="kubernetes.io/configmap",state="actual_state_of_world"}} 40
"#
    )
}

type Readings = BTreeMap<String, Result<Reading, String>>;

fn readings<const N: usize>(of: [(&str, Result<String, &str>); N]) -> Readings {
    let read =
        |text: Result<String, &str>| text.map(|text| Reading::of(&text, DRIVER)).map_err(str::to_owned);
    of.into_iter().map(|(name, text)| (name.to_owned(), read(text))).collect()
}

fn between(before: &Readings, after: &Readings) -> StockState {
    measured(StockComponent::Kubelet, before, after).state
}

#[test]
fn only_the_difference_of_the_run_and_the_driver_is_reported() {
    let before = readings([("n1", Ok(kubelet(4, 0, 1))), ("n2", Ok(String::new()))]);
    let after = readings([("n1", Ok(kubelet(9, 5, 1))), ("n2", Ok(kubelet(10, 0, 2)))]);
    let operation = |name: &str, count, errors, mean, p95_within| StockOperation {
        name: name.into(),
        count,
        errors,
        mean,
        p95_within,
    };
    let StockState::Measured { answered, of, operations, volumes_left } = between(&before, &after) else {
        panic!("both answered")
    };
    assert_eq!((answered, of, volumes_left), (2, 2, Some(2)));
    let expected = [
        operation("NodePublishVolume", 15, 0, 0.25 / 15.0, Some(0.1)),
        // The failures are in no finite bucket.
        operation("volume_mount", 20, 5, (5.0 + 10.0 + 10.0 + 10.0) / 20.0, None),
    ];
    assert_eq!(operations, expected);
}

#[test]
fn a_restarted_component_counts_from_zero() {
    let (before, after) =
        (readings([("n1", Ok(kubelet(50, 0, 0)))]), readings([("n1", Ok(kubelet(3, 0, 0)))]));
    let StockState::Measured { operations, .. } = between(&before, &after) else { panic!("it answered") };
    assert!(operations.iter().all(|operation| operation.count == 3), "{operations:?}");
}

#[test]
fn forbidden_metrics_are_absent_with_the_reason() {
    let reason = "nodes \"n1\" is forbidden: User \"u\" cannot get resource \"nodes/proxy\"";
    let absent = |reason: &str| StockState::Absent { reason: reason.into() };
    let (fine, refused) = (|| Ok(kubelet(1, 0, 0)), || Err(reason));
    let cases = [
        (readings([("n1", refused())]), readings([("n1", refused())]), absent(reason)),
        (readings([("n1", refused())]), readings([("n1", fine())]), absent(reason)),
        (readings([]), readings([("n1", fine())]), absent("n1 did not exist when the run started")),
        (readings([]), readings([]), absent("no kubelet is reachable through the API")),
    ];
    for (before, after, expected) in cases {
        assert_eq!(between(&before, &after), expected);
    }
    let some = [("n1", fine()), ("n2", refused())];
    let StockState::Measured { answered, of, .. } = between(&readings(some.clone()), &readings(some)) else {
        panic!("one answered")
    };
    assert_eq!((answered, of), (1, 2));
}

#[tokio::test]
async fn both_components_are_queried_through_the_proxies() {
    use http::{Request, Response};
    use kube::client::Body;
    let service = tower::service_fn(|request: Request<Body>| async move {
        let refuse = |message: &str| {
            let status =
                serde_json::json!({ "kind": "Status", "status": "Failure", "code": 403, "message": message });
            (403, status.to_string())
        };
        let (code, text) = match request.uri().path() {
            "/api/v1/nodes/n1/proxy/metrics" => (200, kubelet(2, 0, 0)),
            "/api/v1/namespaces/kube-system/pods" => {
                assert_eq!(request.uri().query(), Some("&labelSelector=component%3Dkube-controller-manager"));
                let pod = serde_json::json!({ "metadata": { "name": "kcm" } });
                (200, serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod] }).to_string())
            }
            "/api/v1/namespaces/kube-system/pods/https:kcm:10257/proxy/metrics" => {
                refuse("forbidden\nfor ever")
            }
            other => panic!("{other}"),
        };
        Ok::<_, std::convert::Infallible>(
            Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap(),
        )
    });
    let client = kube::Client::new(service, "default");
    let stock = scrape(&client, &["n1".to_owned()], DRIVER).await;
    let [kubelets, managers] = stock.since(&stock);
    assert!(matches!(kubelets.state, StockState::Measured { answered: 1, .. }), "{kubelets:?}");
    assert_eq!(managers.state, StockState::Absent { reason: "forbidden".into() });
}
