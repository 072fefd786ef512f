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

use claimcheck_conformance::{Access, Config, DriverUnderTest, Endpoints, NodeEffects, Runner, catalogue};
use claimcheck_csi::{Endpoint, v1::volume_capability::access_mode::Mode};
use claimcheck_engine::plan;
use claimcheck_model::{CaseId, CaseResult, Event};
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
        let CaseResult::Failed { reason, .. } = &self.result else { panic!("{words:?}: {:?}", self.result) };
        assert!(reason.contains(words), "{words:?}: {reason}");
    }
}

/// Runs the cases with these parts of names against a driver, one at a time.
async fn run_all(
    traits: Traits,
    strict: bool,
    node_effects: NodeEffects,
    cases: &[&str],
) -> BTreeMap<CaseId, Outcome> {
    run_parallel(1, traits, strict, node_effects, cases).await
}

/// Runs the cases with these parts of names against a driver, at most `parallel` at a time.
async fn run_parallel(
    parallel: usize,
    traits: Traits,
    strict: bool,
    node_effects: NodeEffects,
    cases: &[&str],
) -> BTreeMap<CaseId, Outcome> {
    run_of(parallel, vec![Access::Mount], traits, strict, node_effects, cases).await
}

/// Runs the cases with volumes of these access types; of those that the driver supports, if there are none.
async fn run_of(
    parallel: usize,
    access_types: Vec<Access>,
    traits: Traits,
    strict: bool,
    node_effects: NodeEffects,
    cases: &[&str],
) -> BTreeMap<CaseId, Outcome> {
    let events = events_of(parallel, access_types, traits, strict, node_effects, cases).await;
    let (mut ended, mut warnings) = (BTreeMap::new(), BTreeMap::<CaseId, Vec<String>>::new());
    for event in events {
        match event {
            Event::Warning { case, text } => warnings.entry(case).or_default().push(text),
            Event::CaseFinished { case, result, .. } => {
                let warnings = warnings.remove(&case).unwrap_or_default();
                ended.insert(case, Outcome { result, warnings });
            }
            _ => {}
        }
    }
    ended
}

/// The events of a run.
async fn events_of(
    parallel: usize,
    access_types: Vec<Access>,
    traits: Traits,
    strict: bool,
    node_effects: NodeEffects,
    cases: &[&str],
) -> Vec<Event> {
    let folder = Folder::new();
    let socket = folder.0.join("csi.sock");
    // Deep enough for a name with `../../`.
    let driver = Toy::new(traits, &folder.0.join("toy/data/volumes")).serve(&socket);
    let parameter = traits.compares_parameters.then(|| ("type".to_owned(), "fast".to_owned()));
    let parameters = parameter.into_iter().collect();
    let config = Config {
        access_types,
        node_effects,
        topology: BTreeMap::from([("rack".to_owned(), "1".to_owned())]),
        volume_parameters: parameters,
        staging_dir: Some(folder.0.join("staging")),
        target_dir: Some(folder.0.join("targets")),
        ..Config::default()
    };
    let endpoints = Endpoints { node: Endpoint::Unix(socket), controller: None, second: None };
    let (events, mut received) = mpsc::unbounded_channel();
    let patience = Duration::from_secs(60);
    let connected = DriverUnderTest::connect(config, endpoints, None, patience, events.clone()).await;
    let (under_test, telling) = connected.unwrap();
    let filters: Vec<String> = cases.iter().map(|case| (*case).to_owned()).collect();
    let planned = plan(&catalogue(), &filters, Some(under_test.capabilities()));
    let runner = Runner::new(under_test, parallel, strict, events, CancellationToken::new());
    runner.run_all(&planned).await;
    drop(runner);
    telling.await.unwrap();
    driver.abort();
    let mut events = Vec::new();
    while let Ok(event) = received.try_recv() {
        events.push(event);
    }
    events
}

/// Runs one case against a driver.
async fn run(traits: Traits, strict: bool, case: &str) -> Outcome {
    let ended = run_all(traits, strict, NodeEffects::Checked, &[case]).await;
    assert_eq!(ended.len(), 1, "{case}");
    ended.into_values().next().unwrap()
}

/// The names of the cases that failed.
fn failed(outcomes: &BTreeMap<CaseId, Outcome>) -> Vec<&str> {
    let failed = outcomes.iter().filter(|(_, outcome)| matches!(outcome.result, CaseResult::Failed { .. }));
    failed.map(|(case, _)| case.name.as_str()).collect()
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
async fn attached_volumes_may_be_deleted_but_not_staged_ones() {
    let attaches = Traits { attaches: true, ..Traits::default() };
    let attached = "DeleteVolume of an attached volume succeeds or returns FailedPrecondition";
    result(attaches, attached).await.warns("DeleteVolume succeeds while the volume is attached");
    let staged = "DeleteVolume of a staged volume returns FailedPrecondition";
    result(attaches, staged).await.fails("that is staged on a node returned OK");
    result(Traits::default(), staged).await.warns("DeleteVolume succeeds while the volume is staged");
}

#[tokio::test]
async fn an_error_of_all_attached_volumes_is_not_a_finding_about_staged_ones() {
    const STAGED: &str = "DeleteVolume of a staged volume returns FailedPrecondition";
    const ATTACHED: &str = "DeleteVolume of an attached volume succeeds or returns FailedPrecondition";
    let keeps = Traits { attaches: true, keeps_attached: true, ..Traits::default() };
    let outcomes = run_all(keeps, false, NodeEffects::Checked, &[STAGED, ATTACHED]).await;
    assert_eq!(failed(&outcomes), [ATTACHED]);
}

#[tokio::test]
async fn an_error_of_all_unknown_volumes_is_not_a_finding_about_deleted_ones() {
    const UNKNOWN: &str = "NodeStageVolume of a nonexistent volume returns NotFound";
    const DELETED: &str = "NodeStageVolume of a deleted volume returns NotFound";
    let fails = Traits { fails_to_find: true, ..Traits::default() };
    let outcomes = run_all(fails, false, NodeEffects::Checked, &[UNKNOWN, DELETED]).await;
    assert_eq!(failed(&outcomes), [UNKNOWN]);
}

#[tokio::test]
async fn a_driver_may_confirm_capabilities_only_with_the_parameters() {
    const CASE: &str =
        "ValidateVolumeCapabilities confirms the capability that a volume was created with [mount]";
    let compares = Traits { compares_parameters: true, ..Traits::default() };
    result(compares, CASE).await.warns("only if the parameters are passed");
}

#[tokio::test]
async fn a_source_of_no_kind_may_be_ignored() {
    let case = "CreateVolume with an empty volume_content_source succeeds or returns InvalidArgument";
    let traits = Traits { rejects_sources: true, ..Traits::default() };
    result(traits, case).await.warns("creates an empty volume");
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

#[tokio::test]
async fn a_rejected_token_is_named_as_the_own_one_of_the_driver() {
    let rejecting = Traits { rejects_tokens: true, ..Traits::default() };
    let outcome = result(rejecting, "ListVolumes includes a new volume and omits a deleted one").await;
    outcome.fails("ListVolumes with the next_token that it returned with page 1 returned Aborted");
    outcome.fails("\nMUST (ListVolumes): \"If the actual number of entries is more than this number");
}

#[tokio::test]
async fn an_error_for_a_detachment_that_has_happened_is_one_warning() {
    let finding = Traits { attaches: true, finds_detached: true, ..Traits::default() };
    let case = "ControllerUnpublishVolume of a nonexistent volume succeeds or returns NotFound";
    for parallel in [1, 8] {
        let outcomes = run_parallel(parallel, finding, false, NodeEffects::Checked, &[case]).await;
        outcomes.values().next().unwrap().warns("returned NotFound (\"no volume\"), expected OK: SHOULD (");
    }
    run(finding, true, case).await.fails("\nSHOULD (ControllerUnpublishVolume): \"");
}

#[tokio::test]
async fn a_source_that_is_not_declared_must_be_rejected() {
    let case = "CreateVolume from a kind of source that is not declared returns InvalidArgument";
    result(Traits::default(), case).await.fails("without the data of the source, expected InvalidArgument");
    let rejecting = Traits { rejects_sources: true, ..Traits::default() };
    result(rejecting, case).await.fails("without CLONE_VOLUME, returned NotFound");
}

#[tokio::test]
async fn a_request_that_is_refused_with_a_final_error_is_made_once() {
    let limiting = Traits { limits_parameters: true, ..Traits::default() };
    let case = "CreateVolume with parameters of 1 MiB succeeds or returns InvalidArgument";
    let events = events_of(1, vec![Access::Mount], limiting, false, NodeEffects::Checked, &[case]).await;
    let refused = events.iter().filter(|event| matches!(event, Event::Rpc(call) if call.code == "Unknown"));
    assert_eq!(refused.count(), 1);
}

#[tokio::test]
async fn a_fake_node_service_is_one_finding_or_none() {
    const MOUNTS: &str = "NodePublishVolume mounts the volume before it returns";
    const CASES: &[&str] = &[
        "lifecycle::",
        MOUNTS,
        "NodePublishVolume creates a target of the requested access type",
        "NodePublishVolume makes the volume writable",
        "NodePublishVolume called three times",
        "NodeUnpublishVolume unmounts and removes the target",
        "node_stage::NodeStageVolume after NodeUnstageVolume preserves data",
        "replays::",
    ];
    let fake = Traits { fake_node: true, ..Traits::default() };
    let writes = CaseId::new("node_publish", "NodePublishVolume makes the volume writable [mount]");
    let reason = |outcomes: &BTreeMap<CaseId, Outcome>| match &outcomes[&writes].result {
        CaseResult::Skipped { reason } => reason.clone(),
        other => panic!("{other:?}"),
    };

    let checked = run_all(fake, false, NodeEffects::Checked, CASES).await;
    assert_eq!(failed(&checked), [MOUNTS]);
    let see = format!(
        "NodePublishVolume does not make the volume available at the target: see node_publish::{MOUNTS}"
    );
    assert_eq!(reason(&checked), see);

    let unchecked = run_all(fake, false, NodeEffects::None, CASES).await;
    assert_eq!(failed(&unchecked), [] as [&str; 0]);
    assert_eq!(reason(&unchecked), "node effects are not checked (--node-effects none)");
    let passed = |outcome: &Outcome| outcome.result == CaseResult::Passed;
    let passed = |outcomes: &BTreeMap<CaseId, Outcome>| outcomes.values().filter(|it| passed(it)).count();
    assert!(passed(&unchecked) > 3, "calls are checked all the same");
}

#[tokio::test]
async fn a_target_that_remains_is_a_finding_of_one_case() {
    const CYCLE: &str = "a full volume lifecycle succeeds and leaves nothing behind [mount]";
    const UNPUBLISH: &str = "NodeUnpublishVolume unmounts and removes the target [mount]";
    let leaving = Traits { leaves_target: true, ..Traits::default() };
    let outcomes = run_all(leaving, false, NodeEffects::Checked, &[CYCLE, UNPUBLISH]).await;
    assert_eq!(failed(&outcomes), [UNPUBLISH]);
    outcomes[&CaseId::new("lifecycle", CYCLE)].warns(&format!("see node_publish::{UNPUBLISH}"));
    // Without that case, another one fails.
    run(leaving, false, CYCLE).await.fails("left behind: the target path");
}

#[tokio::test]
async fn names_that_are_passed_on_unchecked_are_a_finding_of_one_case() {
    const LONGEST: &str = "CreateVolume with the longest allowed name succeeds";
    const OTHERS: [&str; 4] = [
        "controller_create::CreateVolume with a non-ASCII name succeeds or returns InvalidArgument",
        "controller_create::CreateVolume with names that differ only in case creates two volumes",
        "robustness::CreateVolume with path traversal in the name succeeds or returns InvalidArgument",
        "robustness::CreateVolume with an invalid name succeeds or returns InvalidArgument",
    ];
    let plain = Traits { plain_names: true, ..Traits::default() };
    let all = [&OTHERS[..], &[LONGEST]].concat();
    for parallel in [1, 8] {
        let outcomes = run_parallel(parallel, plain, true, NodeEffects::Checked, &all).await;
        assert_eq!(failed(&outcomes), [LONGEST]);
        let see = format!(
            "CreateVolume fails for names that the specification allows: see controller_create::{LONGEST}"
        );
        let skipped =
            |outcome: &&Outcome| matches!(&outcome.result, CaseResult::Skipped { reason } if *reason == see);
        assert_eq!(outcomes.values().filter(skipped).count(), OTHERS.len());
    }
    // Without that case, each of the others fails.
    for case in OTHERS {
        run(plain, true, case).await.fails("the back end rejects the name");
    }
}

#[tokio::test]
async fn an_error_of_every_further_volume_is_a_finding_of_one_case() {
    let traits = Traits { fails_after_invalid: true, ..Traits::default() };
    const CASES: &[&str] = &["robustness::", "controller_list::", "concurrency::concurrent full publishes"];
    // Their names are part of the error.
    const INVALID: [&str; 3] = [
        "CreateVolume with an invalid name succeeds or returns InvalidArgument",
        "CreateVolume with path traversal in the name succeeds or returns InvalidArgument",
        "CreateVolume with parameters of 1 MiB succeeds or returns InvalidArgument",
    ];
    let outcomes = run_all(traits, false, NodeEffects::Checked, CASES).await;
    let later = failed(&outcomes).into_iter().filter(|case| {
        let CaseResult::Failed { reason, .. } =
            &outcomes.iter().find(|(id, _)| id.name == *case).unwrap().1.result
        else {
            return false;
        };
        !INVALID.contains(case) && reason.contains("cannot read the list of volumes")
    });
    let [first] = later.collect::<Vec<_>>()[..] else { panic!("{:?}", failed(&outcomes)) };
    let same = |outcome: &&Outcome| {
        matches!(&outcome.result, CaseResult::Skipped { reason }
            if reason.starts_with("CreateVolume fails with the same error: see ") && reason.ends_with(first))
    };
    assert!(outcomes.values().filter(same).count() > 3, "{:?}", failed(&outcomes));
}

#[tokio::test]
async fn a_name_that_breaks_the_driver_breaks_no_other_case() {
    let traits = Traits { fails_after_invalid: true, ..Traits::default() };
    const NAME: &str = "CreateVolume with an invalid name succeeds or returns InvalidArgument";
    const CASES: &[&str] = &[NAME, "controller_create::", "controller_list::", "concurrency::"];
    let broken = run_all(traits, false, NodeEffects::Checked, CASES).await;
    let sound = run_all(Traits::default(), false, NodeEffects::Checked, CASES).await;
    let others = |outcomes| failed(outcomes).into_iter().filter(|case| *case != NAME).collect::<Vec<_>>();
    assert_eq!(others(&broken), others(&sound));
    assert!(failed(&broken).contains(&NAME));
}

#[tokio::test]
async fn an_error_of_every_invalid_request_is_a_finding_of_one_case() {
    let traits = Traits { fails_unstaged: true, ..Traits::default() };
    const WITHOUT: &str = "NodeUnstageVolume without a volume_id returns InvalidArgument";
    const OTHERS: [&str; 2] = [
        "NodeUnstageVolume without a staging_target_path returns InvalidArgument",
        "NodeUnstageVolume of a nonexistent volume succeeds or returns NotFound",
    ];
    let see = format!("NodeUnstageVolume fails with the same error: see node_stage::{WITHOUT}");
    for parallel in [1, 8] {
        let all = [&[WITHOUT], &OTHERS[..]].concat();
        let outcomes = run_parallel(parallel, traits, false, NodeEffects::Checked, &all).await;
        assert_eq!(failed(&outcomes), [WITHOUT]);
        let skipped =
            |outcome: &&Outcome| matches!(&outcome.result, CaseResult::Skipped { reason } if *reason == see);
        assert_eq!(outcomes.values().filter(skipped).count(), OTHERS.len());
    }
    // Without that case, each of the others fails.
    for case in OTHERS {
        result(traits, case).await.fails("cannot read the metadata");
    }
}

#[tokio::test]
async fn a_driver_that_fails_concurrent_calls_is_a_finding_of_the_case_about_them() {
    let traits = Traits { one_at_a_time: true, ..Traits::default() };
    const CASES: &[&str] = &["controller_delete::", "controller_expand::", "concurrent full publishes"];
    let alone = run_all(traits, false, NodeEffects::Checked, CASES).await;
    assert!(failed(&alone).contains(&"concurrent full publishes of many volumes succeed"));
    let together = run_parallel(8, traits, false, NodeEffects::Checked, CASES).await;
    assert_eq!(failed(&together), failed(&alone));
    let warned = together.values().flat_map(|outcome| &outcome.warnings);
    assert!(warned.filter(|text| text.contains("but not when the case was run alone")).count() > 0);
}

#[tokio::test]
async fn a_call_that_is_not_implemented_is_a_finding_of_one_case() {
    const CASES: &[&str] = &["ValidateVolumeCapabilities"];
    let alone = run_all(Traits::default(), false, NodeEffects::Checked, CASES).await;
    let [first] = failed(&alone)[..] else { panic!("{:?}", failed(&alone)) };
    let see =
        format!("the driver does not implement ValidateVolumeCapabilities: see controller_delete::{first}");
    let skipped =
        |outcome: &&Outcome| matches!(&outcome.result, CaseResult::Skipped { reason } if *reason == see);
    assert!(alone.values().filter(skipped).count() > 3);
    let together = run_parallel(8, Traits::default(), false, NodeEffects::Checked, CASES).await;
    assert_eq!(failed(&together), [first]);
}

#[tokio::test]
async fn a_volume_that_makes_other_calls_fail_is_a_finding_of_one_case() {
    let traits = Traits { names_culprit: true, ..Traits::default() };
    const CASES: &[&str] = &["robustness::", "controller_list::", "concurrency::", "CreateVolume"];
    let outcomes = run_all(traits, false, NodeEffects::Checked, CASES).await;
    let about = |outcome: &&Outcome| matches!(&outcome.result, CaseResult::Failed { reason, .. } if reason.contains("no such file"));
    assert_eq!(outcomes.values().filter(about).count(), 0, "{:?}", failed(&outcomes));
    // The case that created the volume failed, so it reports the cause.
    const CULPRIT: &str = "CreateVolume with parameters of 1 MiB succeeds or returns InvalidArgument";
    assert!(failed(&outcomes).contains(&CULPRIT));
    let see = format!("an object of another case: see robustness::{CULPRIT}");
    let skipped = |outcome: &&Outcome| matches!(&outcome.result, CaseResult::Skipped { reason } if reason.ends_with(&see));
    assert!(outcomes.values().filter(skipped).count() > 5, "{:?}", failed(&outcomes));
}

#[tokio::test]
async fn a_driver_may_have_a_smallest_size_above_the_default() {
    let large = Traits { large: true, ..Traits::default() };
    let case = "CreateVolume returns a volume of at least the requested size [mount]";
    assert_eq!(result(large, case).await.result, CaseResult::Passed);
}

#[tokio::test]
async fn a_driver_may_remove_the_staging_directory() {
    let removing = Traits { removes_staging: true, ..Traits::default() };
    for case in [
        "NodeStageVolume after NodeUnstageVolume preserves data [mount]",
        "concurrent NodeStageVolume and NodeUnstageVolume calls leave a valid state [mount]",
    ] {
        assert_eq!(result(removing, case).await.result, CaseResult::Passed, "{case}");
    }
}

#[tokio::test]
async fn what_is_staged_with_an_unknown_id_is_a_finding_of_one_case() {
    let checking = Traits { checks_unstaged: true, ..Traits::default() };
    let outcome = result(checking, "NodeStageVolume of a deleted volume returns NotFound").await;
    let CaseResult::Skipped { reason } = &outcome.result else { panic!("{:?}", outcome.result) };
    assert!(reason.starts_with("volumes that do not exist are staged: see "), "{reason}");
}

#[tokio::test]
async fn a_volume_may_need_to_be_writable_once() {
    let formatting = Traits { formats_when_published: true, ..Traits::default() };
    let case = "NodePublishVolume with the readonly flag prevents writes [mount]";
    // Symbolic links do not prevent writes.
    result(formatting, case).await.fails("could be written to");
}

#[tokio::test]
async fn a_full_node_is_not_a_finding_while_other_cases_use_it() {
    let traits = Traits { attaches: true, attaches_one: true, ..Traits::default() };
    const CASES: &[&str] = &["controller_publish::"];
    let alone = run_all(traits, false, NodeEffects::Checked, CASES).await;
    let together = run_parallel(8, traits, false, NodeEffects::Checked, CASES).await;
    assert_eq!(failed(&together), failed(&alone));
}

/// The verdict of each case, without its reason, which has the ids of volumes.
async fn verdicts(parallel: usize, traits: Traits, cases: &[&str]) -> BTreeMap<CaseId, &'static str> {
    let ended = run_parallel(parallel, traits, false, NodeEffects::Checked, cases).await;
    ended.into_iter().map(|(case, outcome)| (case, outcome.result.name())).collect()
}

#[tokio::test]
async fn verdicts_do_not_depend_on_the_number_of_concurrent_cases() {
    const CASES: &[&str] = &[
        "identity::",
        "lifecycle::",
        "controller_create::",
        "controller_delete::",
        "controller_list::",
        "controller_expand::",
        "NodeUnpublishVolume unmounts and removes the target",
    ];
    let leaving = Traits { leaves_target: true, ..Traits::default() };
    let endless = Traits { endless: true, ..Traits::default() };
    for traits in [Traits::default(), leaving, endless] {
        let (one, eight) = (verdicts(1, traits, CASES).await, verdicts(8, traits, CASES).await);
        for verdict in ["passed", "failed", "skipped"] {
            assert!(one.values().any(|it| *it == verdict), "{traits:?}: no case {verdict}: {one:?}");
        }
        // Of the two cases that repeat every call, the first one to fail reports the cause of both.
        let reported_once = |case: &CaseId| case.to_string().contains("with every call repeated");
        for (case, verdict) in one.iter().filter(|(case, _)| !reported_once(case)) {
            assert_eq!(eight.get(case), Some(verdict), "{traits:?}: {case} with 8 concurrent cases");
        }
        assert_eq!(one.len(), eight.len());
    }
}

#[tokio::test]
async fn a_step_that_always_fails_is_not_a_finding_about_access_modes() {
    const CASE: &str = "access mode UNKNOWN is rejected by every call";
    let failing = Traits { stages_nothing: true, any_mode: true, ..Traits::default() };
    let outcome = result(failing, CASE).await;
    outcome.fails("but CreateVolume returned OK");
    let CaseResult::Failed { reason, .. } = &outcome.result else { panic!("{:?}", outcome.result) };
    assert!(!reason.contains("NodeStageVolume"), "{reason}");
    // With the case that reports the step, it is clear that the step fails always.
    const CYCLE: &str = "a full volume lifecycle succeeds and leaves nothing behind [mount]";
    let outcomes = run_all(failing, false, NodeEffects::Checked, &[CYCLE, CASE]).await;
    outcomes[&CaseId::new("lifecycle", CYCLE)].fails("NodeStageVolume returned Internal");
    outcomes[&CaseId::new("capabilities", CASE)].fails("but CreateVolume returned OK");
}

#[tokio::test]
async fn a_step_that_always_fails_is_not_a_finding_about_unusual_requests() {
    const CYCLE: &str = "a full volume lifecycle succeeds and leaves nothing behind [mount]";
    const UNUSUAL: [&str; 2] = [
        "node_publish::NodePublishVolume applies mount_flags",
        "robustness::NodePublishVolume with .. in target_path succeeds or returns InvalidArgument",
    ];
    let failing = Traits { publishes_nothing: true, ..Traits::default() };
    // Each error quotes the request.
    let outcomes = run_all(failing, false, NodeEffects::Checked, &[&UNUSUAL[..], &[CYCLE]].concat()).await;
    assert_eq!(failed(&outcomes), [CYCLE]);
    assert_eq!(outcomes.len(), 3);
    for case in UNUSUAL {
        run(failing, false, case).await.fails("exit status 32");
    }
}

#[tokio::test]
async fn a_name_that_the_system_rejects_is_no_object_that_does_not_exist() {
    let outcome = result(Traits::default(), "CreateVolume with an invalid name succeeds").await;
    let CaseResult::Failed { cause, .. } = outcome.result else { panic!("{:?}", outcome.result) };
    assert_eq!(cause.as_deref(), Some("Internal is returned where InvalidArgument is required"));
}

#[tokio::test]
async fn a_driver_may_support_one_access_mode() {
    const CASES: &[&str] = &["lifecycle::", "controller_create::", "capabilities::a volume created"];
    let failing = |outcomes: &BTreeMap<CaseId, Outcome>| failed(outcomes).join("; ");
    let all = run_all(Traits::default(), false, NodeEffects::Checked, CASES).await;
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeReaderOnly] {
        let only = Traits { only_mode: Some(mode), ..Traits::default() };
        let outcomes = run_all(only, false, NodeEffects::Checked, CASES).await;
        for case in failed(&outcomes) {
            assert!(failing(&all).contains(case), "{mode:?}: {case}");
        }
    }
    // An older caller cannot use the volumes.
    let single = Traits { only_mode: Some(Mode::SingleNodeSingleWriter), ..Traits::default() };
    let outcomes = run_all(single, false, NodeEffects::Checked, CASES).await;
    assert!(failing(&outcomes).contains("a full volume lifecycle"), "{}", failing(&outcomes));
}

#[tokio::test]
async fn a_driver_may_have_volumes_of_certain_sizes_only() {
    const CASES: &[&str] = &["controller_create::", "controller_expand::", "lifecycle::"];
    let failing = |outcomes: &BTreeMap<CaseId, Outcome>| failed(outcomes).join("; ");
    let keeping = Traits { keeps_size: true, ..Traits::default() };
    let any = run_all(keeping, false, NodeEffects::Checked, CASES).await;
    for traits in [Traits { rounds_up: true, ..keeping }, Traits { in_steps: true, ..keeping }] {
        let outcomes = run_all(traits, false, NodeEffects::Checked, CASES).await;
        for case in failed(&outcomes) {
            assert!(failing(&any).contains(case), "{traits:?}: {case}");
        }
        let passed = |outcomes: &BTreeMap<CaseId, Outcome>| {
            outcomes.values().filter(|outcome| outcome.result == CaseResult::Passed).count()
        };
        assert!(passed(&outcomes) >= passed(&any), "{traits:?}: {}", failing(&outcomes));
    }
}

#[tokio::test]
async fn block_volumes_that_are_not_supported_are_to_be_rejected_as_invalid() {
    let failing = Traits { no_block: true, ..Traits::default() };
    let case = "a full volume lifecycle succeeds and leaves nothing behind [block]";
    let ended = run_of(1, Vec::new(), failing, false, NodeEffects::Checked, &[case]).await;
    let outcome = ended.into_values().next().unwrap();
    outcome.fails("expected OK, or InvalidArgument if the driver supports no block volumes\nMUST (CreateVolume): \"If ANY");
}

#[tokio::test]
async fn node_information_is_what_kubernetes_requires() {
    let silent = Traits { no_node_info: true, ..Traits::default() };
    let outcomes = run_all(silent, false, NodeEffects::Checked, &["NodeGetInfo"]).await;
    const ID: &str = "NodeGetInfo returns a node_id of 1 to 256 bytes";
    assert_eq!(failed(&outcomes), [ID]);
    outcomes[&CaseId::new("declarations", ID)].fails("Unimplemented");
    outcomes[&CaseId::new("declarations", ID)].fails("\nKubernetes (NodeGetInfo)");
}

#[tokio::test]
async fn ids_of_volumes_that_do_not_exist_have_the_format_of_the_driver() {
    let numbers = Traits { numbers: true, ..Traits::default() };
    for case in [
        "node_stage::NodeStageVolume of a nonexistent volume returns NotFound",
        "controller_delete::ValidateVolumeCapabilities of a nonexistent volume returns NotFound",
    ] {
        assert_eq!(result(numbers, case).await.result, CaseResult::Passed, "{case}");
    }
}

#[tokio::test]
async fn an_endpoint_without_a_node_service_is_few_findings() {
    let none = Traits { no_node: true, ..Traits::default() };
    let outcomes = run_all(none, false, NodeEffects::Checked, &[]).await;
    let all = run_all(Traits::default(), false, NodeEffects::Checked, &[]).await;
    let more = failed(&outcomes).into_iter().filter(|case| !failed(&all).contains(case)).collect::<Vec<_>>();
    assert!(more.len() <= 2, "{more:?}");
}
