//! CreateSnapshot, DeleteSnapshot, ListSnapshots, GetSnapshot, and volumes restored from snapshots.

mod create_delete;
mod get;
mod list;
mod restore;

use claimcheck_engine::Schedule;

use super::{
    CREATE, CREATE_AGAIN, EXPAND, FILTERS, GET_SNAPSHOT, IF_MOUNTED, IF_PERSISTS, KEEPS, LIST_SNAPSHOTS,
    MOUNTS, PERSISTS, RESTORES, SAME_DATA, SIZE, SNAPSHOT, SNAPSHOT_AGAIN, SNAPSHOT_USED, case,
};
use crate::{
    alone::Alone,
    case::{Access, Row},
    effect::Effect,
    need::Need,
    spec,
};

pub(super) use get::{found, looked_up, same_snapshot};
pub(super) use list::{all, listed};
pub(super) use restore::{has_source_text, keeps_its_text, must_restore, restored, source_with_text, taken};

/// Of cases that also restore a snapshot, where drivers can.
pub(super) const IF_RESTORES: Need = Need::Follows(Effect::RestoreCopies);

pub(super) const ROWS: &[Row] = &[
    Row::new("CreateSnapshot without a name returns InvalidArgument", spec::MISSING, case!(create_delete::no_name))
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should fail when no name is provided"),
    Row::new("CreateSnapshot without a source_volume_id returns InvalidArgument", spec::MISSING, case!(create_delete::no_source))
        .needs(&[SNAPSHOT])
        .upstream("CreateSnapshot [Controller Server] should fail when no source volume id is provided"),
    Row::new("CreateSnapshot of a nonexistent volume returns NotFound", spec::SNAPSHOT_ERROR, case!(create_delete::unknown_source))
        .also(&[spec::SNAPSHOT_UNCOMPLETED])
        .needs(&[SNAPSHOT]),
    Row::new("CreateSnapshot returns snapshot_id, source_volume_id and creation_time", spec::SNAPSHOT_ID, case!(create_delete::whole))
        .also(&[
            spec::SNAPSHOT_RETURNS, spec::SNAPSHOT_SOURCE, spec::SNAPSHOT_TIME, spec::SNAPSHOT_SIGN,
            spec::LIMITS,
        ])
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateSnapshot called twice with the same name and source returns the same snapshot", spec::SNAPSHOT_SAME, case!(create_delete::same_again))
        .also(&[spec::SNAPSHOT_TWICE])
        .needs(&[SNAPSHOT, CREATE])
        .establishes(&[Effect::SnapshotAgain])
        .upstream("CreateSnapshot [Controller Server] should succeed when requesting to create a snapshot with already existing name and same source volume ID"),
    Row::new("CreateSnapshot with an existing name and a different source returns AlreadyExists", spec::SNAPSHOT_EXISTS, case!(create_delete::other_source))
        .needs(&[SNAPSHOT, CREATE, IF_MOUNTED, IF_PERSISTS, IF_RESTORES])
        .upstream("CreateSnapshot [Controller Server] should fail when requesting to create a snapshot with already existing name and different source volume ID"),
    Row::new("CreateSnapshot with the longest allowed name succeeds", spec::ANY_NAME, case!(create_delete::longest))
        .needs(&[SNAPSHOT, CREATE])
        .upstream("CreateSnapshot [Controller Server] should succeed when creating snapshot with maximum-length name"),
    Row::new("CreateSnapshot with the longest allowed names that differ in one letter creates two snapshots", spec::SNAPSHOT_UNIQUE, case!(create_delete::last_letter))
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateSnapshot called again after deletion of its source returns the same snapshot", spec::SNAPSHOT_SAME, case!(create_delete::again_without_source))
        .also(&[spec::SNAPSHOT_TWICE])
        .needs(&[SNAPSHOT, CREATE, SNAPSHOT_AGAIN]),
    Row::new("CreateSnapshot returns a snapshot that becomes ready_to_use", spec::READY, case!(create_delete::ready))
        .also(&[spec::SNAPSHOT_READY])
        .needs(&[SNAPSHOT, CREATE])
        .each(),
    Row::new("DeleteSnapshot without a snapshot_id returns InvalidArgument", spec::MISSING, case!(create_delete::delete_no_id))
        .needs(&[SNAPSHOT])
        .upstream("DeleteSnapshot [Controller Server] should fail when no snapshot id is provided"),
    Row::new("DeleteSnapshot of a nonexistent snapshot succeeds", spec::DROP_GONE, case!(create_delete::delete_unknown))
        .needs(&[SNAPSHOT])
        .upstream("DeleteSnapshot [Controller Server] should succeed when an invalid snapshot id is used"),
    Row::new("DeleteSnapshot called twice succeeds", spec::DROP_TWICE, case!(create_delete::delete_twice))
        .also(&[spec::DROP_GONE, spec::ALONE])
        .needs(&[SNAPSHOT, CREATE]),
    Row::new("CreateVolume from a deleted snapshot returns NotFound", spec::SOURCE_GONE, case!(create_delete::delete_restore)).needs(&[SNAPSHOT, CREATE, SNAPSHOT_USED]),
    Row::new("ListSnapshots returns entries with a snapshot_id", spec::SNAPSHOT_ID, case!(list::list))
        .needs(&[LIST_SNAPSHOTS])
        .alone(Alone::ListsAll)
        .upstream("ListSnapshots [Controller Server] should return appropriate values (no optional values added)"),
    Row::new("ListSnapshots includes a new snapshot and omits a deleted one", spec::SNAPSHOTS_ALL, case!(list::list_presence))
        .also(&[spec::SNAPSHOTS_CURRENT])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        .alone(Alone::ListsAll)
        .upstream("ListSnapshots [Controller Server] check the presence of new snapshots in the snapshot list"),
    Row::new("ListSnapshots of a snapshot_id returns that snapshot", spec::SNAPSHOTS_ALL, case!(list::list_one))
        .also(&[spec::SNAPSHOTS_READY, spec::SNAPSHOTS_CURRENT])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        .upstream("ListSnapshots [Controller Server] should return snapshots that match the specified snapshot id"),
    Row::new("ListSnapshots of a nonexistent snapshot_id returns no entries", spec::SNAPSHOTS_ALL, case!(list::list_unknown))
        .needs(&[LIST_SNAPSHOTS])
        .upstream("ListSnapshots [Controller Server] should return empty when the specified snapshot id does not exist"),
    Row::new("ListSnapshots of a source_volume_id returns all snapshots of that volume", spec::SNAPSHOTS_ALL, case!(list::list_source))
        .also(&[spec::SNAPSHOT_UNIQUE])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE])
        .establishes(&[Effect::SnapshotFilter])
        .upstream("ListSnapshots [Controller Server] should return snapshots that match the specified source volume id"),
    Row::new("ListSnapshots of a nonexistent source_volume_id returns no entries", spec::SNAPSHOTS_ALL, case!(list::list_unknown_source))
        .needs(&[LIST_SNAPSHOTS, FILTERS])
        .upstream("ListSnapshots [Controller Server] should return empty when the specified source volume id does not exist"),
    Row::new("ListSnapshots in pages of one returns every snapshot once", spec::SNAPSHOTS_NEXT, case!(list::pages))
        .also(&[spec::SNAPSHOTS_MAX])
        .needs(&[LIST_SNAPSHOTS, SNAPSHOT, CREATE, FILTERS])
        .upstream("ListSnapshots [Controller Server] should return next token when a limited number of entries are requested"),
    Row::new("ListSnapshots with negative max_entries succeeds or returns InvalidArgument", spec::INVALID, case!(list::negative))
        .needs(&[LIST_SNAPSHOTS])
        .alone(Alone::ListsAll),
    Row::new("ListSnapshots with an invalid starting_token returns Aborted", spec::SNAPSHOTS_TOKEN, case!(list::bad_token)).needs(&[LIST_SNAPSHOTS]),
    Row::new("GetSnapshot without a snapshot_id returns InvalidArgument", spec::MISSING, case!(get::get_no_id))
        .needs(&[GET_SNAPSHOT])
        .upstream("GetSnapshot [Controller Server] should return an error"),
    Row::new("GetSnapshot returns the created snapshot", spec::FETCHED, case!(get::get))
        .also(&[spec::FETCH_CURRENT])
        .needs(&[GET_SNAPSHOT, SNAPSHOT, CREATE])
        .upstream("GetSnapshot [Controller Server] should return snapshot that match the specified snapshot id"),
    Row::new("GetSnapshot of a nonexistent snapshot returns NotFound", spec::FETCH_GONE, case!(get::get_unknown))
        .needs(&[GET_SNAPSHOT])
        .upstream("GetSnapshot [Controller Server] should return an error when the specified snapshot id does not exist"),
    Row::new("CreateVolume from a snapshot succeeds", spec::SNAPSHOTS_RESTORE, case!(restore::restore))
        .also(&[spec::RESTORE])
        .needs(&[SNAPSHOT, CREATE])
        .each()
        .schedule(Schedule::First)
        .upstream("Controller Service [Controller Server] CreateVolume should create volume from an existing source snapshot"),
    Row::new("CreateVolume from a snapshot restores its data", spec::RESTORE, case!(restore::content))
        .also(&[spec::SNAPSHOTS_RESTORE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, MOUNTS, PERSISTS])
        .establishes(&[Effect::RestoreCopies])
        .each(),
    Row::new("CreateVolume from a snapshot restores owners, modes and links of files", spec::RESTORE, case!(restore::attributes)).needs(&[SNAPSHOT, CREATE, Need::Files, Need::Access(Access::Mount), RESTORES]),
    Row::new("a write to the source after CreateSnapshot does not change the snapshot", spec::CUT, case!(restore::no_alias)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]).establishes(&[Effect::SnapshotKeeps]).each(),
    Row::new("CreateSnapshot called again keeps the data of the snapshot", spec::SNAPSHOT_SAME, case!(restore::cut_again))
        .also(&[spec::SNAPSHOT_TWICE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, KEEPS])
        .each(),
    Row::new("a write to a restored volume does not change the snapshot", spec::RESTORE, case!(restore::two_restores)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]).each(),
    Row::new("a restored volume keeps its data after its snapshot is deleted", spec::RESTORE, case!(restore::outlives))
        .also(&[spec::DROP_IN_USE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES])
        .each(),
    Row::new("CreateVolume from a snapshot called again keeps the data of the volume", spec::CREATE_SAME, case!(restore::restored_again))
        .also(&[spec::CREATE_TWICE])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, CREATE_AGAIN, SAME_DATA])
        .each(),
    Row::new("CreateVolume from a snapshot called again after deletion of the snapshot returns the same volume", spec::CREATE_SAME, case!(restore::again_without_snapshot))
        .also(&[spec::CREATE_TWICE])
        .needs(&[SNAPSHOT, CREATE, CREATE_AGAIN, SNAPSHOT_USED]),
    Row::new("CreateVolume with an existing name and a different snapshot returns AlreadyExists", spec::EXISTS, case!(restore::other_snapshot))
        .needs(&[SNAPSHOT, CREATE, SNAPSHOT_USED, CREATE_AGAIN, IF_MOUNTED, IF_PERSISTS]),
    Row::new("DeleteVolume of a restored volume leaves the snapshot and its source unchanged", spec::VOLUME_UNIQUE, case!(restore::restored_deleted)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]).each(),
    Row::new("CreateVolume from a snapshot of a restored volume restores its data", spec::RESTORE, case!(restore::restored_twice))
        .also(&[spec::CUT])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, KEEPS])
        .each(),
    Row::new("CreateVolume from a snapshot with its size_bytes restores its data", spec::RESTORE, case!(restore::own_size))
        .also(&[spec::SNAPSHOT_SIZE])
        .needs(&[SNAPSHOT, CREATE, EXPAND, Need::Files, RESTORES])
        .each(),
    Row::new("DeleteSnapshot leaves other snapshots unchanged", spec::SNAPSHOT_UNIQUE, case!(restore::others_stay)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, KEEPS]).each(),
    Row::new("DeleteSnapshot leaves its source unchanged", spec::SNAPSHOT_UNIQUE, case!(restore::snapshot_deleted)).needs(&[SNAPSHOT, CREATE, Need::Files, MOUNTS, PERSISTS]).each(),
    Row::new("DeleteVolume of a volume with snapshots keeps them or returns FailedPrecondition", spec::SNAPSHOTS_STAY, case!(restore::source_deleted))
        .also(&[spec::SNAPSHOTS_APART, spec::DELETE_REFUSED, spec::DROP])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES]),
    Row::new("ControllerExpandVolume of a restored volume preserves its data and that of its snapshot", spec::EXPAND_KEEPS, case!(restore::expanded))
        .also(&[spec::SNAPSHOT_UNIQUE, spec::VOLUME_UNIQUE])
        .needs(&[SNAPSHOT, EXPAND, CREATE, Need::Files, RESTORES])
        .each(),
    Row::new("ControllerExpandVolume of a volume that has a snapshot preserves its data and that of the snapshot", spec::EXPAND_KEEPS, case!(restore::source_expanded))
        .also(&[spec::SNAPSHOT_UNIQUE])
        .needs(&[SNAPSHOT, EXPAND, CREATE, Need::Files, RESTORES])
        .each(),
    Row::new("CreateVolume from a snapshot with a larger size succeeds or returns OutOfRange", spec::LARGER_COPY, case!(restore::larger))
        .also(&[spec::SIZE_HONORED])
        .needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, SIZE])
        .each(),
    Row::new("CreateVolume from a snapshot without a capacity_range returns a volume of at least its size_bytes", spec::SNAPSHOT_SIZE, case!(restore::no_smaller))
        .also(&[spec::NO_SIZE])
        .needs(&[SNAPSHOT, CREATE, SIZE, IF_MOUNTED]),
    Row::new("CreateVolume from a snapshot with a smaller size succeeds or returns OutOfRange", spec::CREATE_RANGE, case!(restore::smaller)).needs(&[SNAPSHOT, CREATE, EXPAND, RESTORES]),
    Row::new("each snapshot of a volume holds the data of its creation time", spec::CUT, case!(restore::times)).needs(&[SNAPSHOT, CREATE, Need::Files, RESTORES, KEEPS]).each(),
];
