//! What is wrong in a scenario, as far as that is known without a cluster.

use claimcheck_csi::{Code, message::Method, tap::code_name};
use claimcheck_model::{CsiMethod, UnknownMethod, unknown};
use serde_json::Value;

use crate::{
    fields,
    file::{Answer, Expect, Given, How, Object, Requires, Scenario, Script, Step, World},
    kind::Kind,
    reference::split,
    subject::Subject,
};

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// The line in the file; 0 of what is in no step.
    pub line: u64,
    /// What, and what to write instead.
    pub what: String,
}

/// All that is wrong with it, except for names of objects.
pub fn scenario(scenario: &Scenario) -> Vec<Slip> {
    let whole = |what: String| Slip { line: 0, what };
    let expected = scenario.expect.events.iter().chain(&scenario.expect.no_events);
    let expected = expected.filter_map(|seen| split(&seen.of).err());
    let methods = scenario.expect.calls.keys().chain(&scenario.expect.order).copied();
    let methods = methods.filter_map(|of| counted(of).err());
    let expected = expected.chain(methods).map(|what| format!("expect: {what}"));
    let steps = scenario.steps.iter().filter_map(|of| {
        let what = step(of, scenario.world)?;
        Some(Slip { line: of.line, what })
    });
    let given =
        [wrong_name(&scenario.name), no_steps(&scenario.steps), script(&scenario.driver, scenario.world)];
    let given = given.into_iter().flatten().chain(expected).map(whole);
    let steps = steps
        .chain(not_held(&scenario.steps))
        .chain(not_forbidden(&scenario.steps))
        .chain(not_here(scenario));
    let steps = steps.chain(early(scenario)).chain(without_parameters(scenario)).chain(not_alone(scenario));
    given.chain(steps).chain(scenario.given.iter().filter_map(|of| Some(whole(stray(of)?)))).collect()
}

/// A field that an object to be created does not have.
fn stray(object: &Object) -> Option<String> {
    let (kind, _) = object.kind_and_name()?;
    match object.form() {
        Ok(Given::Short(_, more)) => fields::stray(kind, &more),
        Ok(Given::Manifest(manifest)) => fields::stray(kind, manifest),
        Ok(Given::File(_)) | Err(_) => None,
    }
}

/// A field that the objects of a step do not have; it may be what the API server must refuse.
fn stray_of(step: &Step) -> Option<String> {
    let of = |name: &str, part: &Value| fields::stray(split(name).ok()?.0, part);
    let waits = [&step.until, &step.never].into_iter().flatten();
    let waited = waits.into_iter().find_map(|what| match (Subject::parse(what), &step.has) {
        (Ok(Subject::Object(object)), Some(has)) => of(object, has),
        _ => None,
    });
    if step.rejected || step.error.is_some() {
        return waited;
    }
    let created = step.create.iter().chain(&step.apply);
    let mut created = created.filter_map(|object| {
        let (kind, _) = object.kind_and_name()?;
        stray(object).or_else(|| fields::stray(kind, &step.with))
    });
    let patched = step.patch.iter().find_map(|object| of(object, &step.with));
    waited.or_else(|| created.next()).or(patched)
}

/// An answer for the node of a pod, when no pod runs yet.
fn early(scenario: &Scenario) -> Option<Slip> {
    let node = |answer: &Answer| answer.node.clone().filter(|node| node.starts_with("pod "));
    let (method, node) = scenario
        .driver
        .iter()
        .find_map(|(method, answers)| Some((method, answers.iter().find_map(node)?)))?;
    let what = format!(
        "driver: {method}: node: {node} runs on no node yet: write the answer in a step after it does"
    );
    Some(Slip { line: 0, what })
}

/// A VolumeAttributesClass without parameters, which the API server refuses.
fn without_parameters(scenario: &Scenario) -> Option<Slip> {
    let lacks = |object: &Object, with: &Value| match object.form() {
        Ok(Given::Short(name, more))
            if split(name).is_ok_and(|(kind, _)| kind.short == "attributes-class") =>
        {
            [&more, with].into_iter().all(|of| of["parameters"].is_null())
        }
        _ => false,
    };
    let is_sent = |step: &&Step| !step.rejected && step.error.is_none();
    let given = scenario.given.iter().map(|object| (0, object, &Value::Null));
    let created =
        scenario.steps.iter().filter(is_sent).flat_map(|step| {
            step.create.iter().chain(&step.apply).map(|object| (step.line, object, &step.with))
        });
    let of_cluster = given.chain(created).filter(|_| scenario.world == World::Cluster);
    let (line, object, _) = of_cluster.into_iter().find(|(_, object, with)| lacks(object, with))?;
    let name = object.short().unwrap_or_default();
    let what = format!(
        "{name}: Kubernetes requires parameters: write those of the driver in `with: {{ parameters: .. }}`"
    );
    Some(Slip { line, what })
}

/// A change of what concerns all namespaces, while other cases run.
fn not_alone(scenario: &Scenario) -> Option<Slip> {
    if scenario.alone || scenario.world == World::Controllers {
        return None;
    }
    let of_all = |name: &&str| {
        let Ok((kind, name)) = split(name) else { return false };
        let is_of_cluster = kind.is_of_cluster() && (name.starts_with('=') || name == "$driver");
        is_of_cluster || ["node", "csi-node"].contains(&kind.short)
    };
    let changed = |step: &Step| {
        let applied = step.apply.as_ref().and_then(Object::short);
        let mut named = [step.patch.as_deref(), step.delete.as_deref(), applied].into_iter().flatten();
        named.find(of_all).map(str::to_owned)
    };
    let (line, name) = scenario.steps.iter().find_map(|step| Some((step.line, changed(step)?)))?;
    let what = format!("{name} concerns all namespaces, where other cases run: write `alone: true`");
    Some(Slip { line, what })
}

fn wrong_name(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_right =
        !name.is_empty() && name.chars().all(fits) && !name.starts_with('-') && !name.ends_with('-');
    (!is_right).then(|| {
        format!("name {name:?}: use lower case letters, digits and hyphens, since it is part of a namespace")
    })
}

fn no_steps(steps: &[Step]) -> Option<String> {
    steps.is_empty().then(|| "steps is empty: a scenario does something".to_owned())
}

/// A release without a hold before it.
fn not_held(steps: &[Step]) -> Option<Slip> {
    steps.iter().enumerate().find_map(|(number, step)| {
        let method = step.release.as_ref()?;
        let is_held = steps[..number].iter().any(|before| before.hold.as_ref() == Some(method));
        (!is_held).then(|| Slip { line: step.line, what: format!("no step before holds {method}") })
    })
}

/// A step that allows what no step before forbids.
fn not_forbidden(steps: &[Step]) -> Option<Slip> {
    steps.iter().enumerate().find_map(|(number, step)| {
        let what = step.allow.as_ref()?;
        let is_forbidden = steps[..number].iter().any(|before| before.never.as_ref() == Some(what));
        let what = format!("no step before says `never: {what}`: write its text");
        (!is_forbidden).then_some(Slip { line: step.line, what })
    })
}

/// An object or a field for which the world of the scenario has no use.
fn not_here(scenario: &Scenario) -> Option<Slip> {
    let first = |is_stray: fn(&Object) -> bool, what: &str| {
        let (line, _) = scenario.objects().find(|(_, object)| is_stray(object))?;
        Some(Slip { line, what: what.to_owned() })
    };
    match scenario.world {
        World::Cluster => first(
            |object| object.kind_and_name().is_some_and(|(kind, _)| kind.short == "grant"),
            "a ReferenceGrant needs `world: controllers`: no kind of cluster has sources in other namespaces",
        ),
        World::Controllers => {
            let fields = [
                ("requires", scenario.requires != Requires::default()),
                ("expect", scenario.expect != Expect::default()),
            ];
            let stray = fields.iter().find(|(_, is_set)| *is_set).map(|(field, _)| Slip {
                line: 0,
                what: format!("{field} needs `world: cluster`: here two sides are compared"),
            });
            stray.or_else(|| {
                first(
                    |object| object.short().is_none(),
                    "a manifest needs `world: cluster`: write kind and name, and `with`",
                )
            })
        }
    }
}

/// What is wrong with an object.
///
/// # Errors
/// It is none, or its kind is not known.
pub fn object(object: &Object) -> Result<(), String> {
    match object.form()? {
        Given::File(_) => Ok(()),
        Given::Short(name, _) => match split(name)? {
            (_, "") => Err(format!("{name}: write a name after the kind")),
            _ => Ok(()),
        },
        Given::Manifest(manifest) => {
            let kind = Kind::of_manifest(manifest).ok_or_else(|| {
                let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
                let known: Vec<_> = crate::kind::KINDS.iter().map(|kind| kind.kind).collect();
                format!(
                    "a {} of {} is not known: known are {}",
                    text("kind"),
                    text("apiVersion"),
                    known.join(", ")
                )
            })?;
            match manifest["metadata"]["name"].as_str() {
                Some(_) => Ok(()),
                None => Err(format!("the {} has no metadata.name", kind.kind)),
            }
        }
    }
}

fn step(step: &Step, world: World) -> Option<String> {
    let actions = [
        ("create", step.create.is_some()),
        ("apply", step.apply.is_some()),
        ("patch", step.patch.is_some()),
        ("delete", step.delete.is_some()),
        ("never", step.never.is_some()),
        ("allow", step.allow.is_some()),
        ("exec", step.exec.is_some()),
        ("write", step.write.is_some()),
        ("read", step.read.is_some()),
        ("fault", step.fault.is_some()),
        ("hold", step.hold.is_some()),
        ("release", step.release.is_some()),
        ("disrupt", step.disrupt.is_some()),
        ("remove", step.remove.is_some()),
    ];
    let set: Vec<&str> = actions.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    let also: Vec<&str> = [
        ("until", step.until.is_some()),
        ("driver", step.driver.is_some()),
        ("settle", step.settle.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_set)| is_set.then_some(name))
    .collect();
    match set.as_slice() {
        [] if also.is_empty() => {
            return Some("the step does nothing: write create, until or another action".to_owned());
        }
        [] | [_] => {}
        [one, other, ..] => return Some(format!("a step has one action: {one} and {other} are two steps")),
    }
    let has = |names: &[&str]| names.iter().any(|name| set.contains(name) || also.contains(name));
    // Each field, whether it is set, and the actions that it belongs to.
    let fields: [(&str, bool, &[&str]); 23] = [
        ("with", !step.with.is_null(), &["create", "apply", "patch"]),
        ("uses", !step.uses.is_empty(), &["create", "apply"]),
        ("status", step.status, &["patch"]),
        ("grace", step.grace.is_some(), &["delete"]),
        ("has", step.has.is_some(), &["until", "never"]),
        ("lacks", step.lacks.is_some(), &["never"]),
        ("gone", step.gone, &["until", "never"]),
        ("reason", step.reason.is_some(), &["until", "never"]),
        ("message", step.message.is_some(), &["until", "never"]),
        ("count", step.count.is_some(), &["until"]),
        ("within", step.within.is_some(), &["until", "exec"]),
        ("run", step.run.is_some(), &["exec"]),
        ("output", step.output.is_some(), &["exec"]),
        ("fails", step.fails, &["exec"]),
        ("container", step.container.is_some(), &["exec", "write", "read"]),
        ("path", step.path.is_some(), &["write", "read"]),
        ("like", step.like.is_some(), &["read"]),
        ("size", step.size.is_some(), &["write"]),
        ("of", step.of.is_some(), &["hold"]),
        ("node", step.node.is_some(), &["hold", "disrupt"]),
        ("how", step.how.is_some(), &["disrupt"]),
        ("rejected", step.rejected, &["create", "apply", "patch", "delete"]),
        ("error", step.error.is_some(), &["create", "apply", "patch", "delete"]),
    ];
    let stray = fields.iter().find(|(_, is_set, of)| *is_set && !has(of));
    if let Some((field, _, of)) = stray {
        return Some(format!("{field} belongs to {}, which the step does not have", of.join(", ")));
    }
    if step.has == Some(Value::Null) {
        return Some("has is empty: write fields after it".to_owned());
    }
    if step.count == Some(0) {
        return Some("count: 0 is always reached: what must not come is said with `never`".to_owned());
    }
    if let Some(other) = step.uses.iter().map(|used| &used.claim).find(|name| name.contains('/')) {
        return Some(format!("uses: {other}: a claim is in the namespace of its pod: write its name alone"));
    }
    if step.gone && step.has.is_some() {
        return Some("an object that is gone has nothing: write `has` or `gone`".to_owned());
    }
    let missing = [
        ("exec", "run", step.run.is_some()),
        ("write", "path", step.path.is_some()),
        ("read", "path", step.path.is_some()),
        ("disrupt", "how", step.how.is_some()),
        ("patch", "with", !step.with.is_null()),
    ];
    if let Some((action, field, _)) = missing.iter().find(|(action, _, is_set)| has(&[action]) && !is_set) {
        return Some(format!("{action} needs {field}"));
    }
    let objects = step.create.iter().chain(&step.apply);
    if let Some(what) = objects.filter_map(|of| object(of).err()).next() {
        return Some(what);
    }
    let pods = [&step.exec, &step.write, &step.read];
    if let Some(other) = pods.into_iter().flatten().find(|name| !name.starts_with("pod ")) {
        return Some(format!("{other} is no pod: write `pod` and its name"));
    }
    let named = [&step.patch, &step.delete, &step.remove].into_iter().flatten();
    if let Some(what) = named.filter_map(|name| split(name).err()).next() {
        return Some(what);
    }
    let waits = [&step.until, &step.never].into_iter().flatten();
    if let Some(what) = waits.filter_map(|what| wait(what, step, world)).next() {
        return Some(what);
    }
    let methods = [&step.hold, &step.release].into_iter().flatten();
    if let Some(what) = methods.filter_map(|name| method(name).err()).next() {
        return Some(what);
    }
    if let Some(other) = step.disrupt.as_ref().filter(|of| !VICTIMS.contains(&of.as_str())) {
        return Some(format!("{other} cannot be disrupted: known are {}", VICTIMS.join(", ")));
    }
    let hows = match step.disrupt.as_deref() {
        Some("node") => &[How::Kill][..],
        Some("registration") => &[How::Stop, How::Start],
        _ => &HOWS,
    };
    if let Some(how) = step.how.filter(|how| !hows.contains(how)) {
        let known =
            hows.iter().map(|how| format!("{how:?}").to_lowercase()).collect::<Vec<_>>().join(" and ");
        let what = step.disrupt.as_deref().unwrap_or_default();
        return Some(format!("how: {how:?} is not for a {what}, only {known}").to_lowercase());
    }
    if let Some(other) = step.remove.as_ref().filter(|name| !name.starts_with("claim ")) {
        return Some(format!("remove: {other} is no claim: write `claim` and its name"));
    }
    if let Some(what) = step.driver.as_ref().and_then(|answers| script(answers, world)) {
        return Some(what);
    }
    stray_of(step).or_else(|| in_world(step, &set, world))
}

/// The calls that are about one volume or snapshot, and so belong to a claim.
const COUNTED: [CsiMethod; 14] = [
    CsiMethod::CreateVolume,
    CsiMethod::DeleteVolume,
    CsiMethod::ControllerPublishVolume,
    CsiMethod::ControllerUnpublishVolume,
    CsiMethod::ControllerExpandVolume,
    CsiMethod::ControllerModifyVolume,
    CsiMethod::NodeStageVolume,
    CsiMethod::NodeUnstageVolume,
    CsiMethod::NodePublishVolume,
    CsiMethod::NodeUnpublishVolume,
    CsiMethod::NodeExpandVolume,
    CsiMethod::CreateSnapshot,
    CsiMethod::DeleteSnapshot,
    CsiMethod::GetSnapshot,
];

fn counted(method: CsiMethod) -> Result<CsiMethod, String> {
    let is_counted = COUNTED.contains(&method);
    is_counted
        .then_some(method)
        .ok_or_else(|| format!("calls of {method} belong to no claim, so they are not counted"))
}

/// What can be disrupted.
const VICTIMS: [&str; 5] = ["controllers", "agent", "driver", "registration", "node"];
const HOWS: [How; 5] = [How::Kill, How::Stop, How::Start, How::Pause, How::Resume];

/// What is waited for: an object, an event, a call or a phase.
fn wait(what: &str, step: &Step, world: World) -> Option<String> {
    let subject = match Subject::parse(what) {
        Ok(subject) => subject,
        Err(what) => return Some(what),
    };
    let known = match subject {
        Subject::Call { claim: None, .. } if world == World::Controllers => Ok(()),
        Subject::Call { .. } | Subject::Phase { .. } if world == World::Controllers => {
            Err(format!("{what} needs `world: cluster`: write `call` and a method, or an object"))
        }
        // The name of a published capacity is generated.
        Subject::Object(object) if object.starts_with("capacity ") => Ok(()),
        Subject::Object(object) | Subject::Event(object) => split(object).map(drop),
        Subject::Call { method, claim } => {
            counted(method).and_then(|_| claim.map_or(Ok(()), |claim| split(claim).map(drop))).and_then(
                |()| step.has.iter().chain(&step.lacks).try_for_each(|has| request_fields(method, has)),
            )
        }
        Subject::Phase { .. } if step.never.is_some() => {
            Err("a phase cannot be forbidden: use until".to_owned())
        }
        Subject::Phase { claim, .. } => claim.map_or(Ok(()), |claim| split(claim).map(drop)),
    };
    if let Err(what) = known {
        return Some(what);
    }
    let stray = match subject {
        Subject::Call { .. } => {
            let of_cluster = world == World::Controllers && step.has.is_some();
            [
                ("has", of_cluster),
                ("gone", step.gone),
                ("reason", step.reason.is_some()),
                ("message", step.message.is_some()),
            ]
        }
        Subject::Event(_) | Subject::Phase { .. } => [
            ("has", step.has.is_some()),
            ("gone", step.gone),
            ("count", step.count.is_some()),
            ("lacks", step.lacks.is_some()),
        ],
        Subject::Object(_) => [
            ("reason", step.reason.is_some()),
            ("message", step.message.is_some()),
            ("count", step.count.is_some()),
            ("lacks", step.lacks.is_some()),
        ],
    };
    let stray = stray.iter().find(|(_, is_set)| *is_set);
    stray.map(|(field, _)| format!("{field} does not belong to {what}: an object has `has` or `gone`, an event `reason` and `message`, a call `count`, and in `world: cluster` `has` and, after `never`, `lacks`"))
}

fn method(name: &str) -> Result<CsiMethod, String> {
    name.parse().map_err(|error: UnknownMethod| error.to_string())
}

fn script(script: &Script, world: World) -> Option<String> {
    script.iter().find_map(|(name, answers)| {
        let known = match world {
            World::Cluster => method(name).map(drop),
            World::Controllers => scripted(name).map(drop),
        };
        known.err().or_else(|| answers.iter().find_map(|of| answer(name, of, world)))
    })
}

fn answer(method: &str, answer: &Answer, world: World) -> Option<String> {
    let has_fields = !answer.with.is_null();
    let is_with = has_fields && world == World::Cluster;
    let ways = [answer.fail.is_some(), answer.hang, answer.late.is_some(), answer.lost, is_with];
    let ways = ways.into_iter().filter(|is_set| *is_set).count();
    let of_cluster = answer.of.is_some() || answer.node.is_some() || answer.lost;
    match world {
        World::Cluster if ways != 1 => {
            Some(format!("{method}: write one of fail, hang, late, lost and with"))
        }
        World::Cluster if has_fields => answer_fields(method, &answer.with),
        World::Controllers if of_cluster => {
            Some(format!("{method}: of, node and lost need `world: cluster`"))
        }
        World::Cluster | World::Controllers => {
            if let Some(stray) = scripted_fields(method, &answer.with).filter(|_| has_fields) {
                return Some(stray);
            }
            let fail = answer.fail.as_ref()?;
            let name = fail.split(' ').next().unwrap_or_default();
            code(name).is_none().then(|| {
                format!(
                    "{method}: {name} is no gRPC code: write its name and a message, as `INTERNAL no slot`"
                )
            })
        }
    }
}

/// The calls that the scripted driver of `world: controllers` answers as a scenario says, and the fields that `with` may have.
const SCRIPTED: [(&str, &[&str]); 12] = [
    ("CreateVolume", &["capacity", "topology", "forget-source"]),
    ("DeleteVolume", &[]),
    ("ControllerPublishVolume", &["unlisted"]),
    ("ControllerUnpublishVolume", &[]),
    ("ControllerExpandVolume", &["capacity", "node"]),
    ("ControllerModifyVolume", &[]),
    ("CreateSnapshot", &["size", "unready"]),
    ("DeleteSnapshot", &[]),
    ("GetCapacity", &["capacity", "maximum"]),
    ("CreateVolumeGroupSnapshot", &["size", "unready"]),
    ("DeleteVolumeGroupSnapshot", &[]),
    ("GetVolumeGroupSnapshot", &["unready"]),
];

fn scripted(method: &str) -> Result<&'static [&'static str], String> {
    let found = SCRIPTED.iter().find(|(name, _)| *name == method).map(|(_, fields)| *fields);
    let known = || SCRIPTED.map(|(name, _)| name);
    found.ok_or_else(|| unknown("call", method, &known()))
}

/// What is wrong with the fields of an answer of the scripted driver.
fn scripted_fields(method: &str, with: &Value) -> Option<String> {
    let known = scripted(method).ok()?;
    let Value::Object(fields) = with else { return Some(format!("{method}: with has fields")) };
    let stray = fields.keys().find(|field| !known.contains(&field.as_str()))?;
    match known {
        [] => Some(format!("{method}: with: the answer has no fields")),
        known => Some(format!("{method}: with: {}", unknown("field", stray, known))),
    }
}

/// What is wrong with the changes to an answer.
fn answer_fields(method: &str, with: &Value) -> Option<String> {
    let method = Method::all().find(|known| known.name == method)?;
    // Null removes a field.
    let mut fields = Value::Null;
    json_patch::merge(&mut fields, with);
    let error = method.answer.encode(&fields).err()?;
    Some(format!("{}: with: {error}: write fields of the answer as in the CSI specification", method.name))
}

/// Whether any value is meant, or none.
fn is_open(value: &Value) -> bool {
    value.is_null() || value == "*"
}

/// Checks the fields that the request of a call is to have.
fn request_fields(method: CsiMethod, has: &Value) -> Result<(), String> {
    let Some(of) = Method::all().find(|known| known.name == method.as_str()) else { return Ok(()) };
    if let Some((key, _)) =
        has["secrets"].as_object().into_iter().flatten().find(|(_, value)| !is_open(value))
    {
        return Err(format!(
            "{method}: has: secrets.{key}: the values of secrets are hidden: write \"*\", or null"
        ));
    }
    let wrong = of.request.misfit(has);
    wrong.map_or(Ok(()), |what| {
        Err(format!("{method}: has: {what} (a request has the fields of the CSI specification)"))
    })
}

/// The code of an error, by its name in either spelling: `NOT_FOUND` and `NotFound` are one.
pub fn code(name: &str) -> Option<Code> {
    let plain = |name: &str| name.replace('_', "").replace("LL", "L").replace("ll", "l").to_lowercase();
    let mut errors = (1..17).map(Code::from);
    errors.find(|code| plain(code_name(*code)) == plain(name))
}

/// What a step may not do in its world.
fn in_world(step: &Step, actions: &[&str], world: World) -> Option<String> {
    const OF_CLUSTERS: [&str; 11] =
        ["apply", "never", "allow", "exec", "write", "read", "fault", "hold", "release", "disrupt", "remove"];
    match world {
        World::Controllers => {
            let fields = [("uses", !step.uses.is_empty()), ("error", step.error.is_some())];
            let fields = fields.iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field);
            let stray = actions.iter().filter(|action| OF_CLUSTERS.contains(*action)).chain(fields).next();
            stray.map(|name| format!("{name} needs `world: cluster`, where pods run"))
        }
        World::Cluster => {
            let alone = "in `world: cluster` nodes and the scheduler do that themselves";
            let object = step.create.iter().chain(&step.apply).find_map(Object::short).unwrap_or_default();
            let of_node = |name: &str| name.starts_with("node ") || name.starts_with("csi-node ");
            if of_node(object) || step.delete.as_deref().is_some_and(|name| name.starts_with("csi-node ")) {
                return Some(format!("{object} is not a scenario's to write: {alone}"));
            }
            if step.status {
                return Some(format!("status is not a scenario's to write: {alone}"));
            }
            let pins = !step.with["spec"]["nodeName"].is_null();
            pins.then(|| format!("spec.nodeName is not a scenario's to write: {alone}; use nodeSelector"))
        }
    }
}
