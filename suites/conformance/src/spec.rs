//! The sentences of the CSI specification that bind a driver: what each case checks, and how strongly it binds.
//!
//! Sentences that the specification repeats for several calls, such as the duty to return an error for a call that
//! failed, are listed once. Duties of the caller alone are not listed; a driver's duty to reject a request without a
//! required field is [`MISSING`].

use std::{collections::BTreeMap, fmt, ops::Deref, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The specification.
const DOCUMENT: &str = "https://github.com/container-storage-interface/spec/blob/v1.12.0/spec.md";

/// How strongly a rule binds a driver (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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

/// A sentence of the specification, of which `spec.yaml` has what is known, or of a vendor's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence {
    key: &'static str,
    of_vendor: Option<Facts>,
}

/// What is known about a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The heading of its section.
    pub section: &'static str,
    /// How strongly it binds a driver.
    pub strength: Strength,
    /// The text. A row of a table of errors is quoted as `condition: code`.
    pub text: &'static str,
    /// Its effect on users, or why it is not tested.
    pub note: Note,
    /// What repairs a driver that violates the sentence; none for one that no case checks.
    pub advice: Option<&'static str>,
}

impl Deref for Sentence {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        self.of_vendor.as_ref().unwrap_or_else(|| &FACTS[self.key])
    }
}

static FACTS: LazyLock<BTreeMap<&'static str, Facts>> =
    LazyLock::new(|| read(include_str!("spec.yaml")).expect("a test reads spec.yaml"));

/// `spec.yaml`, which describes its format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    reasons: BTreeMap<String, String>,
    sections: Vec<Section>,
    advice: Vec<Advice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    section: String,
    sentences: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    strength: Strength,
    text: String,
    effect: Option<String>,
    untested: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advice {
    r#for: Vec<String>,
    text: String,
}

fn read(text: &str) -> Result<BTreeMap<&'static str, Facts>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let reason = |text: String| match text.strip_prefix('$') {
        Some(name) => file.reasons.get(name).cloned().ok_or_else(|| format!("reasons has no {name}")),
        None => Ok(text),
    };
    let mut facts = BTreeMap::new();
    for section in file.sections {
        let heading = leak(section.section);
        for (key, entry) in section.sentences {
            let note = match (entry.effect, entry.untested) {
                (Some(effect), None) => Note::Why(leak(reason(effect)?)),
                (None, Some(untested)) => Note::Untested(leak(reason(untested)?)),
                _ => return Err(format!("{key} has not one of effect and untested")),
            };
            let (strength, text) = (entry.strength, leak(entry.text));
            let sentence = Facts { section: heading, strength, text, note, advice: None };
            if facts.insert(leak(key.clone()), sentence).is_some() {
                return Err(format!("two sentences are called {key}"));
            }
        }
    }
    for advice in file.advice {
        let text = leak(advice.text);
        for key in advice.r#for {
            let Some(sentence) = facts.get_mut(key.as_str()) else {
                return Err(format!("advice for {key}, which is no sentence"));
            };
            if sentence.advice.replace(text).is_some() {
                return Err(format!("{key} has two advices"));
            }
        }
    }
    Ok(facts)
}

/// Texts live as long as the program, as those in its code do.
fn leak(text: String) -> &'static str {
    text.leak()
}

impl Sentence {
    /// A sentence of a vendor's documentation, which is at `address`.
    pub const fn of_vendor(address: &'static str, text: &'static str, strength: Strength) -> Self {
        let note = Note::Why("It is in the driver's own documentation.");
        let advice = Some("Change the driver, or its documentation.");
        Self { key: "", of_vendor: Some(Facts { section: address, strength, text, note, advice }) }
    }

    /// Whether it is about one call, and not about all of them.
    pub(crate) fn is_about_one_call(&self) -> bool {
        let section = self.section.trim_end_matches(" Errors");
        let capitals = section.chars().filter(|c| c.is_ascii_uppercase()).count();
        capitals > 1 && section.chars().all(|c| c.is_ascii_alphabetic())
    }

    /// The address of its section.
    pub fn link(&self) -> String {
        if self.of_vendor.is_some() {
            return self.section.to_owned();
        }
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
    ($($name:ident)*) => {
        $(
            #[doc = concat!("The sentence `", stringify!($name), "` of `spec.yaml`.")]
            pub const $name: &Sentence = &Sentence { key: stringify!($name), of_vendor: None };
        )*

        /// All sentences, in the order of the specification.
        pub(crate) const ALL: &[&Sentence] = &[$($name,)*];
    };
}

sentences! {
    ALL_CALLS UNSUPPORTED NODE_ENDPOINT SECRET IDENTITY CONTROLLER NODE CONCURRENT LIMITS FIELDS ELEMENTS RETRIED
    STATUS CANONICAL CODES CONDITIONS MISSING INVALID PERMISSION TOKENS UNIMPLEMENTED MESSAGE DETAILS SECRET_KEYS
    SECRET_VALUES SECRETS_DOCUMENTED SECRETS_UNIQUE NAME_FORMAT NAME_COMPANY NAME_CHARACTERS NAME VENDOR_VERSION
    SAME_CAPABILITIES KNOWN CONTROLLER_SERVICE UNDECLARED EXPANSION ONLINE_NEEDS ONLINE OFFLINE OFFLINE_NEEDS PROBE
    PROBE_DOCUMENTED PROBE_UNHEALTHY PROBE_STARTING PROBE_READY PROBE_FAILS PROBE_DEPENDS CREATE CREATE_TWICE
    CREATE_SAME MUTABLE MUTABLE_FIRST EMPTY LARGER_COPY CREATE_ONCE ANY_NAME NO_SIZE SIZE_HONORED ALL_ACCESS
    ANY_ACCESS EITHER_ACCESS BAD_ACCESS TOPOLOGY_DOCUMENTED TOPOLOGY_CHOSEN MUTABLE_BEFORE RESTORE CLONE CREATED FLAGS_SECRET GROUP
    GROUP_ENTRIES SIZE_LEAST SIZE_MOST SIZE_SIGN CAPACITY_SIGN VOLUME_ID VOLUME_UNIQUE CONTEXT_FIXED CONTEXT_CACHED
    CONTEXT_SECRET CONTEXT_IDENTITY CONTEXT_SAME VOLUME_TOPOLOGY REQUISITE REACHABLE REQUISITE_ALL REQUISITE_SOME
    REQUISITE_MORE PREFERRED NOWHERE KEY_NAME_GIVEN KEY_NAME KEY_PREFIX KEY_COMPANY KEY_ONE_PREFIX KEY_CASE
    VALUE_SOME VALUE_CHARACTERS FAILS CREATE_CODES SOURCE_UNUSABLE SOURCE_MESSAGE SOURCE_GONE EXISTS NO_PLACE
    CREATE_RANGE DELETE DELETE_TWICE DELETE_GONE SNAPSHOTS_APART SNAPSHOTS_STAY DELETE_REFUSED DELETE_IN_USE
    DELETE_MOUNTED ATTACH ATTACH_WORK ATTACH_ANYWHERE ATTACH_TWICE ATTACH_SAME ATTACH_USABLE ATTACH_READONLY
    PUBLISH_CONTEXT_FIXED PUBLISH_CONTEXT_CACHED PUBLISH_CONTEXT_SECRET ATTACH_GONE ATTACH_NO_NODE ATTACH_OTHERWISE
    ATTACH_ELSEWHERE ATTACH_NAMES_NODE ATTACH_FULL DETACH DETACH_WORK DETACH_ANYWHERE DETACH_TWICE DETACH_DONE
    DETACH_UNKNOWN DETACH_NODE DETACH_ALL DETACH_GONE DETACH_NO_NODE VALIDATE VALIDATE_ALL VALIDATE_TWICE CONFIRMED
    CONFIRMED_ONLY VALIDATE_GONE LIST LIST_ALL LIST_CHANGES LIST_MAX LIST_NEXT LIST_CONDITION LIST_VOLUME LIST_NODES
    LIST_TOKEN GET GET_CONDITION GET_CURRENT GET_NODES GET_VOLUME GET_STATUS GET_GONE MODIFY MODIFY_TWICE
    MODIFY_KEYS MODIFY_BAD MODIFY_UNTOUCHED MODIFY_GONE CAPACITY CAPACITY_ACCESS CAPACITY_PARAMETERS
    CAPACITY_TOPOLOGY CAPACITY_AVAILABLE AVAILABLE AVAILABLE_SIGN SMALLEST_FOR LARGEST_SIGN LARGEST_GIVEN
    LARGEST_FOR SMALLEST_SIGN SMALLEST_GIVEN CONTROLLER_CAPABILITIES SNAPSHOTS_RESTORE NODES_NEED_ATTACH
    CONDITIONS_DIFFER WRITER SNAPSHOT SNAPSHOT_TWICE SNAPSHOT_SAME SNAPSHOT_ERROR SNAPSHOT_UPLOADS
    SNAPSHOT_LATE_ERROR READY READY_AT_ONCE READY_LATER SNAPSHOT_FAILS CUT SNAPSHOTTED SNAPSHOT_SIZE SNAPSHOT_SIGN
    SNAPSHOT_ID SNAPSHOT_UNIQUE SNAPSHOT_SOURCE SNAPSHOT_TIME SNAPSHOT_READY MEMBER ALONE MEMBER_GROUP
    SNAPSHOT_UNCOMPLETED SNAPSHOT_EXISTS SNAPSHOT_FULL DROP DROP_TWICE DROP_GONE DROP_GROUP DROP_MEMBER DROP_IN_USE
    SNAPSHOTS SNAPSHOTS_ALL SNAPSHOTS_CUT SNAPSHOTS_MAX SNAPSHOTS_NEXT SNAPSHOTS_TOKEN FETCH FETCH_MEMBERS
    FETCH_CURRENT FETCHED FETCH_GONE EXPAND EXPAND_KEEPS EXPAND_TWICE EXPAND_LARGER EXPANDED EXPANDED_NODE
    EXPAND_ACCESS EXPAND_GONE EXPAND_IN_USE EXPAND_RANGE SNAPSHOT_RETURNS SNAPSHOTS_CURRENT SNAPSHOTS_READY STAGE
    STAGE_HERE STAGE_TWICE STAGE_SAME STAGE_PLACE STAGE_PATH STAGE_USABLE STAGE_GONE STAGE_OTHERWISE STAGE_ACCESS
    UNSTAGE UNSTAGE_UNDOES UNSTAGE_HERE UNSTAGE_TWICE UNSTAGE_DONE UNSTAGE_GONE PUBLISH_HERE PUBLISH_TWICE
    PUBLISH_SAME PUBLISH_CHANGED PUBLISH_AGAIN PUBLISH_TABLE PUBLISH_WRITER PUBLISH_DEVICE PUBLISH_DIRECTORY
    PUBLISH_USABLE PUBLISH_READONLY PUBLISH_GONE PUBLISH_OTHERWISE PUBLISH_ACCESS PUBLISH_UNSTAGED UNPUBLISH
    UNPUBLISH_UNDOES UNPUBLISH_HERE UNPUBLISH_TWICE UNPUBLISH_REMOVES UNPUBLISH_GONE STATS STATS_TRUE
    STATS_CONDITION STATS_SIGN STATS_TOTAL STATS_UNIT CONDITION_STATE CONDITION_NORMAL CONDITION_MESSAGE STATS_GONE
    NODE_CAPABILITIES STATS_DECLARED NODE_WRITER INFO INFO_USED INFO_HERE INFO_ONCE NODE_ID NODE_UNIQUE NODE_ID_SIZE NODE_ID_SHORT
    NODE_LIMIT NODE_TOPOLOGY NODE_ANYWHERE NODE_EXPAND NODE_EXPAND_KEEPS NODE_EXPAND_TWICE NODE_EXPAND_LARGER
    NODE_EXPAND_ACCESS NODE_EXPAND_GONE NODE_EXPAND_IN_USE NODE_EXPAND_RANGE GROUP_CAPABILITIES GROUPS
    GROUP_CONSISTENT GROUP_MOMENT GROUP_TWICE GROUP_SAME GROUP_ERROR GROUP_UPLOADS GROUP_LATE_ERROR
    GROUP_MEMBERS_LATER GROUP_LEAKS GROUPED GROUP_UNIQUE GROUP_ID GROUP_MEMBERS GROUP_TIME GROUP_STATE
    GROUP_NOT_READY GROUP_READY GROUP_UNCOMPLETED GROUP_EXISTS GROUP_IMPOSSIBLE GROUP_FULL UNGROUP UNGROUP_TWICE
    UNGROUP_GONE UNGROUP_CHECKS UNGROUP_NEEDS UNGROUP_MISMATCH UNGROUP_IN_USE FETCH_GROUP FETCH_GROUP_CURRENT
    FETCH_GROUP_CHECKS FETCH_GROUP_NEEDS FETCHED_GROUP FETCH_GROUP_GONE FETCH_GROUP_MISMATCH BLOCK_OFFSET BLOCK_SIZE
    BLOCKS_ALL BLOCKS_ERROR BLOCKS_BROKEN BLOCKS_FROM ALLOCATED ALLOCATED_FROM ALLOCATED_ONLY ALLOCATED_FIXED
    ALLOCATED_TYPE ALLOCATED_CAPACITY ALLOCATED_MAX ALLOCATED_RESPECTS ALLOCATED_ORDER ALLOCATED_ACROSS
    ALLOCATED_INVALID ALLOCATED_GONE ALLOCATED_OFFSET DELTA DELTA_FROM DELTA_ONLY DELTA_FIXED DELTA_TYPE
    DELTA_CAPACITY DELTA_MAX DELTA_RESPECTS DELTA_ORDER DELTA_ACROSS DELTA_INVALID DELTA_GONE DELTA_UNTRACKED
    DELTA_OFFSET PROTO3 IDENTITY_CALLS LISTENS SERVED SOCKETS PROXY PROXY_SECURE LEAKAGE VARIABLES ROOT_FILES
    SOCKET_FILES IMAGE IMAGE_DEFAULTS IMAGE_SCANNED PREFIX ENDPOINT ADDRESSES SUFFIX SERVICE LOG_STREAMS
    LOG_DOCUMENTED LOG_SECRETS MODE FAIL_FAST PRIVILEGES NAMESPACES RESOURCES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_exactly_the_listed_sentences() {
        let facts = read(include_str!("spec.yaml")).unwrap();
        let listed: Vec<&str> = ALL.iter().map(|sentence| sentence.key).collect();
        let missing: Vec<_> = listed.iter().filter(|key| !facts.contains_key(*key)).collect();
        let unlisted: Vec<_> = facts.keys().filter(|key| !listed.contains(key)).collect();
        assert_eq!((missing, unlisted), (Vec::new(), Vec::new()));
        for (key, sentence) in facts {
            let is_checked = matches!(sentence.note, Note::Why(_));
            assert_eq!(
                sentence.advice.is_some(),
                is_checked,
                "{key}: exactly what a case checks has an advice"
            );
            let texts = [Some(sentence.text), sentence.advice];
            assert!(texts.into_iter().flatten().all(|text| !text.contains("  ")), "{key}");
            assert!(sentence.advice.is_none_or(|text| text.ends_with('.')), "{key}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_reason() {
        let sentence = "    sentences: {A: {strength: must, text: t, effect: $X}}\n";
        let file = |reasons: &str, advice: &str| {
            let text = format!("reasons: {reasons}\nsections:\n  - section: s\n{sentence}advice: {advice}\n");
            read(&text).map(|facts| facts.len())
        };
        assert_eq!(file("{X: x}", "[{for: [A], text: t}]"), Ok(1));
        assert_eq!(file("{}", "[]"), Err("reasons has no X".to_owned()));
        assert_eq!(
            file("{X: x}", "[{for: [B], text: t}]"),
            Err("advice for B, which is no sentence".to_owned())
        );
        let twice = "[{for: [A], text: t}, {for: [A], text: t}]";
        assert_eq!(file("{X: x}", twice), Err("A has two advices".to_owned()));
    }
}
