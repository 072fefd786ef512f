//! The suite on trial: each defect that our driver can be given is caught by `claimcheck csi`, by a case whose
//! message names the defect's effect.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]
#![expect(clippy::print_stdout, reason = "the matrix is for people: see ci/defects")]

use std::{process::Command, sync::Mutex, thread};

use claimcheck_driver::defect::Defect;
use comfy_table::{ContentArrangement, Table, TableStyle};
use serde_json::Value;

/// How many drivers are tried at a time.
const AT_ONCE: usize = 4;
/// Failures that may come of the machine being busy, in a run of all cases.
const SLACK: usize = 2;

/// What a driver is asked for: some defects show with one kind of volume only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volumes {
    Directories,
    /// Needs root, as loop devices do.
    Images,
    /// Needs root.
    Devices,
}
use Volumes::{Devices, Directories, Images};

/// What is to come of a defect.
struct Due {
    volumes: Volumes,
    /// The case that is to catch it.
    case: &'static str,
    /// What its message must say.
    words: &'static str,
    /// How many cases it may fail: most defects are the matter of few.
    most: usize,
}

const fn due(volumes: Volumes, case: &'static str, words: &'static str, most: usize) -> Due {
    Due { volumes, case, words, most }
}

/// What is to come of each.
const fn due_of(defect: Defect) -> Due {
    match defect {
        Defect::CreateRepeatRefused => due(
            Directories,
            "controller_create::the same name and size is the same volume [mount]",
            "answered AlreadyExists",
            9,
        ),
        Defect::CreateRepeatMakesAnother => due(
            Directories,
            "controller_create::the same name and size is the same volume [mount]",
            "made two volumes",
            10,
        ),
        Defect::CreateConflictAccepted => due(
            Directories,
            "controller_create::the same name with another size already exists",
            "another size answered OK",
            1,
        ),
        Defect::CapacityZero => {
            due(Directories, "controller_list::a volume can be looked up", "gave the capacity 0", 1)
        }
        Defect::CapacityHalved => due(
            Directories,
            "controller_create::a volume is at least as large as asked for [mount]",
            "CreateVolume gives 33554432",
            3,
        ),
        Defect::CapacityLimitIgnored => due(
            Directories,
            "controller_create::a limit below what is required is refused",
            "a limit below what is required answered OK",
            1,
        ),
        Defect::TopologyOfAnotherNode => due(
            Directories,
            "controller_create::a volume is where it was asked to be",
            "is accessible from",
            1,
        ),
        Defect::SourceIgnored => due(
            Directories,
            "snapshots::a restored volume has the snapshot's data [mount]",
            "the data is not there",
            22,
        ),
        Defect::SecretInError => due(
            Directories,
            "robustness::no error of the whole run tells a secret",
            "told the value of a secret",
            2,
        ),
        Defect::DeleteKeepsData => due(
            Directories,
            "lifecycle::a deleted volume's name makes a new and empty one [mount]",
            "holds the data of a deleted one",
            1,
        ),
        Defect::DeleteInUse => due(
            Directories,
            "controller_delete::an attached volume is in use",
            "that is attached to a node answered OK",
            3,
        ),
        Defect::DeleteRepeatFails => due(
            Directories,
            "controller_delete::a volume can be deleted, twice",
            "DeleteVolume called again answered NotFound",
            8,
        ),
        Defect::TwoNodesAtOnce => due(
            Directories,
            "controller_publish::a volume for one node is not attached to a second",
            "to a second node answered OK",
            1,
        ),
        Defect::UnknownNodeAccepted => due(
            Directories,
            "controller_publish::attaching to a node that is not there is refused",
            "to a node that does not exist answered OK",
            2,
        ),
        Defect::LimitOffByOne => due(
            Directories,
            "controller_publish::a node takes no more than its limit",
            "is 95, and 96 volumes were attached",
            1,
        ),
        Defect::ValidateConfirmsAll => due(
            Directories,
            "controller_delete::an unknown access mode is not confirmed",
            "confirms the access mode UNKNOWN",
            1,
        ),
        Defect::PagingDrops => due(
            Directories,
            "controller_list::pages of one give every volume, each once",
            "is missing from ListVolumes",
            3,
        ),
        Defect::PagingRepeats => due(
            Directories,
            "controller_list::pages survive that the last volume of one is deleted",
            "with max_entries 2 gives 3 entries",
            3,
        ),
        Defect::PagingTokenIgnored => due(
            Directories,
            "controller_list::a token that nobody gave out is refused",
            "an invalid starting_token answered OK",
            1,
        ),
        Defect::ListForgetsNodes => due(
            Directories,
            "controller_list::the list says to which nodes a volume is published",
            "and ListVolumes says []",
            1,
        ),
        Defect::SnapshotFilterIgnored => due(
            Directories,
            "snapshots::listing a source gives its snapshots",
            "ListSnapshots of the source",
            3,
        ),
        Defect::NeverReady => {
            due(Directories, "lifecycle::a snapshot is taken and deleted", "was not ready_to_use within", 3)
        }
        Defect::SnapshotConflictAccepted => due(
            Directories,
            "snapshots::the same name with another source already exists",
            "of another volume answered OK",
            1,
        ),
        Defect::SnapshotAliasesSource => due(
            Directories,
            "snapshots::what the source is written later is not in the snapshot [mount]",
            "the source was written to after the snapshot, and in the restored volume",
            4,
        ),
        Defect::CloneSharesBlocks => due(
            Directories,
            "clones::a clone and its source do not share what is written later [mount]",
            "a clone was written to, and in its source",
            1,
        ),
        Defect::SnapshotDeleteForgotten => due(
            Directories,
            "snapshots::a new snapshot is listed, and a deleted one is not",
            "is still in ListSnapshots",
            2,
        ),
        Defect::GroupLacksMember => due(
            Directories,
            "groups::a group has one snapshot of each volume",
            "there are 0 snapshots in its group",
            6,
        ),
        Defect::DeltaLacksBlock => due(
            Images,
            "metadata::changed blocks are those that were written between",
            "is not among the changed blocks",
            1,
        ),
        Defect::ExpandForgotten => due(
            Images,
            "controller_expand::a grown volume tells its size",
            "and ControllerGetVolume says 67108864",
            7,
        ),
        Defect::ExpandForgetsFilesystem => due(
            Devices,
            "node_expand::a workload sees that its volume has grown [block]",
            "its workload sees 67108864",
            4,
        ),
        Defect::ModifyAcceptsAll => due(
            Directories,
            "controller_expand::invalid mutable parameters are refused",
            "invalid mutable parameters answered OK",
            2,
        ),
        Defect::StageTwiceTwoLoops => {
            due(Images, "upkeep::staging twice attaches one loop device", "attaches another loop device", 1)
        }
        Defect::StageFormatsAgain => due(
            Images,
            "lifecycle::data survives a whole way down and up [mount]",
            "after a way down and up: the data is not there",
            16,
        ),
        Defect::MountLeftAfterUnstage => {
            due(Directories, "node_stage::nothing is mounted after unstaging [mount]", "left mounted", 2)
        }
        Defect::UnstageRepeatFails => due(
            Directories,
            "node_stage::unstaging twice works [mount]",
            "NodeUnstageVolume called again answered Internal",
            6,
        ),
        Defect::PublishWithoutStage => due(
            Directories,
            "node_publish::publishing what is not staged is refused [mount]",
            "that is not staged answered OK",
            3,
        ),
        Defect::PublishBeforeMount => due(
            Directories,
            "node_publish::a published volume is mounted when the call returns",
            "nothing is mounted at the target",
            70,
        ),
        Defect::PublishMountsNothing => due(
            Directories,
            "node_publish::a published volume is mounted when the call returns",
            "nothing is mounted at the target",
            38,
        ),
        Defect::ReadOnlyIgnored => due(
            Directories,
            "node_publish::read-only is read-only [mount]",
            "published read-only could be written to",
            3,
        ),
        Defect::FsGroupIgnored => due(
            Directories,
            "pod::a volume belongs to the group that it was mounted for",
            "fsGroup is ignored",
            1,
        ),
        Defect::ExpiredTokenAccepted => {
            due(Directories, "pod::a token that has expired is refused", "accepted a token", 1)
        }
        Defect::MountLeftAfterUnpublish => due(
            Directories,
            "node_publish::unpublishing removes the target [mount]",
            "the target is still mounted",
            3,
        ),
        Defect::TargetLeft => due(
            Directories,
            "node_publish::unpublishing removes the target [mount]",
            "the target path is still there",
            2,
        ),
        Defect::UnpublishRepeatFails => due(
            Directories,
            "node_publish::unpublishing twice works [mount]",
            "NodeUnpublishVolume called again answered Internal",
            8,
        ),
        Defect::StatsOfAnotherVolume => due(
            Images,
            "node_stats::statistics at another volume's path are refused",
            "at the path of another volume answered OK",
            1,
        ),
        Defect::InternalForNotFound => {
            due(Directories, "node_stage::staging what is not there is refused", "where NotFound is due", 40)
        }
        Defect::SlowAfterCalls => {
            due(Directories, "upkeep::many calls later a call takes no longer", "calls become slower", 4)
        }
        Defect::DescriptorLeak => {
            due(Directories, "upkeep::calls leave no file descriptor open", "calls leave descriptors open", 1)
        }
        Defect::LoopLeak => {
            due(Images, "upkeep::unstaging leaves no loop device attached", "of the volume attached", 6)
        }
        Defect::CrashInCall => due(
            Directories,
            "node_stats::statistics of what is not there are refused",
            "ended by itself in a call",
            3,
        ),
        Defect::DeclaredUnimplemented => due(
            Directories,
            "declarations::what the controller declares is implemented",
            "declared, and yet they answer Unimplemented",
            10,
        ),
        Defect::ImplementedUndeclared => due(
            Directories,
            "declarations::what the controller implements is declared",
            "implemented, and yet not declared",
            2,
        ),
        Defect::CapabilityTwice => due(
            Directories,
            "declarations::the controller's capabilities are known and listed once",
            "twice",
            1,
        ),
    }
}

/// A case that failed, and its message.
type Caught = (String, String);

/// Runs cases (all of them, if there is none) against a driver, sound or not.
fn try_driver(defect: Option<Defect>, volumes: Volumes, cases: &[&str]) -> Vec<Caught> {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --topology rack=1 \
         --max-volumes-per-node 96 --require-token vault",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let more: &[&str] = match volumes {
        Directories => &["--access-type", "mount"],
        Images => {
            driver.push_str(" --disable ONLINE_EXPANSION");
            &["--volume-parameter", "kind=image"]
        }
        Devices => &["--access-type", "block"],
    };
    if let Some(defect) = defect {
        driver = format!("{driver} --defect {}", defect.name());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .args([
            "csi",
            "--format",
            "json",
            "--nodes",
            "2",
            "--attach-limit",
            "100",
            "--token-audience",
            "vault",
        ])
        .args(["--ready-timeout", "2", "--mutable-parameter", "iops=100"])
        .args(["--invalid-mutable-parameter", "iops=0", "--driver", &driver])
        .args(more)
        .arg("--out")
        .arg(folder.path().join("out"))
        .args(cases)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{defect:?}: {error}: {errors}"));
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let failed = summary["results"].as_array().unwrap().iter().filter(|line| line["result"] == "failed");
    failed
        .map(|line| (format!("{}::{}", text(line, "suite"), text(line, "name")), text(line, "why")))
        .collect()
}

/// Why the defect does not count as caught; none if it does.
fn missed(due: &Due, caught: &[Caught], most: usize) -> Option<String> {
    let Some((_, message)) = caught.iter().find(|(case, _)| case == due.case) else {
        return Some(format!("not caught by {:?}", due.case));
    };
    if !message.contains(due.words) {
        return Some(format!("the message does not say {:?}: {message}", due.words));
    }
    (caught.len() > most).then(|| {
        let cases: Vec<&str> = caught.iter().map(|(case, _)| case.as_str()).collect();
        format!("fails {} cases, at most {most} are its matter: {cases:?}", caught.len())
    })
}

/// Tries all defects, several at a time; in their order.
fn try_all(whole: bool) -> Vec<(Defect, Vec<Caught>, Option<String>)> {
    let waiting = Mutex::new(Defect::all().iter());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(&defect) = waiting.lock().unwrap().next() else { return };
                    let due = due_of(defect);
                    if due.volumes != Directories && !nix::unistd::geteuid().is_root() {
                        println!("{}: left out, since loop devices need root", defect.name());
                        continue;
                    }
                    // What judges a whole run needs something to judge.
                    let only = ["robustness::", due.case];
                    let only = if due.case.starts_with("robustness::") { &only[..] } else { &only[1..] };
                    let caught = try_driver(Some(defect), due.volumes, if whole { &[] } else { only });
                    let missed = missed(&due, &caught, if whole { due.most + SLACK } else { usize::MAX });
                    done.lock().unwrap().push((defect, caught, missed));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(defect, ..)| *defect);
    done
}

#[test]
fn every_defect_is_caught_in_words_that_name_its_effect() {
    assert!(Defect::all().len() >= 36);
    let missed: Vec<_> = try_all(false)
        .into_iter()
        .filter_map(|(defect, _, missed)| Some(format!("{}: {}", defect.name(), missed?)))
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// All cases against each defect, and against none: minutes, so that `ci/defects` alone asks for it.
#[test]
#[ignore = "ci/defects runs it"]
fn the_defect_matrix() {
    for volumes in [Directories, Images, Devices] {
        assert_eq!(try_driver(None, volumes, &[]), [], "the sound driver fails");
    }
    let tried = try_all(true);
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(200).set_header(["DEFECT", "WHAT IS WRONG", "CAUGHT BY", "OTHERS", "MESSAGE"]);
    for (defect, caught, missed) in &tried {
        let due = due_of(*defect);
        let message = caught.iter().find(|(case, _)| case == due.case).map(|(_, message)| message);
        let first = message.and_then(|message| message.lines().next()).unwrap_or_default();
        let told = missed.clone().unwrap_or_else(|| first.chars().take(200).collect());
        let others = caught.len().saturating_sub(1).to_string();
        table.add_row([defect.name(), defect.effect(), due.case.to_owned(), others, told]);
    }
    println!("{table}");
    let complete = tried.iter().filter(|(.., missed)| missed.is_none()).count();
    println!("{complete} of {} defects caught, in words that name their effect", Defect::all().len());
    assert_eq!(complete, Defect::all().len());
}
