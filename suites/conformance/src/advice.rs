//! How drivers are repaired that violate a sentence of the specification: `How to fix it` in `claimcheck csi --explain`.

use crate::spec::{self, Sentence};

/// Sentences, and what repairs a driver that violates one of them.
type Advice = (&'static [&'static Sentence], &'static str);

/// Each sentence that a case checks is in one of these groups.
const ADVICE: &[Advice] = &[
    // Calls, capabilities and errors of all services.
    (
        &[spec::UNSUPPORTED, spec::UNIMPLEMENTED],
        "Return codes.Unimplemented before any other check: embed the generated Unimplemented...Server, and delete stubs \
         that return OK or validate arguments. If the call works, declare its capability instead.",
    ),
    (
        &[spec::SECRET, spec::LEAKAGE],
        "Do not format requests, command lines or errors of the back end that contain secrets into a status. Name the key \
         of a secret, never its value; csi-lib-utils' protosanitizer removes fields that are marked csi_secret.",
    ),
    (
        &[spec::IDENTITY, spec::IDENTITY_CALLS, spec::SAME_CAPABILITIES],
        "Register one Identity server, with name, version and capabilities from one place, in the binaries of controller \
         and node; do not derive capabilities from flags that differ between them.",
    ),
    (
        &[
            spec::CONTROLLER,
            spec::NODE,
            spec::CREATE,
            spec::DELETE,
            spec::ATTACH,
            spec::DETACH,
            spec::VALIDATE,
            spec::LIST,
            spec::GET,
            spec::MODIFY,
            spec::CAPACITY,
            spec::CONTROLLER_CAPABILITIES,
            spec::SNAPSHOT,
            spec::DROP,
            spec::SNAPSHOTS,
            spec::FETCH,
            spec::EXPAND,
            spec::STAGE,
            spec::UNSTAGE,
            spec::UNPUBLISH,
            spec::STATS,
            spec::NODE_CAPABILITIES,
            spec::STATS_DECLARED,
            spec::INFO,
            spec::INFO_USED,
            spec::NODE_EXPAND,
            spec::GROUP_CAPABILITIES,
            spec::GROUPS,
            spec::UNGROUP,
            spec::FETCH_GROUP,
            spec::ALLOCATED,
            spec::DELTA,
        ],
        "If the call returns Unimplemented, implement it or remove its capability from the list that the \
         Get...Capabilities call returns. Otherwise repair what the message of the error names: the log of the driver has \
         the call with the same time.",
    ),
    (
        &[spec::CONCURRENT],
        "Guard each volume, snapshot and group with a lock that is keyed by its id (or by its name, while it is created), \
         from the first check to the last effect. A call that does not get the lock at once returns Aborted, or waits.",
    ),
    (
        &[spec::RETRIED],
        "Write down what a call intends before its first effect, or derive the state from the storage. A repeated call, \
         also after a crash, then finds what exists, completes it, and returns the result of the first.",
    ),
    (
        &[spec::LIMITS, spec::NODE_ID_SIZE, spec::NODE_ID_SHORT],
        "Shorten the field: hash what makes it long, or store the details at the back end and return a key. Limits count \
         bytes of UTF-8; those of a map count all of its keys and values.",
    ),
    (
        &[
            spec::FIELDS,
            spec::ELEMENTS,
            spec::NAME,
            spec::VENDOR_VERSION,
            spec::CREATED,
            spec::VOLUME_ID,
            spec::LIST_VOLUME,
            spec::GET_VOLUME,
            spec::GET_STATUS,
            spec::EXPANDED,
            spec::EXPANDED_NODE,
            spec::SNAPSHOTTED,
            spec::SNAPSHOT_ID,
            spec::SNAPSHOT_SOURCE,
            spec::FETCHED,
            spec::NODE_ID,
            spec::GROUPED,
            spec::GROUP_ID,
            spec::FETCHED_GROUP,
            spec::STATS_TOTAL,
            spec::CONFIRMED,
            spec::SNAPSHOT_RETURNS,
        ],
        "Set the field in every response with the code OK, also in that of a repeated call, which is often built by other \
         code than the first.",
    ),
    (
        &[spec::STATUS],
        "Return errors that are made with gRPC's status package: any other error of a handler becomes Unknown. Let a \
         recovery interceptor turn panics into Internal.",
    ),
    (
        &[spec::CODES, spec::CONDITIONS, spec::CREATE_CODES],
        "Map each error of the back end to the code that the specification lists for its condition, in one function of the \
         driver. Validate ids and paths with an allowlist before they reach the file system or the back end: what has not \
         the format of an id is NotFound or InvalidArgument, never Internal.",
    ),
    (
        &[spec::MISSING, spec::ALLOCATED_INVALID, spec::DELTA_INVALID],
        "Check at the beginning of the call that each REQUIRED field is set (a message is not nil, a text not empty, a list \
         has elements, one variant of a oneof is chosen), and return InvalidArgument that names the field.",
    ),
    (
        &[spec::INVALID],
        "Validate the value against what the driver supports before anything is created or mounted, and return \
         InvalidArgument with the value. Require absolute, clean paths; limit the length of texts; pass no text to a shell.",
    ),
    (
        &[spec::TOKENS],
        "Parse the tokens of the request, require one for the audience of the CSIDriver object, and reject one with an \
         expirationTimestamp in the past with Unauthenticated, also when the volume is already published.",
    ),
    (
        &[spec::MESSAGE],
        "Give every status a text with the operation, the object and the reason of the back end.",
    ),
    (&[spec::DETAILS], "Do not call WithDetails on a status, and remove interceptors that add details."),
    // Identity.
    (
        &[spec::NAME_FORMAT, spec::NAME_CHARACTERS, spec::NAME_COMPANY],
        "Choose a name in reverse of what a host name is made of, such as csi.example.com: at most 63 letters, digits, \
         dashes and dots. Volumes keep the name of their driver, so a released name can only be replaced by a new driver.",
    ),
    (
        &[spec::KNOWN],
        "List each capability once, from the constants of csi.proto, together with those that it depends on; remove \
         numbers from drafts of the specification.",
    ),
    (
        &[spec::CONTROLLER_SERVICE, spec::UNDECLARED],
        "Add CONTROLLER_SERVICE, GROUP_CONTROLLER_SERVICE or the capability of the call to the capabilities that the \
         driver returns, or remove the service, which no caller uses.",
    ),
    (
        &[spec::EXPANSION, spec::ONLINE_NEEDS, spec::OFFLINE_NEEDS],
        "Declare VolumeExpansion ONLINE if volumes can be expanded while they are published, OFFLINE if not, and \
         EXPAND_VOLUME of the controller or the node with it.",
    ),
    (
        &[spec::ONLINE, spec::OFFLINE, spec::EXPAND_IN_USE],
        "Declare what the driver does: ONLINE if ControllerExpandVolume works for published volumes. With OFFLINE only, \
         look up the attachments of the volume, and return FailedPrecondition if it has one.",
    ),
    (
        &[spec::PROBE, spec::PROBE_READY, spec::SERVICE],
        "Let Probe answer without locks that other calls hold, with ready set once the driver can serve. If a call crashes \
         or hangs the process, its log and stack trace name it: recover from panics, bound waits for the back end by the \
         deadline of the call, and close what a call opens on every path.",
    ),
    // Volumes.
    (
        &[spec::CREATE_TWICE, spec::CREATE_SAME, spec::CREATE_ONCE],
        "Look the name up first, or derive the id from it. If the volume exists and matches the request, return it with \
         the same id, size and context; store the name at the back end, so that the lookup survives a restart.",
    ),
    (
        &[spec::EXISTS, spec::SNAPSHOT_EXISTS, spec::GROUP_EXISTS],
        "Compare the object that has the name with the request (size, content source, source volumes, parameters), and \
         return AlreadyExists if they contradict each other.",
    ),
    (
        &[spec::ANY_NAME, spec::VOLUME_UNIQUE, spec::SNAPSHOT_UNIQUE, spec::GROUP_UNIQUE],
        "Do not use the name as the name of a directory or an object of the back end: hash it (for example SHA-256 in \
         hexadecimal), which removes limits of length, case and alphabet, and store the original next to it.",
    ),
    (
        &[spec::SOURCE_UNUSABLE],
        "Read volume_content_source in every CreateVolume, also if the driver declares neither snapshots nor clones, and \
         return InvalidArgument for a source that it cannot copy.",
    ),
    (
        &[spec::MUTABLE],
        "Apply mutable_parameters of CreateVolume with the code that serves ControllerModifyVolume.",
    ),
    (
        &[spec::EMPTY],
        "Delete the data with the volume, and format or clear new storage before it is published for the first time.",
    ),
    (
        &[spec::LARGER_COPY, spec::RESTORE, spec::CLONE, spec::SNAPSHOTS_RESTORE, spec::SNAPSHOT_SIZE],
        "Copy all data of the source before CreateVolume returns, or make reads wait for it. Create the volume with the \
         larger of the requested and the source's size, and expand its file system when it is staged.",
    ),
    (
        &[spec::NO_SIZE],
        "Treat a missing capacity_range as zero: use a default size, or that of the source, and return it.",
    ),
    (
        &[spec::SIZE_HONORED, spec::SIZE_LEAST, spec::SIZE_MOST],
        "Round required_bytes up to the unit of the back end, compare the result with limit_bytes, and return the real \
         size. If a file system or device is smaller, create the storage larger by what it loses.",
    ),
    (
        &[spec::SIZE_SIGN, spec::CREATE_RANGE, spec::EXPAND_RANGE],
        "Validate capacity_range in a function that CreateVolume and ControllerExpandVolume share: OutOfRange for negative \
         sizes, for limit_bytes below required_bytes, for sizes that overflow when they are rounded up, and for those \
         beyond what the back end has.",
    ),
    (
        &[
            spec::CAPACITY_SIGN,
            spec::SNAPSHOT_SIGN,
            spec::STATS_SIGN,
            spec::AVAILABLE_SIGN,
            spec::LARGEST_SIGN,
            spec::SMALLEST_SIGN,
            spec::NODE_LIMIT,
        ],
        "Return zero for a number that is not known. A negative one is often -1 of a back end for `unlimited`, or an \
         unsigned number that was converted.",
    ),
    (
        &[
            spec::ALL_ACCESS,
            spec::ANY_ACCESS,
            spec::EITHER_ACCESS,
            spec::BAD_ACCESS,
            spec::VALIDATE_ALL,
            spec::CONFIRMED_ONLY,
        ],
        "Check every capability of the list with one function (access type is set, access mode is among the supported \
         ones, fs_type is known), and use it in CreateVolume, ValidateVolumeCapabilities, ControllerPublishVolume and the \
         calls of the node.",
    ),
    (
        &[spec::GROUP],
        "Mount with the gid of volume_mount_group (`gid=` for SMB, for example), or change group and mode of the root of \
         the volume; otherwise do not declare VOLUME_MOUNT_GROUP, and the kubelet does it.",
    ),
    (
        &[spec::CONTEXT_FIXED, spec::CONTEXT_CACHED, spec::CONTEXT_SAME],
        "Derive volume_context only from what never changes, such as the parameters of CreateVolume, or store it with the \
         volume; leave out times, counters, ids of requests and the state of the volume.",
    ),
    (
        &[spec::PUBLISH_CONTEXT_FIXED, spec::PUBLISH_CONTEXT_CACHED],
        "Return the same publish_context as long as the volume is attached: leave out ids of requests and times, and look \
         up the device of an existing attachment.",
    ),
    (
        &[spec::CONTEXT_SECRET, spec::PUBLISH_CONTEXT_SECRET],
        "Do not copy secrets into contexts: the node receives its own (node-stage-secret, node-publish-secret).",
    ),
    (
        &[spec::VOLUME_TOPOLOGY, spec::NODE_TOPOLOGY, spec::NODE_ANYWHERE],
        "Declare VOLUME_ACCESSIBILITY_CONSTRAINTS, and return accessible_topology for nodes and volumes; without the \
         capability, return it for neither.",
    ),
    (
        &[spec::REQUISITE, spec::REACHABLE, spec::REQUISITE_ALL, spec::NOWHERE, spec::NO_PLACE],
        "Choose the place of a new volume among the requisite topologies, in the order of the preferred ones, and return \
         it as accessible_topology. If the driver can use none of them, return ResourceExhausted before creating anything.",
    ),
    (
        &[
            spec::KEY_NAME,
            spec::KEY_NAME_GIVEN,
            spec::KEY_PREFIX,
            spec::KEY_ONE_PREFIX,
            spec::KEY_CASE,
            spec::VALUE_SOME,
            spec::VALUE_CHARACTERS,
        ],
        "Use keys of the form topology.<driver name>/<name>, the same in all calls, and replace characters of a zone or \
         host name that labels do not permit.",
    ),
    (
        &[
            spec::FAILS,
            spec::SNAPSHOT_UNCOMPLETED,
            spec::SNAPSHOT_ERROR,
            spec::GROUP_UNCOMPLETED,
            spec::GROUP_LEAKS,
            spec::GROUP_ERROR,
        ],
        "Validate the whole request before the first effect, return the error with its code, and undo what was created \
         before a later step failed.",
    ),
    (
        &[
            spec::SOURCE_GONE,
            spec::ATTACH_GONE,
            spec::ATTACH_NO_NODE,
            spec::VALIDATE_GONE,
            spec::GET_GONE,
            spec::MODIFY_GONE,
            spec::FETCH_GONE,
            spec::EXPAND_GONE,
            spec::STAGE_GONE,
            spec::UNSTAGE_GONE,
            spec::PUBLISH_GONE,
            spec::UNPUBLISH_GONE,
            spec::STATS_GONE,
            spec::NODE_EXPAND_GONE,
            spec::FETCH_GROUP_GONE,
            spec::ALLOCATED_GONE,
            spec::DELTA_GONE,
        ],
        "Look the object up by its id before anything else, and return NotFound if the back end has none (its 404, ENOENT). \
         A node that cannot query the back end can check what it has at the path: the device, its serial or its mount.",
    ),
    // Deletion.
    (
        &[
            spec::DELETE_TWICE,
            spec::DELETE_GONE,
            spec::DROP_TWICE,
            spec::DROP_GONE,
            spec::UNGROUP_TWICE,
            spec::UNGROUP_GONE,
        ],
        "Return OK if the object does not exist, also for ids that the driver has never returned and for one that is \
         deleted meanwhile: treat `not found` of the back end as success.",
    ),
    (
        &[spec::SNAPSHOTS_APART, spec::SNAPSHOTS_STAY, spec::DELETE_REFUSED],
        "Keep what snapshots need when their volume is deleted (the base image, for example), or look for snapshots first, \
         and return FailedPrecondition without changing the volume.",
    ),
    (
        &[spec::DELETE_IN_USE, spec::DELETE_MOUNTED, spec::DROP_IN_USE],
        "Query the back end for attachments, clones and mounts of the object before deleting it, and map its `in use` to \
         FailedPrecondition.",
    ),
    // Attachment.
    (
        &[
            spec::ATTACH_WORK,
            spec::ATTACH_USABLE,
            spec::ATTACH_ANYWHERE,
            spec::DETACH_WORK,
            spec::DETACH_ANYWHERE,
            spec::DETACH_NODE,
        ],
        "Use only the API of the back end, with the node of the request, and return when it reports the attachment as \
         complete; mounts and devices of the machine belong to the calls of the node.",
    ),
    (
        &[spec::ATTACH_TWICE, spec::ATTACH_SAME],
        "Look for an attachment of the volume to the node first, and return it with the same publish_context, instead of \
         the `already attached` of the back end.",
    ),
    (
        &[spec::ATTACH_READONLY, spec::PUBLISH_READONLY],
        "Pass the readonly flag on: attach or map the device read-only, and mount with `ro`. A bind mount needs a second \
         mount call (remount,bind,ro); a device file needs a read-only loop device or `blockdev --setro`.",
    ),
    (
        &[spec::ATTACH_OTHERWISE, spec::STAGE_OTHERWISE, spec::PUBLISH_OTHERWISE],
        "Record or read back how the volume is attached or mounted (read-only, access type, path), compare it with the \
         request, and return AlreadyExists if they differ, instead of OK for anything that is there.",
    ),
    (
        &[spec::ATTACH_ELSEWHERE, spec::ATTACH_NAMES_NODE],
        "Look up the attachments of a single-node volume, and return FailedPrecondition with the id of the node that has \
         it.",
    ),
    (
        &[spec::ATTACH_FULL],
        "Return the real limit as max_volumes_per_node, without the devices that the node has for itself, and map the \
         limit error of the back end to ResourceExhausted.",
    ),
    (
        &[
            spec::DETACH_TWICE,
            spec::DETACH_DONE,
            spec::DETACH_UNKNOWN,
            spec::DETACH_GONE,
            spec::DETACH_NO_NODE,
        ],
        "Return OK if the back end has no such attachment, volume or node, and NotFound only if the volume may still be \
         attached to it.",
    ),
    (&[spec::DETACH_ALL], "Accept an empty node_id: list the attachments of the volume, and remove each."),
    (&[spec::VALIDATE_TWICE], "Compute the answer from the volume alone; the call changes nothing."),
    // Lists.
    (
        &[spec::LIST_ALL, spec::SNAPSHOTS_ALL, spec::SNAPSHOTS_CURRENT],
        "List from the back end, not from a cache of the process, and read all of its pages. Filter snapshots by \
         snapshot_id and source_volume_id; an id that matches nothing gives an empty list.",
    ),
    (
        &[spec::LIST_MAX, spec::LIST_NEXT, spec::SNAPSHOTS_MAX, spec::SNAPSHOTS_NEXT, spec::LIST_CHANGES],
        "Sort by id, return at most max_entries, and use the last id of the page as next_token: the following page begins \
         after it, also if objects were created or deleted meanwhile. Return no token with the last page.",
    ),
    (
        &[spec::LIST_TOKEN, spec::SNAPSHOTS_TOKEN],
        "Parse starting_token strictly, and return Aborted for one that the driver has not made.",
    ),
    (
        &[spec::LIST_NODES, spec::GET_NODES],
        "Fill published_node_ids from the attachments of the back end, with the node_id of NodeGetInfo; or do not declare \
         LIST_VOLUMES_PUBLISHED_NODES.",
    ),
    (
        &[spec::LIST_CONDITION, spec::GET_CONDITION, spec::STATS_CONDITION, spec::CONDITION_MESSAGE],
        "Return a volume_condition with a message also for healthy volumes, and abnormal=false unless the back end reports \
         a fault; or do not declare VOLUME_CONDITION.",
    ),
    (
        &[spec::GET_CURRENT, spec::FETCH_CURRENT, spec::FETCH_GROUP_CURRENT],
        "Build the response from the back end, with the function that the creating call uses.",
    ),
    (
        &[spec::MODIFY_TWICE],
        "Set the parameters to the requested values, and return OK if they have them already.",
    ),
    (
        &[spec::MODIFY_BAD, spec::MODIFY_UNTOUCHED],
        "Validate every key and value of mutable_parameters before the first is applied, and return InvalidArgument with \
         the key.",
    ),
    (
        &[
            spec::CAPACITY_ACCESS,
            spec::CAPACITY_PARAMETERS,
            spec::CAPACITY_TOPOLOGY,
            spec::CAPACITY_AVAILABLE,
        ],
        "Select the pool by parameters, capabilities and topology with the code that CreateVolume uses, and return its \
         free space: zero where a volume cannot be created.",
    ),
    (
        &[spec::NODES_NEED_ATTACH],
        "Declare PUBLISH_UNPUBLISH_VOLUME together with LIST_VOLUMES_PUBLISHED_NODES, or neither.",
    ),
    (
        &[spec::WRITER, spec::NODE_WRITER, spec::PUBLISH_WRITER, spec::PUBLISH_TABLE],
        "Treat SINGLE_NODE_WRITER as SINGLE_NODE_MULTI_WRITER, and count the targets of a volume on the node: a second \
         target of a SINGLE_NODE_SINGLE_WRITER volume is FailedPrecondition.",
    ),
    // Snapshots and groups.
    (
        &[spec::SNAPSHOT_TWICE, spec::SNAPSHOT_SAME, spec::GROUP_TWICE, spec::GROUP_SAME],
        "Look the name up first, and return the existing snapshot or group, with its current ready_to_use.",
    ),
    (
        &[spec::READY, spec::SNAPSHOT_READY, spec::SNAPSHOTS_READY, spec::GROUP_NOT_READY, spec::GROUP_READY],
        "Compute ready_to_use from the state of the back end at each call, and that of a group from its snapshots, instead \
         of storing what it was at first.",
    ),
    (
        &[spec::CUT],
        "Return from CreateSnapshot only when the back end has taken the snapshot: flush the file system or freeze it, and \
         copy or mark all blocks, so that later writes do not appear in it.",
    ),
    (
        &[spec::SNAPSHOT_TIME, spec::GROUP_TIME],
        "Return the time of the back end in google.protobuf.Timestamp: whole seconds since 1970 in `seconds` (not \
         milliseconds), the rest in `nanos`. timestamppb.New(t) of Go does both.",
    ),
    (
        &[
            spec::MEMBER,
            spec::ALONE,
            spec::MEMBER_GROUP,
            spec::DROP_GROUP,
            spec::DROP_MEMBER,
            spec::GROUP_MEMBERS,
        ],
        "Store the id of the group with each of its snapshots, return it as group_snapshot_id in all calls, delete the \
         snapshots with the group, and return InvalidArgument if one must not be deleted alone.",
    ),
    (
        &[spec::FETCH_MEMBERS],
        "Implement GetSnapshot, and declare GET_SNAPSHOT: external-snapshotter queries the snapshots of a group with it.",
    ),
    (
        &[spec::GROUP_CONSISTENT, spec::GROUP_MOMENT],
        "Stop the writes to all volumes before the first snapshot, and resume them after the last; or use the consistency \
         group of the back end.",
    ),
    (
        &[spec::UNGROUP_CHECKS, spec::UNGROUP_MISMATCH, spec::FETCH_GROUP_CHECKS, spec::FETCH_GROUP_MISMATCH],
        "Compare snapshot_ids with the snapshots of the group as sets, and return InvalidArgument if they differ.",
    ),
    // Expansion.
    (
        &[spec::EXPAND_TWICE, spec::EXPAND_LARGER, spec::EXPAND_KEEPS],
        "Read the current size first. If it is large enough, return OK with that size and change nothing; otherwise expand \
         the storage, and return its new size. Never pass a smaller size to the back end.",
    ),
    (
        &[spec::NODE_EXPAND_TWICE, spec::NODE_EXPAND_LARGER, spec::NODE_EXPAND_KEEPS],
        "Find the device of volume_path, rescan it, and expand the file system to its size (resize2fs, xfs_growfs); for a \
         block volume the rescan is all. Return OK if nothing has to be done.",
    ),
    // Node.
    (
        &[spec::STAGE_TWICE, spec::STAGE_SAME],
        "Check what is mounted at staging_target_path (mountinfo), and return OK if it is this volume. Attach a loop device \
         or session once, and format only a device that has no signature (blkid).",
    ),
    (
        &[spec::PUBLISH_TWICE, spec::PUBLISH_SAME],
        "Check what is mounted at target_path (mountinfo) before mounting, and return OK if it is this volume with the same \
         options.",
    ),
    (
        &[spec::STAGE_PLACE, spec::STAGE_USABLE, spec::PUBLISH_USABLE],
        "Mount before the call returns, and check the result: the data of the volume, the mount flags and the access mode. \
         Do not publish a staging directory on which nothing is mounted.",
    ),
    (
        &[spec::STAGE_PATH],
        "Use paths as they are, and do not build names of devices, files or units from them that have shorter limits.",
    ),
    (
        &[spec::STAGE_ACCESS, spec::PUBLISH_ACCESS],
        "Compare the capability with what the volume supports, and return FailedPrecondition if it exceeds that.",
    ),
    (
        &[spec::UNSTAGE_UNDOES, spec::UNPUBLISH_UNDOES, spec::UNPUBLISH_REMOVES],
        "Unmount until nothing is mounted at the path (mount.CleanupMountPoint of k8s.io/mount-utils), detach loop devices \
         and sessions, and then remove the target, which is a directory or a file.",
    ),
    (
        &[spec::UNSTAGE_TWICE, spec::UNSTAGE_DONE, spec::UNPUBLISH_TWICE],
        "Treat a path that does not exist, or on which nothing is mounted, as success: check mountinfo, and ignore ENOENT \
         and EINVAL of umount.",
    ),
    (
        &[spec::PUBLISH_DEVICE, spec::PUBLISH_DIRECTORY],
        "Create target_path, since only its parent exists: a directory for mount access, a file for block access, and \
         bind-mount the staged file system or the device onto it before returning.",
    ),
    (
        &[spec::PUBLISH_UNSTAGED],
        "Return FailedPrecondition if staging_target_path is empty, although the node declares STAGE_UNSTAGE_VOLUME.",
    ),
    (
        &[spec::STATS_TRUE, spec::STATS_UNIT],
        "Return statfs of volume_path for a file system, with unit BYTES and INODES, and the size of the device for block \
         access (blockdev --getsize64), after checking that the volume is mounted there.",
    ),
    (
        &[spec::NODE_UNIQUE],
        "Derive node_id from what identifies the machine (the node's name, the id of the instance), not from the process.",
    ),
    // Snapshot metadata.
    (
        &[spec::BLOCK_SIZE, spec::ALLOCATED_TYPE, spec::ALLOCATED_FIXED, spec::DELTA_TYPE, spec::DELTA_FIXED],
        "Set block_metadata_type in every message. With FIXED_LENGTH, return blocks of one size; with VARIABLE_LENGTH, \
         ranges of any size above zero.",
    ),
    (
        &[
            spec::BLOCKS_ALL,
            spec::BLOCKS_FROM,
            spec::ALLOCATED_FROM,
            spec::ALLOCATED_RESPECTS,
            spec::DELTA_FROM,
            spec::DELTA_RESPECTS,
        ],
        "Begin with the block that contains starting_offset, or with the next one, send all blocks to the end of the \
         volume, and only then end the stream; end it with an error if any block is unknown.",
    ),
    (
        &[spec::ALLOCATED_ONLY, spec::DELTA_ONLY],
        "Query the allocation of the snapshot (SEEK_DATA and SEEK_HOLE, or the map of the back end), instead of listing the \
         whole volume.",
    ),
    (
        &[spec::ALLOCATED_CAPACITY, spec::DELTA_CAPACITY],
        "Return the size of the snapshot's volume in every message, as in size_bytes of the snapshot.",
    ),
    (
        &[spec::LOG_SECRETS],
        "Remove the secrets of a request, and the tokens in its volume_context, before it is logged.",
    ),
    (
        &[spec::ALLOCATED_MAX, spec::DELTA_MAX],
        "Cut each message to max_results blocks, and choose a limit if it is zero.",
    ),
    (
        &[spec::ALLOCATED_ORDER, spec::ALLOCATED_ACROSS, spec::DELTA_ORDER, spec::DELTA_ACROSS],
        "Sort the blocks by byte_offset and merge those that overlap, before they are divided into messages.",
    ),
    (
        &[spec::ALLOCATED_OFFSET, spec::DELTA_OFFSET],
        "Compare starting_offset with the size of the volume before the stream begins, and return OutOfRange.",
    ),
];

impl Sentence {
    /// What repairs a driver that violates the sentence; nothing for one that no case checks.
    pub fn advice(&self) -> Option<&'static str> {
        let is_about_this = |other: &&&Sentence| (other.section, other.text) == (self.section, self.text);
        ADVICE.iter().find(|(rules, _)| rules.iter().any(|rule| is_about_this(&rule))).map(|(_, text)| *text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::spec::Note;

    #[test]
    fn each_checked_sentence_has_one_advice() {
        let mut advised = BTreeSet::new();
        for (rules, text) in ADVICE {
            assert!(text.ends_with('.') && !text.contains("  "), "{text}");
            for rule in *rules {
                assert!(advised.insert((rule.section, rule.text)), "twice: {rule}");
                assert!(matches!(rule.note, Note::Why(_)), "no case checks it: {rule}");
            }
        }
        let is_missing = |rule: &&&Sentence| {
            matches!(rule.note, Note::Why(_)) && !advised.contains(&(rule.section, rule.text))
        };
        let missing: Vec<String> = spec::ALL.iter().filter(is_missing).map(ToString::to_string).collect();
        assert!(missing.is_empty(), "without advice:\n{}", missing.join("\n"));
    }
}
