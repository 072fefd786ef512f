//! A hook for tests of suites: something between programs and the objects, by which components seem to have defects.
//!
//! ```text
//! request ─> before ─> handler ─> write ─> store ─> after: further requests
//!                                            └─> show ─> response, watch
//! ```

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Bytes;
use serde_json::Value;

use crate::api::Api;
use crate::auth::User;
use crate::handlers::{self, Call, Warnings};
use crate::request::{ObjectPath, Query, Target};
use crate::response::{self, Answer};
use crate::status::{Result, Status};
use crate::store::Key;

/// The maximum number of events of a watch that wait to be sent late.
const WAITING: usize = 1024;

/// A request for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The user.
    pub user: String,
    /// The verb, such as `patch`.
    pub verb: &'static str,
    /// The plural of the resource, such as `pods`.
    pub resource: &'static str,
    /// E.g. `status`.
    pub subresource: Option<String>,
    /// Empty without one.
    pub namespace: String,
    /// Empty for a collection, and in creations.
    pub name: String,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Course {
    /// It is handled.
    Proceed,
    /// It is handled as a dry run: it succeeds and changes nothing.
    Pretend,
    /// It is not handled; the response is its object, or that in its body.
    Accept,
    /// It fails with this status code and message.
    Fail(u16, String),
    /// It is handled, and the response is this failure.
    Lose(u16, String),
}

/// What becomes of an object that a request stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is stored, as changed.
    Stored,
    /// It is not, and the request succeeds.
    Lost,
}

/// A request of the administrator.
#[derive(Clone, Debug, PartialEq)]
pub struct Further {
    /// POST, PUT, PATCH (a merge patch) or DELETE.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its body; null without one.
    pub body: Value,
}

/// Something between programs and the objects.
pub trait Interference: Debug + Send + Sync {
    /// How long a request waits, and what becomes of it. `stored` is its object and `body` its JSON; null without one.
    fn before(&self, asked: &Asked, stored: &Value, body: &Value) -> (Duration, Course);
    /// Changes the object that a request stores instead of `old`, which is null if it is a new one.
    fn write(&self, asked: &Asked, old: &Value, new: &mut Value) -> Fate;
    /// What is requested after a successful request for `stored`, of which the response is `result`.
    fn after(&self, asked: &Asked, stored: &Value, result: &Value) -> Vec<Further>;
    /// Whether any objects in the response may be shown in another way.
    fn shows(&self, asked: &Asked) -> bool;
    /// Whether a list in the response is reversed.
    fn reverses(&self, asked: &Asked) -> bool;
    /// How much later the events of a watch arrive.
    fn late(&self, asked: &Asked) -> Duration;
    /// Changes an object in a response; false if it is not shown.
    fn show(&self, asked: &Asked, object: &mut Value) -> bool;
}

/// The request as an interference sees it.
pub fn asked(path: &ObjectPath, user: &User, verb: &'static str) -> Asked {
    Asked {
        user: user.name.clone(),
        verb,
        resource: path.resource.plural,
        subresource: path.subresource.clone(),
        namespace: path.namespace.clone().unwrap_or_default(),
        name: path.name.clone().unwrap_or_default(),
    }
}

impl Call<'_> {
    /// What an interference makes of the object that is about to be stored.
    pub fn interfere(&self, verb: &'static str, old: &Value, new: &mut Value) -> Fate {
        match &self.api.interference {
            Some(interference) => interference.write(&asked(self.path, &self.user, verb), old, new),
            None => Fate::Stored,
        }
    }
}

impl Api {
    /// Handles a request for objects with an interference.
    pub async fn interfered(&self, call: &mut Call<'_>, verb: &'static str) -> Result<Answer> {
        let Some(interference) = &self.interference else { return handlers::dispatch(call, verb).await };
        let asked = asked(call.path, &call.user, verb);
        let stored = || {
            let key = Key::new(&asked.namespace, &asked.name);
            let object = self.store.get(call.path.resource.storage, &key);
            object.map_or(Value::Null, |object| object.value.clone())
        };
        let (stored, body) = (stored(), serde_json::from_slice(&call.body).unwrap_or_default());
        let (delay, course) = interference.before(&asked, &stored, &body);
        tokio::time::sleep(delay).await;
        match course {
            Course::Proceed => {}
            Course::Lose(code, message) => {
                handlers::dispatch(call, verb).await?;
                return Err(Status::failed(code, message));
            }
            Course::Pretend => call.query.set("dryRun", "All"),
            Course::Accept if stored.is_null() => return Ok(response::json(StatusCode::CREATED, &body)),
            Course::Accept => {
                let mut object = stored;
                object["kind"] = call.path.resource.kind.into();
                object["apiVersion"] = call.path.resource.api_version().into();
                return Ok(response::json(StatusCode::OK, &object));
            }
            Course::Fail(code, message) => return Err(Status::failed(code, message)),
        }
        let answer = handlers::dispatch(call, verb).await?;
        let result = match answer.body() {
            Either::Left(whole) if !matches!(verb, "get" | "list") => whole.clone().collect().await,
            Either::Left(_) | Either::Right(_) => Ok(http_body_util::Collected::default()),
        };
        let Ok(result) = result;
        let result = serde_json::from_slice(&result.to_bytes()).unwrap_or_default();
        for further in interference.after(&asked, &stored, &result) {
            if let Err(status) = self.further(&further).await {
                tracing::info!(?further, ?status, "a further request failed");
            }
        }
        match interference.shows(&asked) {
            true => self.shown(answer, asked).await,
            false => Ok(answer),
        }
    }

    /// Makes a request of the administrator.
    async fn further(&self, further: &Further) -> Result<()> {
        let invalid = |why: &str| Status::internal(why);
        let method = Method::from_bytes(further.method.as_bytes()).map_err(|_| invalid("no method"))?;
        let media_type = match method == Method::PATCH {
            true => "application/merge-patch+json",
            false => "application/json",
        };
        let request = http::Request::builder().method(method.clone()).uri(&further.path);
        let request = request.header(http::header::CONTENT_TYPE, media_type).body(());
        let (head, ()) = request.map_err(|_| invalid("no path"))?.into_parts();
        let Target::Objects(path) = Target::parse(head.uri.path(), self.store.kinds()) else {
            return Err(Status::unknown_resource());
        };
        let body = match &further.body {
            Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        let verb = match method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            _ => "delete",
        };
        let (query, user) = (Query::parse(head.uri.query()), self.auth.admin.clone());
        let warnings = Warnings::default();
        let call = Call { api: self, path: &path, query, user, head: &head, body, warnings };
        handlers::dispatch(&call, verb).await.map(drop)
    }

    /// The response with the objects as they are shown. Only JSON is changed.
    async fn shown(&self, answer: Answer, asked: Asked) -> Result<Answer> {
        let Some(interference) = self.interference.clone() else { return Ok(answer) };
        let (head, body) = answer.into_parts();
        let body = match body {
            Either::Left(whole) => {
                let Ok(bytes) = whole.collect().await.map(http_body_util::Collected::to_bytes);
                let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) else {
                    return Ok(Answer::from_parts(head, Either::Left(Full::new(bytes))));
                };
                if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
                    items.retain_mut(|item| interference.show(&asked, item));
                    if interference.reverses(&asked) {
                        items.reverse();
                    }
                } else if !interference.show(&asked, &mut object) {
                    let message = format!("{} {:?} not found", asked.resource, asked.name);
                    return Err(Status::failed(404, message));
                }
                Either::Left(Full::new(Bytes::from(object.to_string())))
            }
            Either::Right(stream) => {
                let late = interference.late(&asked);
                let frames = stream.into_data_stream().map(move |Ok(frame)| {
                    let lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                    let shown = lines.filter_map(|line| {
                        let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
                            return Some(String::from_utf8_lossy(line).into_owned());
                        };
                        let is_object =
                            ["ADDED", "MODIFIED", "DELETED"].iter().any(|kind| event["type"] == *kind);
                        let is_shown = !is_object || interference.show(&asked, &mut event["object"]);
                        is_shown.then(|| event.to_string())
                    });
                    let lines: String = shown.flat_map(|line| [line, "\n".to_owned()]).collect();
                    async move {
                        tokio::time::sleep(late).await;
                        Ok(hyper::body::Frame::data(Bytes::from(lines)))
                    }
                });
                // Each waits from its arrival on, and their order remains.
                let frames = frames.buffered(WAITING);
                Either::Right(http_body_util::StreamBody::new(frames.boxed()))
            }
        };
        Ok(Answer::from_parts(head, body))
    }
}
