//! What can be switched on and off: access modes, secrets, tokens, ephemeral volumes, mutable parameters.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    scenarios::INLINE,
    support::{self, Place, block, capability, fake::FakeHost, refused},
};
use claimcheck_csi::v1::{
    ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, CreateVolumeRequest, ListVolumesRequest,
    NodePublishVolumeRequest, NodeUnpublishVolumeRequest, ValidateVolumeCapabilitiesRequest,
    volume_capability::access_mode::Mode,
};
use claimcheck_driver::{
    Config, Driver,
    capability::{Capabilities, Capability},
    host::RealHost,
    secrets::Secrets,
};
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound, OutOfRange, Unauthenticated};

fn start(place: &Place, change: impl FnOnce(&mut Config)) -> Driver {
    let mut config = place.config("node-1");
    change(&mut config);
    Driver::start(config, Arc::new(FakeHost::default())).unwrap()
}

fn without(place: &Place, capability: Capability) -> Driver {
    start(place, |config| config.capabilities = Capabilities::without([capability]))
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn modes_can_be_switched_off() {
    for (mode, needed) in [
        (Mode::SingleNodeSingleWriter, Capability::SingleNodeMultiWriter),
        (Mode::MultiNodeReaderOnly, Capability::MultiNodeReaderOnly),
        (Mode::MultiNodeSingleWriter, Capability::MultiNodeSingleWriter),
        (Mode::MultiNodeMultiWriter, Capability::MultiNodeMultiWriter),
    ] {
        let place = Place::new();
        let create = || CreateVolumeRequest {
            volume_capabilities: vec![capability(mode, &[])],
            ..support::create("directory")
        };
        refused(without(&place, needed).create(create()), InvalidArgument, needed.name());
        start(&place, |_| {}).create(create()).unwrap();
    }
    let place = Place::new();
    let raw = CreateVolumeRequest {
        volume_capabilities: vec![block(Mode::SingleNodeWriter)],
        ..support::create("image")
    };
    refused(without(&place, Capability::RawBlock).create(raw), InvalidArgument, "RAW_BLOCK");
    let driver = without(&place, Capability::PublishReadonly);
    driver.create(support::create("directory")).unwrap();
    let reader = ControllerPublishVolumeRequest { readonly: true, ..support::attach("node-1") };
    refused(driver.attach(reader), InvalidArgument, "PUBLISH_READONLY");
}

#[test]
fn nodes_are_listed_only_where_declared() {
    let nodes = |driver: &Driver| {
        driver.list(ListVolumesRequest::default()).unwrap().entries[0]
            .status
            .clone()
            .unwrap()
            .published_node_ids
    };
    let place = Place::new();
    let driver = start(&place, |_| {});
    driver.create(support::create("directory")).unwrap();
    driver.attach(support::attach("node-1")).unwrap();
    assert_eq!(nodes(&driver), ["node-1"]);
    assert_eq!(nodes(&without(&place, Capability::ListVolumesPublishedNodes)), Vec::<String>::new());
}

#[test]
fn secrets() {
    let place = Place::new();
    let required = ["user=admin".parse().unwrap(), "NodeStageVolume:key=hunter2".parse().unwrap()];
    let driver = start(&place, |config| config.secrets = Secrets::new(required.to_vec()));
    let create = |sent: &[(&str, &str)]| {
        driver.create(CreateVolumeRequest { secrets: pairs(sent), ..support::create("directory") })
    };
    refused(create(&[]), InvalidArgument, "\"user\" is missing");
    refused(create(&[("user", "guess")]), Unauthenticated, "the value of \"user\"");
    create(&[("user", "admin")]).unwrap();
    let mut stage = support::stage(&place.staging());
    stage.secrets = pairs(&[("user", "admin")]);
    refused(
        driver.stage(stage.clone()),
        InvalidArgument,
        "\"key\" is missing, which NodeStageVolume requires",
    );
    stage.secrets.insert("key".into(), "hunter2".into());
    driver.stage(stage).unwrap();
    refused(driver.delete(support::delete()), InvalidArgument, "DeleteVolume");
    refused(driver.expand(support::expand(1)), InvalidArgument, "ControllerExpandVolume");
}

#[test]
fn tokens() {
    let place = Place::new();
    let driver = start(&place, |config| config.token_audiences = vec!["vault".into()]);
    driver.create(support::create("directory")).unwrap();
    driver.stage(support::stage(&place.staging())).unwrap();
    let publish = |expires: &str| {
        let tokens = format!(r#"{{"vault":{{"token":"t","expirationTimestamp":"{expires}"}}}}"#);
        driver.publish(NodePublishVolumeRequest {
            volume_context: pairs(&[("csi.storage.k8s.io/serviceAccount.tokens", &tokens)]),
            ..support::publish(&place.staging(), &place.target(), false)
        })
    };
    let bare = support::publish(&place.staging(), &place.target(), false);
    refused(driver.publish(bare), InvalidArgument, "tokenRequests");
    refused(publish("2020-01-01T00:00:00Z"), Unauthenticated, "expired");
    // The kubelet publishes again whenever the token is renewed.
    publish("2999-01-01T00:00:00Z").unwrap();
    publish("2999-06-01T00:00:00Z").unwrap();
}

#[test]
fn mutable_parameters() {
    let place = Place::new();
    let driver = start(&place, |_| {});
    let modify = |sent: &[(&str, &str)]| {
        driver.modify(ControllerModifyVolumeRequest {
            volume_id: support::id(),
            mutable_parameters: pairs(sent),
            ..Default::default()
        })
    };
    refused(modify(&[("iops", "5")]), NotFound, "volume");
    let create =
        CreateVolumeRequest { mutable_parameters: pairs(&[("iops", "5")]), ..support::create("image") };
    driver.create(create).unwrap();
    let has = |sent: &[(&str, &str)]| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: support::id(),
            volume_capabilities: vec![capability(Mode::SingleNodeWriter, &[])],
            mutable_parameters: pairs(sent),
            ..Default::default()
        };
        driver.validate(request).unwrap().confirmed.is_some()
    };
    assert!(has(&[("iops", "5")]) && !has(&[("iops", "6")]));
    modify(&[("throughput", "7")]).unwrap();
    modify(&[("iops", "6")]).unwrap();
    modify(&[("iops", "6")]).unwrap();
    assert!(has(&[("iops", "6"), ("throughput", "7")]));
    for bad in [("iops", "many"), ("iops", "0"), ("colour", "red")] {
        refused(modify(&[bad]), InvalidArgument, "mutable_parameters");
    }
    assert!(has(&[("iops", "6"), ("throughput", "7")]), "a refused change changed something");
}

fn inline(place: &Place, attributes: &[(&str, &str)]) -> NodePublishVolumeRequest {
    let mut volume_context = pairs(attributes);
    volume_context
        .extend(pairs(&[("csi.storage.k8s.io/ephemeral", "true"), ("csi.storage.k8s.io/pod.name", "pod")]));
    NodePublishVolumeRequest {
        volume_id: INLINE.into(),
        staging_target_path: String::new(),
        volume_context,
        ..support::publish(&place.staging(), &place.target(), false)
    }
}

fn inline_deleted(place: &Place) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest { volume_id: INLINE.into(), ..support::unpublish(&place.target()) }
}

#[test]
fn ephemeral_rules() {
    let place = Place::new();
    let driver = start(&place, |_| {});
    for (attribute, code, words) in [
        (("size", "big"), InvalidArgument, "number of bytes"),
        (("size", "1000000000000000000"), OutOfRange, "--max-volume-bytes"),
        (("colour", "red"), InvalidArgument, "colour"),
    ] {
        refused(driver.publish(inline(&place, &[attribute])), code, words);
        assert_eq!(place.volumes(), Vec::<String>::new());
    }
    let lesser = without(&place, Capability::InlineEphemeral);
    refused(lesser.publish(inline(&place, &[])), InvalidArgument, "INLINE_EPHEMERAL");

    let nowhere = Place::new();
    let mut request = inline(&nowhere, &[]);
    request.target_path = nowhere.path().join("no/such/parent").display().to_string();
    driver.publish(request).unwrap_err();
    assert_eq!(place.volumes(), Vec::<String>::new(), "a failed publication left its volume");

    for _ in 0..2 {
        driver.publish(inline(&place, &[])).unwrap();
    }
    assert_eq!(place.volumes().len(), 1);
    assert_eq!(driver.list(ListVolumesRequest::default()).unwrap().entries, []);
    let mut stats = support::stats(&place.target());
    stats.volume_id = INLINE.into();
    driver.stats(stats).unwrap();
    driver.unpublish(inline_deleted(&place)).unwrap();
    assert_eq!(place.volumes(), Vec::<String>::new());
    driver.unpublish(inline_deleted(&place)).unwrap();

    let room = start(&place, |config| config.capacity_bytes = Some(1 << 20));
    let full = room.publish(inline(&place, &[("size", "2000000")]));
    assert_eq!(full.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert_eq!(place.volumes(), Vec::<String>::new());
    refused(
        driver.publish(support::publish(&place.staging(), &place.target(), false)),
        NotFound,
        "does not exist",
    );
}

fn ephemeral(kind: &'static str) {
    support::with_mounts_of(kind, move || {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        driver.publish(inline(&place, &[("kind", kind), ("size", "16777216")])).unwrap();
        std::fs::write(place.target().join("file"), "data").unwrap();
        // A new driver identifies it.
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        assert_eq!(std::fs::read_to_string(place.target().join("file")).unwrap(), "data");
        support::take_down(&driver, &inline_deleted(&place));
        assert!(!place.target().exists());
        assert_eq!(place.volumes(), Vec::<String>::new());
        place.assert_unmounted(kind);
    });
}

#[test]
#[ignore = "requires root"]
fn ephemeral_directory() {
    ephemeral("directory");
}

#[test]
#[ignore = "requires root, loop"]
fn ephemeral_image() {
    ephemeral("image");
}

/// CSI specification, table of NodePublishVolume: a second target for the same volume on a node.
#[test]
fn second_targets() {
    for (mode, admitted) in [
        (Mode::SingleNodeWriter, true),
        (Mode::SingleNodeReaderOnly, true),
        (Mode::SingleNodeSingleWriter, false),
        (Mode::SingleNodeMultiWriter, true),
        (Mode::MultiNodeReaderOnly, true),
        (Mode::MultiNodeSingleWriter, true),
        (Mode::MultiNodeMultiWriter, true),
    ] {
        let place = Place::new();
        let driver = start(&place, |_| {});
        driver.create(support::create("directory")).unwrap();
        let expected = Some(capability(mode, &[]));
        let mut stage = support::stage(&place.staging());
        stage.volume_capability = expected.clone();
        driver.stage(stage).unwrap();
        let publish = |target: &str, readonly| {
            let target = place.path().join("kubelet").join(target);
            let mut request = support::publish(&place.staging(), &target, readonly);
            request.volume_capability = expected.clone();
            driver.publish(request)
        };
        publish("one", false).unwrap();
        publish("one", false).unwrap();
        refused(publish("one", true), tonic::Code::AlreadyExists, "already");
        for readonly in [false, true] {
            match publish("two", readonly) {
                Ok(_) => assert!(admitted, "{mode:?}"),
                // The read-only one comes to the same target as the one before it.
                Err(error) if admitted => {
                    assert_eq!((readonly, error.code()), (true, tonic::Code::AlreadyExists))
                }
                Err(error) => assert_eq!(error.code(), FailedPrecondition, "{mode:?}"),
            }
        }
    }
}
