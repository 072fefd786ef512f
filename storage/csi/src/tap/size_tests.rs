//! Bodies that are larger than gRPC's messages: such a request is rejected, such a response passes and is not kept.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use tokio::sync::mpsc::UnboundedReceiver;
use tonic::{Code, Status, body::Body, codegen::Bytes};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{Context, Tap, TapRecord, Tapped, service::BODY_LIMIT};
use crate::{
    client::SIDECAR_DEADLINE,
    v1::{CreateVolumeResponse, DeleteVolumeRequest, Volume, controller_client::ControllerClient},
};

type Service = Tapped<BoxCloneSyncService<Request<Body>, Response<Body>, Status>>;

/// A driver that answers every call with these frames, under the tap.
fn driver(frames: Vec<Bytes>) -> (UnboundedReceiver<TapRecord>, Service) {
    let (tap, records) = Tap::channel();
    let service = service_fn(move |_: Request<Body>| {
        let data: Vec<_> = frames.iter().cloned().map(|bytes| Ok(Frame::data(bytes))).collect();
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        let frames = tokio_stream::iter(data.into_iter().chain([Ok::<_, Status>(Frame::trailers(trailers))]));
        async move { Ok(Response::new(Body::new(StreamBody::new(frames)))) }
    });
    let (component, deadline) = ("provisioner".to_owned(), SIDECAR_DEADLINE);
    let context = Context { tap, component, driver: OnceLock::new(), deadline, strips: false, known: None };
    (records, Tapped::new(BoxCloneSyncService::new(service), Arc::new(context)))
}

#[tokio::test]
async fn a_request_above_the_limit_is_rejected_and_recorded() {
    let (mut records, driver) = driver(Vec::new());
    let request = DeleteVolumeRequest { volume_id: "v".repeat(BODY_LIMIT), ..Default::default() };
    let status = ControllerClient::new(driver).delete_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let codes = [records.try_recv().unwrap().code(), records.try_recv().unwrap().code()];
    assert_eq!(codes, [None, Some(Code::ResourceExhausted)]);
}

#[tokio::test]
async fn a_response_above_the_limit_passes_and_is_not_recorded() {
    let volume = Some(Volume { volume_id: "v".into(), ..Default::default() });
    let message = CreateVolumeResponse { volume }.encode_to_vec();
    let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
    let first = Bytes::from([&[0][..], &prefix, &message].concat());
    let large = Bytes::from(vec![0; BODY_LIMIT / 2]);
    for (frames, expected) in [(vec![first.clone()], Some("v")), (vec![first, large.clone(), large], None)] {
        let length: usize = frames.iter().map(Bytes::len).sum();
        let (mut records, driver) = driver(frames);
        let request = Request::post("http://localhost/csi.v1.Controller/CreateVolume").body(Body::empty());
        let response = driver.oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), length);
        assert_eq!(records.try_recv().unwrap().code(), None);
        let end = records.try_recv().unwrap();
        assert_eq!((end.code(), end.volume_id.as_deref()), (Some(Code::Ok), expected));
    }
}
