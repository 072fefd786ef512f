//! Each legal variant has an effect: the responses to a fixed sequence of calls differ from those of the driver
//! without it. On a fake machine.

use std::{collections::BTreeMap, fs::OpenOptions, os::unix::fs::FileExt, sync::Arc, time::Instant};

use crate::support::{self, Place, copy_of, fake::FakeHost, from_snapshot};
use claimcheck_csi::v1::{
    self, VolumeCapability, controller_server::Controller, group_controller_server::GroupController,
    identity_server::Identity, node_server::Node, snapshot_metadata_server::SnapshotMetadata,
    volume_capability::access_mode::Mode,
};
use claimcheck_driver::{
    Config, Driver,
    topology::Segment,
    variant::{Variant, Variants},
    volume::VolumeId,
};
use tokio_stream::StreamExt;
use tonic::{Request, Status};

const SIZE: i64 = support::IMAGE_BYTES;

/// The responses to the calls of a script.
#[derive(Default)]
struct Transcript(Vec<String>);

/// Makes a call of a service, records its response, and returns it; the default in place of an error.
macro_rules! call {
    ($log:ident: $service:ident::$call:ident($driver:ident, $request:expr)) => {{
        let answer = $service::$call($driver, Request::new($request)).await;
        let answer = answer.map(tonic::Response::into_inner);
        $log.add(stringify!($call), answer.as_ref().map(|answer| format!("{answer:?}")));
        answer.unwrap_or_default()
    }};
}

/// A snapshot with the part of its time that does not depend on the clock.
fn timeless(snapshot: &mut v1::Snapshot) {
    if let Some(time) = &mut snapshot.creation_time {
        (time.seconds, time.nanos) = (0, i32::from(time.nanos != 0));
    }
}

impl Transcript {
    /// Records a response, or the code of an error: messages contain paths.
    fn add(&mut self, call: &str, answer: Result<String, &Status>) {
        self.0.push(match answer {
            Ok(text) => format!("{call}: {text}"),
            Err(status) => format!("{call}: {:?}", status.code()),
        });
    }

    /// Records the response about a snapshot without its time.
    fn snapshot(&mut self, call: &str, answer: Result<Option<v1::Snapshot>, Status>) -> v1::Snapshot {
        let mut answer = answer.map(Option::unwrap_or_default);
        answer.as_mut().map(timeless).ok();
        self.add(call, answer.as_ref().map(|answer| format!("{answer:?}")));
        answer.unwrap_or_default()
    }

    fn group(
        &mut self,
        call: &str,
        answer: Result<Option<v1::VolumeGroupSnapshot>, Status>,
    ) -> v1::VolumeGroupSnapshot {
        let mut answer = answer.map(Option::unwrap_or_default);
        if let Ok(group) = &mut answer {
            group.snapshots.iter_mut().for_each(timeless);
            if let Some(time) = &mut group.creation_time {
                (time.seconds, time.nanos) = (0, i32::from(time.nanos != 0));
            }
        }
        self.add(call, answer.as_ref().map(|answer| format!("{answer:?}")));
        answer.unwrap_or_default()
    }
}

fn request(name: &str, kind: &str, capability: VolumeCapability) -> v1::CreateVolumeRequest {
    let volume_capabilities = vec![capability];
    v1::CreateVolumeRequest { name: name.to_owned(), volume_capabilities, ..support::create(kind) }
}

/// Makes at least one call of each kind. Writes to the image of a volume in between, as a workload does.
async fn script<D>(d: &D, place: &Place) -> Vec<String>
where
    D: Identity + Controller + GroupController + SnapshotMetadata + Node,
{
    let mut log = Transcript::default();
    call!(log: Identity::get_plugin_info(d, v1::GetPluginInfoRequest {}));
    call!(log: Identity::get_plugin_capabilities(d, v1::GetPluginCapabilitiesRequest {}));
    call!(log: Identity::probe(d, v1::ProbeRequest {}));
    call!(log: Controller::controller_get_capabilities(d, v1::ControllerGetCapabilitiesRequest {}));
    let of_groups = v1::GroupControllerGetCapabilitiesRequest {};
    call!(log: GroupController::group_controller_get_capabilities(d, of_groups));
    call!(log: Node::node_get_capabilities(d, v1::NodeGetCapabilitiesRequest {}));
    let info = call!(log: Node::node_get_info(d, v1::NodeGetInfoRequest {}));
    call!(log: Controller::get_capacity(d, v1::GetCapacityRequest::default()));

    let writer = |mode| support::capability(mode, &[]);
    let made = request("used", "directory", writer(Mode::SingleNodeWriter));
    let used = call!(log: Controller::create_volume(d, made)).volume.unwrap_or_default();
    let made = request("image", "image", writer(Mode::SingleNodeWriter));
    let image = call!(log: Controller::create_volume(d, made)).volume.unwrap_or_default();
    let modes = [Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter];
    for mode in modes {
        call!(log: Controller::create_volume(d, request(mode.as_str_name(), "directory", writer(mode))));
    }
    call!(log: Controller::create_volume(d, request("raw", "image", support::block(Mode::SingleNodeWriter))));
    for max_entries in [0, 2] {
        let mut starting_token = String::new();
        for _ in 0..10 {
            let page = v1::ListVolumesRequest { max_entries, starting_token };
            starting_token = call!(log: Controller::list_volumes(d, page)).next_token;
            if starting_token.is_empty() {
                break;
            }
        }
    }
    let validate = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: used.volume_id.clone(),
        volume_context: used.volume_context.clone(),
        volume_capabilities: vec![writer(Mode::SingleNodeWriter)],
        ..Default::default()
    };
    call!(log: Controller::validate_volume_capabilities(d, validate));

    let writing = OpenOptions::new()
        .write(true)
        .open(place.state().join("volumes").join(VolumeId::from_name("image").as_str()).join("image"));
    let write = |at: u64| writing.as_ref().map(|file| file.write_all_at(&[1; 8192], at).unwrap()).ok();
    write(1 << 20);
    write(4 << 20);
    let take = |name: &str| v1::CreateSnapshotRequest {
        source_volume_id: image.volume_id.clone(),
        ..support::snapshot(name)
    };
    let mut taken = Vec::new();
    for name in ["first", "second"] {
        let answer = Controller::create_snapshot(d, Request::new(take(name))).await;
        let answer = answer.map(|answer| answer.into_inner().snapshot);
        taken.push(log.snapshot("create_snapshot", answer).snapshot_id);
        write(2 << 20);
    }
    let get = v1::GetSnapshotRequest { snapshot_id: taken[0].clone(), ..Default::default() };
    let answer = Controller::get_snapshot(d, Request::new(get)).await;
    log.snapshot("get_snapshot", answer.map(|answer| answer.into_inner().snapshot));
    let answer = Controller::list_snapshots(d, Request::new(v1::ListSnapshotsRequest::default())).await;
    let listed = answer.map(|answer| answer.into_inner().entries.into_iter().next());
    log.snapshot("list_snapshots", listed.map(|entry| entry.and_then(|entry| entry.snapshot)));
    let allocated = v1::GetMetadataAllocatedRequest { snapshot_id: taken[0].clone(), ..Default::default() };
    let messages = match SnapshotMetadata::get_metadata_allocated(d, Request::new(allocated)).await {
        Ok(stream) => stream.into_inner().collect::<Result<Vec<_>, Status>>().await,
        Err(status) => Err(status),
    };
    log.add("get_metadata_allocated", messages.as_ref().map(|messages| format!("{messages:?}")));
    let delta = v1::GetMetadataDeltaRequest {
        base_snapshot_id: taken[0].clone(),
        target_snapshot_id: taken[1].clone(),
        ..Default::default()
    };
    let messages = match SnapshotMetadata::get_metadata_delta(d, Request::new(delta)).await {
        Ok(stream) => stream.into_inner().collect::<Result<Vec<_>, Status>>().await,
        Err(status) => Err(status),
    };
    log.add("get_metadata_delta", messages.as_ref().map(|messages| format!("{messages:?}")));

    let group = v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: vec![used.volume_id.clone(), image.volume_id.clone()],
        ..Default::default()
    };
    let answer = GroupController::create_volume_group_snapshot(d, Request::new(group)).await;
    let group = log.group("create_group", answer.map(|answer| answer.into_inner().group_snapshot));
    let members: Vec<String> = group.snapshots.iter().map(|member| member.snapshot_id.clone()).collect();
    let get = v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: members.clone(),
        ..Default::default()
    };
    let answer = GroupController::get_volume_group_snapshot(d, Request::new(get)).await;
    log.group("get_group", answer.map(|answer| answer.into_inner().group_snapshot));
    let member = members.get(1).unwrap_or(&taken[0]);
    for (name, snapshot) in [("restored", &taken[0]), ("restored-member", member)] {
        call!(log: Controller::create_volume(d, copy_of("image", name, from_snapshot(snapshot))));
    }
    let delete = v1::DeleteSnapshotRequest { snapshot_id: taken[0].clone(), ..Default::default() };
    call!(log: Controller::delete_snapshot(d, delete));
    let delete = v1::DeleteVolumeRequest { volume_id: image.volume_id.clone(), ..Default::default() };
    call!(log: Controller::delete_volume(d, delete));

    on_node(d, place, &mut log, &used, &info.node_id).await;
    let delete = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id,
        snapshot_ids: members,
        ..Default::default()
    };
    call!(log: GroupController::delete_volume_group_snapshot(d, delete));
    log.0
}

/// The life of a volume on the node.
async fn on_node<D>(d: &D, place: &Place, log: &mut Transcript, used: &v1::Volume, node_id: &str)
where
    D: Controller + Node,
{
    let volume_id = || used.volume_id.clone();
    let (staging, target) = (place.staging(), place.target());
    let attach = v1::ControllerPublishVolumeRequest {
        volume_id: volume_id(),
        volume_context: used.volume_context.clone(),
        ..support::attach(node_id)
    };
    call!(log: Controller::controller_publish_volume(d, attach));
    let get = v1::ControllerGetVolumeRequest { volume_id: volume_id() };
    call!(log: Controller::controller_get_volume(d, get));
    let stage = v1::NodeStageVolumeRequest {
        volume_id: volume_id(),
        volume_context: used.volume_context.clone(),
        ..support::stage(&staging)
    };
    call!(log: Node::node_stage_volume(d, stage));
    let take = v1::CreateSnapshotRequest { source_volume_id: volume_id(), ..support::snapshot("in-use") };
    let answer = Controller::create_snapshot(d, Request::new(take)).await;
    log.snapshot("create_snapshot", answer.map(|answer| answer.into_inner().snapshot));
    let publish = v1::NodePublishVolumeRequest {
        volume_id: volume_id(),
        volume_context: used.volume_context.clone(),
        ..support::publish(&staging, &target, false)
    };
    call!(log: Node::node_publish_volume(d, publish));
    let stats = v1::NodeGetVolumeStatsRequest { volume_id: volume_id(), ..support::stats(&target) };
    let answer = Node::node_get_volume_stats(d, Request::new(stats)).await;
    // The numbers are those of this machine.
    let known = |usage: &v1::VolumeUsage| {
        (usage.unit, [usage.total, usage.used, usage.available].map(|number| number > 0))
    };
    let answer = answer.map(|answer| answer.into_inner().usage.iter().map(known).collect::<Vec<_>>());
    log.add("node_get_volume_stats", answer.as_ref().map(|answer| format!("{answer:?}")));
    for size in [2 * SIZE, SIZE] {
        let expand = v1::ControllerExpandVolumeRequest { volume_id: volume_id(), ..support::expand(size) };
        call!(log: Controller::controller_expand_volume(d, expand));
    }
    let expand = v1::NodeExpandVolumeRequest { volume_id: volume_id(), ..support::expand_on_node(&target) };
    call!(log: Node::node_expand_volume(d, expand));
    let modify = v1::ControllerModifyVolumeRequest {
        volume_id: volume_id(),
        mutable_parameters: BTreeMap::from([("iops".to_owned(), "100".to_owned())]),
        ..Default::default()
    };
    call!(log: Controller::controller_modify_volume(d, modify));

    let handle = format!("csi-{}", "0".repeat(64));
    let inline = place.path().join("kubelet/inline");
    let ephemeral = BTreeMap::from([("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())]);
    let publish = v1::NodePublishVolumeRequest {
        volume_id: handle.clone(),
        staging_target_path: String::new(),
        volume_context: ephemeral,
        ..support::publish(&staging, &inline, false)
    };
    call!(log: Node::node_publish_volume(d, publish));
    let unpublish = v1::NodeUnpublishVolumeRequest { volume_id: handle, ..support::unpublish(&inline) };
    call!(log: Node::node_unpublish_volume(d, unpublish));

    for volume_id in [volume_id(), VolumeId::from_name("gone").to_string()] {
        let id = || volume_id.clone();
        let unpublish = v1::NodeUnpublishVolumeRequest { volume_id: id(), ..support::unpublish(&target) };
        call!(log: Node::node_unpublish_volume(d, unpublish));
        let unstage = v1::NodeUnstageVolumeRequest { volume_id: id(), ..support::unstage(&staging) };
        call!(log: Node::node_unstage_volume(d, unstage));
        let detach = v1::ControllerUnpublishVolumeRequest { volume_id: id(), ..support::detach(node_id) };
        call!(log: Controller::controller_unpublish_volume(d, detach));
    }
}

/// The responses of a driver with these variants.
async fn responses(variants: &[Variant]) -> Vec<String> {
    let place = Place::new();
    let variants = Variants::new(variants.iter().copied());
    let mut config = Config {
        topology: Segment::new([("zone".to_owned(), "a".to_owned())]),
        max_volumes_per_node: 5,
        capacity_bytes: Some(1 << 40),
        ..place.config("node-1")
    };
    variants.configure(&mut config);
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    if variants.is_empty() {
        script(&driver, &place).await
    } else {
        script(&variants.before(driver), &place).await
    }
}

/// Whether the variant changes when calls are executed, and not their responses.
fn is_of_time(variant: Variant) -> bool {
    matches!(
        variant,
        Variant::Slow
            | Variant::SlowResponses
            | Variant::SerialCalls
            | Variant::AbortedWhileBusy
            | Variant::BusyAfterCancel
    )
}

#[tokio::test]
async fn each_variant_changes_a_response() {
    let plain = responses(&[]).await;
    assert_eq!(plain, responses(&[]).await, "two runs of the script differ without variants");
    let succeeded = plain.iter().filter(|line| line.contains("Response") || line.contains('{')).count();
    assert!(succeeded > 30, "{plain:#?}");
    for &variant in Variant::all().iter().filter(|variant| !is_of_time(**variant)) {
        assert_ne!(plain, responses(&[variant]).await, "{}", variant.name());
    }
}

#[tokio::test]
async fn variants_of_time_change_no_response_of_sequential_calls() {
    let plain = responses(&[]).await;
    for &variant in Variant::all().iter().filter(|variant| is_of_time(**variant)) {
        let began = Instant::now();
        assert_eq!(plain, responses(&[variant]).await, "{}", variant.name());
        if matches!(variant, Variant::Slow | Variant::SlowResponses) {
            assert!(began.elapsed().as_secs() >= 1, "{}", variant.name());
        }
    }
}

/// A caller of a variant with other ids, tokens and contexts never sees those of the driver.
#[tokio::test]
async fn variants_combine() {
    let all = [
        Variant::LongestIds,
        Variant::IdsWithSlashes,
        Variant::LongestNodeId,
        Variant::LongestTokens,
        Variant::LongestVolumeContext,
        Variant::ManyPages,
        Variant::EmptyFirstPage,
        Variant::EmptyLastPage,
    ];
    let lines = responses(&all).await;
    let codes = |lines: &[String]| -> Vec<String> {
        let failed = |line: &&String| !line.contains(['{', '[', '(']);
        lines.iter().filter(failed).cloned().collect()
    };
    assert_eq!(codes(&lines), codes(&responses(&[]).await));
    // A token contains an id of the driver, for which it need not be one.
    let text = lines.join("\n").replace("next_token: \"vol-", "");
    for seen in ["\"vol-", "\"snap-", "\"group-", "\"node-1\""] {
        assert!(!text.contains(seen), "{seen}: {text}");
    }
}
