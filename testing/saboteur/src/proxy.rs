//! The proxy: takes a call, lets the rules of a defect act, forwards it to the driver, and lets them act again.
//!
//! Calls to which no rule applies pass as they are. Successful calls are remembered.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    task,
};

use anyhow::{Context as _, Result};
use claimcheck_csi::{
    Endpoint, connect,
    message::{Method, frame, frames},
};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_LENGTH, request::Parts};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::time::sleep;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{BoxFuture, Bytes, Service},
    transport::Channel,
};
use tower::ServiceExt;
use tracing::{info, warn};

use crate::{
    fields::{self, Around, text},
    memory::Memory,
    node,
    plan::{Call, applies, is_answered, is_remembered},
    row::{Action, At, Change, Data, Defect, Forward, Harm, Leave, Moment, Number, Of, Rule},
    world::{Entry, Pending, World, creates},
};

/// Field 1900, a text of one letter: csi.proto has no fields with such numbers.
const UNKNOWN_FIELD: &[u8] = &[0xe2, 0x76, 1, b'x'];

/// What ends or stops the driver's process and this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    /// Kills them.
    pub kill: fn(),
    /// Stops them, so that they answer no call.
    pub stop: fn(),
}

/// A proxy with one defect, before one endpoint of a driver.
#[derive(Debug)]
pub(crate) struct Proxy {
    defect: Defect,
    memory: Memory,
    driver: Channel,
    /// The endpoint at which it listens.
    endpoint: String,
    /// None if another program started the driver.
    control: Option<Control>,
    /// The number of calls in progress, by their objects.
    in_progress: Mutex<BTreeMap<String, usize>>,
    /// The keys and methods of calls that were cancelled.
    cancelled: Mutex<BTreeSet<(String, String)>>,
    /// How often each rule matched.
    matches: Mutex<BTreeMap<usize, u64>>,
}

/// Counts a call as in progress, and notes that it was cancelled unless it is answered.
struct InProgress<'a> {
    proxy: &'a Proxy,
    object: String,
    /// The key and the method of the call.
    call: (String, String),
    answered: bool,
}

/// What the driver answered, or what is answered for it.
struct Answer {
    code: Code,
    /// The messages, if the code is OK.
    messages: Vec<Value>,
    /// The answer as it came, unless it is changed.
    raw: Option<Response<Body>>,
    error: String,
    /// The details of an error.
    details: &'static [u8],
    /// What follows each message.
    more: &'static [u8],
}

impl Answer {
    fn ok(message: Value) -> Self {
        Self { messages: vec![message], error: String::new(), ..Self::error(Code::Ok) }
    }

    fn error(code: Code) -> Self {
        let error = "an answer of the saboteur".to_owned();
        Self { code, messages: Vec::new(), raw: None, error, details: &[], more: &[] }
    }
}

impl Proxy {
    /// A proxy before `driver` that listens at `endpoint`.
    ///
    /// # Errors
    /// The memory cannot be opened.
    pub fn new(
        defect: Defect,
        memory: &Path,
        driver: &Endpoint,
        endpoint: &Endpoint,
        control: Option<Control>,
    ) -> Result<Self> {
        let failed = || format!("cannot open the saboteur's memory, {}", memory.display());
        let memory = Memory::open(memory).with_context(failed)?;
        let endpoint = endpoint.to_string();
        memory.add(&[Entry::Started(endpoint.clone())]).with_context(failed)?;
        Ok(Self {
            defect,
            memory,
            driver: connect(driver),
            endpoint,
            control,
            in_progress: Mutex::default(),
            cancelled: Mutex::default(),
            matches: Mutex::default(),
        })
    }

    async fn handle(&self, request: Request<Body>) -> Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.context("the request ended early")?.to_bytes();
        let method = Method::at(head.uri.path());
        let message = method.as_ref().and_then(|method| {
            let frames = frames(&bytes).ok()?;
            method.request.decode(frames.first()?).ok()
        });
        match (method, message) {
            (Some(method), Some(message)) => self.meddle(&head, &method, (bytes, message)).await,
            _ => self.forward(&head, bytes).await,
        }
    }

    async fn meddle(
        &self,
        head: &Parts,
        method: &Method,
        (bytes, message): (Bytes, Value),
    ) -> Result<Response<Body>> {
        let endpoint = self.endpoint.clone();
        let mut call = self.memory.look(|world| Call::new(method.name.clone(), message, endpoint, world))?;
        let mut in_progress = self.enter(&mut call);
        let (rules, first, was_published) = self.memory.look(|world| {
            let rules = self.defect.rules.iter().enumerate().filter(|(_, rule)| applies(rule, &call, world));
            let rules: Vec<usize> = rules.map(|(nth, _)| nth).collect();
            let first = world.first(&call.method, &call.key).cloned();
            let object = call.object.as_deref().and_then(|id| world.object(id));
            (rules, first, object.is_some_and(|object| !object.published.is_empty()))
        })?;
        let rules: Vec<usize> = rules.into_iter().filter(|nth| self.is_due(*nth)).collect();
        let first = first.map(|first| first.answer);
        self.save_content(&call)?;
        let before: Vec<usize> =
            rules.iter().copied().filter(|nth| self.defect.rules[*nth].when.is_before()).collect();
        before.iter().for_each(|nth| self.note_applied(*nth));
        let (request, twice, instead) = self.before(&before, &call, first.as_ref()).await?;
        let skipped = instead.is_some();
        let mut answer = match instead {
            Some(answer) => answer,
            None => {
                // As it came, with fields that csi.proto does not have, unless a rule changed it.
                let changed = request != call.request;
                let bytes = if changed { frame(&method.request.encode(&request)?) } else { bytes };
                if twice {
                    self.forward(head, bytes.clone())
                        .await?
                        .into_body()
                        .collect()
                        .await
                        .context("the answer ended early")?;
                }
                Self::read(self.forward(head, bytes).await?, method).await?
            }
        };
        let code = answer.code;
        let after: Vec<usize> = rules
            .into_iter()
            .filter(|nth| {
                (skipped && before.contains(nth))
                    || is_answered(&self.defect.rules[*nth], code, &answer.messages)
            })
            .collect();
        after.iter().filter(|nth| !before.contains(nth)).for_each(|nth| self.note_applied(*nth));
        self.further(&after, head, &call).await?;
        self.answer(&after, &call, &mut answer, first.as_ref())?;
        let object = self.remember(&call, &answer)?;
        self.effects(&after, &call, object.as_deref()).await?;
        if code == Code::Ok && call.method == "NodePublishVolume" && !was_published {
            self.show(&call)?;
        }
        in_progress.answered = true;
        Self::response(answer, method)
    }

    /// Whether the number of a call is that of a rule.
    fn is_due(&self, nth: usize) -> bool {
        let mut matches = self.matches.lock().unwrap_or_else(PoisonError::into_inner);
        let number = matches.entry(nth).or_default();
        *number += 1;
        match self.defect.rules[nth].when.call {
            None => true,
            Some(Number::Nth(expected)) => *number == expected,
            Some(Number::From { from }) => *number >= from,
        }
    }

    fn note_applied(&self, nth: usize) {
        info!(defect = self.defect.name, rule = nth, "a rule applies");
    }

    /// Does what comes before a call: the request as it is forwarded, whether twice, or the answer instead.
    async fn before(
        &self,
        rules: &[usize],
        call: &Call,
        first: Option<&Value>,
    ) -> Result<(Value, bool, Option<Answer>)> {
        let (mut request, mut twice, mut instead) = (call.request.clone(), false, None);
        for action in rules.iter().flat_map(|nth| &self.defect.rules[*nth].then) {
            match action {
                Action::Refuse(code) => instead = Some(Answer::error(*code)),
                Action::Pretend(Value::String(word)) if word == "earlier" => {
                    // There is none if the thing was not done before.
                    instead = first.cloned().map(Answer::ok).or(instead);
                }
                Action::Pretend(message) => instead = Some(Answer::ok(message.clone())),
                Action::Request(change) => {
                    fields::change(
                        &mut request,
                        change,
                        Around { request: &call.request, first, other: None },
                    );
                }
                Action::Forward(Forward::Twice) => twice = true,
                Action::Forward(Forward::To(of)) => {
                    let of = *of;
                    let other = self.memory.look(|world| related(world, call.object.as_deref(), of))?;
                    if let Some(other) = other.into_iter().next() {
                        let ids = ["volume_id", "snapshot_id", "group_snapshot_id"];
                        for id in ids {
                            request.get_mut(id).into_iter().for_each(|id| *id = Value::String(other.clone()));
                        }
                    }
                }
                Action::Delay(duration) => sleep(*duration).await,
                Action::Hang(true) => std::future::pending().await,
                Action::Exit(Moment::Before) => self.exit(),
                Action::Stop(true) => {
                    self.control.inspect(|control| (control.stop)());
                    std::future::pending().await
                }
                Action::Log(true) => println!("{} {}", call.method, call.request),
                _ => {}
            }
        }
        Ok((request, twice, instead))
    }

    /// Makes further calls, whatever their answers are.
    async fn further(&self, rules: &[usize], head: &Parts, call: &Call) -> Result<()> {
        for action in rules.iter().flat_map(|nth| &self.defect.rules[*nth].then) {
            let Action::Call(further) = action else { continue };
            let path = head.uri.path().replace(&format!("/{}", call.method), &format!("/{}", further.method));
            let method = Method::at(&path).with_context(|| format!("there is no method {path}"))?;
            let mut request = call.request.clone();
            let change = Change { set: further.set.clone(), drop: further.drop.clone(), ..Change::default() };
            fields::change(
                &mut request,
                &change,
                Around { request: &call.request, first: None, other: None },
            );
            let mut to = head.clone();
            to.uri = path.parse()?;
            let answer = self.forward(&to, frame(&method.request.encode(&request)?)).await?;
            answer.into_body().collect().await.context("the answer ended early")?;
        }
        Ok(())
    }

    /// Changes the answer.
    fn answer(&self, rules: &[usize], call: &Call, answer: &mut Answer, first: Option<&Value>) -> Result<()> {
        for action in rules.iter().flat_map(|nth| &self.defect.rules[*nth].then) {
            match action {
                Action::Answer(change) => {
                    let other =
                        self.memory.look(|world| world.another_first(&call.method, &call.key).cloned())?;
                    let other = other.map(|other| other.answer);
                    for message in &mut answer.messages {
                        let around = Around { request: &call.request, first, other: other.as_ref() };
                        fields::change(message, change, around);
                    }
                    answer.raw = None;
                }
                Action::Quote(path) => {
                    let quoted: Vec<String> =
                        fields::at(&call.request, path).iter().map(ToString::to_string).collect();
                    *answer = Answer { error: quoted.join(", "), ..Answer::error(answer.code) };
                }
                Action::Message(error) => {
                    *answer = Answer { error: error.clone(), ..Answer::error(answer.code) }
                }
                Action::Details(true) => {
                    *answer = Answer { details: b"details", ..Answer::error(answer.code) }
                }
                Action::UnknownField(true) => {
                    answer.raw = None;
                    answer.more = UNKNOWN_FIELD;
                }
                Action::AnswerCode(Code::Ok) => *answer = Answer::ok(Value::Object(serde_json::Map::new())),
                Action::AnswerCode(code) => *answer = Answer::error(*code),
                _ => {}
            }
        }
        Ok(())
    }

    /// Remembers a successful call; the object that it is about.
    fn remember(&self, call: &Call, answer: &Answer) -> Result<Option<String>> {
        let [message] = &answer.messages[..] else { return Ok(call.object.clone()) };
        if call.method == "DeleteVolume"
            && let Some(object) = &call.object
        {
            self.keep_content(object)?;
        }
        if is_remembered(&self.defect.rules, &call.method) {
            let (method, request) = (call.method.clone(), call.request.clone());
            self.memory.add(&[Entry::Called { method, request, answer: message.clone() }])?;
        }
        Ok(self.memory.look(|world| world.object_of(&call.method, &call.request))?)
    }

    /// Does what comes after a call.
    async fn effects(&self, rules: &[usize], call: &Call, object: Option<&str>) -> Result<()> {
        let path = path_of(call);
        for nth in rules {
            for (position, action) in self.defect.rules[*nth].then.iter().enumerate() {
                match action {
                    Action::Data(data) => self.harm(data, (*nth, position), object)?,
                    Action::Mount(change) => match &path {
                        Some(path) => {
                            let changed = node::change_mount(path, *change, &self.scratch());
                            note(changed, path);
                        }
                        None => warn!(method = call.method, "a call without a path has no mount"),
                    },
                    Action::Leave(what) => {
                        let what = filled(what, &call.request);
                        let path = path.clone().unwrap_or_default();
                        note(node::leave(&path, &what, &self.scratch()), &path);
                    }
                    Action::Own(owner) => {
                        let path = path.clone().unwrap_or_default();
                        note(node::own(&path, owner), &path);
                    }
                    Action::DelayAnswer(duration) => sleep(*duration).await,
                    Action::Exit(Moment::After) => self.exit(),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Changes data now, or when it is published again.
    fn harm(&self, data: &Data, action: (usize, usize), object: Option<&str>) -> Result<()> {
        let targets = self.memory.look(|world| related(world, object, data.of))?;
        for target in targets {
            let (from, paths) = self.memory.look(|world| {
                let from = match data.r#do {
                    Harm::Swap => world.related(&target, Of::Other).into_iter().next(),
                    Harm::CopySource => world.source_volume(&target),
                    Harm::Stale => world.object(&target).map(|object| deleted(&object.name)),
                    _ => None,
                };
                let object = world.object(&target);
                let paths =
                    object.map(|it| it.published.iter().chain(&it.staged).cloned().collect::<Vec<_>>());
                (from, paths.unwrap_or_default())
            })?;
            let pending = Pending { object: target.clone(), action, from };
            let is_done = data.at == At::Now && self.harmed(&pending, &data.r#do, &paths)?;
            if !is_done {
                self.memory.add(&[Entry::Pending(pending)])?;
            }
        }
        Ok(())
    }

    /// Does what was pending for a volume that is published now.
    fn show(&self, call: &Call) -> Result<()> {
        let Some(object) = &call.object else { return Ok(()) };
        for (number, pending) in self.memory.look(|world| world.pending(object))? {
            let (rule, position) = pending.action;
            let rule: Option<&Rule> = self.defect.rules.get(rule);
            let Some(Action::Data(data)) = rule.and_then(|rule| rule.then.get(position)) else { continue };
            let fields = ["target_path", "staging_target_path"];
            let paths: Vec<String> =
                fields.iter().map(|field| text(&call.request, field).to_owned()).collect();
            if self.harmed(&pending, &data.r#do, &paths)? {
                self.memory.add(&[Entry::Applied(number)])?;
            }
        }
        Ok(())
    }

    /// Whether the data could be changed at one of these paths.
    fn harmed(&self, pending: &Pending, harm: &Harm, paths: &[String]) -> Result<bool> {
        if let Some(from) = &pending.from {
            // What it contains now, if it is published.
            let published =
                self.memory.look(|world| world.object(from).map(|object| object.published.clone()))?;
            self.save(from, published.iter().flatten().map(Path::new))?;
        }
        let content = pending.from.as_ref().map(|from| self.content(from));
        for path in paths.iter().map(Path::new).filter(|path| node::is_published(path)) {
            match node::harm(path, harm, content.as_deref()) {
                Ok(()) => return Ok(true),
                Err(error) => info!(%error, path = %path.display(), "the data cannot be changed here"),
            }
        }
        Ok(false)
    }

    /// Saves what a volume contains before it is unpublished, if a rule may put it elsewhere.
    fn save_content(&self, call: &Call) -> Result<()> {
        let moves = self.defect.rules.iter().flat_map(|rule| &rule.then).any(|action| {
            matches!(action, Action::Data(data) if matches!(data.r#do, Harm::Swap | Harm::CopySource | Harm::Stale))
        });
        match (&call.object, path_of(call)) {
            (Some(object), Some(path)) if moves && call.method == "NodeUnpublishVolume" => {
                self.save(object, [path.as_path()].into_iter())
            }
            _ => Ok(()),
        }
    }

    fn save<'a>(&self, object: &str, mut paths: impl Iterator<Item = &'a Path>) -> Result<()> {
        let Some(path) = paths.find(|path| node::is_published(path)) else { return Ok(()) };
        node::save(path, &self.content(object)).with_context(|| format!("cannot save {}", path.display()))
    }

    /// Keeps the content of a volume that is deleted.
    fn keep_content(&self, object: &str) -> Result<()> {
        let name = self.memory.look(|world| world.object(object).map(|object| object.name.clone()))?;
        let Some(name) = name else { return Ok(()) };
        let kept = self.content(&deleted(&name));
        node::remove(&kept)?;
        match std::fs::rename(self.content(object), kept) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn content(&self, object: &str) -> PathBuf {
        self.memory.contents().join(object.replace('/', "_"))
    }

    /// The folder of what it leaves and mounts itself.
    fn scratch(&self) -> PathBuf {
        self.memory.contents().join(".empty")
    }

    fn exit(&self) {
        if let Some(control) = self.control {
            (control.kill)();
        }
        warn!("another program started the driver: it is not killed");
    }

    fn enter(&self, call: &mut Call) -> InProgress<'_> {
        let object = call.object.clone().filter(|_| creates(&call.method).is_none());
        let object = object.unwrap_or_else(|| call.key.clone());
        let mut in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let count = in_progress.entry(object.clone()).or_default();
        call.racing = *count > 0;
        *count += 1;
        let cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        call.cancelled =
            cancelled.iter().filter(|(key, _)| *key == call.key).map(|(_, method)| method.clone()).collect();
        let key = (call.key.clone(), call.method.clone());
        InProgress { proxy: self, object, call: key, answered: false }
    }

    async fn forward(&self, head: &Parts, body: Bytes) -> Result<Response<Body>> {
        let mut request = Request::new(Body::new(Full::new(body)));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().remove(CONTENT_LENGTH);
        match self.driver.clone().oneshot(request).await {
            Ok(answer) => Ok(answer),
            // As a client sees a driver that does not listen.
            Err(error) => {
                Ok(Status::unavailable(format!("the driver cannot be reached: {error}")).into_http())
            }
        }
    }

    async fn read(response: Response<Body>, method: &Method) -> Result<Answer> {
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("the answer ended early")?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = Status::from_header_map(&trailers).or_else(|| Status::from_header_map(&head.headers));
        let bytes = body.to_bytes();
        let code = status.as_ref().map_or(Code::Unknown, Status::code);
        let messages = match code {
            Code::Ok => {
                let frames = frames(&bytes)?;
                frames.iter().map(|frame| method.answer.decode(frame)).collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        let body = Full::new(bytes).with_trailers(async move { Some(Ok::<HeaderMap, Infallible>(trailers)) });
        let raw = Response::from_parts(head, Body::new(body));
        Ok(Answer { messages, raw: Some(raw), error: String::new(), ..Answer::error(code) })
    }

    fn response(answer: Answer, method: &Method) -> Result<Response<Body>> {
        if let Some(raw) = answer.raw {
            return Ok(raw);
        }
        if answer.code != Code::Ok {
            let details = Bytes::from_static(answer.details);
            return Ok(Status::with_details(answer.code, answer.error, details).into_http());
        }
        let mut bytes = Vec::new();
        for message in &answer.messages {
            bytes.extend_from_slice(&frame(&[&method.answer.encode(message)?, answer.more].concat()));
        }
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        let body = Full::new(Bytes::from(bytes));
        let body = body.with_trailers(async move { Some(Ok::<HeaderMap, Infallible>(trailers)) });
        let mut response = Response::new(Body::new(body));
        let kind = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let mut in_progress = self.proxy.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = in_progress.get_mut(&self.object) {
            *count -= 1;
        }
        if !self.answered {
            let mut cancelled = self.proxy.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
            cancelled.insert(std::mem::take(&mut self.call));
        }
    }
}

/// The service of a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Sabotaged(pub Arc<Proxy>);

impl Service<Request<Body>> for Sabotaged {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let proxy = self.0.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            Ok(proxy.handle(request).await.unwrap_or_else(|error| {
                warn!("{path}: the saboteur failed: {error:#}");
                Status::internal(format!("the saboteur failed: {error:#}")).into_http()
            }))
        })
    }
}

fn related(world: &World, object: Option<&str>, of: Of) -> Vec<String> {
    object.filter(|id| world.object(id).is_some()).map(|id| world.related(id, of)).unwrap_or_default()
}

/// The name of the content of a deleted volume.
fn deleted(name: &str) -> String {
    format!("deleted {name}")
}

/// The path on the node that a call is about.
fn path_of(call: &Call) -> Option<PathBuf> {
    let field = match call.method.as_str() {
        "NodePublishVolume" | "NodeUnpublishVolume" => "target_path",
        "NodeStageVolume" | "NodeUnstageVolume" => "staging_target_path",
        _ => "volume_path",
    };
    Some(text(&call.request, field)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// With the fields of the request in place of `{field}`.
fn filled(what: &Leave, request: &Value) -> Leave {
    let Leave::At(path) = what else { return what.clone() };
    let mut filled = String::new();
    for (nth, part) in path.split('{').enumerate() {
        match part.split_once('}').filter(|_| nth > 0) {
            Some((field, rest)) => filled.extend([text(request, field), rest]),
            None => filled.push_str(part),
        }
    }
    Leave::At(filled)
}

fn note(done: io::Result<()>, path: &Path) {
    if let Err(error) = done {
        warn!(%error, path = %path.display(), "an effect on the node failed");
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::{
        Server, Services,
        v1::{
            NodeGetInfoRequest, NodeGetInfoResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
            node_client::NodeClient,
            node_server::{Node, NodeServer},
        },
    };
    use serde_json::json;

    use super::*;

    /// Counts the calls that reach it.
    #[derive(Debug, Default)]
    struct Driver(Mutex<i64>);

    #[tonic::async_trait]
    impl Node for Driver {
        async fn node_get_info(
            &self,
            _: tonic::Request<NodeGetInfoRequest>,
        ) -> Result<tonic::Response<NodeGetInfoResponse>, Status> {
            let mut calls = self.0.lock().unwrap();
            *calls += 1;
            let answer = NodeGetInfoResponse {
                node_id: "n1".to_owned(),
                max_volumes_per_node: *calls,
                ..NodeGetInfoResponse::default()
            };
            Ok(tonic::Response::new(answer))
        }

        async fn node_unpublish_volume(
            &self,
            request: tonic::Request<NodeUnpublishVolumeRequest>,
        ) -> Result<tonic::Response<NodeUnpublishVolumeResponse>, Status> {
            Err(Status::not_found(request.into_inner().volume_id))
        }
    }

    /// A client of a proxy with these rules before a driver.
    fn client(folder: &Path, rules: Value) -> NodeClient<Channel> {
        let row = json!({"name": "test", "does": "It breaks.", "fails": ["a::case"], "rules": rules});
        let [outer, inner] = ["outer", "inner"].map(|name| Endpoint::Unix(folder.join(name)));
        let server = Server::bind(&folder.join("inner")).unwrap();
        let services = Services::default().with(NodeServer::new(Driver::default()));
        tokio::spawn(server.serve(services, std::future::pending()));
        let defect = serde_json::from_value(row).unwrap();
        let proxy = Proxy::new(defect, &folder.join("memory"), &inner, &outer, None).unwrap();
        let server = Server::bind(&folder.join("outer")).unwrap();
        tokio::spawn(server.serve_any(Sabotaged(Arc::new(proxy)), std::future::pending()));
        NodeClient::new(connect(&outer))
    }

    #[tokio::test]
    async fn calls_without_a_rule_pass_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let mut node =
            client(folder.path(), json!([{"on": "NodeStageVolume", "then": [{"refuse": "INTERNAL"}]}]));
        let info = node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("n1", 1));
        let request = NodeUnpublishVolumeRequest { volume_id: "v 1".into(), target_path: "/t".into() };
        let status = node.node_unpublish_volume(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "v 1"));
    }

    #[tokio::test]
    async fn rules_change_what_is_answered_and_forwarded() {
        let info = async |rules: Value| {
            let folder = tempfile::tempdir().unwrap();
            let mut node = client(folder.path(), rules);
            let mut numbers = Vec::new();
            for _ in 0..3 {
                let answer = node.node_get_info(NodeGetInfoRequest {}).await;
                let number = answer.map(|answer| answer.into_inner().max_volumes_per_node);
                numbers.push(number.map_err(|status| status.code()));
            }
            numbers
        };
        let on = |when: Value, then: Value| json!([{"on": "NodeGetInfo", "when": when, "then": then}]);
        let forgotten = Err(Code::Aborted);
        let table = [
            (
                on(json!({}), json!([{"answer": {"set": {"max_volumes_per_node": {"plus": 10}}}}])),
                [Ok(11), Ok(12), Ok(13)],
            ),
            (on(json!({"repeated": true}), json!([{"pretend": "earlier"}])), [Ok(1), Ok(1), Ok(1)]),
            (on(json!({"call": 2}), json!([{"refuse": "ABORTED"}])), [Ok(1), forgotten, Ok(2)]),
            (on(json!({"call": {"from": 2}}), json!([{"forward": "twice"}])), [Ok(1), Ok(3), Ok(5)]),
            (
                on(json!({"reply": {"max_volumes_per_node": 2}}), json!([{"answer_code": "ABORTED"}])),
                [Ok(1), forgotten, Ok(3)],
            ),
        ];
        for (rules, expected) in table {
            assert_eq!(info(rules.clone()).await, expected, "{rules}");
        }
    }

    #[tokio::test]
    async fn errors_get_another_code_or_message() {
        let answer = async |then: Value| {
            let folder = tempfile::tempdir().unwrap();
            let rules = json!([{"on": "NodeUnpublishVolume", "when": {"answer": "NOT_FOUND"}, "then": then}]);
            let request = NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path: "/t".into() };
            let answer = client(folder.path(), rules).node_unpublish_volume(request).await;
            answer.map(drop).map_err(|status| (status.code(), status.message().to_owned()))
        };
        assert_eq!(answer(json!([{"answer_code": "OK"}])).await, Ok(()));
        assert_eq!(answer(json!([{"message": ""}])).await, Err((Code::NotFound, String::new())));
        let quoted = (Code::NotFound, "\"/t\"".to_owned());
        assert_eq!(answer(json!([{"quote": "target_path"}])).await, Err(quoted));
    }

    #[tokio::test]
    async fn a_rule_may_require_that_an_earlier_call_was_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let rules = json!([
            {"on": "NodeUnpublishVolume", "then": [{"delay": "300ms"}]},
            {"on": "NodeUnpublishVolume", "when": {"cancelled": "NodeUnpublishVolume"}, "then": [{"refuse": "ABORTED"}]},
        ]);
        let mut client = client(folder.path(), rules);
        let mut code = async |id: &str, patience: u64| {
            let request = NodeUnpublishVolumeRequest { volume_id: id.into(), target_path: "/t".into() };
            let call = client.node_unpublish_volume(request);
            let answer = tokio::time::timeout(std::time::Duration::from_millis(patience), call).await;
            answer.ok().map(|answer| answer.unwrap_err().code())
        };
        assert_eq!(code("v", 10_000).await, Some(Code::NotFound));
        assert_eq!(code("v", 150).await, None);
        // The proxy notes it when it is next scheduled.
        sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(code("v", 10_000).await, Some(Code::Aborted));
        assert_eq!(code("w", 10_000).await, Some(Code::NotFound));
    }
}
