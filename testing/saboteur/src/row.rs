//! The rows of `defects/`: what a defect is called, when it occurs, and what it does.
//!
//! A rule is a sentence: *on* a method, *when* conditions hold, *then* actions, in their order. Paths of fields are
//! those of csi.proto, with dots: `volume_capability.access_mode.mode`. `*` stands for all entries of a list.
//!
//! A row with `each` is a family: see `family.rs`.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use tonic::Code;

use crate::api_row;

/// A seeded defect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    /// Its name on the command line.
    pub name: String,
    /// What it does, in one sentence.
    pub does: String,
    /// The cases that must fail; without `[mount]` or `[block]`, those of either kind count. None for a legal row.
    #[serde(default)]
    pub fails: Vec<String>,
    /// What permits it, if it is legal, so that no case may fail: a section of the CSI specification or a page of
    /// Kubernetes, and its words.
    #[serde(default)]
    pub permitted: Option<String>,
    /// Words that the message of one of them contains.
    #[serde(default)]
    pub message: String,
    /// The bug of Kubernetes, or of a sidecar, that it is like.
    #[serde(default)]
    pub bug: Option<String>,
    /// Whether the cases warn, since the specification permits what the defect does.
    #[serde(default)]
    pub warns: bool,
    /// Whether it occurs only if calls overlap in time, so that a run on a busy machine may not have it.
    #[serde(default)]
    pub races: bool,
    /// Whether many cases fail by nature, since they all make the call that fails: the average number of findings per
    /// defect does not count it.
    #[serde(default)]
    pub broad: bool,
    /// The suite of these cases.
    #[serde(default)]
    pub suite: Suite,
    /// The volumes with which it shows.
    #[serde(default)]
    pub volumes: Volumes,
    /// Further arguments of the suite's command.
    #[serde(default)]
    pub args: Vec<String>,
    /// Further arguments of the built-in driver, by which it differs from the usual one.
    #[serde(default)]
    pub driver_args: Vec<String>,
    /// The driver file of a run on a cluster (`--driver-config`).
    #[serde(default)]
    pub driver_config: Option<Value>,
    /// When it occurs, and what it does; nothing if it is a defect of the built-in driver, by `driver_args`.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// What it does to requests to the embedded API server.
    #[serde(default)]
    pub api: Vec<api_row::Rule>,
}

impl Defect {
    /// Whether a case is one that must fail.
    pub fn must_fail(&self, case: &str) -> bool {
        self.fails.iter().any(|id| is_case(id, case))
    }

    /// One row that does what both do.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.name = format!("{},{}", self.name, other.name);
        self.args.extend(other.args);
        self.driver_args.extend(other.driver_args);
        self.driver_config = other.driver_config.or(self.driver_config);
        self.rules.extend(other.rules);
        self.api.extend(other.api);
        self
    }
}

/// Whether a case has this id, or this id and an access type.
pub fn is_case(id: &str, case: &str) -> bool {
    case.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ["))
}

/// A suite of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// `claimcheck csi`
    #[default]
    Csi,
    /// `claimcheck run`
    Cluster,
}

/// The kind of volumes under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Volumes {
    /// Directories of the built-in driver.
    #[default]
    Directories,
    /// Images with ext4; requires root, as loop devices do.
    Images,
    /// Images with xfs; requires root.
    XfsImages,
    /// Raw block volumes; requires root.
    Devices,
}

/// What a defect does in calls of some methods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The methods: one, a list, or `any`.
    #[serde(deserialize_with = "one_or_many")]
    pub on: Vec<String>,
    /// The conditions.
    #[serde(default)]
    pub when: When,
    /// The actions, in their order.
    pub then: Vec<Action>,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Fields of the request.
    pub request: BTreeMap<String, Predicate>,
    /// Whether this very thing has been done before, and not undone since.
    pub repeated: Option<bool>,
    /// What has happened to the volume or snapshot.
    pub volume: Vec<State>,
    /// What has not happened to it.
    pub not: Vec<State>,
    /// What has happened to the source of the volume that is created.
    pub source: Vec<State>,
    /// The number of the call among those that this rule matches otherwise, in this process.
    pub call: Option<Number>,
    /// Whether another call for the same object is in progress.
    pub racing: Option<bool>,
    /// A method of which a call about the same thing was cancelled before its answer.
    pub cancelled: Option<String>,
    /// A method that was called before, with success.
    pub after: Option<String>,
    /// Whether the driver was started again before.
    pub restarted: Option<bool>,
    /// The name with which the object was created.
    pub named: Option<Predicate>,
    /// What the driver answered: `OK`, `error` or a code.
    pub answer: Option<Outcome>,
    /// Fields of the first message that it answered.
    pub reply: BTreeMap<String, Predicate>,
}

/// The number of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// This one.
    Nth(u64),
    /// This one and all later ones.
    From {
        /// The first.
        from: u64,
    },
}

/// What has happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was created, and is not deleted.
    Exists,
    /// It was deleted.
    Deleted,
    /// It is attached to a node.
    Attached,
    /// It is staged.
    Staged,
    /// It is published.
    Published,
    /// It is published at several paths.
    Shared,
    /// It was published at some time.
    Used,
    /// It was published again after it had been withdrawn.
    Reused,
    /// It was created from a snapshot.
    Restored,
    /// It was created from a volume.
    Cloned,
    /// A volume was created from it.
    Copied,
    /// A snapshot of it was created.
    Snapshotted,
    /// It was expanded.
    Expanded,
    /// The call that created it was repeated.
    Recreated,
    /// It was created before the driver was started again.
    Outlived,
    /// It was requested as a raw block volume.
    Block,
    /// It was requested as a file system.
    Mount,
}

/// What the driver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Any error.
    Error,
    /// This code.
    Code(Code),
}

/// A condition on a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// It is set, and not to its default.
    Present,
    /// It is not set.
    Absent,
    /// It has this value.
    Is(Value),
    /// Words and numbers.
    Like(Like),
}

/// A condition on the text or number of a field.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Like {
    /// The text begins with this.
    pub starts_with: Option<String>,
    /// The text ends with this.
    pub ends_with: Option<String>,
    /// The text contains this.
    pub contains: Option<String>,
    /// The number is less than this.
    pub less: Option<i64>,
    /// The number is greater than this.
    pub more: Option<i64>,
    /// The value is another than in the first call for this object.
    pub differs: Option<bool>,
    /// The value is one of these.
    pub one_of: Option<Vec<Value>>,
    /// The value is another than this.
    pub is_not: Option<Value>,
    /// The value is that of this field.
    pub same_as: Option<String>,
}

/// What a defect does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The call is not forwarded, and fails.
    Refuse(#[serde(deserialize_with = "code")] Code),
    /// The call is not forwarded, and succeeds with this answer, or with `earlier`: the first one for this object.
    Pretend(Value),
    /// The request is changed before it is forwarded.
    Request(Change),
    /// The call is forwarded in another way.
    Forward(Forward),
    /// The answer is changed.
    Answer(Change),
    /// The call is forwarded, and this code answered: an error, or OK with an empty message.
    AnswerCode(#[serde(deserialize_with = "code")] Code),
    /// A wait before the call is forwarded.
    Delay(#[serde(deserialize_with = "duration")] Duration),
    /// A wait before the answer.
    DelayAnswer(#[serde(deserialize_with = "duration")] Duration),
    /// The call is never answered.
    Hang(bool),
    /// The driver's process is killed.
    Exit(Moment),
    /// A mount at the path of the call is changed after it.
    Mount(Mount),
    /// The data of volumes is changed.
    Data(Data),
    /// The call leaves an object on the node.
    Leave(Leave),
    /// The call writes its request to the driver's output.
    Log(bool),
    /// An error quotes this field of the request.
    Quote(String),
    /// The driver's process is stopped, so that it answers no call.
    Stop(bool),
    /// An error gets this message; its code remains.
    Message(String),
    /// An error gets details, in addition to its message.
    Details(bool),
    /// The messages of the answer get a field that csi.proto does not have.
    UnknownField(bool),
    /// Another method is called afterwards.
    Call(Further),
    /// The owner and mode of what is at the path of the call are changed.
    Own(Owner),
}

/// A further call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Further {
    /// The method, of the same service.
    pub method: String,
    /// Fields that are set in the request of the call before.
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    /// Fields that are removed from it.
    #[serde(default)]
    pub drop: Vec<String>,
}

/// Owner and mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Owner {
    /// The id of the group.
    pub group: Option<u32>,
    /// The mode, in octal digits.
    pub mode: Option<String>,
}

/// Another way of forwarding a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forward {
    /// Twice; the second answer counts.
    Twice,
    /// To another object: see [`Of`].
    To(Of),
}

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Before the call is forwarded.
    Before,
    /// When the driver has answered.
    After,
}

/// Changes of a message.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// Fields and their new values: plain ones, or `{times: 0.5}`, `{plus: 1}`, `{append: text}`,
    /// `{replace: [text, other]}`, `{fill: 200}` (a text of so many letters), `{request: path}` or `{first: path}` (of the
    /// first call for this object).
    pub set: BTreeMap<String, Value>,
    /// Fields that are removed.
    pub drop: Vec<String>,
    /// Lists of which only so many entries remain.
    pub keep: BTreeMap<String, usize>,
    /// Lists that lose their last entry.
    pub shorten: Vec<String>,
    /// Lists of which the first entry is repeated.
    #[serde(deserialize_with = "one_or_many")]
    pub double: Vec<String>,
    /// Lists that lose the entries with these values: `{capabilities: {"rpc.type": LIST_VOLUMES}}`.
    pub without: BTreeMap<String, BTreeMap<String, Value>>,
    /// Lists that get an entry.
    pub add: BTreeMap<String, Value>,
    /// Lists that are reversed.
    pub reverse: Vec<String>,
    /// The message becomes that of another object.
    pub from: Option<Of>,
}

/// A change of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mount {
    /// It is unmounted.
    Drop,
    /// It is mounted once more.
    Double,
    /// An empty directory or file is mounted in its place.
    Empty,
    /// It becomes writable.
    Writable,
    /// It becomes read-only.
    Readonly,
    /// The file system of the volume is remounted read-only at all of its mounts.
    SuperReadonly,
}

/// A change of data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// What happens to it.
    pub r#do: Harm,
    /// To the data of which volumes.
    #[serde(default)]
    pub of: Of,
    /// When it shows.
    #[serde(default)]
    pub at: At,
}

/// What happens to data.
#[derive(Clone, Debug, PartialEq)]
pub enum Harm {
    /// All is lost.
    Wipe,
    /// All is lost but the first so many bytes.
    Keep(u64),
    /// All is lost but the first so many hundredths.
    KeepPercent(u64),
    /// The first 4 KiB of each file, or of each MiB of a device, are lost.
    First4k,
    /// It is replaced by that of another volume.
    Swap,
    /// It is replaced by that which its source has now.
    CopySource,
    /// It is replaced by that of the deleted volume that had its name, without its first 4 KiB.
    Stale,
    /// All files belong to root and are readable by all, and links become files, as in a copy of their content alone.
    Attributes,
    /// All files belong to the user root.
    User,
}

/// Objects in relation to that of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The object itself; of a snapshot, all volumes that are restored from it.
    #[default]
    This,
    /// The volume that it was created from.
    Source,
    /// The volumes that were created from it, also through snapshots.
    Copies,
    /// Another one that exists: the youngest of the same kind.
    Other,
    /// All others that exist.
    All,
    /// All others that exist, with names that begin with its name.
    LongerNames,
}

/// When a change of data shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// When the volume has been withdrawn from the node and is published again: what is mounted shows nothing.
    #[default]
    NextPublish,
    /// At once, where it is published.
    Now,
}

/// An object that is left on the node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    /// A loop device.
    Loop,
    /// An open file of the driver's process.
    Descriptor,
    /// A mount at the path of the call.
    Mount,
    /// A directory at the path of the call.
    Directory,
    /// An empty file at the path of the call.
    File,
    /// Nothing: the empty directory or the file at the path of the call is removed.
    Nothing,
    /// Nothing where the path of the call was: its empty parent directory is removed.
    NoParent,
    /// A file at this path; a path of a field in braces is replaced by that field of the request.
    At(String),
}

impl When {
    /// Whether all conditions are known before the call is forwarded.
    pub(crate) fn is_before(&self) -> bool {
        self.answer.is_none() && self.reply.is_empty()
    }
}

impl<'de> Deserialize<'de> for Predicate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::String(text) if text == "present" => Ok(Self::Present),
            Value::String(text) if text == "absent" => Ok(Self::Absent),
            Value::Object(_) => serde_json::from_value(value).map(Self::Like).map_err(D::Error::custom),
            _ => Ok(Self::Is(value)),
        }
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "error" => Ok(Self::Error),
            text => named(text).map(Self::Code).ok_or_else(|| D::Error::custom(not_a_code(text))),
        }
    }
}

impl<'de> Deserialize<'de> for Harm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            Keep { keep: String },
        }
        let wrong = |text: &str| {
            D::Error::custom(format!(
                "do: {text:?}: use wipe, first_4k, swap, copy_source, stale, attributes, user, {{keep: 8MiB}} or {{keep: 90%}}"
            ))
        };
        match Written::deserialize(deserializer)? {
            Written::Word(word) => match word.as_str() {
                "wipe" => Ok(Self::Wipe),
                "first_4k" => Ok(Self::First4k),
                "swap" => Ok(Self::Swap),
                "copy_source" => Ok(Self::CopySource),
                "stale" => Ok(Self::Stale),
                "attributes" => Ok(Self::Attributes),
                "user" => Ok(Self::User),
                _ => Err(wrong(&word)),
            },
            Written::Keep { keep } => {
                let number = |text: &str| text.trim().parse::<u64>().ok();
                let units = [("%", None), ("GiB", Some(30)), ("MiB", Some(20)), ("KiB", Some(10))];
                let kept = units.into_iter().find_map(|(unit, shift)| {
                    let amount = number(keep.strip_suffix(unit)?)?;
                    Some(shift.map_or(Self::KeepPercent(amount), |shift| Self::Keep(amount << shift)))
                });
                kept.ok_or_else(|| wrong(&keep))
            }
        }
    }
}

/// The code of this name in upper case with underscores.
fn named(name: &str) -> Option<Code> {
    let is_named = |code: &Code| name_of(*code) == name;
    (0..17).map(Code::from_i32).find(is_named)
}

fn not_a_code(text: &str) -> String {
    format!("{text:?} is no gRPC code: use OK, INVALID_ARGUMENT, NOT_FOUND ..")
}

/// The name of a code, as gRPC writes it.
pub(crate) fn name_of(code: Code) -> String {
    let name = format!("{code:?}");
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_uppercase());
    }
    if text == "O_K" || text == "OK" { "OK".to_owned() } else { text }
}

fn code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let text = String::deserialize(deserializer)?;
    named(&text).ok_or_else(|| D::Error::custom(not_a_code(&text)))
}

pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let number = |unit: &str| text.strip_suffix(unit)?.parse::<u64>().ok();
    let duration = number("ms").map(Duration::from_millis).or_else(|| number("s").map(Duration::from_secs));
    duration.ok_or_else(|| D::Error::custom(format!("{text:?} is no duration: use 200ms or 2s")))
}

pub(crate) fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::One(one) => vec![one],
        Written::Many(many) => many,
    })
}
