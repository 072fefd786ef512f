//! From events to spans as a table, and exports to a collector over sockets.

use std::{
    convert::Infallible,
    path::Path,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use claimcheck_apiserver::Certificates;
use claimcheck_model::{
    ApiWrite, CaseId, Event, LifecycleObject, LifecycleObjectKind, ObjectKey, Outcome, Phase, PhaseSample,
    RpcSummary, Source, Stamp, SubjectIds, VolumeMode,
};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
};

use super::{
    Collector, Exporter,
    export::Timeouts,
    lifecycles::Lifecycles,
    otlp::{self, Kind, PartialSuccess, Request, Span},
};

fn at(ms: u64) -> Stamp {
    // The wall clock drifts, as read: spans must nest nevertheless.
    Stamp { mono_ns: ms * 1_000_000, wall_ns: 1_000_000_000_000 + ms * 1_000_000 - ms % 7 }
}

fn phase(phase: Phase, node: &str, from: u64, to: u64) -> Event {
    let subject = SubjectIds {
        claim: "uid".into(),
        volume: "pvc-uid".into(),
        node: node.into(),
        ..SubjectIds::default()
    };
    let outcome = Outcome::Ok {
        start: at(from),
        end: at(to),
        source: Source::Csi,
        seconds: 0.0,
        driver_seconds: None,
        overhead_seconds: None,
    };
    Event::Phase(PhaseSample {
        phase,
        subject,
        claim: "ns/data".into(),
        handle: "h".into(),
        driver: "d".into(),
        class: "fast".into(),
        volume_mode: VolumeMode::Filesystem,
        outcome,
    })
}

fn call(method: &str, volume: &str, node: &str, from: u64, to: u64, code: &str) -> Event {
    Event::Rpc(RpcSummary {
        driver: "d".into(),
        method: method.into(),
        code: code.into(),
        volume: volume.into(),
        node: node.into(),
        start: at(from),
        seconds: (to - from) as f64 / 1e3,
        retry: false,
    })
}

fn write(verb: &str, kind: LifecycleObjectKind, subresource: &str, from: u64, to: u64, code: u16) -> Event {
    let claim = LifecycleObject { kind: LifecycleObjectKind::Claim, key: ObjectKey::new("ns", "data") };
    let key =
        if kind == LifecycleObjectKind::Volume { ObjectKey::cluster("pvc-uid") } else { claim.key.clone() };
    Event::ApiWrite(ApiWrite {
        agent: "claimcheck".into(),
        verb: verb.into(),
        object: LifecycleObject { kind, key },
        subresource: subresource.into(),
        refers_to: (kind == LifecycleObjectKind::Pod).then(|| vec![claim]),
        code,
        start: at(from),
        seconds: (to - from) as f64 / 1e3,
    })
}

fn life() -> Vec<Event> {
    vec![
        Event::CaseStarted { case: CaseId::new("suite", "case"), namespace: "ns".into() },
        // Answered after a watch has shown the volume.
        write("create", LifecycleObjectKind::Volume, "", 19, 21, 201),
        call("CreateVolume", "pvc-uid", "", 12, 18, "OK"),
        phase(Phase::Provision, "", 10, 20),
        phase(Phase::Schedule, "", 5, 30),
        call("NodeStageVolume", "h", "n", 31, 33, "Internal"),
        call("NodeStageVolume", "h", "n", 34, 40, "OK"),
        call("NodeStageVolume", "other", "n", 34, 40, "OK"),
        phase(Phase::Stage, "n", 30, 40),
        write("patch", LifecycleObjectKind::Claim, "status", 45, 46, 409),
        write("create", LifecycleObjectKind::Pod, "", 4, 6, 0),
        call("NodeUnstageVolume", "h", "n", 50, 60, "OK"),
        phase(Phase::Delete, "", 70, 80),
        // Observed by another source than the deletion.
        call("DeleteVolume", "h", "", 71, 79, "OK"),
    ]
}

/// The one trace of that life.
fn trace() -> Vec<Span> {
    let mut lifecycles = Lifecycles::default();
    assert!(life().iter().all(|event| lifecycles.observe(event, at(80)).is_empty()));
    lifecycles.finish().remove(0)
}

/// `name < parent`, with what went wrong.
fn table(spans: &[Span]) -> Vec<String> {
    let parent = |span: &Span| {
        let found = spans.iter().find(|other| other.span_id == span.parent_span_id);
        found.map_or("-", |found| found.name.as_str())
    };
    let row = |span: &Span| {
        let failed = span.status.as_ref().map_or("", |status| status.message.as_str());
        format!("{} < {} {failed}", span.name, parent(span)).trim_end().to_owned()
    };
    spans.iter().map(row).collect()
}

/// A busy watch reports the deletion of a volume late: after the call to the driver.
#[test]
fn a_call_belongs_to_the_nearest_phase_of_its_kind() {
    let mut lifecycles = Lifecycles::default();
    for event in [
        phase(Phase::Stage, "n", 10, 20),
        phase(Phase::Stage, "n", 50, 60),
        call("NodeStageVolume", "h", "n", 48, 58, "OK"),
        call("DeleteVolume", "h", "", 68, 69, "OK"),
        phase(Phase::Delete, "", 70, 80),
    ] {
        assert!(lifecycles.observe(&event, at(80)).is_empty());
    }
    let spans = lifecycles.finish().remove(0);
    let rows = table(&spans);
    let its = |name: &str| rows.iter().find(|row| row.starts_with(name)).unwrap().clone();
    assert_eq!(
        (its("NodeStageVolume"), its("DeleteVolume")),
        ("NodeStageVolume < stage".to_owned(), "DeleteVolume < delete".to_owned(),)
    );
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    assert_eq!(named("NodeStageVolume")[0].parent_span_id, named("stage")[1].span_id);
}

#[test]
fn a_volume_becomes_one_trace() {
    let spans = trace();
    assert_eq!(
        table(&spans),
        [
            "volume < -",
            "provision < volume",
            "schedule < volume",
            "stage < volume",
            "delete < volume",
            "CreateVolume < provision",
            "NodeStageVolume < stage Internal",
            "NodeStageVolume < stage",
            "NodeUnstageVolume < volume",
            "DeleteVolume < delete",
            "create pods < volume no response",
            "create persistentvolumes < provision",
            "patch persistentvolumeclaims/status < volume 409",
        ]
    );
    for span in &spans {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        assert_eq!(span.trace_id, spans[0].trace_id);
        if let Some(parent) = spans.iter().find(|other| other.span_id == span.parent_span_id) {
            assert!(parent.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
            let may_outlive = span.name.starts_with("create");
            assert!(may_outlive || span.end_time_unix_nano <= parent.end_time_unix_nano, "{}", span.name);
        }
    }
    assert_eq!(spans[5].kind, i32::from(Kind::Client));
    let case = spans[0].attributes.iter().find(|pair| pair.key == "claimcheck.case").unwrap();
    let case = case.value.as_ref().unwrap().string_value.as_deref();
    assert_eq!(case, Some(CaseId::new("suite", "case").to_string().as_str()));
    assert_eq!(spans, trace(), "ids are those of the events");
}

#[test]
fn a_trace_waits_for_stragglers_and_later_ones_make_no_second() {
    let mut lifecycles = Lifecycles::default();
    for event in life() {
        assert!(lifecycles.observe(&event, at(80)).is_empty());
    }
    let other = call("NodeGetVolumeStats", "other", "n", 100, 101, "OK");
    assert!(lifecycles.observe(&other, at(1000)).is_empty(), "there may be more to come");
    let left = lifecycles.observe(&other, at(2080));
    assert_eq!((left.len(), &left[0]), (1, &trace()));
    for late in
        [phase(Phase::Unstage, "n", 50, 60), write("delete", LifecycleObjectKind::Pod, "", 50, 60, 200)]
    {
        assert!(lifecycles.observe(&late, at(2090)).is_empty());
    }
    assert!(lifecycles.finish().is_empty());
}

#[test]
fn a_volume_that_outlives_the_run_is_traced_at_its_end() {
    let mut lifecycles = Lifecycles::default();
    assert!(life()[..6].iter().all(|event| lifecycles.observe(event, at(9000)).is_empty()));
    assert_eq!(table(&lifecycles.finish()[0])[0], "volume < -");
    assert!(lifecycles.finish().is_empty());
}

/// Long enough that only a response ends an attempt.
const LONG: Timeouts = Timeouts {
    attempt: Duration::from_secs(20),
    backoff: Duration::from_millis(1),
    end: Duration::from_secs(60),
};

/// A collector's response.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Taken,
    Busy,
    Wrong,
    TakenInPart,
}

impl Reply {
    fn http(self) -> u16 {
        match self {
            Self::Taken | Self::TakenInPart => 200,
            Self::Busy => 503,
            Self::Wrong => 400,
        }
    }

    fn body(self) -> Vec<u8> {
        let refused = PartialSuccess { rejected_spans: 2, error_message: "too old".into() };
        let partial_success = matches!(self, Self::TakenInPart).then_some(refused);
        otlp::Response { partial_success }.encode_to_vec()
    }
}

/// A collector at a free port. It returns these replies in turn, the last one forever, and reports
/// each request with what it replied.
async fn receiver(replies: &'static [Reply]) -> (String, mpsc::UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, received) = mpsc::unbounded_channel();
    let asked = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, asked) = (sender.clone(), asked.clone());
            let answer = service_fn(move |request: http::Request<Incoming>| {
                let nth = asked.fetch_add(1, Ordering::Relaxed).min(replies.len() - 1);
                answer(request, replies[nth], sender.clone())
            });
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (address, received)
}

async fn answer(
    request: http::Request<Incoming>,
    reply: Reply,
    sender: mpsc::UnboundedSender<Request>,
) -> Result<http::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    sender.send(Request::decode(body).unwrap()).unwrap();
    let body = Full::new(Bytes::from(reply.body()));
    Ok(http::Response::builder().status(reply.http()).body(body).unwrap())
}

async fn export(url: &str, timeouts: Timeouts) -> Option<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut exporter = Exporter::with_timeouts(url.parse::<Collector>().unwrap(), timeouts);
    life().iter().for_each(|event| exporter.observe(event, at(80)));
    exporter.finish().await
}

#[tokio::test]
async fn a_trace_arrives_also_after_retryable_errors() {
    for replies in [&[Reply::Taken][..], &[Reply::Busy, Reply::Busy, Reply::Taken]] {
        let (address, mut received) = receiver(replies).await;
        assert_eq!(export(&format!("http://{address}"), LONG).await, None, "{replies:?}");
        let mut requests = Vec::new();
        while let Ok(request) = received.try_recv() {
            requests.push(request);
        }
        assert_eq!(requests.len(), replies.len(), "{replies:?}");
        for request in requests {
            assert_eq!(request.resource_spans[0].scope_spans[0].spans, trace());
        }
    }
}

#[tokio::test]
async fn a_lasting_error_is_reported_and_not_retried() {
    for (replies, why) in [
        (&[Reply::Wrong][..], "it returned 400 Bad Request"),
        (&[Reply::TakenInPart], "it rejected 2 spans: too old"),
    ] {
        let (address, mut received) = receiver(replies).await;
        let warning = export(&format!("http://{address}"), LONG).await.unwrap();
        assert!(
            warning.starts_with("1 of 1 traces did not reach http://") && warning.contains(why),
            "{warning}"
        );
        assert!(received.try_recv().is_ok() && received.try_recv().is_err(), "sent once");
    }
}

#[tokio::test]
async fn a_transient_error_is_retried_a_few_times() {
    let (address, mut received) = receiver(&[Reply::Busy]).await;
    let warning = export(&format!("http://{address}"), LONG).await.unwrap();
    assert!(warning.contains("503") && !warning.contains('\n'), "{warning}");
    assert_eq!(std::iter::from_fn(|| received.try_recv().ok()).count(), 5);
}

#[tokio::test]
async fn a_refused_connection_is_reported_as_such() {
    // Bound, so that no other process gets it, but without a listener.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = unused.local_addr().unwrap();
    let warning = export(&format!("http://{address}"), LONG).await.unwrap();
    assert!(warning.contains("Connection refused") && !warning.contains('\n'), "{warning}");
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_delay_the_run() {
    // Connections are accepted by the backlog, but never served.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    for (timeouts, why) in [
        (Timeouts { end: Duration::from_millis(50), ..LONG }, "not all was sent within 50ms after the run"),
        (Timeouts { attempt: Duration::from_millis(10), ..LONG }, "no response within 10ms"),
    ] {
        let warning = export(&format!("http://{address}"), timeouts).await.unwrap();
        assert!(warning.starts_with("1 of 1 traces did not reach") && warning.contains(why), "{warning}");
    }
    assert!(Timeouts::default().end <= Duration::from_secs(3));
}

#[test]
fn addresses_are_checked_before_the_run() {
    for (url, is_right) in [
        ("http://c:4318", true),
        ("https://c/v1/traces", true),
        ("grpc://c:4317", false),
        ("c:4318", false),
        ("ftp://c", false),
        ("http://", false),
    ] {
        assert_eq!(url.parse::<Collector>().is_ok(), is_right, "{url}");
    }
    for (url, shown) in [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("https://ann:p%40role@c:4318", "https://c:4318/v1/traces"),
        ("https://c/otlp?api_key=role", "https://c/otlp"),
    ] {
        let collector: Collector = url.parse().unwrap();
        assert_eq!(collector.to_string(), shown);
        assert!(!format!("{:?}", collector.headers).contains("role"));
        if url.contains('@') {
            // `ann:p@role` in base64.
            assert_eq!(collector.headers["authorization"], "Basic YW5uOnBAcm9sZQ==");
        }
    }
    assert!(!"ftp://ann:role@c".parse::<Collector>().unwrap_err().to_string().contains("role"));
}

/// A collector with TLS, at localhost; its CA (PEM) is written to `ca`. It reports the header `x-key`, and accepts
/// only requests with the right one.
async fn guarded(ca: &Path) -> (u16, mpsc::UnboundedReceiver<String>) {
    let made = Certificates::generate([127, 0, 0, 1].into()).unwrap();
    std::fs::write(ca, &made.ca).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust this server disconnects.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let sender = sender.clone();
            let answer = service_fn(move |request: http::Request<Incoming>| {
                let key = request.headers().get("x-key").map(|key| key.to_str().unwrap().to_owned());
                let key = key.unwrap_or_default();
                let status = if key == "Bearer s3same" { 200 } else { 401 };
                sender.send(key).unwrap();
                let answer = http::Response::builder().status(status).body(Full::new(Bytes::new())).unwrap();
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (port, asked)
}

#[tokio::test]
async fn with_tls_the_collector_is_verified_by_its_ca_and_receives_the_credentials() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let (port, mut asked) = guarded(&ca).await;
    let send = async |collector: Collector| {
        let mut exporter = Exporter::with_timeouts(collector, LONG);
        life().iter().for_each(|event| exporter.observe(event, at(80)));
        exporter.finish().await
    };
    let collector: Collector = format!("https://localhost:{port}").parse().unwrap();
    let warning = send(collector.clone()).await.unwrap();
    assert!(warning.contains("certificate") || warning.contains("UnknownIssuer"), "{warning}");
    assert!(asked.try_recv().is_err(), "nothing is sent before the server is verified");

    let trusted = collector.trusting(&ca).unwrap();
    for wrong in ["Bearer wr0ng", "wr0ng"] {
        let warning =
            send(trusted.clone().with_headers("V", &format!("x-key={wrong}")).unwrap()).await.unwrap();
        assert!(warning.contains("--otlp-headers-file") && !warning.contains("wr0ng"), "{warning}");
        assert_eq!(asked.try_recv().unwrap(), wrong);
        assert!(asked.try_recv().is_err(), "it would be refused again");
    }
    let known = trusted.with_headers("V", "x-key=Bearer%20s3same").unwrap();
    assert_eq!(send(known).await, None);
    assert_eq!(asked.try_recv().unwrap(), "Bearer s3same");
}

#[test]
fn files_without_certificates_are_no_trust() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, missing) = (folder.path().join("empty"), folder.path().join("missing"));
    std::fs::write(&empty, "-----BEGIN KEY-----").unwrap();
    for path in [&empty, &missing] {
        let collector: Collector = "https://c:1".parse().unwrap();
        let error = collector.trusting(path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("PEM"), "{error}");
    }
}
