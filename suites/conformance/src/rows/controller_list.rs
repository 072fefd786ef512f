//! ListVolumes, ControllerGetVolume and GetCapacity.

use anyhow::{Result, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{
        ControllerGetVolumeRequest, ControllerGetVolumeResponse, GetCapacityRequest, ListVolumesRequest,
        Topology, list_volumes_response::Entry,
    },
};

use super::{ATTACH, CAPACITY, CONDITION, CREATE, GET, LIST, LIST_NODES, TOPOLOGY, case};
use crate::{
    case::{Row, When},
    expect::{Answer, INVALID, NOT_FOUND, skip},
    fixture::Fixture,
};

const RULE: &str = "ListVolumes";
/// Enough volumes for several pages.
const SOME: usize = 5;
/// A list with more pages than this counts as endless.
const PAGES: usize = 100_000;

pub(super) const ROWS: &[Row] = &[
    Row::new("ListVolumes returns entries with a volume_id", RULE, case!(listed))
        .needs(&[LIST])
        .upstream("Controller Service [Controller Server] ListVolumes should return appropriate values (no optional values added)"),
    Row::new("ListVolumes includes a new volume and omits a deleted one", "CreateVolume, DeleteVolume, ListVolumes", case!(presence))
        .needs(&[LIST, CREATE])
        .upstream("Controller Service [Controller Server] ListVolumes check the presence of new volumes and absence of deleted ones in the volume list"),
    Row::new("ListVolumes with an invalid starting_token returns Aborted", "ListVolumes Errors", case!(bad_token))
        .needs(&[LIST])
        .upstream("Controller Service [Controller Server] ListVolumes should fail when an invalid starting_token is passed"),
    Row::new("ListVolumes returns at most max_entries entries", RULE, case!(page_size)).needs(&[LIST, CREATE]),
    // Serial: pages may be wrong while other cases create and delete volumes.
    Row::new("ListVolumes in pages of one returns every volume once", RULE, case!(pages))
        .needs(&[LIST, CREATE])
        .when(When::Alone),
    Row::new("ListVolumes in pages continues after the last volume of a page is deleted", RULE, case!(deleted_between))
        .needs(&[LIST, CREATE])
        .when(When::Alone)
        .upstream("Controller Service [Controller Server] ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted"),
    Row::new("ListVolumes in pages continues after volumes are created between pages", RULE, case!(made_between))
        .needs(&[LIST, CREATE])
        .when(When::Alone),
    Row::new("ListVolumes returns a next_token of at most 128 bytes", "Size Limits", case!(short_token)).needs(&[LIST, CREATE]),
    Row::new("ListVolumes with negative max_entries succeeds or returns InvalidArgument", "ListVolumes Errors", case!(negative)).needs(&[LIST]),
    Row::new("ListVolumes returns the nodes that a volume is published to", RULE, case!(list_nodes))
        .needs(&[LIST, LIST_NODES, CREATE, ATTACH]),
    Row::new("ListVolumes returns a normal volume_condition for a new volume", RULE, case!(list_condition))
        .needs(&[LIST, CONDITION, CREATE]),
    Row::new("ControllerGetVolume returns the created volume", "ControllerGetVolume", case!(get)).needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume without a volume_id returns InvalidArgument", "ControllerGetVolume Errors", case!(get_no_id)).needs(&[GET]),
    Row::new("ControllerGetVolume of a nonexistent volume returns NotFound", "ControllerGetVolume Errors", case!(get_unknown)).needs(&[GET]),
    Row::new("ControllerGetVolume of a deleted volume returns NotFound", "ControllerGetVolume Errors", case!(get_deleted))
        .needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume returns the nodes that a volume is published to", "ControllerGetVolume", case!(get_nodes))
        .needs(&[GET, LIST_NODES, CREATE, ATTACH]),
    Row::new("ControllerGetVolume returns a normal volume_condition for a new volume", "ControllerGetVolume", case!(get_condition))
        .needs(&[GET, CONDITION, CREATE]),
    Row::new("GetCapacity without parameters returns a valid capacity", "GetCapacity", case!(capacity))
        .needs(&[CAPACITY])
        .upstream("Controller Service [Controller Server] GetCapacity should return capacity (no optional values added)"),
    Row::new("GetCapacity with capabilities and parameters returns at least the volume size", "GetCapacity", case!(capacity_for)).needs(&[CAPACITY]),
    Row::new("GetCapacity in a nonexistent topology returns zero or InvalidArgument", "GetCapacity", case!(capacity_nowhere))
        .needs(&[CAPACITY, TOPOLOGY]),
];

/// All entries, in pages of at most `max_entries`.
async fn all(f: &Fixture, max_entries: i32) -> Result<Vec<Entry>> {
    let (mut entries, mut starting_token) = (Vec::new(), String::new());
    for _ in 0..PAGES {
        let request = ListVolumesRequest { max_entries, starting_token: starting_token.clone() };
        let page = f.list_volumes(request).await.works("ListVolumes")?;
        let limit = usize::try_from(max_entries).unwrap_or(0);
        ensure!(
            limit == 0 || page.entries.len() <= limit,
            "ListVolumes with max_entries {max_entries} returns {} entries",
            page.entries.len()
        );
        entries.extend(page.entries);
        if page.next_token.is_empty() {
            return Ok(entries);
        }
        ensure!(
            page.next_token != starting_token,
            "ListVolumes returns the starting_token {starting_token:?} as next_token"
        );
        starting_token = page.next_token;
    }
    bail!("ListVolumes does not end within {PAGES} pages")
}

fn ids(entries: &[Entry]) -> Vec<String> {
    entries.iter().filter_map(|entry| Some(entry.volume.as_ref()?.volume_id.clone())).collect()
}

async fn some(f: &Fixture) -> Result<Vec<String>> {
    let mut volumes = Vec::new();
    for _ in 0..SOME {
        volumes.push(f.volume().await?.volume_id);
    }
    Ok(volumes)
}

/// Checks that each expected id is found exactly once.
fn each_once(found: &[String], expected: &[String]) -> Result<()> {
    for id in expected {
        let times = found.iter().filter(|found| *found == id).count();
        ensure!(times != 0, "volume {id:?} is missing from ListVolumes");
        ensure!(times == 1, "volume {id:?} is in ListVolumes {times} times");
    }
    Ok(())
}

async fn listed(f: &Fixture) -> Result<()> {
    let entries = f.list_volumes(ListVolumesRequest::default()).await.works("ListVolumes")?.entries;
    ensure!(
        entries.iter().all(|entry| entry.volume.as_ref().is_some_and(|volume| !volume.volume_id.is_empty())),
        "ListVolumes returns an entry without a volume_id"
    );
    Ok(())
}

async fn presence(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?.volume_id;
    each_once(&ids(&all(f, 0).await?), std::slice::from_ref(&volume))?;
    f.delete_volume(f.delete_request(&volume)).await.works("DeleteVolume")?;
    ensure!(
        !ids(&all(f, 0).await?).contains(&volume),
        "the deleted volume {volume:?} is still in ListVolumes"
    );
    Ok(())
}

async fn bad_token(f: &Fixture) -> Result<()> {
    let request = ListVolumesRequest { starting_token: "invalid-token".to_owned(), ..Default::default() };
    f.list_volumes(request).await.refused("ListVolumes with an invalid starting_token", &[Code::Aborted])
}

async fn page_size(f: &Fixture) -> Result<()> {
    some(f).await?;
    let request = ListVolumesRequest { max_entries: 2, ..Default::default() };
    let page = f.list_volumes(request).await.works("ListVolumes")?;
    ensure!(page.entries.len() <= 2, "ListVolumes with max_entries 2 returns {} entries", page.entries.len());
    // Another row checks that the following pages contain the rest.
    Ok(())
}

async fn pages(f: &Fixture) -> Result<()> {
    let volumes = some(f).await?;
    each_once(&ids(&all(f, 1).await?), &volumes)
}

/// Creates volumes, and checks that pages of two list them while nothing changes.
async fn paged(f: &Fixture) -> Result<Vec<String>> {
    let volumes = some(f).await?;
    match each_once(&ids(&all(f, 2).await?), &volumes) {
        Ok(()) => Ok(volumes),
        Err(_) => {
            Err(skip("pages of ListVolumes are wrong even without changes, which another case reports"))
        }
    }
}

async fn deleted_between(f: &Fixture) -> Result<()> {
    let volumes = paged(f).await?;
    let first = f.list_volumes(ListVolumesRequest { max_entries: 2, ..Default::default() });
    let first = first.await.works("ListVolumes")?;
    let seen = ids(&first.entries);
    // Only volumes of this case are deleted; otherwise the page ends with a volume that remains.
    if let Some(last) = seen.iter().rev().find(|id| volumes.contains(id)) {
        f.delete_volume(f.delete_request(last)).await.works("DeleteVolume")?;
    }
    let mut found = seen.clone();
    let mut starting_token = first.next_token;
    while !starting_token.is_empty() {
        let request = ListVolumesRequest { max_entries: 2, starting_token };
        let page = f
            .list_volumes(request)
            .await
            .works("ListVolumes after a volume of an earlier page was deleted")?;
        found.extend(ids(&page.entries));
        starting_token = page.next_token;
    }
    each_once(&found, &volumes)
}

async fn made_between(f: &Fixture) -> Result<()> {
    let volumes = paged(f).await?;
    let first = f.list_volumes(ListVolumesRequest { max_entries: 2, ..Default::default() });
    let first = first.await.works("ListVolumes")?;
    let (mut found, mut starting_token) = (ids(&first.entries), first.next_token);
    some(f).await?;
    while !starting_token.is_empty() {
        let request = ListVolumesRequest { max_entries: 2, starting_token };
        let page = f.list_volumes(request).await.works("ListVolumes after volumes were created")?;
        found.extend(ids(&page.entries));
        starting_token = page.next_token;
    }
    // New volumes may be listed or not; volumes that existed all the time must be listed once.
    each_once(&found, &volumes)
}

async fn short_token(f: &Fixture) -> Result<()> {
    some(f).await?;
    let page = f.list_volumes(ListVolumesRequest { max_entries: 1, ..Default::default() }).await;
    let token = page.works("ListVolumes")?.next_token.len();
    ensure!(token <= 128, "ListVolumes returns a next_token of {token} bytes, at most 128 are allowed");
    Ok(())
}

async fn negative(f: &Fixture) -> Result<()> {
    let request = ListVolumesRequest { max_entries: -1, ..Default::default() };
    match f.list_volumes(request).await {
        // The specification does not define its meaning.
        Ok(_) => f.warn("ListVolumes accepts max_entries -1"),
        refused => refused.refused("ListVolumes with max_entries -1", INVALID)?,
    }
    Ok(())
}

async fn entry(f: &Fixture, id: &str) -> Result<Entry> {
    let found =
        all(f, 0).await?.into_iter().find(|entry| entry.volume.as_ref().is_some_and(|it| it.volume_id == id));
    found.ok_or_else(|| anyhow::anyhow!("volume {id:?} is missing from ListVolumes"))
}

async fn list_nodes(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let node = &f.node_info().node_id;
    let nodes = entry(f, placed.id()).await?.status.unwrap_or_default().published_node_ids;
    ensure!(
        nodes.contains(node),
        "the volume is published to {node:?}, but ListVolumes returns published_node_ids {nodes:?}"
    );
    f.controller_unpublish_volume(f.detach_request(placed.id(), node))
        .await
        .works("ControllerUnpublishVolume")?;
    let nodes = entry(f, placed.id()).await?.status.unwrap_or_default().published_node_ids;
    f.still_published(&nodes, "ListVolumes");
    Ok(())
}

async fn list_condition(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let condition = entry(f, &volume.volume_id).await?.status.unwrap_or_default().volume_condition;
    healthy(condition, "ListVolumes")
}

fn healthy(condition: Option<claimcheck_csi::v1::VolumeCondition>, call: &str) -> Result<()> {
    let Some(condition) = condition else {
        bail!("VOLUME_CONDITION is declared, but {call} returns no volume_condition")
    };
    ensure!(!condition.abnormal, "{call} reports a new volume as abnormal: {:?}", condition.message);
    Ok(())
}

impl Fixture {
    /// Calls ControllerGetVolume.
    pub(super) async fn get(&self, volume_id: &str) -> Result<ControllerGetVolumeResponse> {
        let request = ControllerGetVolumeRequest { volume_id: volume_id.to_owned() };
        self.controller_get_volume(request).await.works("ControllerGetVolume")
    }

    /// Warns about nodes that are listed although the volume is no longer published to them, which is permitted.
    pub(super) fn still_published(&self, nodes: &[String], call: &str) {
        if !nodes.is_empty() {
            self.warn(format!("{call} reports a volume as published to {nodes:?}, but it no longer is"));
        }
    }
}

async fn get(f: &Fixture) -> Result<()> {
    let made = f.volume().await?;
    let Some(found) = f.get(&made.volume_id).await?.volume else {
        bail!("ControllerGetVolume returned OK without a volume")
    };
    ensure!(
        found.volume_id == made.volume_id,
        "ControllerGetVolume of {:?} returned the volume {:?}",
        made.volume_id,
        found.volume_id
    );
    ensure!(
        found.capacity_bytes == 0 || found.capacity_bytes == made.capacity_bytes,
        "CreateVolume returned the capacity {}, ControllerGetVolume returned {}",
        made.capacity_bytes,
        found.capacity_bytes
    );
    Ok(())
}

async fn get_refused(f: &Fixture, volume_id: String, what: &str, codes: &[Code]) -> Result<()> {
    f.controller_get_volume(ControllerGetVolumeRequest { volume_id }).await.refused(what, codes)
}

/// Skips the case for drivers that accept unknown volumes: that is one defect, which another case reports.
async fn looks(f: &Fixture) -> Result<()> {
    let request = ControllerGetVolumeRequest { volume_id: f.unknown_volume() };
    match f.controller_get_volume(request).await {
        Ok(_) => Err(skip(
            "ControllerGetVolume returns OK for volumes that do not exist, which another case reports",
        )),
        Err(_) => Ok(()),
    }
}

async fn get_no_id(f: &Fixture) -> Result<()> {
    looks(f).await?;
    get_refused(f, String::new(), "ControllerGetVolume without a volume_id", INVALID).await
}

async fn get_unknown(f: &Fixture) -> Result<()> {
    get_refused(f, f.unknown_volume(), "ControllerGetVolume of a volume that does not exist", NOT_FOUND).await
}

async fn get_deleted(f: &Fixture) -> Result<()> {
    looks(f).await?;
    let volume = f.volume().await?.volume_id;
    f.delete_volume(f.delete_request(&volume)).await.works("DeleteVolume")?;
    get_refused(f, volume, "ControllerGetVolume of a deleted volume", NOT_FOUND).await
}

async fn get_nodes(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let nodes = f.get(placed.id()).await?.status.unwrap_or_default().published_node_ids;
    let node = &f.node_info().node_id;
    ensure!(
        nodes.contains(node),
        "the volume is published to {node:?}, but ControllerGetVolume returns published_node_ids {nodes:?}"
    );
    Ok(())
}

async fn get_condition(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    healthy(
        f.get(&volume.volume_id).await?.status.unwrap_or_default().volume_condition,
        "ControllerGetVolume",
    )
}

async fn capacity(f: &Fixture) -> Result<()> {
    let answer = f.get_capacity(GetCapacityRequest::default()).await.works("GetCapacity")?;
    ensure!(
        answer.available_capacity >= 0,
        "GetCapacity returns available_capacity {}",
        answer.available_capacity
    );
    let (least, most) = (answer.minimum_volume_size, answer.maximum_volume_size);
    if let (Some(least), Some(most)) = (least, most) {
        ensure!(
            least <= most,
            "GetCapacity returns minimum_volume_size {least} and maximum_volume_size {most}"
        );
    }
    Ok(())
}

fn capacity_request(f: &Fixture, topology: Option<Topology>) -> GetCapacityRequest {
    GetCapacityRequest {
        volume_capabilities: vec![f.capability()],
        parameters: f.config().volume_parameters.clone(),
        accessible_topology: topology,
    }
}

async fn capacity_for(f: &Fixture) -> Result<()> {
    let topology = f.suite().topology().filter(|_| f.has(TOPOLOGY));
    let answer = f.get_capacity(capacity_request(f, topology)).await;
    let bytes = answer.works("GetCapacity with capabilities and parameters")?.available_capacity;
    let size = f.config().volume_size;
    ensure!(bytes >= size, "GetCapacity returns {bytes} bytes, but volumes of {size} bytes can be created");
    Ok(())
}

async fn capacity_nowhere(f: &Fixture) -> Result<()> {
    let keys = f.suite().topology().unwrap_or_default().segments.into_keys();
    let segments = keys.map(|key| (key, "claimcheck-nowhere".to_owned())).collect();
    match f.get_capacity(capacity_request(f, Some(Topology { segments }))).await {
        Ok(answer) => {
            let bytes = answer.available_capacity;
            ensure!(bytes == 0, "GetCapacity returns {bytes} bytes for a topology without nodes");
            Ok(())
        }
        refused => refused.refused("GetCapacity for a topology without nodes", INVALID),
    }
}
