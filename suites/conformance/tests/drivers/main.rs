//! Drivers that are legal in ways that few drivers are, and drivers that are not: the results of single cases.

#![expect(clippy::unwrap_used, reason = "clippy sees that test functions are tests, but not their helpers")]

mod toy;

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use claimcheck_conformance::{Access, Config, DriverUnderTest, Endpoints, Runner, catalogue, plan};
use claimcheck_csi::Endpoint;
use claimcheck_model::{CaseResult, Event};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::toy::{Toy, Traits};

/// A folder of one test, which is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("claimcheck-toy-{}-{number}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The result of a case and its warnings.
struct Outcome {
    result: CaseResult,
    warnings: Vec<String>,
}

impl Outcome {
    /// It passed, with one warning that contains these words.
    fn warns(&self, words: &str) {
        assert_eq!(self.result, CaseResult::Passed);
        assert!(matches!(&self.warnings[..], [one] if one.contains(words)), "{words:?}: {:?}", self.warnings);
    }

    /// It failed with a message that contains these words.
    fn fails(&self, words: &str) {
        let CaseResult::Failed { why } = &self.result else { panic!("{words:?}: {:?}", self.result) };
        assert!(why.contains(words), "{words:?}: {why}");
    }
}

/// Runs one case against a driver.
async fn run(traits: Traits, strict: bool, case: &str) -> Outcome {
    let folder = Folder::new();
    let socket = folder.0.join("csi.sock");
    let driver = Toy::new(traits, &folder.0.join("volumes")).serve(&socket);
    let config = Config {
        access_types: vec![Access::Mount],
        topology: BTreeMap::from([("rack".to_owned(), "1".to_owned())]),
        staging_dir: Some(folder.0.join("staging")),
        target_dir: Some(folder.0.join("targets")),
        ..Config::default()
    };
    let endpoints = Endpoints { node: Endpoint::Unix(socket), controller: None, second: None };
    let (events, mut received) = mpsc::unbounded_channel();
    let patience = Duration::from_secs(60);
    let connected = DriverUnderTest::connect(config, endpoints, None, patience, events.clone()).await;
    let (under_test, telling) = connected.unwrap();
    let planned = plan(&catalogue(), &[case.to_owned()], Some(under_test.capabilities()));
    assert_eq!(planned.len(), 1, "{case}");
    let runner = Runner::new(under_test, 1, strict, events, CancellationToken::new());
    runner.run_all(&planned).await;
    drop(runner);
    telling.await.unwrap();
    driver.abort();
    let (mut ended, mut warnings) = (None, Vec::new());
    while let Ok(event) = received.try_recv() {
        match event {
            Event::Warning { text, .. } => warnings.push(text),
            Event::CaseFinished { result, .. } => ended = Some(result),
            _ => {}
        }
    }
    Outcome { result: ended.unwrap(), warnings }
}

/// Runs one case against a driver, not strictly.
async fn result(traits: Traits, case: &str) -> Outcome {
    run(traits, false, case).await
}

#[tokio::test]
async fn topology_is_optional_but_not_without_its_declaration() {
    let silent = Traits { topology: true, ..Traits::default() };
    let node = "NodeGetInfo returns an accessible_topology if topology is declared";
    result(silent, node).await.warns("NodeGetInfo returns no accessible_topology");
    let volume = "CreateVolume returns a volume accessible from the requested topology";
    result(silent, volume).await.warns("CreateVolume returned no accessible_topology");
    let undeclared = Traits { places: true, ..Traits::default() };
    let node = "NodeGetInfo returns no accessible_topology if topology is not declared";
    result(undeclared, node).await.fails("MUST (NodeGetInfo)");
    let volume = "CreateVolume returns no accessible_topology if topology is not declared";
    result(undeclared, volume).await.fails("MUST (CreateVolume)");
    let declared = Traits { topology: true, places: true, ..Traits::default() };
    for case in [node, volume] {
        assert_eq!(result(declared, case).await.result, CaseResult::Passed);
    }
}

#[tokio::test]
async fn a_smaller_size_should_be_accepted_and_must_not_shrink_a_volume() {
    let case = "controller_expand::ControllerExpandVolume to a smaller size succeeds and keeps the size";
    let rejecting = Traits { keeps_size: true, ..Traits::default() };
    result(rejecting, case)
        .await
        .warns("returned OutOfRange (\"the volume is larger\"), expected OK: SHOULD (");
    run(rejecting, true, case).await.fails("\nSHOULD (ControllerExpandVolume): \"");
    result(Traits::default(), case).await.fails("\nKubernetes (ControllerExpandVolume): \"");
}

#[tokio::test]
async fn statistics_may_be_of_inodes_alone() {
    for case in [
        "NodeGetVolumeStats returns consistent usage [mount]",
        "NodeGetVolumeStats returns the size of the volume [mount]",
    ] {
        result(Traits::default(), case).await.warns("returns no usage in bytes");
    }
}

#[tokio::test]
async fn a_volume_that_is_not_staged_may_be_published_but_nothing_else() {
    let case = "NodePublishVolume of a volume that is not staged returns FailedPrecondition [mount]";
    result(Traits::default(), case).await.warns("that is not staged returned OK");
    let empty = Traits { empty_unless_staged: true, ..Traits::default() };
    result(empty, case).await.fails("that is not staged returned OK: the data is missing or differs");
}

#[tokio::test]
async fn a_full_pool_has_no_capacity() {
    let case = "GetCapacity with capabilities and parameters returns at least the volume size";
    let full = Traits { full: true, ..Traits::default() };
    result(full, case).await.warns("GetCapacity returns 0 bytes, and CreateVolume");
    result(Traits::default(), case).await.fails("was created and deleted");
}

#[tokio::test]
async fn a_list_without_end_is_a_finding() {
    let endless = Traits { endless: true, ..Traits::default() };
    let case = "ListVolumes includes a new volume and omits a deleted one";
    result(endless, case)
        .await
        .fails("a second time: the list does not end\nMUST (ListVolumes): \"If the actual");
    assert_eq!(result(Traits::default(), case).await.result, CaseResult::Passed);
}
