//! `--otlp`: a run sends the life of its volume to a collector, here as HTTP: on the embedded cluster, and where
//! the API server is a stock one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
    thread,
};

use prost::Message as _;

/// What is read of OTLP's messages, with its field numbers; the harness has its own.
mod otlp {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        #[prost(message, repeated, tag = "1")]
        pub resources: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResourceSpans {
        #[prost(message, repeated, tag = "2")]
        pub scopes: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AnyValue {
        #[prost(string, tag = "1")]
        pub text: String,
    }
}

const CASE: &str = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
     [dynamic, default fs, Immediate]";

/// A collector that takes everything; returns its address.
fn collector() -> (String, mpsc::Receiver<otlp::Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || serve(stream, &sender));
        }
    });
    (address, requests)
}

/// One connection: request after request, as HTTP/1.1 with a content length.
fn serve(stream: TcpStream, sender: &mpsc::Sender<otlp::Request>) {
    let mut answer = stream.try_clone().expect("a second handle");
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let header = |name: &str| {
            let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
            pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        assert_eq!(header("content-type").as_deref(), Some("application/x-protobuf"));
        assert_eq!(header("x-key").as_deref(), Some("Bearer s3same"));
        let length = header("content-length").and_then(|length| length.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        lines.read_exact(&mut body).expect("a body");
        sender.send(otlp::Request::decode(&body[..]).expect("protobuf")).expect("a test that reads");
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a caller that waits");
    }
}

fn run(otlp: &str, cluster: &str) -> String {
    let out = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=Bearer%20s3same")
        .args(["run", CASE, "--otlp", otlp, "--cluster", cluster])
        .arg("--out")
        .arg(out.path().join("run"));
    let output = command.output().expect("the binary runs");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(!printed.contains("s3same"), "{printed}");
    printed
}

#[test]
fn a_volume_is_one_trace_with_the_embedded_api_server() {
    arrives_on("embedded");
}

#[test]
#[ignore = "requires envtest"]
fn a_volume_is_one_trace_with_a_stock_api_server() {
    claimcheck_needs::require("envtest");
    arrives_on("envtest");
}

fn arrives_on(cluster: &str) {
    let (address, requests) = collector();
    let printed = run(&format!("http://{address}"), cluster);
    assert!(!printed.contains("did not reach"), "{printed}");
    let resources = requests.try_iter().flat_map(|request| request.resources);
    let spans: Vec<otlp::Span> =
        resources.flat_map(|resource| resource.scopes).flat_map(|scope| scope.spans).collect();
    let traces: BTreeSet<&[u8]> = spans.iter().map(|span| &span.trace[..]).collect();
    assert_eq!(traces.len(), 1, "the case has one volume: {spans:#?}");
    let names: BTreeMap<&[u8], &str> = spans.iter().map(|span| (&span.id[..], span.name.as_str())).collect();
    let attribute = |span: &otlp::Span, key: &str| {
        let found = span.attributes.iter().find(|pair| pair.key == key)?;
        found.value.as_ref().map(|value| value.text.clone())
    };

    let root: Vec<_> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!((root.len(), root[0].name.as_str()), (1, "volume"));
    assert_eq!(attribute(root[0], "claimcheck.case").as_deref(), Some(CASE));
    for (phase, call) in [
        ("provision", "CreateVolume"),
        ("attach", "ControllerPublishVolume"),
        ("stage", "NodeStageVolume"),
        ("publish", "NodePublishVolume"),
        ("unpublish", "NodeUnpublishVolume"),
        ("unstage", "NodeUnstageVolume"),
        ("detach", "ControllerUnpublishVolume"),
        ("delete", "DeleteVolume"),
    ] {
        let call = spans.iter().find(|span| span.name == call).unwrap_or_else(|| panic!("no {call}"));
        assert_eq!(names[&call.parent[..]], phase, "{}", call.name);
        assert_eq!(attribute(call, "rpc.response.status_code").as_deref(), Some("OK"));
        assert!(attribute(call, "csi.driver").is_some());
        let on_node = !matches!(call.name.as_str(), "CreateVolume" | "DeleteVolume");
        assert_eq!(attribute(call, "k8s.node.name").is_some(), on_node, "{}", call.name);
        let phase = spans.iter().find(|span| span.name == phase).expect("it is the parent");
        assert_eq!(names[&phase.parent[..]], "volume");
        assert_eq!(attribute(phase, "claimcheck.result").as_deref(), Some("ok"));
    }
    // By controllers, the node and the case itself, each to another kind of object.
    for write in [
        "create persistentvolumeclaims",
        "create persistentvolumes",
        "create pods",
        "create pods/binding",
        "create volumeattachments.storage.k8s.io",
        "patch volumeattachments.storage.k8s.io/status",
    ] {
        let called = spans.iter().filter(|span| span.name == write);
        let succeeded = |span: &&otlp::Span| {
            attribute(span, "http.response.status_code").is_some_and(|code| code.starts_with('2'))
        };
        let succeeded: Vec<_> = called.filter(succeeded).collect();
        assert!(!succeeded.is_empty(), "no write of {write:?}: {:?}", names.values());
        assert!(succeeded.iter().all(|write| attribute(write, "user_agent.name").is_some()));
        // What is made is made once, and so told once.
        assert!(write.starts_with("patch") || succeeded.len() == 1, "{write}: {succeeded:#?}");
    }
}

#[test]
fn a_collector_that_is_down_costs_one_line() {
    // Taken, so that nobody else gets it, and not listened at.
    let unused = tokio::net::TcpSocket::new_v4().expect("a socket");
    unused.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let printed = run(&format!("http://{}", unused.local_addr().expect("bound")), "embedded");
    let warnings: Vec<&str> = printed.lines().filter(|line| line.contains("did not reach")).collect();
    assert_eq!(warnings.len(), 1, "{printed}");
    assert!(
        warnings[0].starts_with("warning: 1 of 1 traces") && warnings[0].contains("refused"),
        "{printed}"
    );
}
