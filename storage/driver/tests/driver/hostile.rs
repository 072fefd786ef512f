//! The driver that responds at random: what its callers may rely on, and that they meet what they are to be tested with.

use std::{
    collections::BTreeSet,
    error::Error as _,
    time::{Duration, Instant},
};

use crate::support;
use claimcheck_csi::{
    Driver as Client, Endpoint,
    tap::Tap,
    v1::{
        CreateSnapshotRequest, DeleteVolumeRequest, GetMetadataAllocatedRequest, GetPluginInfoRequest,
        ListVolumesRequest, NodeGetInfoRequest,
    },
};
use claimcheck_driver::{Args, run};
use clap::Parser;
use tokio::sync::oneshot;
use tonic::Code;

/// Runs `test` with a client of the driver with this seed.
async fn with_driver<T>(seed: u64, test: impl AsyncFnOnce(Client) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}/csi.sock", folder.path().display());
    let seed = seed.to_string();
    let args = ["driver", "--endpoint", &endpoint, "--node-id", "a", "--state-dir", "/s", "--hostile", &seed];
    let args = Args::try_parse_from(args).unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move { run(args, async { drop(stopped.await) }).await.unwrap() });
    let client = Client::new(Endpoint::parse(&endpoint).unwrap(), Tap::none(), "test");
    let client = client.with_deadline(Duration::from_secs(1));
    client.wait_ready(support::LONG).await.unwrap();
    let result = test(client).await;
    stop.send(()).unwrap();
    served.await.unwrap();
    result
}

/// The responses to many equal calls, as text.
async fn message(seed: u64) -> Vec<Result<String, Code>> {
    with_driver(seed, async |client: Client| {
        let mut message = Vec::new();
        for _ in 0..200 {
            let answer = client.controller().create_snapshot(CreateSnapshotRequest::default()).await;
            let answer = answer.map(|answer| format!("{:?}", answer.into_inner()));
            message.push(answer.map_err(|status| status.code()));
        }
        message
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_determines_the_responses() {
    let (one, again, other) = (message(1).await, message(1).await, message(2).await);
    // A slow machine may miss a deadline once, and which call loses its connection depends on the sizes of all others.
    let lost = |answer: &Result<String, Code>| {
        matches!(answer, Err(Code::DeadlineExceeded | Code::Unavailable | Code::Unknown | Code::Internal))
    };
    let differ = |(one, other): (&Result<String, Code>, &Result<String, Code>)| {
        one != other && !lost(one) && !lost(other)
    };
    assert!(!one.iter().zip(&again).any(differ));
    assert!(one.iter().zip(&other).any(differ));
    let failed = one.iter().filter(|answer| answer.is_err()).count();
    assert!((5..100).contains(&failed), "{failed} of 200 calls failed");
    let distinct: BTreeSet<&String> = one.iter().flatten().collect();
    assert!(distinct.len() > 80, "only {} distinct responses", distinct.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_can_begin_and_lists_continue_as_the_seed_has_it() {
    for seed in 4..8 {
        let tokens = with_driver(seed, async |client: Client| {
            for _ in 0..20 {
                client.identity().get_plugin_info(GetPluginInfoRequest {}).await.unwrap();
                client.node().node_get_info(NodeGetInfoRequest {}).await.unwrap();
            }
            let mut tokens = Vec::new();
            for _ in 0..40 {
                let answer = client.controller().list_volumes(ListVolumesRequest::default()).await;
                tokens.extend(answer.map(|answer| answer.into_inner().next_token));
            }
            tokens
        });
        let tokens = tokens.await;
        let (count, distinct) = (tokens.len(), tokens.into_iter().collect::<BTreeSet<_>>());
        assert!(count > 10, "{count}");
        match seed % 4 {
            0 => assert_eq!(distinct, BTreeSet::from([String::new()])),
            1 => assert_eq!(distinct, BTreeSet::from(["same".to_owned()])),
            2 => assert!(distinct.is_subset(&BTreeSet::from(["0".to_owned(), "1".to_owned()]))),
            _ => assert_eq!(distinct.len(), count),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn some_streams_have_no_end_and_some_fail() {
    let ends = with_driver(3, async |client: Client| {
        let mut ends = Vec::new();
        for _ in 0..40 {
            let mut metadata = client.snapshot_metadata();
            let answer = metadata.get_metadata_allocated(GetMetadataAllocatedRequest::default()).await;
            let mut stream = answer.unwrap().into_inner();
            let end = loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break Code::Ok,
                    Err(status) => break status.code(),
                }
            };
            ends.push(end);
        }
        ends
    });
    let ends = ends.await;
    let late = ends.iter().filter(|code| **code == Code::DeadlineExceeded).count();
    assert!(late > 0, "{ends:?}");
    assert!(
        ends.contains(&Code::Ok)
            && ends.iter().any(|code| !matches!(code, Code::Ok | Code::DeadlineExceeded))
    );
}

/// After the gentle beginning connections end, and the next one is used.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_lost_and_statuses_are_late() {
    let (mut lost, mut late, mut succeeded) = (0, 0, 0);
    for seed in 0..4 {
        let results = with_driver(seed, async |client: Client| {
            let mut results = Vec::new();
            for _ in 0..400 {
                let began = Instant::now();
                let answer = client.controller().delete_volume(DeleteVolumeRequest::default()).await;
                results.push((answer, began.elapsed()));
            }
            results
        });
        for (answer, took) in results.await {
            match answer {
                Ok(_) => succeeded += 1,
                Err(_) if took >= Duration::from_secs(1) => late += 1,
                // The driver's statuses have no source.
                Err(status) => lost += usize::from(status.source().is_some()),
            }
        }
    }
    println!("{succeeded} succeeded, {lost} lost, {late} late");
    assert!(succeeded > 1000 && lost > 0 && late > 4, "{succeeded} succeeded, {lost} lost, {late} late");
}
