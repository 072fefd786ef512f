//! Calls over a unix socket: records, codes, secrets, restarts, readiness.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use claimcheck_csi::{
    Code, Driver, NotReadyCause, Server,
    tap::{CallEnd, Tap, TapRecord},
    v1::{self, snapshot_metadata_client::SnapshotMetadataClient},
};
use claimcheck_model::CsiMethod;
use tokio::{runtime, sync::mpsc::UnboundedReceiver};

use super::toy::{Toy, driver};

const SECRET: &str = "hunter2";
const LONG: Duration = Duration::from_secs(60);

fn drain(records: &mut UnboundedReceiver<TapRecord>) -> Vec<TapRecord> {
    std::iter::from_fn(|| records.try_recv().ok()).collect()
}

fn secrets() -> BTreeMap<String, String> {
    BTreeMap::from([("password".to_owned(), SECRET.to_owned())])
}

#[tokio::test]
async fn a_driver_on_a_tcp_port_is_called_like_one_on_a_socket() {
    let server = Server::listen(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
    let endpoint = server.endpoint();
    let taken = Server::listen(&endpoint).await.unwrap_err();
    assert!(
        taken.to_string().contains("choose an address of this machine and a port that is free"),
        "{taken}"
    );
    let running = Toy::default().serve_at(server);
    let (tap, mut records) = Tap::channel();
    let driver = Driver::new(endpoint, tap, "provisioner");
    driver.wait_ready(LONG).await.unwrap();
    let request = v1::CreateVolumeRequest { name: "pvc-1".into(), secrets: secrets(), ..Default::default() };
    let volume = driver.controller().create_volume(request).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(volume.volume_id, "vol-of-pvc-1");
    assert_eq!(drain(&mut records).len(), 4, "two records of Probe, two of CreateVolume");
    running.stop().await;
}

#[tokio::test]
async fn a_call_is_two_records_and_the_end_knows_the_new_volume() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _running = Toy::default().serve(&socket);
    let (tap, mut records) = Tap::channel();
    let driver = driver(&socket, tap);

    driver.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap();
    let request = v1::CreateVolumeRequest { name: "pvc-1".into(), secrets: secrets(), ..Default::default() };
    driver.controller().create_volume(request).await.unwrap();

    let [info_start, info_end, start, end] = drain(&mut records).try_into().unwrap();
    assert_eq!((info_start.driver, info_end.driver.as_deref()), (None, Some("toy.csi")));
    let at = end.end.as_ref().map(|end| end.at).unwrap();
    assert_eq!((start.end, end.end), (None, Some(CallEnd::new(at, Code::Ok))));
    assert_eq!((start.volume_id, end.volume_id.as_deref()), (None, Some("vol-of-pvc-1")));
    assert_eq!(start.id, end.id);
    assert_ne!(start.id, info_start.id);
    assert!(start.start == end.start && start.start <= at);
    assert!(info_end.end.is_some_and(|end| end.at <= start.start));
    for (driver, name, component, method) in [
        (start.driver, start.volume_name, start.component, start.method),
        (end.driver, end.volume_name, end.component, end.method),
    ] {
        assert_eq!((driver.as_deref(), name.as_deref()), (Some("toy.csi"), Some("pvc-1")));
        assert_eq!((component.as_str(), method), ("provisioner", CsiMethod::CreateVolume.into()));
    }
}

#[tokio::test]
async fn errors_keep_code_and_message_but_records_hold_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _running = Toy::default().serve(&socket);
    let (tap, mut records) = Tap::channel();

    let request = v1::DeleteVolumeRequest { volume_id: "v".into(), secrets: secrets() };
    let status = driver(&socket, tap).controller().delete_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains(SECRET), "the caller gets what the driver said");

    let records = drain(&mut records);
    assert!(!serde_json::to_string(&records).unwrap().contains(SECRET));
    let message = r#"still in use, {"password": "[hidden by claimcheck]"}"#.to_owned();
    assert_eq!(records[0].end, None);
    let end = records[1].end.as_ref().unwrap();
    assert_eq!((end.code, end.message.as_ref()), (Code::FailedPrecondition, Some(&message)));

    let request = v1::DeleteVolumeRequest { volume_id: "v".into(), secrets: secrets() };
    let discreet = driver(&socket, Tap::none()).stripping_secrets();
    let status = discreet.controller().delete_volume(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, message.as_str()));
}

#[tokio::test]
async fn records_hold_no_token_of_a_pod() {
    const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _running = Toy::default().serve(&socket);
    let (tap, mut records) = Tap::channel();

    let tokens =
        format!(r#"{{"vault":{{"token":"{SECRET}","expirationTimestamp":"2026-01-01T00:00:00Z"}}}}"#);
    let volume_context = BTreeMap::from([(TOKENS.to_owned(), tokens)]);
    let request = v1::NodePublishVolumeRequest { volume_context, ..Default::default() };
    let status = driver(&socket, tap).node().node_publish_volume(request).await.unwrap_err();
    assert!(status.message().contains(SECRET), "the caller gets what the driver said");

    let message = drain(&mut records).remove(1).end.and_then(|end| end.message);
    let expected = format!(r#"unusable: {{"{TOKENS}": "[hidden by claimcheck]"}}"#);
    assert_eq!(message.as_ref(), Some(&expected));
}

#[tokio::test]
async fn unknown_methods_pass_and_are_recorded_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _running = Toy::default().serve(&socket);
    let (tap, mut records) = Tap::channel();
    let driver = driver(&socket, tap);

    // The driver has no such service; the tap reads nothing of it.
    let mut grpc = tonic::client::Grpc::new(driver.service());
    let path = http::uri::PathAndQuery::from_static("/vendor.v2.Extras/Polish");
    let codec = tonic_prost::ProstCodec::<v1::ProbeRequest, v1::ProbeResponse>::default();
    grpc.ready().await.unwrap();
    let answer = grpc.unary(tonic::Request::new(v1::ProbeRequest {}), path, codec).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    // The driver has the service, but not the RPC.
    let status = driver.controller().list_volumes(v1::ListVolumesRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);

    let codes: Vec<_> = drain(&mut records).iter().map(TapRecord::code).collect();
    assert_eq!(codes, [None, Some(Code::Unimplemented), None, Some(Code::Unimplemented)]);
}

#[tokio::test]
async fn a_stream_passes_message_by_message_and_ends_its_record_with_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _running = Toy::default().serve(&socket);
    let (tap, mut records) = Tap::channel();
    let mut client = SnapshotMetadataClient::new(driver(&socket, tap).service());

    let request = v1::GetMetadataAllocatedRequest::default();
    let mut blocks = client.get_metadata_allocated(request).await.unwrap().into_inner();
    assert_eq!(drain(&mut records).len(), 1, "not over with the first message");
    for _ in 0..2 {
        assert!(blocks.message().await.unwrap().is_some());
    }
    assert_eq!(blocks.message().await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(drain(&mut records)[0].code(), Some(Code::OutOfRange));
}

#[tokio::test]
async fn the_next_call_reaches_a_driver_that_came_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let toy = Toy::default();
    let driver = driver(&socket, Tap::none());
    let info = || async { driver.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await };

    assert_eq!(info().await.unwrap_err().code(), Code::Unavailable, "not started yet");
    for round in 0..3 {
        let running = toy.serve(&socket);
        info().await.unwrap_or_else(|status| panic!("round {round}: {status}"));
        running.stop().await;
        assert!(!socket.exists());
        assert_eq!(info().await.unwrap_err().code(), Code::Unavailable, "round {round}: stopped");
    }
}

#[tokio::test]
async fn a_call_under_way_when_the_driver_dies_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    // A runtime of its own, so that all of the driver dies at once, as a process does.
    let process = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let running = {
        let _inside = process.enter();
        Toy::default().serve(&socket)
    };
    let (tap, mut records) = Tap::channel();
    let mut node = driver(&socket, tap).node();
    let call = tokio::spawn(async move {
        let request = v1::NodeStageVolumeRequest {
            volume_id: "v".into(),
            staging_target_path: "/staging".into(),
            ..Default::default()
        };
        node.node_stage_volume(request).await
    });
    let start = records.recv().await.unwrap();
    assert_eq!((start.method.csi(), start.target()), (Some(CsiMethod::NodeStageVolume), "/staging"));
    driver(&socket, Tap::none()).wait_ready(LONG).await.unwrap();
    process.shutdown_background();
    drop(running);

    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(records.recv().await.unwrap().code(), Some(Code::Unavailable));
}

#[tokio::test]
async fn waiting_ends_when_the_driver_reports_ready() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let (tap, mut records) = Tap::channel();
    let driver = driver(&socket, tap);
    let waiting = tokio::spawn({
        let driver = driver.clone();
        async move { driver.wait_ready(LONG).await }
    });
    let toy = Toy::default();
    toy.starting.store(2, Ordering::Relaxed);
    let _running = toy.serve(&socket);
    waiting.await.unwrap().unwrap();
    assert_eq!(toy.starting.load(Ordering::Relaxed), 0);
    assert_eq!(drain(&mut records).len(), 6, "three probes, and no record of attempts to connect");
}

#[tokio::test]
async fn waiting_is_bounded_and_reports_the_last_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let limit = Duration::from_millis(30);
    let start = Instant::now();
    let error = driver(&socket, Tap::none()).wait_ready(limit).await.unwrap_err();
    assert!(matches!(error.last, NotReadyCause::Connect(_)), "{error:?}");
    assert!(start.elapsed() < LONG);
    let expected = format!("the driver at unix://{} is not ready after 30ms", socket.display());
    assert!(error.to_string().starts_with(&expected), "{error}");

    let toy = Toy::default();
    toy.starting.store(u32::MAX, Ordering::Relaxed);
    let _running = toy.serve(&socket);
    // A busy machine may need longer than that for the first answer.
    for limit in (0..).map(|doubled| limit * (1 << doubled)) {
        let error = driver(&socket, Tap::none()).wait_ready(limit).await.unwrap_err();
        if matches!(error.last, NotReadyCause::Starting) {
            break;
        }
        assert!(limit < LONG, "{error:?}");
    }
}
