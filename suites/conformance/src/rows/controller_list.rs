//! ListVolumes, ControllerGetVolume and GetCapacity.

use anyhow::{Result, anyhow, bail, ensure};
use claimcheck_csi::{
    Code,
    v1::{
        ControllerGetVolumeRequest, ControllerGetVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        ListVolumesRequest, Topology, Volume, VolumeCondition, list_volumes_response::Entry,
    },
};
use claimcheck_engine::skip;

use super::{
    ATTACH, CAPACITY, CLONE, CONDITION, CREATE, EXPAND, EXPANDS, GET, LIST, LIST_NODES, TOPOLOGY, case,
    clones::ensure_that, controller_create::same_capacity,
};
use crate::{
    alone::Alone,
    case::Row,
    config::Map,
    expect::{Answer, INVALID, NOT_FOUND, status_text},
    fixture::{Fixture, Step, from_volume},
    pages::Pages,
    spec,
    verdict::{Breaks, breaking},
};

/// Enough volumes for several pages.
const SOME: usize = 5;

pub(super) const ROWS: &[Row] = &[
    Row::new("ListVolumes returns entries with a volume_id", spec::LIST_VOLUME, case!(listed))
        .needs(&[LIST])
        .alone(Alone::ListsAll)
        .upstream("Controller Service [Controller Server] ListVolumes should return appropriate values (no optional values added)"),
    Row::new("ListVolumes includes a new volume and omits a deleted one", spec::LIST_ALL, case!(presence))
        .also(&[spec::CONTEXT_SAME])
        .needs(&[LIST, CREATE])
        .alone(Alone::ListsAll)
        .upstream("Controller Service [Controller Server] ListVolumes check the presence of new volumes and absence of deleted ones in the volume list"),
    Row::new("ListVolumes after ControllerExpandVolume returns the new size", spec::SIZE_LEAST, case!(listed_size))
        .needs(&[LIST, CREATE, EXPAND, EXPANDS])
        .alone(Alone::ListsAll),
    Row::new("ListVolumes with an invalid starting_token returns Aborted", spec::LIST_TOKEN, case!(bad_token))
        .needs(&[LIST])
        .upstream("Controller Service [Controller Server] ListVolumes should fail when an invalid starting_token is passed"),
    Row::new("ListVolumes returns at most max_entries entries", spec::LIST_MAX, case!(page_size)).needs(&[LIST, CREATE]),
    Row::new("ListVolumes in pages of one returns every volume once", spec::LIST_NEXT, case!(pages))
        .also(&[spec::LIST_ALL])
        .needs(&[LIST, CREATE])
        .alone(Alone::ListsAll),
    Row::new("ListVolumes in pages continues after the last volume of a page is deleted", spec::LIST_CHANGES, case!(deleted_between))
        .needs(&[LIST, CREATE])
        .alone(Alone::ListsAll)
        .upstream("Controller Service [Controller Server] ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted"),
    Row::new("ListVolumes in pages continues after volumes are created between pages", spec::LIST_CHANGES, case!(made_between))
        .needs(&[LIST, CREATE])
        .alone(Alone::ListsAll),
    Row::new("ListVolumes returns a next_token of at most 128 bytes", spec::LIMITS, case!(short_token)).needs(&[LIST, CREATE]),
    Row::new("ListVolumes with negative max_entries succeeds or returns InvalidArgument", spec::INVALID, case!(negative))
        .needs(&[LIST])
        .alone(Alone::ListsAll),
    Row::new("ListVolumes returns the nodes that a volume is published to", spec::LIST_NODES, case!(list_nodes))
        .needs(&[LIST, LIST_NODES, CREATE, ATTACH])
        .alone(Alone::ListsAll),
    Row::new("ListVolumes returns a normal volume_condition for a new volume", spec::LIST_CONDITION, case!(list_condition))
        .also(&[spec::CONDITION_MESSAGE, spec::CONDITION_NORMAL])
        .needs(&[LIST, CONDITION, CREATE])
        .alone(Alone::ListsAll),
    Row::new("ControllerGetVolume returns the created volume", spec::GET_VOLUME, case!(get))
        .also(&[spec::GET_CURRENT])
        .needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume returns a status", spec::GET_STATUS, case!(get_status)).needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume returns the volume_context of CreateVolume", spec::CONTEXT_SAME, case!(get_context)).needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume without a volume_id returns InvalidArgument", spec::MISSING, case!(get_no_id)).needs(&[GET]),
    Row::new("ControllerGetVolume of a nonexistent volume returns NotFound", spec::GET_GONE, case!(get_unknown)).needs(&[GET]),
    Row::new("ControllerGetVolume of a deleted volume returns NotFound", spec::GET_GONE, case!(get_deleted))
        .needs(&[GET, CREATE]),
    Row::new("ControllerGetVolume returns the nodes that a volume is published to", spec::GET_NODES, case!(get_nodes))
        .needs(&[GET, LIST_NODES, CREATE, ATTACH]),
    Row::new("ControllerGetVolume returns a normal volume_condition for a new volume", spec::GET_CONDITION, case!(get_condition))
        .also(&[spec::CONDITION_MESSAGE, spec::CONDITION_NORMAL])
        .needs(&[GET, CONDITION, CREATE]),
    Row::new("GetCapacity without parameters returns a valid capacity", spec::AVAILABLE_SIGN, case!(capacity))
        .needs(&[CAPACITY])
        .upstream("Controller Service [Controller Server] GetCapacity should return capacity (no optional values added)"),
    Row::new("GetCapacity returns a non-negative minimum_volume_size and maximum_volume_size", spec::LARGEST_SIGN, case!(capacity_extremes))
        .also(&[spec::SMALLEST_SIGN])
        .needs(&[CAPACITY]),
    Row::new("GetCapacity with capabilities and parameters returns at least the volume size", spec::CAPACITY_AVAILABLE, case!(capacity_for))
        .also(&[spec::SMALLEST_FOR, spec::CAPACITY_ACCESS, spec::CAPACITY_PARAMETERS, spec::LARGEST_FOR])
        .needs(&[CAPACITY])
        .alone(Alone::ComparesCapacity),
    Row::new("GetCapacity in a nonexistent topology returns zero or InvalidArgument", spec::CAPACITY_TOPOLOGY, case!(capacity_nowhere))
        .needs(&[CAPACITY, TOPOLOGY]),
];

/// All entries, in pages of at most `max_entries`.
pub(super) async fn all(f: &Fixture, max_entries: i32) -> Result<Vec<Entry>> {
    let (mut pages, mut entries) = (Pages::of("ListVolumes"), Vec::new());
    let mut token = Some(String::new());
    while let Some(starting_token) = token {
        let page = f.list_volumes(ListVolumesRequest { max_entries, starting_token }).await;
        let page = page.works(&pages.call());
        let page = page.breaks(if pages.is_first() { spec::LIST } else { spec::LIST_NEXT })?;
        at_most(max_entries, page.entries.len()).breaks(spec::LIST_MAX)?;
        token = pages.next(page.entries.iter().map(weight), page.next_token).breaks(spec::LIST_NEXT)?;
        entries.extend(page.entries);
    }
    Ok(entries)
}

/// Checks the number of entries of a page.
fn at_most(max_entries: i32, count: usize) -> Result<()> {
    let limit = usize::try_from(max_entries).unwrap_or(0);
    ensure!(
        limit == 0 || count <= limit,
        "ListVolumes with max_entries {max_entries} returns {count} entries"
    );
    Ok(())
}

/// The size of the texts of an entry.
fn weight(entry: &Entry) -> usize {
    let volume = entry.volume.as_ref();
    let context = volume.into_iter().flat_map(|volume| &volume.volume_context);
    let context = context.map(|(key, value)| key.len() + value.len()).sum::<usize>();
    volume.map_or(0, |volume| volume.volume_id.len()) + context
}

pub(super) fn ids(entries: &[Entry]) -> Vec<String> {
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
    let volumes = if f.has(CREATE) { vec![f.volume().await?.volume_id] } else { Vec::new() };
    let entries = all(f, 0).await?;
    ensure!(
        entries.iter().all(|entry| entry.volume.as_ref().is_some_and(|volume| !volume.volume_id.is_empty())),
        "ListVolumes returns an entry without a volume_id"
    );
    each_once(&ids(&entries), &volumes).breaks(spec::LIST_ALL)
}

async fn presence(f: &Fixture) -> Result<()> {
    let made = f.volume().await?;
    let volume = made.volume_id.clone();
    let entries = all(f, 0).await?;
    each_once(&ids(&entries), std::slice::from_ref(&volume))?;
    let listed =
        entries.into_iter().filter_map(|entry| entry.volume).find(|listed| listed.volume_id == volume);
    let listed = listed.expect("its id is listed");
    agrees(&made, &listed, "ListVolumes")?;
    let context = (&made.volume_context, &listed.volume_context);
    let other = anyhow!(
        "CreateVolume returned the volume_context {:?}, ListVolumes returned {:?}",
        context.0,
        context.1
    );
    ensure_that(listed.volume_context.is_empty() || context.0 == context.1, other)
        .breaks(spec::CONTEXT_SAME)?;
    same_capacity(made.capacity_bytes, listed.capacity_bytes, "ListVolumes")?;
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
    // Another row checks that the following pages contain the rest.
    at_most(2, page.entries.len())
}

async fn pages(f: &Fixture) -> Result<()> {
    let mut volumes = some(f).await?;
    let before = ids(&all(f, 0).await?);
    let found = ids(&all(f, 1).await?);
    // Other callers may create and delete volumes meanwhile.
    let after = ids(&all(f, 0).await?);
    let stay: Vec<String> =
        before.into_iter().filter(|id| after.contains(id) && !volumes.contains(id)).collect();
    volumes.extend(stay);
    each_once(&found, &volumes)
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

/// A page of at most two entries: their ids, and the token of the next page.
async fn page_of_two(f: &Fixture, starting_token: String) -> Result<(Vec<String>, String)> {
    let page = f.list_volumes(ListVolumesRequest { max_entries: 2, starting_token }).await;
    let page = page.works("ListVolumes").breaks(spec::LIST)?;
    Ok((ids(&page.entries), page.next_token))
}

/// The ids of the pages up to the first that ends with one of these volumes and is followed by another page, and the token
/// of that page. There may be volumes of other callers.
async fn pages_to_one_of(f: &Fixture, volumes: &[String]) -> Result<(Vec<String>, String)> {
    let (mut pages, mut found, mut token) = (Pages::of("ListVolumes"), Vec::new(), String::new());
    loop {
        let (page, next_token) = page_of_two(f, token).await?;
        let sizes: Vec<usize> = page.iter().map(String::len).collect();
        found.extend(page);
        let Some(next) = pages.next(sizes, next_token).breaks(spec::LIST_NEXT)? else {
            return Err(skip("no page but the last ends with a volume that this case may delete"));
        };
        if found.last().is_some_and(|last| volumes.contains(last)) {
            return Ok((found, next));
        }
        token = next;
    }
}

/// The ids of the pages that follow; `when` is what happened since the first page. The specification permits that a
/// list that changes while it is read is wrong, but not that it never ends.
async fn following(f: &Fixture, token: String, when: &str) -> Result<Vec<String>> {
    let (mut pages, mut found) = (Pages::of("ListVolumes"), Vec::new());
    let mut token = pages.next([], token).breaks(spec::LIST_NEXT)?;
    while let Some(starting_token) = token {
        let page = f.list_volumes(ListVolumesRequest { max_entries: 2, starting_token }).await;
        let page = page.works(&format!("{} after {when}", pages.call()))?;
        token = pages.next(page.entries.iter().map(weight), page.next_token).breaks(spec::LIST_NEXT)?;
        found.extend(ids(&page.entries));
    }
    Ok(found)
}

async fn deleted_between(f: &Fixture) -> Result<()> {
    let volumes = paged(f).await?;
    let (mut found, token) = pages_to_one_of(f, &volumes).await?;
    let last = found.last().expect("it ends with a volume of this case");
    f.delete_volume(f.delete_request(last)).await.works("DeleteVolume").breaks(spec::DELETE)?;
    found.extend(following(f, token, "a volume of an earlier page was deleted").await?);
    each_once(&found, &volumes)
}

async fn made_between(f: &Fixture) -> Result<()> {
    let volumes = paged(f).await?;
    let (mut found, token) = page_of_two(f, String::new()).await?;
    some(f).await?;
    found.extend(following(f, token, "volumes were created").await?);
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
    of(all(f, 0).await?, id).ok_or_else(|| anyhow!("volume {id:?} is missing from ListVolumes"))
}

/// The entry of a volume.
fn of(entries: Vec<Entry>, id: &str) -> Option<Entry> {
    entries.into_iter().find(|entry| entry.volume.as_ref().is_some_and(|it| it.volume_id == id))
}

async fn listed_size(f: &Fixture) -> Result<()> {
    let id = f.volume().await?.volume_id;
    f.grow(&id).await?;
    let (listed, grown) =
        (entry(f, &id).await?.volume.unwrap_or_default().capacity_bytes, f.config().grown());
    ensure!(
        listed == 0 || listed >= grown,
        "a volume was expanded to {grown} bytes, but ListVolumes returns {listed}"
    );
    Ok(())
}

async fn list_nodes(f: &Fixture) -> Result<()> {
    let placed = f.attached().await?;
    let node = &f.node_info().node_id;
    let nodes = entry(f, placed.id()).await?.status.unwrap_or_default().published_node_ids;
    f.must_list(&nodes, &[node], "ListVolumes")?;
    // Another case reports pages that fail or omit the volume.
    let pages = all(f, 2).await.unwrap_or_default();
    if let Some(entry) = of(pages, placed.id()) {
        let nodes = entry.status.unwrap_or_default().published_node_ids;
        f.must_list(&nodes, &[node], "ListVolumes with max_entries")?;
    }
    f.controller_unpublish_volume(f.detach_request(placed.id(), node))
        .await
        .works("ControllerUnpublishVolume")?;
    let nodes = entry(f, placed.id()).await?.status.unwrap_or_default().published_node_ids;
    f.still_published(&nodes, "ListVolumes");
    let Some(shared) = f.attached_to_both().await? else { return Ok(()) };
    let nodes = entry(f, &shared.volume_id).await?.status.unwrap_or_default().published_node_ids;
    f.must_list(&nodes, &[node, &f.second_node()], "ListVolumes of a volume on two nodes")
}

async fn list_condition(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    let condition = entry(f, &volume.volume_id).await?.status.unwrap_or_default().volume_condition;
    healthy(condition, "ListVolumes", "a new volume")
}

/// Checks the condition of a volume that works. An abnormal one is a warning: a volume may work and not operate
/// optimally, for instance if its back end is degraded from the start.
pub(super) fn healthy(condition: Option<VolumeCondition>, call: &str, volume: &str) -> Result<()> {
    let Some(condition) = condition else {
        bail!("VOLUME_CONDITION is declared, but {call} returns no volume_condition")
    };
    if condition.message.is_empty() {
        let silent = anyhow!("{call} returns a volume_condition without a message");
        return Err(breaking(silent, spec::CONDITION_MESSAGE));
    }
    if condition.abnormal {
        let abnormal = anyhow!("{call} reports {volume} as abnormal: {:?}", condition.message);
        return Err(breaking(abnormal, spec::CONDITION_NORMAL));
    }
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
    let plain = f.volume().await?;
    same_volume(f, &plain).await?;
    if f.has(CLONE) && f.builds_on(Step::Clone).is_ok() {
        let clone = f.make(f.create_from(from_volume(&plain.volume_id))).await.breaks(spec::CLONE)?;
        same_volume(f, &clone).await?;
    }
    Ok(())
}

/// Checks that ControllerGetVolume returns what CreateVolume has returned.
async fn same_volume(f: &Fixture, made: &Volume) -> Result<()> {
    let answer = f.get(&made.volume_id).await?;
    let Some(found) = answer.volume else { bail!("ControllerGetVolume returned OK without a volume") };
    ensure!(
        found.volume_id == made.volume_id,
        "ControllerGetVolume of {:?} returned the volume {:?}",
        made.volume_id,
        found.volume_id
    );
    agrees(made, &found, &format!("ControllerGetVolume of {:?}", made.volume_id))?;
    same_capacity(made.capacity_bytes, found.capacity_bytes, "ControllerGetVolume")
        .breaks(spec::GET_CURRENT)?;
    omits(made, &found).breaks(spec::GET_CURRENT)
}

/// Checks that the source and the topology of a volume are those that CreateVolume has returned, if `call` returns them.
fn agrees(made: &Volume, found: &Volume, call: &str) -> Result<()> {
    ensure!(
        found.content_source.is_none() || found.content_source == made.content_source,
        "CreateVolume returned the content_source {:?}, {call} returned {:?}",
        made.content_source,
        found.content_source
    );
    let (topology, created) = (sorted(&found.accessible_topology), sorted(&made.accessible_topology));
    ensure!(
        topology.is_empty() || topology == created,
        "CreateVolume returned the accessible_topology {created:?}, {call} returned {topology:?}"
    );
    Ok(())
}

/// The topologies in an order that does not depend on the driver.
fn sorted(topologies: &[Topology]) -> Vec<&Map> {
    let mut all: Vec<&Map> = topologies.iter().map(|topology| &topology.segments).collect();
    all.sort_unstable();
    all
}

/// Checks that optional fields which CreateVolume has returned are returned again.
fn omits(made: &Volume, found: &Volume) -> Result<()> {
    let omitted = [
        ("content_source", made.content_source.is_some() && found.content_source.is_none()),
        ("accessible_topology", !made.accessible_topology.is_empty() && found.accessible_topology.is_empty()),
    ];
    for (field, omitted) in omitted {
        ensure!(!omitted, "ControllerGetVolume omits the {field} that CreateVolume has returned");
    }
    Ok(())
}

async fn get_status(f: &Fixture) -> Result<()> {
    let made = f.volume().await?;
    ensure!(
        f.get(&made.volume_id).await?.status.is_some(),
        "ControllerGetVolume returned OK without a status"
    );
    Ok(())
}

async fn get_context(f: &Fixture) -> Result<()> {
    let made = f.volume().await?;
    let found = f.get(&made.volume_id).await?.volume.unwrap_or_default().volume_context;
    ensure!(
        found == made.volume_context,
        "CreateVolume returned the volume_context {:?}, ControllerGetVolume returned {found:?}",
        made.volume_context
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
    f.must_list(&nodes, &[node], "ControllerGetVolume")?;
    let Some(shared) = f.attached_to_both().await? else { return Ok(()) };
    let nodes = f.get(&shared.volume_id).await?.status.unwrap_or_default().published_node_ids;
    f.must_list(&nodes, &[node, &f.second_node()], "ControllerGetVolume of a volume on two nodes")
}

async fn get_condition(f: &Fixture) -> Result<()> {
    let volume = f.volume().await?;
    healthy(
        f.get(&volume.volume_id).await?.status.unwrap_or_default().volume_condition,
        "ControllerGetVolume",
        "a new volume",
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

async fn capacity_extremes(f: &Fixture) -> Result<()> {
    let answer = f.get_capacity(GetCapacityRequest::default()).await.works("GetCapacity")?;
    let sizes = [
        ("minimum_volume_size", answer.minimum_volume_size),
        ("maximum_volume_size", answer.maximum_volume_size),
    ];
    for (field, size) in sizes {
        ensure!(size.is_none_or(|size| size >= 0), "GetCapacity returns {field} {size:?}");
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

/// The capacity for volumes of this case.
async fn available(f: &Fixture) -> Result<GetCapacityResponse> {
    let topology = f.driver().topology().filter(|_| f.has(TOPOLOGY));
    let answer = f.get_capacity(capacity_request(f, topology)).await;
    answer.works("GetCapacity with capabilities and parameters")
}

async fn capacity_for(f: &Fixture) -> Result<()> {
    let (answer, size) = (available(f).await?, f.config().volume_size);
    if let Some(most) = answer.maximum_volume_size.filter(|most| *most < size)
        && f.has(CREATE)
        && f.create_volume(f.create_request()).await.is_ok()
    {
        let small =
            anyhow!("GetCapacity returns maximum_volume_size {most}, but creates volumes of {size} bytes");
        return Err(breaking(small, spec::LARGEST_FOR));
    }
    if let Some(least) = answer.minimum_volume_size.filter(|least| *least > size)
        && f.has(CREATE)
        && let Ok(made) = f.create_volume(f.create_request()).await
    {
        // A driver may round up what is too small.
        let got = made.volume.unwrap_or_default().capacity_bytes;
        ensure!(
            got == 0 || got >= least,
            "GetCapacity returns minimum_volume_size {least}, but CreateVolume creates volumes of {got} bytes"
        );
    }
    let before = answer.available_capacity;
    if before >= size {
        return Ok(());
    }
    // The storage may be full. A volume that can be created contradicts that, unless others were deleted meanwhile.
    let volume = match f.has(CREATE) {
        true => f.create_volume(f.create_request()).await.map(|made| made.volume.unwrap_or_default()),
        false => Err(claimcheck_csi::Status::unimplemented("the driver creates no volumes")),
    };
    let volume = match volume {
        Ok(volume) => volume,
        Err(status) => {
            f.warn(format!(
                "GetCapacity returns {before} bytes, and CreateVolume of {size} bytes returns {}",
                status_text(&status)
            ));
            return Ok(());
        }
    };
    f.delete_volume(f.delete_request(&volume.volume_id)).await.works("DeleteVolume")?;
    let after = available(f).await?.available_capacity;
    ensure!(
        after >= size,
        "GetCapacity returns {before} bytes before and {after} bytes after a volume of {size} bytes was created and \
         deleted"
    );
    Ok(())
}

async fn capacity_nowhere(f: &Fixture) -> Result<()> {
    // A topology without segments is everywhere.
    let Some(topology) = f.driver().topology().filter(|topology| !topology.segments.is_empty()) else {
        return Err(skip("NodeGetInfo returns no accessible_topology, and no --topology is set"));
    };
    let segments = topology.segments.into_keys().map(|key| (key, "claimcheck-nowhere".to_owned())).collect();
    match f.get_capacity(capacity_request(f, Some(Topology { segments }))).await {
        Ok(answer) => {
            let bytes = answer.available_capacity;
            ensure!(bytes == 0, "GetCapacity returns {bytes} bytes for a topology without nodes");
            Ok(())
        }
        refused => refused.refused("GetCapacity for a topology without nodes", INVALID),
    }
}
