//! Claims of a provisioner with `--node-deployment`, as a table.

use std::sync::Arc;

use claimcheck_csi::v1::{
    NodeGetInfoResponse, Topology, controller_service_capability::rpc::Type as Rpc,
    plugin_capability::service::Type as Service,
};
use claimcheck_informer::testing::{self, DRIVER};
use claimcheck_model::{SELECTED_NODE, STORAGE_PROVISIONER};
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolumeClaim, TopologySelectorLabelRequirement, TopologySelectorTerm},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{
    plan::{Action, plan},
    request::Job,
};
use crate::{
    NodeDeployment,
    provisioner::{LocalNode, Settings},
    rpc::DriverInfo,
};

const ZONE: &str = "test/zone";

/// Of node `a` in zone `a`.
fn settings(immediate_binding: bool) -> Settings {
    let services = [Service::ControllerService, Service::VolumeAccessibilityConstraints];
    let segments = [(ZONE.to_owned(), "a".to_owned())].into();
    let info = NodeGetInfoResponse {
        accessible_topology: Some(Topology { segments }),
        ..NodeGetInfoResponse::default()
    };
    let deployment = NodeDeployment { node: "a".into(), immediate_binding, ..NodeDeployment::default() };
    Settings {
        driver: DriverInfo::new(DRIVER, &services, &[Rpc::CreateDeleteVolume]),
        local: Some(Arc::new(LocalNode::new(DRIVER, deployment, info))),
        ..Settings::default()
    }
}

fn claim(selected: Option<&str>) -> PersistentVolumeClaim {
    let mut claim = testing::claim("data", "fast", "64Mi");
    testing::annotate(&mut claim.metadata, STORAGE_PROVISIONER, DRIVER);
    if let Some(node) = selected {
        testing::annotate(&mut claim.metadata, SELECTED_NODE, node);
    }
    claim
}

fn allowing(zone: &str) -> StorageClass {
    let requirement =
        TopologySelectorLabelRequirement { key: ZONE.to_owned(), values: vec![zone.to_owned()] };
    let term = TopologySelectorTerm { match_label_expressions: Some(vec![requirement]) };
    StorageClass { allowed_topologies: Some(vec![term]), ..testing::class("fast", DRIVER) }
}

/// The requisite zones of a call.
fn zones(job: &Job) -> Vec<String> {
    let topology = job.request.accessibility_requirements.clone().unwrap_or_default();
    topology.requisite.into_iter().map(|one| one.segments[ZONE].clone()).collect()
}

fn step(claim: PersistentVolumeClaim, class: Option<StorageClass>, settings: &Settings) -> String {
    let mut world = testing::world([]);
    if let Some(class) = class {
        world.apply(class);
    }
    // Neither Node nor CSINode is in the cache: the topology is that of NodeGetInfo.
    match plan(&Arc::new(claim), &world, settings) {
        None => "nothing".into(),
        Some(Action::Provision(job)) => format!("provision in {:?}", zones(&job)),
        Some(Action::Own { node, job, .. }) => {
            format!("own on {node}, then provision in {:?}", job.map(|job| zones(&job)))
        }
        Some(Action::Hold { .. }) => "hold".into(),
        Some(Action::LeaveToPopulator(_)) => "populate".into(),
        Some(Action::Refuse { .. }) => "refuse".into(),
        Some(Action::Reschedule { .. }) => "reschedule".into(),
    }
}

#[test]
fn a_provisioner_of_a_node_serves_the_claims_that_selected_it() {
    let immediate = || Some(testing::class("fast", DRIVER));
    let late = || Some(testing::wait_for_first_consumer_class("fast", DRIVER));
    let own = "own on a, then provision in Some([\"a\"])";
    for (what, selected, class, immediate_binding, expected) in [
        ("selected", Some("a"), late(), true, "provision in [\"a\"]"),
        ("another is selected", Some("b"), late(), true, "nothing"),
        ("none is selected yet", None, late(), true, "nothing"),
        ("it was owned", Some("a"), immediate(), false, "provision in [\"a\"]"),
        ("another owns it", Some("b"), immediate(), true, "nothing"),
        ("none owns it", None, immediate(), true, own),
        ("not to be owned", None, immediate(), false, "nothing"),
        ("allowed here", None, Some(allowing("a")), true, own),
        ("allowed elsewhere", None, Some(allowing("b")), true, "nothing"),
        ("another is selected, without a class", Some("b"), None, true, "nothing"),
        ("without a class", None, None, true, "refuse"),
    ] {
        assert_eq!(step(claim(selected), class, &settings(immediate_binding)), expected, "{what}");
    }
}

#[test]
fn a_claim_that_cannot_be_provisioned_is_owned_to_report_it() {
    let mut claim = claim(None);
    claim.spec.get_or_insert_default().selector = Some(LabelSelector::default());
    let class = Some(testing::class("fast", DRIVER));
    assert_eq!(step(claim.clone(), class.clone(), &settings(true)), "own on a, then provision in None");
    testing::annotate(&mut claim.metadata, SELECTED_NODE, "a");
    assert_eq!(step(claim, class, &settings(true)), "refuse");
}
