//! The tap socket: records from several taps, half lines, breaking, and fault plans on their way back.
//!
//! `Tap::connect` and its writes block, as they do in a component, so the listener has threads of its own.

use std::{io::Write, os::unix::net::UnixStream, path::Path, sync::atomic::Ordering};

use claimcheck_csi::{
    Code,
    tap::{self, FaultAction, FaultRule, Tap, TapError, TapRecord, Telemetry},
    v1,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::toy::{Toy, driver};

async fn create(socket: &Path, tap: &Tap, name: &str) -> Result<(), Code> {
    let request = v1::CreateVolumeRequest { name: name.into(), ..Default::default() };
    let answer = driver(socket, tap.clone()).controller().create_volume(request).await;
    answer.map(drop).map_err(|status| status.code())
}

async fn next(records: &mut UnboundedReceiver<TapRecord>) -> (String, Option<Code>) {
    let record = records.recv().await.unwrap();
    let code = record.code();
    (record.volume_name.unwrap(), code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_many_arrive_in_order_and_half_lines_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (csi, path) = (dir.path().join("csi.sock"), dir.path().join("tap.sock"));
    let _running = Toy::default().serve(&csi);
    let Telemetry { mut records, .. } = tap::listen(&path).unwrap();
    let (a, b) = (Tap::connect(&path).unwrap(), Tap::connect(&path).unwrap());

    create(&csi, &a, "pvc-a").await.unwrap();
    // A process that is killed within a line.
    let mut killed = UnixStream::connect(&path).unwrap();
    killed.write_all(br#"{"at":{"mono_ns":1,"#).unwrap();
    drop(killed);
    for expected in [("pvc-a", None), ("pvc-a", Some(Code::Ok))] {
        let (name, code) = next(&mut records).await;
        assert_eq!((name.as_str(), code), expected);
    }
    create(&csi, &b, "pvc-b").await.unwrap();
    for expected in [("pvc-b", None), ("pvc-b", Some(Code::Ok))] {
        let (name, code) = next(&mut records).await;
        assert_eq!((name.as_str(), code), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_in_the_socket_before_the_caller_has_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let (csi, path) = (dir.path().join("csi.sock"), dir.path().join("tap.sock"));
    let _running = Toy::default().serve(&csi);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let tap = Tap::connect(&path).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    create(&csi, &tap, "pvc-1").await.unwrap();

    // Nothing more is written from here on, so what is there now was there before the result.
    stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 64 * 1024];
    let length = std::io::Read::read(&mut stream, &mut bytes).unwrap();
    let lines: Vec<TapRecord> = std::str::from_utf8(&bytes[..length])
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<_> = lines.iter().map(TapRecord::code).collect();
    assert_eq!(codes, [None, Some(Code::Ok)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_outlives_its_tap_but_does_not_start_without() {
    let dir = tempfile::tempdir().unwrap();
    let (csi, path) = (dir.path().join("csi.sock"), dir.path().join("tap.sock"));
    let _running = Toy::default().serve(&csi);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let tap = Tap::connect(&path).unwrap();
    drop(listener);
    for _ in 0..2 {
        create(&csi, &tap, "pvc-1").await.unwrap();
    }
    assert!(matches!(Tap::connect(&path), Err(TapError::Connect { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_reach_processes_before_set_returns_and_those_that_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let (csi, path) = (dir.path().join("csi.sock"), dir.path().join("tap.sock"));
    let toy = Toy::default();
    let _running = toy.serve(&csi);
    let Telemetry { mut records, faults: control, .. } = tap::listen(&path).unwrap();
    let (a, b) = (Tap::connect(&path).unwrap(), Tap::connect(&path).unwrap());
    // Both are registered once data of each has arrived.
    for tap in [&a, &b] {
        create(&csi, tap, "pvc-0").await.unwrap();
        for _ in 0..2 {
            next(&mut records).await;
        }
    }
    let acted = toy.created.load(Ordering::Relaxed);

    let error = FaultAction::Error { code: Code::Aborted, message: String::new() };
    control.set(FaultRule::new("CreateVolume", error).on_volume("pvc-7").into()).await;
    for tap in [&a, &b] {
        assert_eq!(create(&csi, tap, "pvc-7").await, Err(Code::Aborted));
        assert_eq!(create(&csi, tap, "pvc-8").await, Ok(()));
    }
    assert_eq!(toy.created.load(Ordering::Relaxed), acted + 2);

    // One that comes later is sent the plan in force. It cannot know when, so ask until it has.
    let late = Tap::connect(&path).unwrap();
    while create(&csi, &late, "pvc-7").await != Err(Code::Aborted) {
        tokio::task::yield_now().await;
    }

    drop(b);
    control.clear().await;
    assert_eq!(create(&csi, &a, "pvc-7").await, Ok(()));
    assert_eq!(create(&csi, &late, "pvc-7").await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_ends_with_its_receivers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tap.sock");
    let telemetry = tap::listen(&path).unwrap();
    assert!(matches!(tap::listen(&path), Err(claimcheck_csi::BindError::InUse(_))));
    drop(telemetry);
    while path.exists() {
        tokio::task::yield_now().await;
    }
    tap::listen(&path).unwrap();
}
