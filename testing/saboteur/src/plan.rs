//! Whether a rule applies to a call. Pure.

use claimcheck_csi::Code;
use serde_json::Value;

use crate::{
    fields::satisfies,
    row::{Outcome, Rule},
    world::{World, changes, key},
};

/// A call, before it is forwarded.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub method: String,
    pub request: Value,
    /// What it is about, in words.
    pub key: String,
    /// The id of the object that it is about, if that is known.
    pub object: Option<String>,
    /// Whether another call for this object is in progress.
    pub racing: bool,
    /// The methods of which a call about the same thing was cancelled.
    pub cancelled: Vec<String>,
    /// The endpoint at which it arrived.
    pub endpoint: String,
}

impl Call {
    pub fn new(method: String, request: Value, endpoint: String, world: &World) -> Self {
        let (key, object) = (key(&method, &request), world.object_of(&method, &request));
        Self { method, request, key, object, racing: false, cancelled: Vec::new(), endpoint }
    }
}

/// Whether the conditions of a rule hold, but for the number of the call and the answer.
pub(crate) fn applies(rule: &Rule, call: &Call, world: &World) -> bool {
    let when = &rule.when;
    let id = call.object.as_deref().unwrap_or_default();
    let first = world.first(&call.method, &call.key).map(|first| &first.request);
    let source = world.object(id).and_then(|object| object.source.clone()).or_else(|| requested_source(call));
    let source = source.unwrap_or_default();
    let is = |expected: Option<bool>, so: bool| expected.is_none_or(|expected| expected == so);
    rule.on.iter().any(|method| method == "any" || *method == call.method)
        && when.request.iter().all(|(path, predicate)| satisfies(&call.request, path, predicate, first))
        && is(when.repeated, world.repeated(&call.method, &call.key))
        && is(when.racing, call.racing)
        && when.cancelled.as_ref().is_none_or(|method| call.cancelled.contains(method))
        && when.after.as_ref().is_none_or(|method| world.called_before(method))
        && is(when.restarted, world.restarted(&call.endpoint))
        && when.named.as_ref().is_none_or(|predicate| {
            let name = world.object(id).map_or(Value::Null, |object| object.name.as_str().into());
            satisfies(&name, "", predicate, None)
        })
        && when.volume.iter().all(|state| world.is(id, *state))
        && !when.not.iter().any(|state| world.is(id, *state))
        && when.source.iter().all(|state| world.is(&source, *state))
}

/// Whether a rule can ask for such a call later, or for what it does to an object. The answers of all others, such as
/// those of lists, would be most of what each process of the driver reads when it starts.
pub(crate) fn is_remembered(rules: &[Rule], method: &str) -> bool {
    let mut named = rules.iter().flat_map(|rule| rule.on.iter().chain(&rule.when.after));
    changes(method) || named.any(|name| name == "any" || name == method)
}

/// What the object that a call creates is made from.
fn requested_source(call: &Call) -> Option<String> {
    let paths = [
        "volume_content_source.snapshot.snapshot_id",
        "volume_content_source.volume.volume_id",
        "source_volume_id",
    ];
    let ids = paths.into_iter().map(|path| crate::fields::text(&call.request, path));
    ids.into_iter().find(|id| !id.is_empty()).map(str::to_owned)
}

/// Whether the answer is the one of a rule. A rule that names none is about successful calls.
pub(crate) fn is_answered(rule: &Rule, code: Code, messages: &[Value]) -> bool {
    let reply = messages.first().unwrap_or(&Value::Null);
    let is_reply = rule.when.reply.iter().all(|(path, predicate)| satisfies(reply, path, predicate, None));
    is_reply
        && match rule.when.answer {
            None => code == Code::Ok,
            Some(Outcome::Error) => code != Code::Ok,
            Some(Outcome::Code(expected)) => code == expected,
        }
}
