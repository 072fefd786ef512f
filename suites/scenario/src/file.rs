//! The form of a scenario: what must exist, what is done, and what must happen.
//!
//! In any text `$s` stands for the scenario's namespace, and `$uid(claim data)`, `$volume(data)` and others for what is
//! known only once the objects exist: `reference.rs` has them all.

use std::collections::BTreeMap;

use claimcheck_model::{Capability, ClusterKind, CsiMethod, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::{kind::Kind, reference::split};

/// The `apiVersion` of scenario files.
pub const API_VERSION: &str = "claimcheck.dev/v1alpha1";
/// Their `kind`.
pub const KIND: &str = "Scenario";

/// A scenario.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// `claimcheck.dev/v1alpha1`.
    #[serde(default, rename = "apiVersion")]
    pub api_version: String,
    /// `Scenario`.
    #[serde(default)]
    pub kind: String,
    /// Its name in reports, in lower case with hyphens.
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Who acts besides the storage controllers.
    #[serde(default)]
    pub world: World,
    /// What the cluster and the driver must have; without it the scenario is skipped. What follows from the steps need
    /// not be said.
    #[serde(default)]
    pub requires: Requires,
    /// Objects that exist from the start.
    #[serde(default)]
    pub given: Vec<Object>,
    /// How calls to the driver are answered from the start.
    #[serde(default)]
    pub driver: Script,
    /// It changes what concerns all namespaces, such as the default class: nothing else runs at the same time.
    #[serde(default)]
    pub alone: bool,
    /// Of the differential test: it takes minutes, and runs with `--include-ignored` or `--ignored` only.
    #[serde(default)]
    #[schemars(skip)]
    pub slow: bool,
    /// Of the differential test: it is about the condition `Unused` of claims, and runs with its feature gate, on other
    /// sides than the rest: upstream's binder loses a write to that condition, and waits for its resync, whenever a
    /// claim is created.
    #[serde(default)]
    #[schemars(skip)]
    pub unused: bool,
    /// How long nothing may have happened before it ends, in milliseconds.
    #[serde(default)]
    pub quiet: Option<u64>,
    /// What is done and waited for, in this order.
    pub steps: Vec<Step>,
    /// What must hold for the whole scenario, at its end.
    #[serde(default)]
    pub expect: Expect,
    /// The line of `expect` in the file; 0 without it.
    #[serde(skip)]
    pub expect_line: u64,
}

/// Who acts besides the storage controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Scheduler and nodes act: pods run and use their volumes.
    #[default]
    Cluster,
    /// No one: the scenario itself plays scheduler and kubelets, by writing nodes and status, on an API server without
    /// nodes. `claimcheck scenario compare` plays it with built-in and with stock controllers.
    Controllers,
}

/// What a scenario requires.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Requires {
    /// This kind of cluster: `embedded`, `envtest`, `kind` or `existing`.
    #[serde(default)]
    pub cluster: Option<ClusterKind>,
    /// This number of nodes.
    #[serde(default)]
    pub nodes: usize,
    /// Capabilities of the driver, as in driver files of Kubernetes' e2e tests.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// The file system of volumes of the class: `ext3`, `ext4` or `xfs`.
    #[serde(default)]
    pub file_system: Option<FileSystem>,
    /// Raw block volumes.
    #[serde(default)]
    pub block: bool,
    /// Pods may run as root.
    #[serde(default)]
    pub root: bool,
    /// The driver attaches volumes.
    #[serde(default)]
    pub attach: bool,
    /// The driver stages volumes.
    #[serde(default)]
    pub stage: bool,
}

/// The file system of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
}

/// An object: kind and name (`claim data`), a manifest, or `{ file: PATH }` for the manifests of a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

impl JsonSchema for Object {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Object".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "kind and name (`claim data`), a manifest, `{ object: claim data, with: {..} }`, or `{ file: PATH }`",
            "type": ["string", "object"],
        })
    }
}

impl<T: Into<String>> From<T> for Object {
    fn from(text: T) -> Self {
        Self(Value::String(text.into()))
    }
}

/// What an [`Object`] is.
#[derive(Clone, Debug, PartialEq)]
pub enum Given<'a> {
    /// Kind and name, and what differs from the usual object of this kind.
    Short(&'a str, Value),
    /// A manifest.
    Manifest(&'a Value),
    /// A file with manifests.
    File(&'a str),
}

impl Object {
    /// Kind and name, if it is in the short form.
    pub fn short(&self) -> Option<&str> {
        match self.form() {
            Ok(Given::Short(name, _)) => Some(name),
            _ => None,
        }
    }

    /// Its kind, and its name in the scenario; none of a file, or of what is no object.
    pub fn kind_and_name(&self) -> Option<(&'static Kind, String)> {
        match self.form().ok()? {
            Given::Short(text, _) => {
                let (kind, name) = split(text).ok()?;
                Some((kind, name.to_owned()))
            }
            Given::Manifest(manifest) => {
                let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
                Some((Kind::of_manifest(manifest)?, name.to_owned()))
            }
            Given::File(_) => None,
        }
    }

    /// What it is.
    ///
    /// # Errors
    /// It is none of these.
    pub fn form(&self) -> Result<Given<'_>, String> {
        let only = |of: &Map<String, Value>, keys: &[&str]| of.keys().all(|key| keys.contains(&key.as_str()));
        match &self.0 {
            Value::String(text) => Ok(Given::Short(text, Value::Null)),
            Value::Object(of) => match (of.get("object"), of.get("file")) {
                (Some(Value::String(name)), None) if only(of, &["object", "with"]) => {
                    Ok(Given::Short(name, of.get("with").cloned().unwrap_or_default()))
                }
                (None, Some(Value::String(path))) if only(of, &["file"]) => Ok(Given::File(path)),
                (None, None) if of.contains_key("kind") && of.contains_key("apiVersion") => {
                    Ok(Given::Manifest(&self.0))
                }
                _ => Err("an object is `kind name`, a manifest with apiVersion and kind, { object: .., with: .. } or \
                          { file: .. }"
                    .to_owned()),
            },
            other => Err(format!("{other} is no object: write its kind and name, or a manifest")),
        }
    }
}

/// The answers to the next calls of each method for the scenario's volumes; then calls succeed.
pub type Script = BTreeMap<String, Vec<Answer>>;

/// How a call to the driver is answered.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Code and message of the error, e.g. `INTERNAL no slot`. The driver does not receive the call.
    pub fail: Option<String>,
    /// It is not answered: the caller's deadline passes. The driver does not receive the call.
    #[serde(default)]
    pub hang: bool,
    /// It is answered after so many milliseconds.
    pub late: Option<u64>,
    /// The driver acts, but its answer is lost: the caller receives UNAVAILABLE.
    #[serde(default)]
    pub lost: bool,
    /// The driver acts, and its answer has these fields of the CSI specification: a merge patch. In `world: controllers`, of the
    /// scripted driver.
    #[serde(default)]
    pub with: Value,
    /// For how many calls; 0 for all.
    #[serde(default = "once")]
    pub times: usize,
    /// Only calls for the volume of this claim: `claim data`.
    pub of: Option<String>,
    /// Only calls from this node: a name, or `pod p` for the node on which a pod runs.
    pub node: Option<String>,
}

impl Answer {
    /// What happens to the calls, for messages.
    pub fn in_words(&self) -> String {
        match self {
            Self { fail: Some(error), .. } => format!("fail with {error}"),
            Self { hang: true, .. } => "are not answered".to_owned(),
            Self { late: Some(ms), .. } => format!("are answered {ms} ms late"),
            Self { lost: true, .. } => "lose their answers".to_owned(),
            _ => "are answered with other fields".to_owned(),
        }
    }
}

fn once() -> usize {
    1
}

/// A step: one action, or a wait, or an action with a wait that follows it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Step {
    /// Its line in the file; 0 if it is from none.
    #[serde(skip)]
    pub line: u64,
    /// Creates an object.
    pub create: Option<Object>,
    /// Applies an object (server-side apply, with force).
    pub apply: Option<Object>,
    /// Patches this object with `with` (a merge patch).
    pub patch: Option<String>,
    /// Deletes this object.
    pub delete: Option<String>,
    /// Waits: for an object (`claim data`) that has `has` or is `gone`; for `event claim data`; for `call NodeStageVolume`,
    /// and `call NodeStageVolume of claim data`; for the end of a phase, `phase attach of claim data`.
    pub until: Option<String>,
    /// Must not be seen from now on: an object with `has`, an event, or a call, named as for `until`.
    pub never: Option<String>,
    /// May be seen again from now on: the subject of a `never` before.
    pub allow: Option<String>,
    /// Runs the script `run` in a container of this pod: `pod p`.
    pub exec: Option<String>,
    /// Writes random data in this pod: `size` bytes at `path`, a file or a device.
    pub write: Option<String>,
    /// Reads what was last written at `path`, or at `like`, and compares its checksum.
    pub read: Option<String>,
    /// Injects these faults, written as for `--fault` of `claimcheck run`, until another step replaces them; an empty list
    /// ends them.
    pub fault: Option<Vec<String>>,
    /// Holds the next calls of this method of the scenario's volumes (with `of` of one claim's, with `node` on one node)
    /// until `release`.
    pub hold: Option<String>,
    /// Lets the held calls of this method go on.
    pub release: Option<String>,
    /// Disrupts `controllers`, `agent`, `driver`, `registration` (the socket through which the kubelet knows the driver: `stop` and
    /// `start`) or `node` (`kill` reboots it), in the way that `how` says; with `node` on one node.
    pub disrupt: Option<String>,
    /// Removes what is behind the volume of this claim where it is mounted: the device fails, or the folder is emptied.
    pub remove: Option<String>,
    /// Changes how the driver's calls of these methods are answered.
    pub driver: Option<Script>,
    /// Waits until nothing has happened to the scenario's objects for so many milliseconds.
    pub settle: Option<u64>,

    /// Of `create`, `apply` and `patch`: the changes.
    #[serde(default)]
    pub with: Value,
    /// Of `create pod`: the claims that it uses, each mounted at `/` and its name, or as the device `/dev/` and its name.
    #[serde(default)]
    pub uses: Vec<Use>,
    /// Of `patch`: the status. (In `world: controllers`.)
    #[serde(default)]
    pub status: bool,
    /// Of `delete`: the grace period of a pod in seconds.
    pub grace: Option<u32>,
    /// Of `until` and `never`: what the object has, or the request of a call; null for a field that it lacks.
    #[serde(default, deserialize_with = "present")]
    pub has: Option<Value>,
    /// Of `never call`: what the request of each call must have.
    pub lacks: Option<Value>,
    /// Of `until`: it does not exist any more.
    #[serde(default)]
    pub gone: bool,
    /// Of `until event` and `never event`: the reason.
    pub reason: Option<String>,
    /// Of `until event` and `never event`: a part of the message.
    pub message: Option<String>,
    /// Of `until call`: how many at least.
    pub count: Option<usize>,
    /// Of `until`, and of `exec` to repeat it: the deadline, in seconds or as `2m`.
    #[serde(default, deserialize_with = "seconds")]
    #[schemars(with = "Option<Duration>")]
    pub within: Option<u64>,
    /// Of `exec`: the script, for `sh -c`.
    pub run: Option<String>,
    /// Of `exec`: what it prints, without white space at both ends.
    pub output: Option<String>,
    /// Of `exec`: it exits with another code than 0.
    #[serde(default)]
    pub fails: bool,
    /// Of `exec`, `write` and `read`: the container, if it is not the first.
    pub container: Option<String>,
    /// Of `write` and `read`: the path of the file or device.
    pub path: Option<String>,
    /// Of `read`: the path at which the data were written, if it is another.
    pub like: Option<String>,
    /// Of `write`: the size, a quantity such as `1Mi` (the default).
    pub size: Option<String>,
    /// Of `hold`: the claim.
    pub of: Option<String>,
    /// Of `hold` and `disrupt`: the node, by name or as `pod p`.
    pub node: Option<String>,
    /// Of `disrupt`: how.
    pub how: Option<How>,
    /// Afterwards waits until nothing has happened for so many milliseconds, whatever came of the step.
    pub rest: Option<u64>,
    /// The API server rejects it, for whatever reason.
    #[serde(default)]
    pub rejected: bool,
    /// The API server rejects it with this reason (`Invalid`, `Forbidden`) or with this text in its message.
    pub error: Option<String>,
}

/// A claim that a pod uses: its name, or with how it is mounted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    /// The name of the claim, which is in the namespace of the pod.
    pub claim: String,
    /// The path at which it is mounted, or of the device.
    pub path: Option<String>,
    /// The directory of the volume that is mounted at the path, instead of the whole volume.
    pub sub_path: Option<String>,
    /// The volume is published read-only.
    pub read_only: bool,
}

impl<'de> Deserialize<'de> for Use {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "camelCase")]
        struct Mounted {
            claim: String,
            path: Option<String>,
            sub_path: Option<String>,
            #[serde(default)]
            read_only: bool,
        }
        match Value::deserialize(deserializer)? {
            Value::String(claim) => Ok(Self { claim, ..Self::default() }),
            fields => {
                let Mounted { claim, path, sub_path, read_only } =
                    Mounted::deserialize(fields).map_err(serde::de::Error::custom)?;
                Ok(Self { claim, path, sub_path, read_only })
            }
        }
    }
}

impl JsonSchema for Use {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Use".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "the name of a claim, or `{ claim: data, path: /srv, subPath: logs, readOnly: true }`",
            "type": ["string", "object"],
            "properties": {
                "claim": { "type": "string" },
                "path": { "type": "string" },
                "subPath": { "type": "string" },
                "readOnly": { "type": "boolean" },
            },
            "required": ["claim"],
            "additionalProperties": false,
        })
    }
}

/// A number of seconds, or a text such as `30s` or `2m`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Duration {
    Seconds(u64),
    Text(String),
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = match Option::<Duration>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Duration::Seconds(seconds)) => return Ok(Some(seconds)),
        Some(Duration::Text(text)) => text,
    };
    let (number, factor) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        (None, None) => (text.as_str(), 1),
    };
    let number: Result<u64, _> = number.parse();
    let unknown =
        |_| serde::de::Error::custom(format!("{text:?} is no duration: write seconds, `30s` or `2m`"));
    number.map(|number| Some(number * factor)).map_err(unknown)
}

/// How a component is disrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// SIGKILL; it is restarted at once.
    Kill,
    /// It is stopped until `start`.
    Stop,
    /// Starts it again.
    Start,
    /// SIGSTOP: it hangs until `resume`.
    Pause,
    /// SIGCONT.
    Resume,
}

/// What must hold for a whole scenario. That nothing is left behind needs no line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expect {
    /// The exact number of calls for the scenario's volumes, by method. A call that failed and was repeated counts once.
    #[serde(default)]
    pub calls: BTreeMap<CsiMethod, u64>,
    /// Calls that succeeded for the scenario's volumes, in this order; others may be between them.
    #[serde(default)]
    pub order: Vec<CsiMethod>,
    /// Events that must have been seen.
    #[serde(default)]
    pub events: Vec<Seen>,
    /// Events that must not have been seen.
    #[serde(default)]
    pub no_events: Vec<Seen>,
    /// The longest duration of phases, in seconds, by the phase's name.
    #[serde(default)]
    pub phases: BTreeMap<Phase, f64>,
}

/// An event of an object.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The object: `claim data`.
    pub of: String,
    /// The reason.
    pub reason: Option<String>,
    /// A part of the message.
    pub message: Option<String>,
}

impl Scenario {
    /// All objects that it creates or applies, with the lines of their steps; 0 for those that are given.
    pub fn objects(&self) -> impl Iterator<Item = (u64, &Object)> {
        let of_steps = self.steps.iter();
        let of_steps =
            of_steps.flat_map(|step| step.create.iter().chain(&step.apply).map(|object| (step.line, object)));
        self.given.iter().map(|object| (0, object)).chain(of_steps)
    }
}

/// A field that is there, also one without a value.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(field).map(Some)
}

impl Step {
    /// The same patch, of the status.
    pub fn status(self) -> Self {
        Self { status: true, ..self }
    }

    /// Whether it creates an object of which kind and name begin with this.
    pub fn creates(&self, object: &str) -> bool {
        self.create.as_ref().and_then(Object::short).is_some_and(|created| created.starts_with(object))
    }

    /// The action, and what it concerns; none of a step that only waits.
    pub fn action(&self) -> Option<(&'static str, String)> {
        let object = |object: &Object| match object.form() {
            Ok(Given::Short(name, _)) => name.to_owned(),
            Ok(Given::File(path)) => path.to_owned(),
            Ok(Given::Manifest(of)) => {
                let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
                format!("{} {}", text(&of["kind"]), text(&of["metadata"]["name"]))
            }
            Err(_) => String::new(),
        };
        let named = |verb: &'static str, of: &Option<String>| of.clone().map(|of| (verb, of));
        self.create
            .as_ref()
            .map(|of| ("create", object(of)))
            .or_else(|| self.apply.as_ref().map(|of| ("apply", object(of))))
            .or_else(|| named("patch", &self.patch))
            .or_else(|| named("delete", &self.delete))
            .or_else(|| named("never", &self.never))
            .or_else(|| named("allow", &self.allow))
            .or_else(|| named("exec", &self.exec))
            .or_else(|| named("write", &self.write))
            .or_else(|| named("read", &self.read))
            .or_else(|| named("hold", &self.hold))
            .or_else(|| named("release", &self.release))
            .or_else(|| named("disrupt", &self.disrupt))
            .or_else(|| named("remove", &self.remove))
            .or_else(|| self.fault.as_ref().map(|faults| ("fault", faults.join(", "))))
    }

    /// What it waits for.
    fn wait(&self) -> Option<String> {
        let what = self.until.as_ref()?;
        let gone = if self.gone { " gone".to_owned() } else { String::new() };
        let has = self.has.as_ref().map(|has| format!(" {has}")).unwrap_or_default();
        let reason = self.reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
        let count = self.count.map(|count| format!(", {count} times")).unwrap_or_default();
        Some(format!("until {what}{gone}{has}{reason}{count}"))
    }

    /// What it does, for reports: its action, or what it waits for.
    pub fn title(&self) -> String {
        self.action()
            .map(|(verb, of)| format!("{verb} {of}").trim_end().to_owned())
            .or_else(|| self.wait())
            .unwrap_or_else(|| if self.driver.is_some() { "driver".into() } else { "settle".into() })
    }

    /// The same with what it waits for after its action.
    pub fn whole_title(&self) -> String {
        match (self.action(), self.wait()) {
            (Some(_), Some(wait)) => format!("{}, {wait}", self.title()),
            _ => self.title(),
        }
    }
}
