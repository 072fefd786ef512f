//! Pushes to a server with scripted responses.

use std::sync::{Arc, Mutex};

use claimcheck_model::{Event, RunInfo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// A server that returns these statuses in turn, and then 200; and the heads of all requests.
async fn server(answers: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let heard = heads.clone();
    tokio::spawn(async move {
        let mut answers = answers.iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).await.unwrap();
            heard.lock().unwrap().push(head);
            let status = answers.next().unwrap_or(&"200 OK");
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address.to_string(), heads)
}

fn options(to: &str) -> PushOptions {
    // The program under test does so in its first line.
    let _ = rustls::crypto::ring::default_provider().install_default();
    PushOptions { to: to.parse().unwrap(), every: Duration::from_secs(3600) }
}

/// What a run that is over at once has left unsent.
async fn finished(options: &PushOptions) -> Result<(), String> {
    // The run begins later than the first tick, so that there is but the last.
    let metrics = Metrics::default();
    let push = Push::start(options, &metrics);
    tokio::task::yield_now().await;
    metrics.observe(&Event::RunStarted(RunInfo { driver: "d.io".into(), ..RunInfo::default() }));
    push.finish().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_transient_error_of_a_push_is_retried() {
    let (address, heads) = server(&["503 Service Unavailable", "429 Too Many Requests"]).await;
    let options = options(&format!("http://ann:secret@{address}/api/v1/write"));
    assert_eq!(finished(&options).await, Ok(()));
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 3);
    for head in heads.iter() {
        assert!(head.starts_with("post /api/v1/write http/1.1"), "{head}");
        for line in [
            "content-encoding: snappy",
            "x-prometheus-remote-write-version: 0.1.0",
            "authorization: basic yw5uonnly3jlda==",
        ] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
    }
}

#[tokio::test]
async fn a_permanent_error_is_reported_once_with_the_flag_and_without_credentials() {
    let (address, heads) = server(&["401 Unauthorized"]).await;
    let error = finished(&options(&format!("http://ann:secret@{address}"))).await.unwrap_err();
    assert!(error.starts_with("--remote-write http://") && error.contains("--push-bearer-file"), "{error}");
    assert!(!error.contains("secret") && heads.lock().unwrap().len() == 1, "{error}");

    let (address, heads) = server(&["400 Bad Request"]).await;
    let error = finished(&options(&format!("http://{address}/w?key=hidden"))).await.unwrap_err();
    assert_eq!(error, format!("--remote-write http://{address}/w: returned 400 Bad Request: no"));
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn metrics_are_pushed_meanwhile_and_at_the_end() {
    let (address, heads) = server(&[]).await;
    let metrics = Metrics::default();
    metrics.observe(&Event::RunStarted(RunInfo { driver: "d.io".into(), ..RunInfo::default() }));
    let push = Push::start(&options(&format!("http://{address}/w")), &metrics);
    while heads.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(push.finish().await.is_ok());
    assert_eq!(heads.lock().unwrap().len(), 2);
}
