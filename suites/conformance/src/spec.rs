//! The sentences of the CSI specification that bind a driver: what each case checks, and how strongly it binds.
//!
//! Sentences that the specification repeats for several calls, such as the duty to return an error for a call that
//! failed, are listed once. Duties of the caller alone are not listed; a driver's duty to reject a request without a
//! required field is [`MISSING`].

use std::fmt;

use serde::Serialize;

use Note::{Untested, Why};

/// The specification.
const DOCUMENT: &str = "https://github.com/container-storage-interface/spec/blob/v1.12.0/spec.md";

/// How strongly a rule binds a driver (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// MUST, SHALL or REQUIRED: a violation fails the case.
    Must,
    /// SHOULD or RECOMMENDED: a violation is a warning, and with `--strict` fails the case.
    Should,
    /// MAY or OPTIONAL: behaviour that is permitted but notable is a warning.
    May,
    /// The specification is silent or weaker, but Kubernetes depends on it: a violation fails the case.
    Kubernetes,
}

impl Strength {
    /// Whether a violation fails the case.
    pub fn fails(self, strict: bool) -> bool {
        match self {
            Self::Must | Self::Kubernetes => true,
            Self::Should => strict,
            Self::May => false,
        }
    }

    /// The keyword, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
            Self::Kubernetes => "Kubernetes",
        }
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a sentence matters to users, or why no case checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The effect of a violation on users.
    Why(&'static str),
    /// The reason for which no case checks the sentence.
    Untested(&'static str),
}

/// A sentence of the specification. A row of a table of errors is quoted as `condition: code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The heading of its section.
    pub section: &'static str,
    /// How strongly it binds a driver.
    pub strength: Strength,
    /// The text. A sentence about one field of several in its section begins with the name of the field.
    pub text: &'static str,
    /// Its effect on users, or why it is not tested.
    pub note: Note,
}

impl Sentence {
    /// Whether it is about one call, and not about all of them.
    pub(crate) fn is_about_one_call(&self) -> bool {
        let section = self.section.trim_end_matches(" Errors");
        let capitals = section.chars().filter(|c| c.is_ascii_uppercase()).count();
        capitals > 1 && section.chars().all(|c| c.is_ascii_alphabetic())
    }

    /// The address of its section.
    pub fn link(&self) -> String {
        let anchor = self.section.to_lowercase().replace(' ', "-");
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
        format!("{DOCUMENT}#{}", anchor.chars().filter(kept).collect::<String>())
    }
}

/// `MUST (CreateVolume): "the sentence"`.
impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): \"{}\"", self.strength, self.section, self.text)
    }
}

/// Defines a constant per sentence, and the list of all.
macro_rules! sentences {
    ($($section:literal { $($name:ident: $strength:ident, $text:literal, $note:expr;)* })*) => {
        $($(
            pub(crate) const $name: &Sentence =
                &Sentence { section: $section, strength: Strength::$strength, text: $text, note: $note };
        )*)*

        /// All sentences, in the order of the specification.
        pub(crate) const ALL: &[&Sentence] = &[$($($name,)*)*];
    };
}

// Why several sentences matter.
const CALLED: &str =
    "Kubernetes makes the calls of every declared capability; what requires a call that fails stays pending.";
const REPEATED: &str = "Callers repeat a call until they receive a response. If the repetition fails or has another effect, a lost response leaves a volume stuck, or leaks one.";
const FINAL: &str = "The code decides whether a caller gives up, cleans up or retries. With a wrong code it retries forever, or gives up on what would succeed.";
const UNCOMPLETED: &str = "A caller believes an OK: a failure that is reported as success leaves it with an object that does not exist, and an error after a success leaks the object.";
const UNDONE: &str = "The kubelet repeats the call until it succeeds, whatever the error: users see from the code why a pod stays Terminating.";
const DETACHED: &str = "csi-attacher repeats the call until it succeeds, whatever the error: the VolumeAttachment stays, with `attached: true`. An error is for a volume that may still be attached.";
const GONE: &str = "NotFound ends the work on an object that was deleted. With another code, callers retry forever; if the call succeeds, a pod starts without its volume.";
const FIELD: &str = "Kubernetes stores the field, and makes later calls with it.";
const IDENTITY_OF: &str = "Two objects with one identity are one object: a write to one claim appears in the other, and both are deleted at once.";
const STORED: &str =
    "Kubernetes stores the volume_context once, in an immutable field of the PersistentVolume.";
const LISTED: &str = "Controllers compare lists with their objects: they repair, or clean up, what is missing or listed in excess.";
const PAGED: &str = "A caller of a large installation reads lists in pages: what a page omits does not exist for it, and pages without end occupy it forever.";
const USABLE: &str =
    "A pod is started once the call has returned: it reads and writes whatever is at the path.";
const HELD: &str = "A caller requests as much as it can hold.";
const COPY: &str = "Users restore backups and clone databases: a copy without the data, or one that still changes with its source, is a loss of data.";
const MODES: &str = "A claim may have several access modes: a pod that uses the second one must start, too.";
const MOMENT: &str = "A snapshot that contains later writes is no consistent backup.";
const LIMIT: &str = "Kubernetes and other callers may reject, or cut off, what is longer.";
const SIZE: &str =
    "Users pay for, and rely on, the size that they request: a volume that is smaller runs full early.";
const SCHEDULED: &str =
    "The scheduler chooses nodes by topology: a pod on a node without access to its volume never starts.";
const LABELS: &str = "Keys and values become labels of nodes: the API server rejects other ones, and the driver is not registered on the node.";
const LEFT: &str =
    "What remains on a node keeps the volume from being detached and deleted, and fills the node.";
const READ: &str = "Users see the message in Events, and nothing else of the error.";
const BACKUP: &str =
    "Backup tools read only the blocks that are listed: a missing block is missing in the backup.";
const BLOCKS: &str = "Backup tools compute with the size of the first block.";
const CONTINUED: &str = "Backup tools continue after the last block that they received.";
const LEAK: &str = "Errors are stored in Events and logs, which more people can read than the secret.";
const CAPACITIES: &str = "The scheduler places pods by capacity: a pod waits forever although there is room, or is placed where there is none.";
const STATISTICS: &str = "Statistics are shown to users, and raise alerts before a volume is full.";

// Why several sentences are not tested.
const DEPLOYED: &str = "It is about the deployment of a driver, which claimcheck does not make.";
const DOCUMENTED: &str = "It is about documentation.";
const HIDDEN: &str = "No response shows it.";
const FAULT: &str = "It requires a fault of the storage, which claimcheck cannot cause.";
const EVERYWHERE: &str = "Every case depends on it.";
const PARAMETERS: &str = "No response shows the parameters of a volume.";
const DEFAULTED: &str = "A number or flag with its default value is not sent.";
const UPLOADING: &str = "No response shows whether a driver is still processing a snapshot.";
const EXTREMES: &str = "No response shows whether a driver has a smallest or largest volume.";

sentences! {
    "Volume Lifecycle" {
        ALL_CALLS: Should, "Plugins SHOULD expose all RPCs for an interface: Controller plugins SHOULD implement all RPCs for the `Controller` service.", Untested("A driver may omit a capability: the cases that require it are skipped.");
        UNSUPPORTED: Should, "Unsupported RPCs SHOULD return an appropriate error code that indicates such (e.g. `CALL_NOT_IMPLEMENTED`).", Why(FINAL);
    }
    "RPC Interface" {
        NODE_ENDPOINT: Must, "A gRPC endpoint serving CSI RPCs that MUST be run on the Node whereupon an SP-provisioned volume will be published.", Untested(DEPLOYED);
        SECRET: Must, "Indicates that a field MAY contain information that is sensitive and MUST be treated as such (e.g. not logged).", Why(LEAK);
        IDENTITY: Must, "Both the Node Plugin and the Controller Plugin MUST implement this sets of RPCs.", Why("Kubernetes finds a driver by its name: with two names, its nodes never receive the volumes of its controller.");
        CONTROLLER: Must, "The Controller Plugin MUST implement this sets of RPCs.", Why(CALLED);
        NODE: Must, "The Node Plugin MUST implement this sets of RPCs.", Why(CALLED);
    }
    "Concurrency" {
        CONCURRENT: Kubernetes, "The plugin SHOULD handle this as gracefully as possible.", Why("After a timeout or a restart, sidecars and the kubelet repeat a call while the first one still runs: each race that is lost leaks a volume, or mounts one twice.");
    }
    "Size Limits" {
        LIMITS: Must, "Unless otherwise specified, fields SHALL NOT exceed the limits documented here.", Why(LIMIT);
    }
    "REQUIRED vs. OPTIONAL" {
        FIELDS: Must, "A field noted as `REQUIRED` MUST be specified, subject to any per-RPC caveats; caveats SHOULD be rare.", Why(FIELD);
        ELEMENTS: Must, "A `repeated` or `map` field listed as `REQUIRED` MUST contain at least 1 element.", Why(FIELD);
    }
    "Timeouts" {
        RETRIED: Must, "Idempotency requirements ensure that a retried call with the same fields continues where it left off when retried.", Why(REPEATED);
    }
    "Error Scheme" {
        STATUS: Must, "All CSI API calls defined in this spec MUST return a standard gRPC status.", Why(FINAL);
        CANONICAL: Must, "The status `code` MUST contain a canonical error code.", Untested("gRPC clients replace every other number by UNKNOWN, which is canonical.");
        CODES: Must, "Each RPC defines a set of gRPC error codes that MUST be returned by the plugin when specified conditions are encountered.", Why(FINAL);
        CONDITIONS: Must, "In addition to those, if the conditions defined below are encountered, the plugin MUST return the associated gRPC error code.", Why(FINAL);
        MISSING: Must, "Missing required field: 3 INVALID_ARGUMENT", Why("InvalidArgument reports a mistake that a retry does not repair. With another code, the mistake is retried forever; if the call succeeds, the driver acts on an object that was not named.");
        INVALID: Must, "Invalid or unsupported field in the request: 3 INVALID_ARGUMENT", Why("A mistake in a class or a volume that the driver accepts shows up later, as a mount that fails or an option that has no effect.");
        PERMISSION: Must, "Permission denied: 7 PERMISSION_DENIED", Untested("It requires an identity without permission, which no setting provides.");
        TOKENS: Kubernetes, "Not authenticated: 16 UNAUTHENTICATED", Why("A driver that requests service account tokens decides by them which pod may read a volume: if it accepts an expired or missing token, every pod may.");
        UNIMPLEMENTED: Must, "Call not implemented: 12 UNIMPLEMENTED", Why("Callers that are newer than the driver treat Unimplemented as a missing capability, and any other code as a failure.");
        MESSAGE: Must, "The status `message` MUST contain a human readable description of error, if the status `code` is not `OK`.", Why(READ);
        DETAILS: Must, "The status `details` MUST be empty.", Why("Later versions of the specification define details: callers would misread other ones.");
    }
    "Secrets Requirements" {
        SECRET_KEYS: Must, "Each key MUST consist of alphanumeric characters, '-', '_' or '.'.", Untested("Users choose the keys of secrets.");
        SECRET_VALUES: Must, "Each value MUST contain a valid string.", Untested("Users choose the values of secrets.");
        SECRETS_DOCUMENTED: Must, "An SP SHALL advertise the requirements for required secret keys and values in documentation.", Untested(DOCUMENTED);
        SECRETS_UNIQUE: Must, "A CO MAY pass the same secrets to all RPCs, therefore the keys for all unique secrets that an SP expects MUST be unique across all CSI operations.", Untested(HIDDEN);
    }
    "GetPluginInfo" {
        NAME_FORMAT: Must, "The name MUST follow domain name notation format (https://tools.ietf.org/html/rfc1035#section-2.3.1).", Why("The name is the name of the CSIDriver object, and part of directories on each node.");
        NAME_COMPANY: Should, "It SHOULD include the plugin's host company name and the plugin name, to minimize the possibility of collisions.", Why("Two drivers of one name cannot be installed in one cluster.");
        NAME_CHARACTERS: Must, "It MUST be 63 characters or less, beginning and ending with an alphanumeric character ([a-z0-9A-Z]) with dashes (-), dots (.), and alphanumerics between.", Why("The name is the name of the CSIDriver object, and part of directories on each node.");
        NAME: Must, "name: This field is REQUIRED.", Why("Kubernetes cannot register a driver without a name.");
        VENDOR_VERSION: Must, "vendor_version: This field is REQUIRED.", Why("Users report the version with a problem.");
    }
    "GetPluginCapabilities" {
        SAME_CAPABILITIES: Must, "All instances of the same version (see `vendor_version` of `GetPluginInfoResponse`) of the Plugin SHALL return the same set of capabilities, regardless of both: (a) where instances are deployed on the cluster as well as; (b) which RPCs an instance is serving.", Why("Components of the controller and of the nodes query different instances, and must agree on the capabilities of the driver.");
        KNOWN: May, "All the capabilities that the controller service supports. This field is OPTIONAL.", Why("A capability that the specification does not define, or that is listed twice, is ignored: it has no effect, and is probably a mistake.");
        CONTROLLER_SERVICE: Should, "Plugins SHOULD provide this capability.", Why("external-provisioner refuses to start for a driver without it.");
        UNDECLARED: Kubernetes, "The presence of this capability determines whether the CO will attempt to invoke the REQUIRED ControllerService RPCs, as well as specific RPCs as indicated by ControllerGetCapabilities.", Why("Sidecars make only calls of declared capabilities: an undeclared one is out of reach for users.");
        EXPANSION: May, "ONLINE indicates that volumes may be expanded when published to a node.", Why("Without a declaration, callers must guess whether to expand a volume in use.");
        ONLINE_NEEDS: Must, "When a Plugin implements this capability it MUST implement either the EXPAND_VOLUME controller capability or the EXPAND_VOLUME node capability or both.", Why(CALLED);
        ONLINE: Must, "When a plugin supports ONLINE volume expansion and also has the EXPAND_VOLUME controller capability then the plugin MUST support expansion of volumes currently published and available on a node.", Why("Kubernetes expands volumes while pods use them.");
        OFFLINE: Must, "OFFLINE indicates that volumes currently published and available on a node SHALL NOT be expanded via ControllerExpandVolume.", Why("A caller that may not expand a volume in use waits until it is unpublished.");
        OFFLINE_NEEDS: Must, "When a plugin supports OFFLINE volume expansion it MUST implement either the EXPAND_VOLUME controller capability or both the EXPAND_VOLUME controller capability and the EXPAND_VOLUME node capability.", Why(CALLED);
    }
    "Probe" {
        PROBE: Must, "A Plugin MUST implement this RPC call.", Why("livenessprobe restarts a driver that does not respond to Probe.");
        PROBE_DOCUMENTED: Must, "The SP SHALL document guidance and known limitations regarding a particular Plugin's implementation of this RPC.", Untested(DOCUMENTED);
        PROBE_UNHEALTHY: Must, "In this case a gRPC error code SHALL be returned.", Untested(FAULT);
        PROBE_STARTING: Must, "In this case a successful response SHALL be returned with a readiness value of `false`.", Untested("The first case starts once the driver is ready.");
        PROBE_READY: Kubernetes, "A successful response is returned with a readiness value of `true`.", Why("Sidecars wait until a driver is ready, and livenessprobe restarts one that is not.");
    }
    "Probe Errors" {
        PROBE_FAILS: Must, "Plugin not healthy: 9 FAILED_PRECONDITION", Untested(FAULT);
        PROBE_DEPENDS: Must, "Missing required dependency: 9 FAILED_PRECONDITION", Untested(FAULT);
    }
    "CreateVolume" {
        CREATE: Must, "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_VOLUME` controller capability.", Why(CALLED);
        CREATE_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        CREATE_SAME: Must, "If a volume corresponding to the specified volume `name` already exists, is accessible from `accessibility_requirements`, and is compatible with the specified `capacity_range`, `volume_capabilities`, `parameters` and `mutable_parameters` in the `CreateVolumeRequest`, the Plugin MUST reply `0 OK` with the corresponding `CreateVolumeResponse`.", Why(REPEATED);
        MUTABLE: Must, "The `mutable_parameters` field SHALL contain opaque volume attributes that are defined at creation time but MAY also be changed during the lifetime of the volume via a subsequent `ControllerModifyVolume` RPC.", Why("Claims name a VolumeAttributesClass when they are created.");
        MUTABLE_FIRST: Must, "Values specified in `mutable_parameters` MUST take precedence over the values from `parameters`.", Untested(PARAMETERS);
        EMPTY: Kubernetes, "Empty volumes. When plugin supports `CREATE_DELETE_VOLUME` OPTIONAL capability.", Why("A new claim that shows the data of a deleted one discloses it to another user.");
        LARGER_COPY: Must, "If CO requests a volume to be created from existing snapshot or volume and the requested size of the volume is larger than the original snapshotted (or cloned volume), the Plugin can either refuse such a call with `OUT_OF_RANGE` error or MUST provide a volume that, when presented to a workload by `NodePublish` call, has both the requested (larger) size and contains data from the snapshot (or original volume).", Why(COPY);
        CREATE_ONCE: Should, "The Plugin SHOULD ensure that multiple `CreateVolume` calls for the same name do not result in more than one piece of storage provisioned corresponding to that name.", Why(REPEATED);
        ANY_NAME: Must, "Any Unicode string that conforms to the length limit is allowed except those containing the following banned characters: U+0000-U+0008, U+000B, U+000C, U+000E-U+001F, U+007F-U+009F.", Why("external-provisioner forms names from a prefix and a UID; other callers choose other names.");
        NO_SIZE: Must, "If not specified, the Plugin MAY choose an implementation-defined capacity range.", Why("Callers may omit an optional field: a driver must accept its absence.");
        SIZE_HONORED: Must, "If specified it MUST always be honored, even when creating volumes from a source; which MAY force some backends to internally extend the volume after creating it.", Why(SIZE);
        ALL_ACCESS: Must, "SP MUST provision a volume that will satisfy ALL of the capabilities specified in this list.", Why(MODES);
        ANY_ACCESS: Must, "The Plugin MUST assume that the CO MAY use the provisioned volume with ANY of the capabilities specified in this list.", Why(MODES);
        EITHER_ACCESS: Must, "In this case, the SP MUST verify that the provisioned volume can be used in either mode.", Why(MODES);
        BAD_ACCESS: Must, "If ANY of the specified volume capabilities are not supported by the SP, the call MUST return the appropriate gRPC error code.", Why("A claim that cannot be satisfied must fail when it is created, and not when a pod starts.");
        TOPOLOGY_DOCUMENTED: Must, "An SP SHALL advertise the requirements for topological accessibility information in documentation.", Untested(DOCUMENTED);
        MUTABLE_BEFORE: Must, "Plugins MUST treat these as if they take precedence over the parameters field.", Untested(PARAMETERS);
        RESTORE: Must, "Plugin is REQUIRED to support creating volume from snapshot if it supports the capability CREATE_DELETE_SNAPSHOT.", Why(COPY);
        CLONE: Must, "Plugins reporting CLONE_VOLUME capability MUST support creating a volume from another volume.", Why(COPY);
        CREATED: Must, "volume: This field is REQUIRED.", Why(FIELD);
        FLAGS_SECRET: Must, "Therefore, the CO and the Plugin MUST NOT leak this information to untrusted entities.", Untested("Users decide which mount flags are secret; `mount -o` shows them to a node's users.");
        GROUP: Must, "If SP has VOLUME_MOUNT_GROUP node capability and CO provides this field then SP MUST ensure that the volume_mount_group parameter is passed as the group identifier to the underlying operating system mount system call, with the understanding that the set of available mount call parameters and/or mount implementations may vary across operating systems.", Why("The kubelet leaves fsGroup to the driver: a pod without root cannot write to its volume.");
        GROUP_ENTRIES: Should, "Additionally, new file and/or directory entries written to the underlying filesystem SHOULD be permission-labeled in such a manner, unless otherwise modified by a workload, that they are both readable and writable by said mount group identifier.", Untested("The workload's umask decides, too.");
        SIZE_LEAST: Must, "Volume MUST be at least this big.", Why(SIZE);
        SIZE_MOST: Must, "Volume MUST not be bigger than this.", Why("A limit protects users from the cost of a larger volume.");
        SIZE_SIGN: Must, "required_bytes and limit_bytes: The value of this field MUST NOT be negative.", Why("A size that overflowed must not become a small, or unlimited, volume.");
        CAPACITY_SIGN: Must, "capacity_bytes: The value of this field MUST NOT be negative.", Why(FIELD);
        VOLUME_ID: Must, "volume_id: This field is REQUIRED.", Why(FIELD);
        VOLUME_UNIQUE: Must, "volume_id: This field MUST contain enough information to uniquely identify this specific volume vs all other volumes supported by this plugin.", Why(IDENTITY_OF);
        CONTEXT_FIXED: Must, "volume_context: The contents of this field SHALL NOT be mutable.", Why(STORED);
        CONTEXT_CACHED: Must, "volume_context: The contents of this field SHALL be safe for the CO to cache.", Why(STORED);
        CONTEXT_SECRET: Should, "volume_context: The contents of this field SHOULD NOT contain sensitive information.", Why("PersistentVolumes and VolumeAttachments contain the contexts, and more people can read them than the secret.");
        CONTEXT_IDENTITY: Should, "volume_context: The contents of this field SHOULD NOT be used for uniquely identifying a volume. The `volume_id` alone SHOULD be sufficient to identify the volume.", Untested("Kubernetes passes the volume_context with every call that has it.");
        CONTEXT_SAME: Must, "A volume uniquely identified by `volume_id` SHALL always report the same volume_context.", Why(STORED);
        VOLUME_TOPOLOGY: Must, "accessible_topology: A plugin that returns this field MUST also set the VOLUME_ACCESSIBILITY_CONSTRAINTS plugin capability.", Why("Kubernetes ignores the topology of a driver that does not declare it: pods are scheduled to nodes without access.");
        REQUISITE: Must, "If requisite is specified, the provisioned volume MUST be accessible from at least one of the requisite topologies.", Why(SCHEDULED);
        REACHABLE: Must, "The SP MUST ensure x >= 1", Why(SCHEDULED);
        REQUISITE_ALL: Must, "If x==n, then the SP MUST make the provisioned volume available to all topologies from the list of requisite topologies. If it is unable to do so, the SP MUST fail the CreateVolume call.", Why(SCHEDULED);
        REQUISITE_SOME: Must, "If x<n, then the SP SHALL choose x unique topologies from the list of requisite topologies. If it is unable to do so, the SP MUST fail the CreateVolume call.", Untested("It requires nodes in several topologies.");
        REQUISITE_MORE: Must, "If x>n, then the SP MUST make the provisioned volume available from all topologies from the list of requisite topologies and MAY choose the remaining x-n unique topologies from the list of all possible topologies. If it is unable to do so, the SP MUST fail the CreateVolume call.", Untested("It requires nodes in several topologies.");
        PREFERRED: Must, "An SP MUST attempt to make the provisioned volume available using the preferred topologies in order from first to last.", Untested("An attempt may fail, so no response violates it.");
        NOWHERE: Must, "If the list of requisite topologies is specified and the SP is unable to to make the provisioned volume available from any of the requisite topologies it MUST fail the CreateVolume call.", Why(SCHEDULED);
        KEY_NAME_GIVEN: Must, "The key name segment is REQUIRED.", Why(LABELS);
        KEY_NAME: Must, "The key name MUST be 63 characters or less, begin and end with an alphanumeric character ([a-z0-9A-Z]), and contain only dashes (-), underscores (_), dots (.), or alphanumerics in between, for example \"zone\".", Why(LABELS);
        KEY_PREFIX: Must, "The key prefix MUST be 63 characters or less, begin and end with a lower-case alphanumeric character ([a-z0-9]), contain only dashes (-), dots (.), or lower-case alphanumerics in between, and follow domain name notation format (https://tools.ietf.org/html/rfc1035#section-2.3.1).", Why(LABELS);
        KEY_COMPANY: Should, "The key prefix SHOULD include the plugin's host company name and/or the plugin name, to minimize the possibility of collisions with keys from other plugins.", Untested("A program does not recognize the name of a company.");
        KEY_ONE_PREFIX: Must, "If a key prefix is specified, it MUST be identical across all topology keys returned by the SP (across all RPCs).", Why("A prefix identifies the driver that owns a label.");
        KEY_CASE: Must, "Keys MUST be case-insensitive. Meaning the keys \"Zone\" and \"zone\" MUST not both exist.", Why("Callers that ignore case treat both keys as one.");
        VALUE_SOME: Must, "Each value (topological segment) MUST contain 1 or more strings.", Why(LABELS);
        VALUE_CHARACTERS: Must, "Each string MUST be 63 characters or less and begin and end with an alphanumeric character with '-', '_', '.', or alphanumerics in between.", Why(LABELS);
    }
    "CreateVolume Errors" {
        FAILS: Must, "If the plugin is unable to complete the CreateVolume call successfully, it MUST return a non-ok gRPC code in the gRPC status.", Why(UNCOMPLETED);
        CREATE_CODES: Must, "If the conditions defined below are encountered, the plugin MUST return the specified gRPC error code.", Why(FINAL);
        SOURCE_UNUSABLE: Must, "Source incompatible or not supported: 3 INVALID_ARGUMENT", Why("A driver that ignores the source returns an empty volume where a user expects a copy.");
        SOURCE_MESSAGE: Should, "More human-readable information SHOULD be provided in the gRPC `status.message` field if the problem is the source.", Untested("Which sources a driver does not support is its own decision.");
        SOURCE_GONE: Must, "Source does not exist: 5 NOT_FOUND", Why(GONE);
        EXISTS: Must, "Volume already exists but is incompatible: 6 ALREADY_EXISTS", Why("A claim that receives a volume of another size, kind or content uses it without notice.");
        NO_PLACE: Must, "Unable to provision in `accessible_topology`: 8 RESOURCE_EXHAUSTED", Why("With ResourceExhausted, external-provisioner lets the scheduler choose another node.");
        CREATE_RANGE: Must, "Unsupported `capacity_range`: 11 OUT_OF_RANGE", Why(SIZE);
    }
    "DeleteVolume" {
        DELETE: Must, "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_VOLUME` capability.", Why(CALLED);
        DELETE_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        DELETE_GONE: Must, "If a volume corresponding to the specified `volume_id` does not exist or the artifacts associated with the volume do not exist anymore, the Plugin MUST reply `0 OK`.", Why("A PersistentVolume stays until its deletion succeeds: if the response was lost, it stays forever.");
        SNAPSHOTS_APART: Should, "CSI plugins SHOULD treat volumes independent from their snapshots.", Why("Users delete a claim and keep its backups.");
        SNAPSHOTS_STAY: Must, "If the Controller Plugin supports deleting a volume without affecting its existing snapshots, then these snapshots MUST still be fully operational and acceptable as sources for new volumes as well as appear on `ListSnapshot` calls once the volume has been deleted.", Why("Users delete a claim and keep its backups.");
        DELETE_REFUSED: Must, "When a Controller Plugin does not support deleting a volume without affecting its existing snapshots, then the volume MUST NOT be altered in any way by the request and the operation must return the `FAILED_PRECONDITION` error code and MAY include meaningful human-readable information in the `status.message` field.", Why("Users delete a claim and keep its backups.");
    }
    "DeleteVolume Errors" {
        DELETE_IN_USE: Must, "Volume in use: 9 FAILED_PRECONDITION", Why("A running pod loses its data if its volume is deleted.");
        DELETE_MOUNTED: May, "Indicates that the volume corresponding to the specified `volume_id` could not be deleted because it is in use by another resource.", Why("A pod that was deleted by force may still run, and its claim is deleted meanwhile. A controller that does not attach volumes may be unable to know; one that does not delete what is mounted protects the pod's data.");
    }
    "ControllerPublishVolume" {
        ATTACH: Must, "A Controller Plugin MUST implement this RPC call if it has `PUBLISH_UNPUBLISH_VOLUME` controller capability.", Why(CALLED);
        ATTACH_WORK: Should, "The Plugin SHOULD perform the work that is necessary for making the volume available on the given node.", Why(USABLE);
        ATTACH_ANYWHERE: Must, "The Plugin MUST NOT assume that this RPC will be executed on the node where the volume will be used.", Why("The controller of a driver runs on any node.");
        ATTACH_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        ATTACH_SAME: Must, "If the volume corresponding to the `volume_id` has already been published at the node corresponding to the `node_id`, and is compatible with the specified `volume_capability` and `readonly` flag, the Plugin MUST reply `0 OK`.", Why(REPEATED);
        ATTACH_USABLE: Must, "SP MUST ensure the CO can use the published volume as described. Otherwise SP MUST return the appropriate gRPC error code.", Why(USABLE);
        ATTACH_READONLY: Must, "Indicates SP MUST publish the volume in readonly mode.", Why("Users protect a volume against writes.");
        PUBLISH_CONTEXT_FIXED: Must, "publish_context: The contents of this field SHALL NOT be mutable.", Why("external-attacher stores the publish_context once; the kubelet mounts by it.");
        PUBLISH_CONTEXT_CACHED: Must, "publish_context: The contents of this field SHALL be safe for the CO to cache.", Why("external-attacher stores the publish_context once; the kubelet mounts by it.");
        PUBLISH_CONTEXT_SECRET: Should, "publish_context: The contents of this field SHOULD NOT contain sensitive information.", Why("PersistentVolumes and VolumeAttachments contain the contexts, and more people can read them than the secret.");
    }
    "ControllerPublishVolume Errors" {
        ATTACH_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
        ATTACH_NO_NODE: Must, "Node does not exist: 5 NOT_FOUND", Why(GONE);
        ATTACH_OTHERWISE: Must, "Volume published but is incompatible: 6 ALREADY_EXISTS", Why("A volume that stays writable although it is attached read-only is not protected.");
        ATTACH_ELSEWHERE: Must, "Volume published to another node: 9 FAILED_PRECONDITION", Why("Two nodes that write to one file system destroy it.");
        ATTACH_NAMES_NODE: Should, "If this error code is returned, the Plugin SHOULD specify the `node_id` of the node at which the volume is published as part of the gRPC `status.message`.", Why("Users look for the node that holds the volume.");
        ATTACH_FULL: Must, "Max volumes attached: 8 RESOURCE_EXHAUSTED", Why("The limit of a node decides where pods are scheduled.");
    }
    "ControllerUnpublishVolume" {
        DETACH: Must, "Controller Plugin MUST implement this RPC call if it has `PUBLISH_UNPUBLISH_VOLUME` controller capability.", Why(CALLED);
        DETACH_WORK: Should, "The Plugin SHOULD perform the work that is necessary for making the volume ready to be consumed by a different node.", Why("A pod that moves to another node waits for its volume.");
        DETACH_ANYWHERE: Must, "The Plugin MUST NOT assume that this RPC will be executed on the node where the volume was previously used.", Why("The controller of a driver runs on any node.");
        DETACH_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        DETACH_DONE: Must, "If the volume corresponding to the `volume_id` is not attached to the node corresponding to the `node_id`, the Plugin MUST reply `0 OK`.", Why("A VolumeAttachment stays until its detachment succeeds, and keeps the volume from other nodes.");
        DETACH_UNKNOWN: Should, "If the volume corresponding to the `volume_id` or the node corresponding to `node_id` cannot be found by the Plugin and the volume can be safely regarded as ControllerUnpublished from the node, the plugin SHOULD return `0 OK`.", Why("A VolumeAttachment of a deleted volume or node stays forever otherwise.");
        DETACH_NODE: Must, "If the value is set, the SP MUST unpublish the volume from the specified node.", Why("A pod that moves to another node waits for its volume; a pod on another node keeps it.");
        DETACH_ALL: Must, "If the value is unset, the SP MUST unpublish the volume from all nodes it is published to.", Why("A volume that stays attached is not deleted.");
    }
    "ControllerUnpublishVolume Errors" {
        DETACH_GONE: Must, "Volume does not exist and volume not assumed ControllerUnpublished from node: 5 NOT_FOUND", Why(DETACHED);
        DETACH_NO_NODE: Must, "Node does not exist and volume not assumed ControllerUnpublished from node: 5 NOT_FOUND", Why(DETACHED);
    }
    "ValidateVolumeCapabilities" {
        VALIDATE: Must, "A Controller Plugin MUST implement this RPC call.", Why(CALLED);
        VALIDATE_ALL: Must, "This RPC call SHALL return `confirmed` only if all the volume capabilities specified in the request are supported (see caveat below).", Why("A capability that is confirmed wrongly shows up when a pod fails to start.");
        VALIDATE_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        CONFIRMED: Must, "volume_capabilities: This field is REQUIRED.", Why("Callers compare the confirmed capabilities with the requested ones.");
        CONFIRMED_ONLY: Must, "This field SHALL only be set to a non-empty value for successful validation responses.", Why("A capability that is confirmed wrongly shows up when a pod fails to start.");
    }
    "ValidateVolumeCapabilities Errors" {
        VALIDATE_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
    }
    "ListVolumes" {
        LIST: Must, "A Controller Plugin MUST implement this RPC call if it has `LIST_VOLUMES` capability.", Why(CALLED);
        LIST_ALL: Must, "The Plugin SHALL return the information about all the volumes that it knows about.", Why(LISTED);
        LIST_CHANGES: May, "If volumes are created and/or deleted while the CO is concurrently paging through `ListVolumes` results then it is possible that the CO MAY either witness duplicate volumes in the list, not witness existing volumes, or both.", Why("A caller of a busy installation repairs or cleans up what a list shows wrongly. csi-sanity requires that pages stay consistent.");
        LIST_MAX: Must, "If specified (non-zero value), the Plugin MUST NOT return more entries than this number in the response.", Why(HELD);
        LIST_NEXT: Must, "If the actual number of entries is more than this number, the Plugin MUST set `next_token` in the response which can be used to get the next page of entries in the subsequent `ListVolumes` call.", Why(PAGED);
        LIST_CONDITION: Must, "volume_condition: This field MUST be specified if the VOLUME_CONDITION controller capability is supported.", Why("external-health-monitor reports the condition to users.");
        LIST_VOLUME: Must, "volume: This field is REQUIRED.", Why(LISTED);
        LIST_NODES: Must, "status: This field MUST be specified if the LIST_VOLUMES_PUBLISHED_NODES controller capability is supported.", Why("external-attacher compares the nodes with its VolumeAttachments: it attaches again what seems detached.");
    }
    "ListVolumes Errors" {
        LIST_TOKEN: Must, "Invalid `starting_token`: 10 ABORTED", Why("With Aborted, a caller starts the list again; if the token is ignored, it reads the first page forever.");
    }
    "ControllerGetVolume" {
        GET: Must, "A Controller Plugin MUST implement this `ControllerGetVolume` RPC call if it has `GET_VOLUME` capability.", Why(CALLED);
        GET_CONDITION: Must, "A Controller Plugin MUST provide a non-empty `volume_condition` field in `ControllerGetVolumeResponse` if it has `VOLUME_CONDITION` capability.", Why("external-health-monitor reports the condition to users.");
        GET_CURRENT: Should, "`ControllerGetVolumeResponse` should contain current information of a volume if it exists.", Why("Outdated information misleads those who look for the cause of a problem.");
        GET_NODES: Must, "published_node_ids: This field MUST be specified if the LIST_VOLUMES_PUBLISHED_NODES controller capability is supported.", Why("Callers compare the nodes with their VolumeAttachments.");
        GET_VOLUME: Must, "volume: This field is REQUIRED", Why(FIELD);
        GET_STATUS: Must, "status: This field is REQUIRED.", Why(FIELD);
    }
    "ControllerGetVolume Errors" {
        GET_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
    }
    "ControllerModifyVolume" {
        MODIFY: Must, "A Controller plugin MUST implement this RPC call if the plugin has the MODIFY_VOLUME controller capability.", Why(CALLED);
        MODIFY_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        MODIFY_KEYS: Must, "SPs MUST NOT modify volumes based on the absence of keys, only keys that are specified should result in modifications to the volume.", Untested(PARAMETERS);
    }
    "ControllerModifyVolume Errors" {
        MODIFY_BAD: Must, "Parameters not supported: 3 INVALID_ARGUMENT", Why("A class with a mistake is reported as applied, and has no effect.");
        MODIFY_UNTOUCHED: Must, "The SP MUST NOT have applied any modification to the volume as part of this specific call.", Why("Kubernetes reports the old class for a volume after a failed modification.");
        MODIFY_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
    }
    "GetCapacity" {
        CAPACITY: Must, "A Controller Plugin MUST implement this RPC call if it has `GET_CAPACITY` controller capability.", Why(CALLED);
        CAPACITY_ACCESS: Must, "If specified, the Plugin SHALL report the capacity of the storage that can be used to provision volumes that satisfy ALL of the specified `volume_capabilities`.", Why(CAPACITIES);
        CAPACITY_PARAMETERS: Must, "If specified, the Plugin SHALL report the capacity of the storage that can be used to provision volumes with the given Plugin specific `parameters`.", Why(CAPACITIES);
        CAPACITY_TOPOLOGY: Must, "If specified, the Plugin SHALL report the capacity of the storage that can be used to provision volumes that in the specified `accessible_topology`.", Why(CAPACITIES);
        CAPACITY_AVAILABLE: Must, "If `volume_capabilities` or `parameters` is specified in the request, the Plugin SHALL take those into consideration when calculating the available capacity of the storage.", Why(CAPACITIES);
        AVAILABLE: Must, "available_capacity: This field is REQUIRED.", Untested(DEFAULTED);
        AVAILABLE_SIGN: Must, "available_capacity: The value of this field MUST NOT be negative.", Why(CAPACITIES);
        SMALLEST_FOR: Must, "If `volume_capabilities` or `parameters` is specified in the request, the Plugin SHALL take those into consideration when calculating the minimum volume size of the storage.", Untested(EXTREMES);
        LARGEST_SIGN: Must, "maximum_volume_size: This field is OPTIONAL. MUST NOT be negative.", Why(CAPACITIES);
        LARGEST_GIVEN: Should, "The Plugin SHOULD provide a value for this field if it has a maximum size for individual volumes and leave it unset otherwise.", Untested(EXTREMES);
        LARGEST_FOR: Must, "If `volume_capabilities` or `parameters` is specified in the request, the Plugin SHALL take those into consideration when calculating the maximum volume size of the storage.", Untested(EXTREMES);
        SMALLEST_SIGN: Must, "minimum_volume_size: This field is OPTIONAL. MUST NOT be negative.", Why(CAPACITIES);
        SMALLEST_GIVEN: Should, "The Plugin SHOULD provide a value for this field if it has a minimum size for individual volumes and leave it unset otherwise.", Untested(EXTREMES);
    }
    "ControllerGetCapabilities" {
        CONTROLLER_CAPABILITIES: Must, "A Controller Plugin MUST implement this RPC call.", Why(CALLED);
        SNAPSHOTS_RESTORE: Must, "Therefore plugins supporting CREATE_DELETE_SNAPSHOT MUST support creating volume from snapshot.", Why(COPY);
        NODES_NEED_ATTACH: Must, "The SP MUST also support PUBLISH_UNPUBLISH_VOLUME.", Why("external-attacher compares the published nodes with its VolumeAttachments, of which a driver without attachment has none.");
        CONDITIONS_DIFFER: Must, "If `VolumeCondition` is implemented in both the Controller and Node Plugins, it SHALL report from different perspectives.", Untested(FAULT);
        WRITER: Must, "Plugins MUST accept and allow use of the SINGLE_NODE_WRITER access mode when either SINGLE_NODE_SINGLE_WRITER and/or SINGLE_NODE_MULTI_WRITER are supported, in order to permit older COs to continue working.", Why("Older sidecars request ReadWriteOnce volumes with SINGLE_NODE_WRITER.");
    }
    "CreateSnapshot" {
        SNAPSHOT: Must, "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_SNAPSHOT` controller capability.", Why(CALLED);
        SNAPSHOT_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        SNAPSHOT_SAME: Must, "If a snapshot corresponding to the specified snapshot `name` is successfully cut and ready to use (meaning it MAY be specified as a `volume_content_source` in a `CreateVolumeRequest`), the Plugin MUST reply `0 OK` with the corresponding `CreateSnapshotResponse`.", Why(REPEATED);
        SNAPSHOT_ERROR: Should, "If an error occurs before a snapshot is cut, `CreateSnapshot` SHOULD return a corresponding gRPC error code that reflects the error condition.", Why(FINAL);
        SNAPSHOT_UPLOADS: Should, "For plugins that supports snapshot post processing such as uploading, `CreateSnapshot` SHOULD return `0 OK` and `ready_to_use` SHOULD be set to `false` after the snapshot is cut but still being processed.", Untested(UPLOADING);
        SNAPSHOT_LATE_ERROR: Should, "If an error occurs during the process, `CreateSnapshot` SHOULD return a corresponding gRPC error code that reflects the error condition.", Untested(FAULT);
    }
    "The ready_to_use Parameter" {
        READY: Kubernetes, "The `ready_to_use` parameter of the snapshot will become `true` after the process is complete.", Why("A VolumeSnapshot that never becomes ready cannot be restored.");
        READY_AT_ONCE: Should, "For SPs that do not do additional processing after cut, the `ready_to_use` parameter SHOULD be `true` after the snapshot is cut.", Untested(UPLOADING);
        READY_LATER: Must, "If the cloud provider or storage system needs to process the snapshot after the snapshot is cut, the `ready_to_use` parameter returned by CreateSnapshot SHALL be `false`.", Untested(UPLOADING);
        SNAPSHOT_FAILS: Must, "A gRPC error code SHALL be returned if an error occurs during any stage of the snapshotting process.", Untested(FAULT);
        CUT: Must, "Note that CreateSnapshot is a synchronous call and it MUST block until the snapshot is cut.", Why(MOMENT);
        SNAPSHOTTED: Must, "snapshot: This field is REQUIRED.", Why(FIELD);
        SNAPSHOT_SIZE: Must, "The size of the volume MUST NOT be less than the size of the source snapshot.", Why("A volume that is smaller than its snapshot lacks the end of the data.");
        SNAPSHOT_SIGN: Must, "size_bytes: The value of this field MUST NOT be negative and a size of zero means it is unspecified.", Why(FIELD);
        SNAPSHOT_ID: Must, "snapshot_id: This field is REQUIRED.", Why(FIELD);
        SNAPSHOT_UNIQUE: Must, "snapshot_id: This field MUST contain enough information to uniquely identify this specific snapshot vs all other snapshots supported by this plugin.", Why(IDENTITY_OF);
        SNAPSHOT_SOURCE: Must, "source_volume_id: This field is REQUIRED.", Why(FIELD);
        SNAPSHOT_TIME: Must, "creation_time: This field is REQUIRED.", Why("Users choose a backup by its time.");
        SNAPSHOT_READY: Must, "ready_to_use: This field is REQUIRED.", Why("A VolumeSnapshot that never becomes ready cannot be restored.");
        MEMBER: Must, "If this snapshot is a member of a volume group snapshot, and it MUST NOT be deleted as a stand alone snapshot, then the SP MUST provide the ID of the volume group snapshot in this field.", Why("external-snapshotter deletes a snapshot alone unless it names its group.");
        ALONE: Must, "If not provided, CO SHALL treat the snapshot as independent, and SP SHALL allow it to be deleted separately.", Why("A VolumeSnapshot that cannot be deleted stays forever.");
        MEMBER_GROUP: Must, "If this message is inside a VolumeGroupSnapshot message, the value MUST be the same as the group_snapshot_id in that message.", Why("external-snapshotter finds the members of a group by this field.");
    }
    "CreateSnapshot Errors" {
        SNAPSHOT_UNCOMPLETED: Must, "If the plugin is unable to complete the CreateSnapshot call successfully, it MUST return a non-ok gRPC code in the gRPC status.", Why(UNCOMPLETED);
        SNAPSHOT_EXISTS: Must, "Snapshot already exists but is incompatible: 6 ALREADY_EXISTS", Why("A backup of the wrong volume is noticed when it is restored.");
        SNAPSHOT_FULL: Must, "Not enough space to create snapshot: 13 RESOURCE_EXHAUSTED", Untested(FAULT);
    }
    "DeleteSnapshot" {
        DROP: Must, "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_SNAPSHOT` capability.", Why(CALLED);
        DROP_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        DROP_GONE: Must, "If a snapshot corresponding to the specified `snapshot_id` does not exist or the artifacts associated with the snapshot do not exist anymore, the Plugin MUST reply `0 OK`.", Why("A VolumeSnapshotContent stays until its deletion succeeds: if the response was lost, it stays forever.");
        DROP_GROUP: Must, "For such snapshots SP MUST delete the entire snapshot group via a DeleteVolumeGroupSnapshotRequest call.", Why("Snapshots that remain are paid for, and no object refers to them.");
    }
    "DeleteSnapshot Errors" {
        DROP_MEMBER: Must, "Snapshot is part of a group: 3 INVALID_ARGUMENT", Why("A group without one of its snapshots is no consistent backup.");
        DROP_IN_USE: Must, "Snapshot in use: 9 FAILED_PRECONDITION", Why("The deletion of a snapshot must not destroy the volumes that were restored from it.");
    }
    "ListSnapshots" {
        SNAPSHOTS: Must, "A Controller Plugin MUST implement this RPC call if it has `LIST_SNAPSHOTS` capability.", Why(CALLED);
        SNAPSHOTS_ALL: Must, "The Plugin SHALL return the information about all snapshots on the storage system within the given parameters regardless of how they were created.", Why(LISTED);
        SNAPSHOTS_CUT: Must, "`ListSnapshots` SHALL NOT list a snapshot that is being created but has not been cut successfully yet.", Untested("No response shows when a snapshot is cut.");
        SNAPSHOTS_MAX: Must, "If specified (non-zero value), the Plugin MUST NOT return more entries than this number in the response.", Why(HELD);
        SNAPSHOTS_NEXT: Must, "If the actual number of entries is more than this number, the Plugin MUST set `next_token` in the response which can be used to get the next page of entries in the subsequent `ListSnapshots` call.", Why(PAGED);
    }
    "ListSnapshots Errors" {
        SNAPSHOTS_TOKEN: Must, "Invalid `starting_token`: 10 ABORTED", Why("With Aborted, a caller starts the list again; if the token is ignored, it reads the first page forever.");
    }
    "GetSnapshot" {
        FETCH: Must, "A Controller Plugin MUST implement this `GetSnapshot` RPC call if it has `GET_SNAPSHOT` capability.", Why(CALLED);
        FETCH_MEMBERS: Should, "An SP that supports Group Controller Service and the CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT capability SHOULD implement the `GetSnapshot` RPC in order to retrieve information for individual snapshots that are part of a group snapshot.", Why("external-snapshotter looks up the members of a group one by one.");
        FETCH_CURRENT: Should, "`GetSnapshotResponse` should contain current information of a snapshot if it exists.", Why("Outdated information misleads those who look for the cause of a problem.");
        FETCHED: Must, "snapshot: This field is REQUIRED", Why(FIELD);
    }
    "GetSnapshot Errors" {
        FETCH_GONE: Must, "Snapshot does not exist: 5 NOT_FOUND", Why(GONE);
    }
    "ControllerExpandVolume" {
        EXPAND: Must, "A Controller plugin MUST implement this RPC call if plugin has `EXPAND_VOLUME` controller capability.", Why(CALLED);
        EXPAND_KEEPS: Kubernetes, "This RPC allows the CO to expand the size of a volume.", Why("An expansion that shrinks a volume, or loses data, destroys what users meant to extend.");
        EXPAND_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        EXPAND_LARGER: Should, "If a volume corresponding to the specified volume ID is already larger than or equal to the target capacity of the expansion request, the plugin SHOULD reply 0 OK.", Why("A volume that an administrator has expanded already is reported as failing to expand.");
        EXPANDED: Must, "capacity_bytes: This field is REQUIRED.", Why("Kubernetes reports the capacity to users.");
        EXPANDED_NODE: Must, "node_expansion_required: This field is REQUIRED.", Why("The file system is expanded on the node only if the controller requires it.");
    }
    "ControllerExpandVolume Errors" {
        EXPAND_ACCESS: Must, "Exceeds capabilities: 3 INVALID_ARGUMENT", Untested("Which capabilities a volume does not support is its driver's decision.");
        EXPAND_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
        EXPAND_IN_USE: Must, "Volume in use: 9 FAILED_PRECONDITION", Why("external-resizer retries an expansion of a volume in use once no pod uses it.");
        EXPAND_RANGE: Must, "Unsupported `capacity_range`: 11 OUT_OF_RANGE", Why(SIZE);
    }
    "CreateSnapshot, DeleteSnapshot, ListSnapshots" {
        SNAPSHOT_RETURNS: Should, "A `CreateSnapshot` operation SHOULD return with a `snapshot_id` when the snapshot is cut successfully.", Why(FIELD);
        SNAPSHOTS_CURRENT: Must, "ListSnapshots SHALL return with current information regarding the snapshots on the storage system.", Why(LISTED);
        SNAPSHOTS_READY: Must, "When processing is complete, the `ready_to_use` parameter of the snapshot from ListSnapshots SHALL become `true`.", Why("external-snapshotter reads from the list whether a pre-provisioned snapshot is ready.");
    }
    "NodeStageVolume" {
        STAGE: Must, "A Node Plugin MUST implement this RPC call if it has `STAGE_UNSTAGE_VOLUME` node capability.", Why(CALLED);
        STAGE_HERE: Must, "The Plugin SHALL assume that this RPC will be executed on the node where the volume will be used.", Untested(EVERYWHERE);
        STAGE_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        STAGE_SAME: Must, "If the volume corresponding to the `volume_id` is already staged to the `staging_target_path`, and is identical to the specified `volume_capability` the Plugin MUST reply `0 OK`.", Why(REPEATED);
        STAGE_PLACE: May, "The path to which the volume MAY be staged.", Why("The directory belongs to the caller, and a driver may leave it unused.");
        STAGE_PATH: Must, "SP SHOULD support the maximum path length allowed by the operating system/filesystem, but, at a minimum, SP MUST accept a max path length of at least 128 bytes.", Why("Paths of the kubelet contain the UID of the pod, the name of the driver and a hash: they are longer than 128 bytes.");
        STAGE_USABLE: Must, "SP MUST ensure the CO can use the staged volume as described. Otherwise SP MUST return the appropriate gRPC error code.", Why(USABLE);
    }
    "NodeStageVolume Errors" {
        STAGE_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
        STAGE_OTHERWISE: Must, "Volume published but is incompatible: 6 ALREADY_EXISTS", Why("A volume that is mounted in a form other than the requested one is not what the pod expects.");
        STAGE_ACCESS: Must, "Exceeds capabilities: 9 FAILED_PRECONDITION", Why("A volume that does not support the requested access must not be mounted.");
    }
    "NodeUnstageVolume" {
        UNSTAGE: Must, "A Node Plugin MUST implement this RPC call if it has `STAGE_UNSTAGE_VOLUME` node capability.", Why(CALLED);
        UNSTAGE_UNDOES: Must, "This RPC MUST undo the work by the corresponding `NodeStageVolume`.", Why(LEFT);
        UNSTAGE_HERE: Must, "The Plugin SHALL assume that this RPC will be executed on the node where the volume is being used.", Untested(EVERYWHERE);
        UNSTAGE_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        UNSTAGE_DONE: Must, "If the volume corresponding to the `volume_id` is not staged to the `staging_target_path`, the Plugin MUST reply `0 OK`.", Why("A pod stays Terminating until its volumes are unstaged.");
    }
    "NodeUnstageVolume Errors" {
        UNSTAGE_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(UNDONE);
    }
    "NodePublishVolume" {
        PUBLISH_HERE: Must, "The Plugin SHALL assume that this RPC will be executed on the node where the volume will be used.", Untested(EVERYWHERE);
        PUBLISH_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        PUBLISH_SAME: Must, "If the volume corresponding to the `volume_id` has already been published at the specified `target_path`, and is compatible with the specified `volume_capability` and `readonly` flag, the Plugin MUST reply `0 OK`.", Why(REPEATED);
        PUBLISH_CHANGED: Should, "If this happens, the Plugin SHOULD return `FAILED_PRECONDITION`.", Untested("The tables that follow it, and the errors, require ALREADY_EXISTS at the same target.");
        PUBLISH_AGAIN: Should, "The following table shows what the Plugin SHOULD return when receiving a second `NodePublishVolume` on the same volume on the same node:", Untested("Kubernetes publishes a SINGLE_NODE_WRITER volume for several pods of a node, which the table forbids.");
        PUBLISH_TABLE: Should, "If the Plugin supports the `SINGLE_NODE_MULTI_WRITER` capability, use the following table instead for what the Plugin SHOULD return when receiving a second `NodePublishVolume` on the same volume on the same node:", Why("A ReadWriteOncePod volume has one pod at a time. The scheduler and the kubelet enforce it, too; the driver is the last that can.");
        PUBLISH_WRITER: Must, "Plugins MUST accept and allow use of the `SINGLE_NODE_WRITER` access mode (subject to the processing rules above), when either `SINGLE_NODE_SINGLE_WRITER` and/or `SINGLE_NODE_MULTI_WRITER` are supported, in order to permit older COs to continue working.", Why("Older kubelets publish ReadWriteOnce volumes with SINGLE_NODE_WRITER.");
        PUBLISH_DEVICE: Must, "For volumes with an access type of block, the SP SHALL place the block device at target_path.", Why(USABLE);
        PUBLISH_DIRECTORY: Must, "For volumes with an access type of mount, the SP SHALL place the mounted directory at target_path.", Why("Without the mount, a pod writes to the disk of its node: the data is lost with the pod.");
        PUBLISH_USABLE: Must, "SP MUST ensure the CO can use the published volume as described. Otherwise SP MUST return the appropriate gRPC error code.", Why(USABLE);
        PUBLISH_READONLY: Must, "Indicates SP MUST publish the volume in readonly mode.", Why("Users protect a volume against writes.");
    }
    "NodePublishVolume Errors" {
        PUBLISH_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
        PUBLISH_OTHERWISE: Must, "Volume published but is incompatible: 6 ALREADY_EXISTS", Why("A volume that stays writable although it is published read-only is not protected.");
        PUBLISH_ACCESS: Must, "Exceeds capabilities: 9 FAILED_PRECONDITION", Why("A volume that does not support the requested access must not be mounted.");
        PUBLISH_UNSTAGED: Must, "Staging target path not set: 9 FAILED_PRECONDITION", Why("A volume that is not staged has no content to show: a pod would write to the disk of its node.");
    }
    "NodeUnpublishVolume" {
        UNPUBLISH: Must, "A Node Plugin MUST implement this RPC call.", Why(CALLED);
        UNPUBLISH_UNDOES: Must, "This RPC MUST undo the work by the corresponding `NodePublishVolume`.", Why(LEFT);
        UNPUBLISH_HERE: Must, "The Plugin SHALL assume that this RPC will be executed on the node where the volume is being used.", Untested(EVERYWHERE);
        UNPUBLISH_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        UNPUBLISH_REMOVES: Must, "The SP MUST delete the file or directory it created at this path.", Why("A pod stays Terminating until its directories can be removed.");
    }
    "NodeUnpublishVolume Errors" {
        UNPUBLISH_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(UNDONE);
    }
    "NodeGetVolumeStats" {
        STATS: Must, "A Node plugin MUST implement this RPC call if it has GET_VOLUME_STATS node capability or VOLUME_CONDITION node capability.", Why(CALLED);
        STATS_TRUE: Kubernetes, "`NodeGetVolumeStats` RPC call returns the volume capacity statistics available for the volume.", Why(STATISTICS);
        STATS_CONDITION: Must, "volume_condition: This field MUST be specified if the VOLUME_CONDITION node capability is supported.", Why("The kubelet reports the condition to users.");
        STATS_SIGN: Must, "available, total and used: The value of this field MUST NOT be negative.", Why(STATISTICS);
        STATS_TOTAL: Must, "total: This field is REQUIRED.", Why(STATISTICS);
        STATS_UNIT: Must, "unit: This field is REQUIRED.", Why(STATISTICS);
        CONDITION_STATE: Must, "abnormal: This field is REQUIRED.", Untested(DEFAULTED);
        CONDITION_MESSAGE: Must, "message: This field is REQUIRED.", Why("Users see the message, and act on it.");
    }
    "NodeGetVolumeStats Errors" {
        STATS_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why("The kubelet would report the statistics of another volume, or of the node's disk.");
    }
    "NodeGetCapabilities" {
        NODE_CAPABILITIES: Must, "A Node Plugin MUST implement this RPC call.", Why(CALLED);
        STATS_DECLARED: Must, "If Plugin implements GET_VOLUME_STATS capability then it MUST implement NodeGetVolumeStats RPC call for fetching volume statistics.", Why(CALLED);
        NODE_WRITER: Must, "Plugins MUST accept and allow use of the SINGLE_NODE_WRITER access mode (subject to the processing rules for NodePublishVolume), when either SINGLE_NODE_SINGLE_WRITER and/or SINGLE_NODE_MULTI_WRITER are supported, in order to permit older COs to continue working.", Why("Older kubelets publish ReadWriteOnce volumes with SINGLE_NODE_WRITER.");
    }
    "NodeGetInfo" {
        INFO: Must, "A Node Plugin MUST implement this RPC call if the plugin has `PUBLISH_UNPUBLISH_VOLUME` controller capability.", Why("The kubelet registers a driver with the response.");
        INFO_USED: Kubernetes, "The result will be used by CO in `ControllerPublishVolume`.", Why("The kubelet registers a driver with the response, also one that does not attach volumes.");
        INFO_HERE: Must, "The Plugin SHALL assume that this RPC will be executed on the node where the volume will be used.", Untested(EVERYWHERE);
        INFO_ONCE: Must, "The SP SHALL NOT expect the CO to call this RPC more than once.", Untested(HIDDEN);
        NODE_ID: Must, "node_id: This field is REQUIRED.", Why("Volumes are attached to a node by its node_id.");
        NODE_UNIQUE: Must, "node_id: This field MUST contain enough information to uniquely identify this specific node vs all other nodes supported by this plugin.", Why("Volumes are attached to a node by its node_id.");
        NODE_ID_SIZE: Must, "The size of this field SHALL NOT exceed 256 bytes.", Why(LIMIT);
        NODE_ID_SHORT: Should, "The general CSI size limit, 128 byte, is RECOMMENDED for best backwards compatibility.", Why(LIMIT);
        NODE_LIMIT: Must, "The plugin MUST NOT set negative values here.", Why("The scheduler counts volumes against the limit.");
        NODE_TOPOLOGY: Must, "accessible_topology: A plugin that returns this field MUST also set the VOLUME_ACCESSIBILITY_CONSTRAINTS plugin capability.", Why("Kubernetes ignores the topology of a driver that does not declare it: pods are scheduled to nodes without access.");
        NODE_ANYWHERE: May, "This field is OPTIONAL. If it is not specified, the CO MAY assume the node is not subject to any topological constraint, and MAY schedule workloads that reference any volume V, such that there are no topological constraints declared for V.", Why("A node without a topology receives no volume that has one.");
    }
    "NodeExpandVolume" {
        NODE_EXPAND: Must, "A Node Plugin MUST implement this RPC call if it has `EXPAND_VOLUME` node capability.", Why(CALLED);
        NODE_EXPAND_KEEPS: Kubernetes, "This RPC call allows CO to expand volume on a node.", Why("An expansion that loses data destroys what users meant to extend.");
        NODE_EXPAND_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        NODE_EXPAND_LARGER: Should, "If a volume corresponding to the specified volume ID is already larger than or equal to the target capacity of the expansion request, the plugin SHOULD reply 0 OK.", Why("The kubelet calls it for volumes that were expanded already; the claim keeps the condition FileSystemResizePending.");
    }
    "NodeExpandVolume Errors" {
        NODE_EXPAND_ACCESS: Must, "Exceeds capabilities: 3 INVALID_ARGUMENT", Untested("Which capabilities a volume does not support is its driver's decision.");
        NODE_EXPAND_GONE: Must, "Volume does not exist: 5 NOT_FOUND", Why(GONE);
        NODE_EXPAND_IN_USE: Must, "Volume in use: 9 FAILED_PRECONDITION", Untested("Which file systems cannot be expanded in use is their own property.");
        NODE_EXPAND_RANGE: Must, "Unsupported capacity_range: 11 OUT_OF_RANGE", Untested("Which sizes a node does not support is its driver's decision.");
    }
    "GroupControllerGetCapabilities" {
        GROUP_CAPABILITIES: Must, "A Plugin that implements GroupController MUST implement this RPC call.", Why(CALLED);
    }
    "CreateVolumeGroupSnapshot" {
        GROUPS: Must, "A Group Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT` controller capability.", Why(CALLED);
        GROUP_CONSISTENT: Must, "This group snapshot MUST give a write-order consistency guarantee or fail if that's not possible.", Why("A database on several volumes cannot be restored from snapshots of different points in time.");
        GROUP_MOMENT: Must, "That is to say, all the of the volume snapshots in the group MUST be taken at the same point-in-time relative to a stream of write traffic to the specified volumes.", Why("A database on several volumes cannot be restored from snapshots of different points in time.");
        GROUP_TWICE: Must, "Note that calls to this function MUST be idempotent - the function may be called multiple times for the same name, with the same `source_volume_ids` and `parameters` - the group snapshot MUST only be created once.", Why(REPEATED);
        GROUP_SAME: Must, "If a group snapshot corresponding to the specified group snapshot `name`, `source_volume_ids`, and `parameters` is successfully created (meaning all snapshots associated with the group are successfully cut), the Plugin MUST reply `0 OK` with the corresponding `CreateVolumeGroupSnapshotResponse`.", Why(REPEATED);
        GROUP_ERROR: Should, "If an error occurs before a group snapshot is cut, `CreateVolumeGroupSnapshot` SHOULD return a corresponding gRPC error code that reflects the error condition.", Why(FINAL);
        GROUP_UPLOADS: Should, "For plugins that support snapshot post processing such as uploading, CreateVolumeGroupSnapshot SHOULD return 0 OK and the ready_to_use field SHOULD be set to false after the group snapshot is cut but still being processed.", Untested(UPLOADING);
        GROUP_LATE_ERROR: Should, "If an error occurs during the process for any individual snapshot, CreateVolumeGroupSnapshot SHOULD return a corresponding gRPC error code that reflects the error condition.", Untested(FAULT);
        GROUP_MEMBERS_LATER: Should, "The ready_to_use field for each individual snapshot SHOULD have a value of false until the snapshot has been \"processed\" and is ready to use to create new volumes.", Untested(UPLOADING);
        GROUP_LEAKS: Should, "If an error occurs before all the individual snapshots are cut when creating a group snapshot of multiple volumes and a group_snapshot_id is not yet available for CO to do clean up, SP MUST return an error, and SP SHOULD also do clean up and make sure no snapshots are leaked.", Why("Snapshots that remain are paid for, and no object refers to them.");
        GROUPED: Must, "group_snapshot: This field is REQUIRED.", Why(FIELD);
        GROUP_UNIQUE: Must, "group_snapshot_id: This field MUST contain enough information to uniquely identify this specific snapshot vs all other group snapshots supported by this plugin.", Why(IDENTITY_OF);
        GROUP_ID: Must, "group_snapshot_id: This field is REQUIRED.", Why(FIELD);
        GROUP_MEMBERS: Must, "snapshots: This field is REQUIRED.", Why("A group without one of its snapshots is no consistent backup.");
        GROUP_TIME: Must, "creation_time: This field is REQUIRED.", Why("Users choose a backup by its time.");
        GROUP_STATE: Must, "ready_to_use: This field is REQUIRED.", Untested(DEFAULTED);
        GROUP_NOT_READY: Must, "If any snapshot in the list of snapshots in this message have ready_to_use set to false, the SP MUST set this field to false.", Why("A group that is restored before all of its snapshots are ready is incomplete.");
        GROUP_READY: Should, "If all of the snapshots in the list of snapshots in this message have ready_to_use set to true, the SP SHOULD set this field to true.", Why("A group that never becomes ready cannot be restored.");
    }
    "CreateVolumeGroupSnapshot Errors" {
        GROUP_UNCOMPLETED: Must, "If the plugin is unable to complete the CreateVolumeGroupSnapshot call successfully, it MUST return a non-ok gRPC code in the gRPC status.", Why(UNCOMPLETED);
        GROUP_EXISTS: Must, "Group snapshot already exists but is incompatible: 6 ALREADY_EXISTS", Why("A backup of the wrong volumes is noticed when it is restored.");
        GROUP_IMPOSSIBLE: Must, "Cannot snapshot multiple volumes together: 9 FAILED_PRECONDITION", Untested("Which volumes cannot be snapshotted together is their driver's decision.");
        GROUP_FULL: Must, "Not enough space to create group snapshot: 13 RESOURCE_EXHAUSTED", Untested(FAULT);
    }
    "DeleteVolumeGroupSnapshot" {
        UNGROUP: Must, "A Controller Plugin MUST implement this RPC call if it has `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT` capability.", Why(CALLED);
        UNGROUP_TWICE: Must, "This operation MUST be idempotent.", Why(REPEATED);
        UNGROUP_GONE: Must, "If a group snapshot corresponding to the specified `group_snapshot_id` does not exist or the artifacts associated with the group snapshot do not exist anymore, the Plugin MUST reply `0 OK`.", Why("A VolumeGroupSnapshotContent stays until its deletion succeeds: if the response was lost, it stays forever.");
        UNGROUP_CHECKS: Should, "If SP does not need to rely on this field to delete the snapshots in the group, it SHOULD check this field and report an error if it has the ability to detect a mismatch.", Why("A mismatch shows that caller and driver differ about what is deleted.");
        UNGROUP_NEEDS: Must, "If SP needs to use this field to delete the snapshots in the group, it MUST report an error if it has the ability to detect a mismatch.", Untested("No response shows whether a driver needs the field.");
    }
    "DeleteVolumeGroupSnapshot Errors" {
        UNGROUP_MISMATCH: Should, "Besides the general cases, this code SHOULD also be used to indicate when plugin supporting CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT detects a mismatch in the `snapshot_ids`.", Why("A mismatch shows that caller and driver differ about what is deleted.");
        UNGROUP_IN_USE: Must, "Volume group snapshot in use: 9 FAILED_PRECONDITION", Untested(FAULT);
    }
    "GetVolumeGroupSnapshot" {
        FETCH_GROUP: Must, "A Controller Plugin MUST implement this `GetVolumeGroupSnapshot` RPC call if it has `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT` capability.", Why(CALLED);
        FETCH_GROUP_CURRENT: Should, "`GetVolumeGroupSnapshotResponse` should contain current information of a volume group snapshot if it exists.", Why("Outdated information misleads those who look for the cause of a problem.");
        FETCH_GROUP_CHECKS: Should, "If SP does not need to rely on this field to get the snapshots in the group, it SHOULD check this field and report an error if it has the ability to detect a mismatch.", Why("A mismatch shows that caller and driver differ about the group.");
        FETCH_GROUP_NEEDS: Must, "If SP needs to use this field to get the snapshots in the group, it MUST report an error if it has the ability to detect a mismatch.", Untested("No response shows whether a driver needs the field.");
        FETCHED_GROUP: Must, "group_snapshot: This field is REQUIRED", Why(FIELD);
    }
    "GetVolumeGroupSnapshot Errors" {
        FETCH_GROUP_GONE: Must, "Volume group snapshot does not exist: 5 NOT_FOUND", Why(GONE);
        FETCH_GROUP_MISMATCH: Should, "Besides the general cases, this code SHOULD also be used to indicate when plugin supporting CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT detects a mismatch in the `snapshot_ids`.", Why("A mismatch shows that caller and driver differ about the group.");
    }
    "Metadata Format" {
        BLOCK_OFFSET: Must, "byte_offset: This field is REQUIRED.", Untested(DEFAULTED);
        BLOCK_SIZE: Must, "size_bytes MUST be greater than zero.", Why(BACKUP);
    }
    "Special considerations for processing a snapshot metadata gRPC stream" {
        BLOCKS_ALL: Must, "In normal operation an SP MUST terminate the stream only after ALL metadata is transmitted, using the language specific idiom for terminating a gRPC stream source.", Why(BACKUP);
        BLOCKS_ERROR: Must, "If the SP encounters an error while recovering the metadata it MUST abort transmission of the stream with its language specific error idiom.", Untested(FAULT);
        BLOCKS_BROKEN: Must, "The SP will get an error when writing to the stream and MUST abort its transmission.", Untested(HIDDEN);
        BLOCKS_FROM: Must, "The SP MUST always ensure that the `starting_offset` requested be considered in the computation of the data range for the first message in the returned gRPC stream, though the data range of the first message is not required to actually include the `starting_offset` if there is no applicable data between the `starting_offset` and the start of the data range returned by the first message.", Why("A backup that was interrupted continues at the offset: a block that is skipped is missing.");
    }
    "GetMetadataAllocated" {
        ALLOCATED: Must, "The plugin must implement this RPC if it provides the SnapshotMetadata service.", Why(CALLED);
        ALLOCATED_FROM: Must, "The SP MUST ensure that the returned response stream does not contain BlockMetadata tuples that end before the requested starting_offset: i.e. if S is the requested starting_offset, and B0 is block_metadata[0] of the first message in the response stream, then (S < B0.byte_offset + B0.size_bytes) must be true.", Why("A backup that was interrupted continues at the offset: blocks before it are copied again.");
        ALLOCATED_ONLY: May, "Cumulatively, they provide information on the allocated data ranges in the snapshot.", Why("A backup copies every block that is listed, also one that holds nothing.");
        ALLOCATED_FIXED: Must, "If block_metadata_type is FIXED_LENGTH, then the size_bytes field of each message in the block_metadata list MUST be constant.", Why(BLOCKS);
        ALLOCATED_TYPE: Must, "block_metadata_type: This field is REQUIRED.", Why(BLOCKS);
        ALLOCATED_CAPACITY: Must, "volume_capacity_bytes: This field is REQUIRED.", Why("A restored volume has the capacity that the stream reports.");
        ALLOCATED_MAX: Must, "If the value of max_results in the GetMetadataAllocatedRequest message is greater than zero, then the number of entries in this list MUST be less than or equal to that value.", Why(HELD);
        ALLOCATED_RESPECTS: Must, "The SP MUST respect the value of starting_offset in the request.", Why("A backup that was interrupted continues at the offset.");
        ALLOCATED_ORDER: Must, "The byte_offset fields of adjacent BlockMetadata messages MUST be strictly increasing and messages MUST NOT overlap: i.e. for any two BlockMetadata messages, A and B, if A is returned before B, then (A.byte_offset + A.size_bytes <= B.byte_offset) MUST be true.", Why(CONTINUED);
        ALLOCATED_ACROSS: Must, "This MUST also be true if A and B are from block_metadata lists in different GetMetadataAllocatedResponse messages in the gRPC stream.", Why(CONTINUED);
    }
    "GetMetadataAllocated Errors" {
        ALLOCATED_INVALID: Must, "Missing or otherwise invalid argument: 3 INVALID_ARGUMENT", Why(FINAL);
        ALLOCATED_GONE: Must, "Invalid `snapshot_id`: 5 NOT_FOUND", Why(FINAL);
        ALLOCATED_OFFSET: Must, "Invalid `starting_offset`: 11 OUT_OF_RANGE", Why("A backup that continues beyond the end must not be mistaken for a complete one.");
    }
    "GetMetadataDelta" {
        DELTA: Must, "The plugin must implement this RPC if it provides the SnapshotMetadata service.", Why(CALLED);
        DELTA_FROM: Must, "The SP MUST ensure that the returned response stream does not contain BlockMetadata tuples that end before the requested starting_offset: i.e. if S is the requested starting_offset, and B0 is block_metadata[0] of the first message in the response stream, then (S < B0.byte_offset + B0.size_bytes) must be true.", Why("A backup that was interrupted continues at the offset: blocks before it are copied again.");
        DELTA_ONLY: May, "Cumulatively, they provide information on the data ranges that have changed between the base and target snapshots specified in the GetMetadataDeltaRequest message.", Why("An incremental backup copies every block that is listed, also one that did not change.");
        DELTA_FIXED: Must, "If block_metadata_type is FIXED_LENGTH, then the size_bytes field of each message in the block_metadata list MUST be constant.", Why(BLOCKS);
        DELTA_TYPE: Must, "block_metadata_type: This field is REQUIRED.", Why(BLOCKS);
        DELTA_CAPACITY: Must, "volume_capacity_bytes: This field is REQUIRED.", Why("A restored volume has the capacity that the stream reports.");
        DELTA_MAX: Must, "If the value of max_results in the GetMetadataDeltaRequest message is greater than zero, then the number of entries in this list MUST be less than or equal to that value.", Why(HELD);
        DELTA_RESPECTS: Must, "The SP MUST respect the value of starting_offset in the request.", Why("A backup that was interrupted continues at the offset.");
        DELTA_ORDER: Must, "The byte_offset fields of adjacent BlockMetadata messages MUST be strictly increasing and messages MUST NOT overlap: i.e. for any two BlockMetadata messages, A and B, if A is returned before B, then (A.byte_offset + A.size_bytes <= B.byte_offset) MUST be true.", Why(CONTINUED);
        DELTA_ACROSS: Must, "This MUST also be true if A and B are from block_metadata lists in different GetMetadataDeltaResponse messages in the gRPC stream.", Why(CONTINUED);
    }
    "GetMetadataDelta Errors" {
        DELTA_INVALID: Must, "Missing or otherwise invalid argument: 3 INVALID_ARGUMENT", Why(FINAL);
        DELTA_GONE: Must, "Invalid `base_snapshot_id` or `target_snapshot_id`: 5 NOT_FOUND", Why(FINAL);
        DELTA_UNTRACKED: Must, "Changed block tracking is not enabled: 9 FAILED_PRECONDITION", Untested("No setting disables the tracking of changed blocks.");
        DELTA_OFFSET: Must, "Invalid `starting_offset`: 11 OUT_OF_RANGE", Why("A backup that continues beyond the end must not be mistaken for a complete one.");
    }
    "Connectivity" {
        PROTO3: Should, "proto3 SHOULD be used with gRPC, as per the official recommendations.", Untested(EVERYWHERE);
        IDENTITY_CALLS: Must, "All Plugins SHALL implement the REQUIRED Identity service RPCs.", Why("Kubernetes registers a driver by its Identity service.");
        LISTENS: Must, "Plugin components SHALL create, bind, and listen for RPCs on the specified listen address.", Untested(EVERYWHERE);
        SERVED: Must, "All supported RPC services MUST be available at the listen address of the Plugin.", Untested(EVERYWHERE);
    }
    "Security" {
        SOCKETS: Must, "Communication between a CO and a Plugin SHALL be transported over UNIX Domain Sockets.", Untested(DEPLOYED);
        PROXY: Must, "SP’s supplying stand-alone Plugin controller appliances, or other remote components that are incompatible with UNIX Domain Sockets MUST provide a software component that proxies communication between a UNIX Domain Socket and the remote component(s).", Untested(DEPLOYED);
        PROXY_SECURE: Must, "Proxy components transporting communication over IP networks SHALL be responsible for securing communications over such networks.", Untested(DEPLOYED);
        LEAKAGE: Should, "Both the CO and Plugin SHOULD avoid accidental leakage of sensitive information (such as redacting such information from log files).", Why(LEAK);
    }
    "General Configuration" {
        VARIABLES: Should, "With exception to sensitive data, Plugin configuration SHOULD be specified by environment variables, whenever possible, instead of by command line flags or bind-mounted/injected files.", Untested(DEPLOYED);
    }
    "Filesystem" {
        ROOT_FILES: Must, "Plugins SHALL NOT specify requirements that include or otherwise reference directories and/or files on the root filesystem of the CO.", Untested(DEPLOYED);
        SOCKET_FILES: Must, "Plugins SHALL NOT create additional files or directories adjacent to the UNIX socket specified by `CSI_ENDPOINT`; violations of this requirement constitute \"abuse\".", Untested("The directory of the socket is the user's, and may contain other files.");
    }
    "Supervised Lifecycle Management" {
        IMAGE: Should, "Plugin Packages SHOULD use a well-documented container image format (e.g., Docker, OCI).", Untested(DEPLOYED);
        IMAGE_DEFAULTS: Should, "Variables so exposed SHOULD be assigned default values in the image manifest.", Untested(DEPLOYED);
        IMAGE_SCANNED: Must, "A Plugin SHALL NOT assume that an operator or Plugin Supervisor will scan an image manifest for environment variables.", Untested(DEPLOYED);
    }
    "Environment Variables" {
        PREFIX: Must, "Configuration properties not defined by the CSI specification SHALL NOT use the same `CSI_` name prefix; this prefix is reserved for common configuration properties defined by the CSI specification.", Untested(DEPLOYED);
    }
    "CSI_ENDPOINT" {
        ENDPOINT: Must, "Network endpoint at which a Plugin SHALL host CSI RPC services.", Untested(EVERYWHERE);
        ADDRESSES: Must, "The following address types SHALL be supported by Plugins: unix:///path/to/unix/socket.sock", Untested("Users choose the endpoint of the driver, and the format in which its command passes it.");
        SUFFIX: Must, "All UNIX endpoints SHALL end with `.sock`.", Untested("Users choose the endpoint of the driver, and the format in which its command passes it.");
    }
    "Operational Recommendations" {
        SERVICE: Must, "The Plugin Supervisor expects that a Plugin SHALL act as a long-running service vs. an on-demand, CLI-driven process.", Why("While a driver is down, hangs or has run out of descriptors, no pod on its node starts or ends.");
    }
    "Logging" {
        LOG_STREAMS: Should, "Plugins SHOULD generate log messages to ONLY standard output and/or standard error.", Untested(DEPLOYED);
        LOG_DOCUMENTED: Must, "Plugin implementations that deviate from the above recommendation SHALL clearly and unambiguously document the following:", Untested(DOCUMENTED);
        LOG_SECRETS: Should, "Plugins SHOULD NOT write potentially sensitive data to logs (e.g. secrets).", Why("More people can read the logs of a driver than its secrets, and collectors store them elsewhere.");
    }
    "Available Services" {
        MODE: Must, "A plugin MUST know the \"mode\" in which it is operating (e.g. node, controller, or both).", Untested(HIDDEN);
        FAIL_FAST: Should, "Misconfigured plugin software SHOULD fail-fast with an OS-appropriate error code.", Untested(DEPLOYED);
    }
    "Linux Capabilities" {
        PRIVILEGES: Should, "Plugins SHOULD clearly document any additionally required capabilities and/or security context.", Untested(DOCUMENTED);
    }
    "Namespaces" {
        NAMESPACES: Should, "A Plugin SHOULD NOT assume that it is in the same Linux namespaces as the Plugin Supervisor.", Untested(HIDDEN);
    }
    "Resource Requirements" {
        RESOURCES: Should, "SPs SHOULD unambiguously document all of a Plugin’s resource requirements.", Untested(DOCUMENTED);
    }
}
