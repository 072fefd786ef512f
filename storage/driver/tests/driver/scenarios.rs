//! Life cycles of volumes, call by call: what is done and how it is taken back.

use std::path::PathBuf;

use crate::support::{self, IMAGE_BYTES, Place, block};
use claimcheck_csi::v1::{
    ControllerModifyVolumeRequest, ControllerPublishVolumeRequest, CreateVolumeRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability,
    volume_capability::access_mode::Mode,
};
use claimcheck_driver::{Driver, capability::Capability, error::Result};

pub const NODE: &str = "node-1";

/// A call, with its name.
pub struct Step(pub &'static str, pub fn(&Driver, &Place) -> Result<()>);

/// The life cycle of one volume.
pub struct Scenario {
    pub name: &'static str,
    /// Whether it takes loop devices.
    pub loops: bool,
    pub does: &'static [Step],
    /// Takes back whatever `does` did, however far that came.
    pub undoes: &'static [Step],
    /// What the driver lacks.
    pub without: &'static [Capability],
}

impl Scenario {
    pub fn steps(&self) -> impl Iterator<Item = &'static Step> {
        self.does.iter().chain(self.undoes)
    }

    pub fn name_of(&self, index: usize) -> &'static str {
        self.steps().nth(index).expect("a step that ran").0
    }
}

/// Where a second pod has the volume.
pub fn second_target(place: &Place) -> PathBuf {
    place.path().join("kubelet/second")
}

const CREATE_DIRECTORY: Step =
    Step("create", |driver, _| driver.create(support::create("directory")).map(drop));
const CREATE_IMAGE: Step = Step("create", |driver, _| driver.create(support::create("image")).map(drop));
const ATTACH: Step = Step("attach", |driver, _| driver.attach(support::attach(NODE)).map(drop));
const STAGE: Step = Step("stage", |driver, place| driver.stage(support::stage(&place.staging())).map(drop));
const PUBLISH: Step = Step("publish", |driver, place| {
    driver.publish(support::publish(&place.staging(), &place.target(), true))?;
    assert!(driver.stats(support::stats(&place.target())).is_ok(), "publish succeeded without a mount");
    Ok(())
});
const EXPAND: Step = Step("expand", |driver, _| {
    let expanded = driver.expand(support::expand(2 * IMAGE_BYTES))?;
    assert_eq!(expanded.capacity_bytes, 2 * IMAGE_BYTES);
    Ok(())
});
const EXPAND_ON_NODE: Step = Step("expand on node", |driver, place| {
    driver.expand_on_node(support::expand_on_node(&place.staging())).map(drop)
});
const MODIFY: Step = Step("modify", |driver, _| {
    let request = ControllerModifyVolumeRequest {
        volume_id: support::id(),
        mutable_parameters: [("iops".to_owned(), "100".to_owned())].into(),
        ..Default::default()
    };
    driver.modify(request).map(drop)
});
const UNPUBLISH: Step =
    Step("unpublish", |driver, place| driver.unpublish(support::unpublish(&place.target())).map(drop));
const UNPUBLISH_SECOND: Step =
    Step("unpublish", |driver, place| driver.unpublish(support::unpublish(&second_target(place))).map(drop));
const UNSTAGE: Step =
    Step("unstage", |driver, place| driver.unstage(support::unstage(&place.staging())).map(drop));
const DETACH: Step = Step("detach", |driver, _| driver.detach(support::detach(NODE)).map(drop));
const DELETE: Step = Step("delete", |driver, _| driver.delete(support::delete()).map(drop));

pub static DIRECTORY: Scenario = Scenario {
    name: "directory",
    loops: false,
    does: &[CREATE_DIRECTORY, ATTACH, STAGE, PUBLISH, EXPAND, MODIFY],
    undoes: &[UNPUBLISH, UNSTAGE, DETACH, DELETE],
    without: &[],
};

pub static IMAGE: Scenario = Scenario {
    name: "image",
    loops: true,
    does: &[CREATE_IMAGE, ATTACH, STAGE, PUBLISH, EXPAND, EXPAND_ON_NODE, MODIFY],
    undoes: &[UNPUBLISH, UNSTAGE, DETACH, DELETE],
    without: &[],
};

/// Grown between two stagings, by the second of them.
pub static GROWN_OFFLINE: Scenario = Scenario {
    name: "image grown offline",
    loops: true,
    does: &[CREATE_IMAGE, STAGE, UNSTAGE, EXPAND, STAGE, EXPAND_ON_NODE, PUBLISH],
    undoes: &[UNPUBLISH, UNSTAGE, DELETE],
    without: &[Capability::OnlineExpansion],
};

fn raw() -> VolumeCapability {
    block(Mode::SingleNodeWriter)
}

fn publish_raw(driver: &Driver, place: &Place, target: PathBuf, readonly: bool) -> Result<()> {
    driver.publish(NodePublishVolumeRequest {
        volume_capability: Some(raw()),
        ..support::publish(&place.staging(), &target, readonly)
    })?;
    assert!(driver.stats(support::stats(&target)).is_ok(), "publish succeeded without a mount");
    Ok(())
}

/// Raw block, with one pod that writes and one that only reads.
pub static BLOCK: Scenario = Scenario {
    name: "raw block",
    loops: true,
    does: &[
        Step("create", |driver, _| {
            let request =
                CreateVolumeRequest { volume_capabilities: vec![raw()], ..support::create("image") };
            driver.create(request).map(drop)
        }),
        Step("attach", |driver, _| {
            let volume_capability = Some(raw());
            let request = ControllerPublishVolumeRequest { volume_capability, ..support::attach(NODE) };
            driver.attach(request).map(drop)
        }),
        Step("stage", |driver, place| {
            let volume_capability = Some(raw());
            let request = NodeStageVolumeRequest { volume_capability, ..support::stage(&place.staging()) };
            driver.stage(request).map(drop)
        }),
        Step("publish", |driver, place| publish_raw(driver, place, place.target(), false)),
        Step("publish read-only", |driver, place| publish_raw(driver, place, second_target(place), true)),
        EXPAND,
        Step("expand on node", |driver, place| {
            driver.expand_on_node(support::expand_on_node(&place.target())).map(drop)
        }),
    ],
    undoes: &[UNPUBLISH, UNPUBLISH_SECOND, UNSTAGE, DETACH, DELETE],
    without: &[],
};

/// A driver without staging, with two pods.
pub static UNSTAGED: Scenario = Scenario {
    name: "image without staging",
    loops: true,
    does: &[
        CREATE_IMAGE,
        PUBLISH,
        Step("publish", |driver, place| {
            driver.publish(support::publish(&place.staging(), &second_target(place), false)).map(drop)
        }),
    ],
    undoes: &[UNPUBLISH, UNPUBLISH_SECOND, DELETE],
    without: &[Capability::StageUnstageVolume, Capability::PublishUnpublishVolume],
};

/// The id that a kubelet makes up.
pub const INLINE: &str = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A volume that lives as long as its pod.
pub static EPHEMERAL: Scenario = Scenario {
    name: "inline ephemeral image",
    loops: true,
    does: &[Step("publish", |driver, place| {
        let context = [("csi.storage.k8s.io/ephemeral", "true"), ("kind", "image"), ("size", "16777216")];
        let pairs = context.map(|(key, value)| (key.to_owned(), value.to_owned()));
        driver.publish(NodePublishVolumeRequest {
            volume_id: INLINE.into(),
            volume_context: pairs.into(),
            ..support::publish(&place.staging(), &place.target(), false)
        })?;
        Ok(())
    })],
    undoes: &[Step("unpublish", |driver, place| {
        let request =
            NodeUnpublishVolumeRequest { volume_id: INLINE.into(), ..support::unpublish(&place.target()) };
        driver.unpublish(request).map(drop)
    })],
    without: &[],
};
