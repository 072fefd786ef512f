//! Faults and deadlines under paused time: the layer around a driver that is a function.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep},
};
use tonic::{Code, Status, body::Body, codegen::Bytes};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{Context, FaultAction, FaultPlan, FaultRule, Faults, Tap, TapRecord, Tapped};
use crate::v1::{
    CreateVolumeRequest, DeleteVolumeRequest, DeleteVolumeResponse, controller_client::ControllerClient,
};

const DEADLINE: Duration = Duration::from_secs(15);

/// What the driver did, and what the tap saw of it.
struct Bench {
    acted: Arc<AtomicU32>,
    faults: Faults,
    records: UnboundedReceiver<TapRecord>,
}

impl Bench {
    fn acted(&self) -> u32 {
        self.acted.load(Ordering::Relaxed)
    }

    fn codes(&mut self) -> Vec<Option<Code>> {
        std::iter::from_fn(|| self.records.try_recv().ok()).map(|record| record.code()).collect()
    }
}

type Client = ControllerClient<Tapped<BoxCloneSyncService<Request<Body>, Response<Body>, Status>>>;

/// A driver that answers after `takes`, under the tap.
fn driver(takes: Duration, plan: impl Into<FaultPlan>) -> (Bench, Client) {
    let (tap, records) = Tap::channel();
    let acted = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&acted);
    let service = service_fn(move |_: Request<Body>| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            sleep(takes).await;
            Ok(answer())
        }
    });
    let tap = tap.with_faults(plan.into());
    let faults = tap.faults.clone();
    let context = Context {
        tap,
        component: "provisioner".into(),
        driver: OnceLock::new(),
        deadline: DEADLINE,
        strips: false,
        known: None,
    };
    let tapped = Tapped::new(BoxCloneSyncService::new(service), Arc::new(context));
    (Bench { acted, faults, records }, ControllerClient::new(tapped))
}

/// An empty message, framed, and an OK in the trailers.
fn answer() -> Response<Body> {
    assert_eq!(DeleteVolumeResponse {}.encoded_len(), 0);
    let data = Frame::data(Bytes::from_static(&[0; 5]));
    let trailers = Frame::trailers(HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]));
    let frames = tokio_stream::iter([Ok::<_, Status>(data), Ok(trailers)]);
    Response::new(Body::new(StreamBody::new(frames).boxed_unsync()))
}

fn delete() -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: "v".into(), ..Default::default() }
}

const AT_ONCE: Duration = Duration::ZERO;

#[tokio::test(start_paused = true)]
async fn a_delay_puts_the_call_off_and_nothing_else() {
    let rule = FaultRule::new("DeleteVolume", FaultAction::Delay { ms: 700 }).times(1);
    let (mut bench, mut client) = driver(AT_ONCE, rule);
    for expected in [Duration::from_millis(700), AT_ONCE] {
        let start = Instant::now();
        client.delete_volume(delete()).await.unwrap();
        assert_eq!(start.elapsed(), expected);
    }
    assert_eq!(bench.codes(), [None, Some(Code::Ok), None, Some(Code::Ok)]);
}

#[tokio::test(start_paused = true)]
async fn a_hang_ends_with_the_deadline_and_never_reaches_the_driver() {
    let (mut bench, mut client) = driver(AT_ONCE, FaultRule::new("DeleteVolume", FaultAction::Hang));
    let start = Instant::now();
    let status = client.delete_volume(delete()).await.unwrap_err();
    assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, DEADLINE));
    assert_eq!(bench.acted(), 0);
    assert_eq!(bench.codes(), [None, Some(Code::DeadlineExceeded)]);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_reaches_the_driver_once_the_rule_is_gone() {
    let hold = || FaultRule::new("DeleteVolume", FaultAction::Hold { name: "one".into(), refuse: false });
    let (mut bench, mut client) = driver(AT_ONCE, hold());
    let faults = bench.faults.clone();
    let call = tokio::spawn(async move { client.delete_volume(delete()).await });
    sleep(Duration::from_secs(5)).await;
    assert_eq!((bench.acted(), bench.codes()), (0, vec![None]));
    // Another rule takes its place: the count of a former one is kept, and its call is still held.
    faults.set(FaultPlan { rules: vec![FaultRule::new("Probe", FaultAction::Hang), hold()] });
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.acted(), 0);
    faults.set(FaultPlan::default());
    call.await.unwrap().unwrap();
    assert_eq!((bench.acted(), bench.codes()), (1, vec![Some(Code::Ok)]));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_call_goes_before_that_of_the_handle() {
    let (bench, mut client) = driver(Duration::from_secs(3600), FaultPlan::default());
    let mut request = tonic::Request::new(delete());
    request.set_timeout(Duration::from_secs(120));
    let start = Instant::now();
    let status = client.delete_volume(request).await.unwrap_err();
    assert_eq!((status.code(), start.elapsed()), (Code::DeadlineExceeded, Duration::from_secs(120)));
    assert_eq!(bench.acted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_pauses_ends_with_the_deadline() {
    let service = service_fn(|_: Request<Body>| async {
        let frames = std::iter::repeat_with(|| Ok::<_, Status>(Frame::data(Bytes::from_static(&[0; 5]))));
        Ok(Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames)))))
    });
    let (component, driver) = ("backup".to_owned(), OnceLock::new());
    let context =
        Context { tap: Tap::none(), component, driver, deadline: DEADLINE, strips: false, known: None };
    let service = BoxCloneSyncService::<_, _, Status>::new(service);
    let tapped = Tapped::new(service, Arc::new(context));
    let request =
        Request::post("http://localhost/csi.v1.SnapshotMetadata/GetMetadataDelta").body(Body::empty());
    let mut body = tapped.oneshot(request.unwrap()).await.unwrap().into_body();
    let mut frames = 0;
    let status = loop {
        match body.frame().await.expect("it has no end") {
            Ok(_) => frames += 1,
            Err(status) => break status,
        }
        assert!(frames < 20, "the deadline has passed");
        tokio::time::advance(Duration::from_secs(1)).await;
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_comes_after_the_driver_acted() {
    let rule = FaultRule::new("DeleteVolume", FaultAction::DropAfter).times(1);
    let (mut bench, mut client) = driver(Duration::from_secs(1), rule);
    let start = Instant::now();
    let status = client.delete_volume(delete()).await.unwrap_err();
    assert_eq!((status.code(), start.elapsed()), (Code::Unavailable, Duration::from_secs(1)));
    assert_eq!(bench.acted(), 1);
    client.delete_volume(delete()).await.unwrap();
    assert_eq!(bench.codes(), [None, Some(Code::Unavailable), None, Some(Code::Ok)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_gets_other_fields_and_is_recorded_with_them() {
    let with = serde_json::json!({ "volume": { "volume_id": "w", "capacity_bytes": 7 } });
    let rule = FaultRule::new("CreateVolume", FaultAction::Answer { with }).times(1);
    let (mut bench, mut client) = driver(AT_ONCE, rule);
    let answer = client.create_volume(CreateVolumeRequest::default()).await.unwrap().into_inner();
    let volume = answer.volume.unwrap();
    assert_eq!((volume.volume_id.as_str(), volume.capacity_bytes, bench.acted()), ("w", 7, 1));
    let ids = std::iter::from_fn(|| bench.records.try_recv().ok()).filter_map(|record| record.volume_id);
    assert_eq!(ids.collect::<Vec<_>>(), ["w"]);
    let answer = client.create_volume(CreateVolumeRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.volume, None, "the rule was for one call");
}

#[tokio::test(start_paused = true)]
async fn an_injected_error_keeps_its_code_and_message() {
    let action = FaultAction::Error { code: Code::ResourceExhausted, message: "full".into() };
    let (bench, mut client) = driver(AT_ONCE, FaultRule::new("DeleteVolume", action));
    let status = client.delete_volume(delete()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "full"));
    assert_eq!(bench.acted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_ends_the_record() {
    let (mut bench, mut client) = driver(Duration::from_secs(60), FaultPlan::default());
    let call = tokio::time::timeout(Duration::from_secs(1), client.delete_volume(delete()));
    assert!(call.await.is_err());
    assert_eq!(bench.codes(), [None, Some(Code::Cancelled)]);
}
