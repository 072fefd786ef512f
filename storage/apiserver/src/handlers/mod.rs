//! One file per verb. Each handles a [`Call`]; kind-specific code is in the kind's row in `resources` and in
//! `admission`.

mod apply;
mod body;
mod connect;
mod create;
mod delete;
mod duplicates;
mod evict;
mod form;
mod get;
mod list;
mod log;
mod metadata;
mod options;
mod ownership;
mod patch;
mod scale;
mod token;
mod update;
mod watch;

use form::{Accepted, Form};

pub use delete::{DeleteOptions, FOREGROUND, Propagation, delete_object};
pub use form::{discovery_encoding, metadata_of, status_encoding};

use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use http::header::{HeaderValue, WARNING};
use http::request::Parts;
use hyper::body::Bytes;
use serde_json::Value;

use crate::api::Api;
use crate::auth::{self, User};
use crate::request::{ObjectPath, Query};
use crate::resources::Storage;
use crate::response::{self, Answer};
use crate::status::{Result, Status};
use crate::store::{Key, Object, Store};

/// A parsed request for objects.
pub struct Call<'a> {
    /// State shared by connections.
    pub api: &'a Api,
    /// Its resource and object.
    pub path: &'a ObjectPath,
    /// Its query.
    pub query: Query,
    /// The authenticated user, which may be impersonated.
    pub user: Arc<User>,
    /// Its headers.
    pub head: &'a Parts,
    /// Its body, empty if it has none.
    pub body: Bytes,
    /// What its response warns about, also if it fails.
    pub warnings: Warnings,
}

/// Maximum number of characters of all warnings of a response; beyond that, each is shortened.
const WARNINGS_LIMIT: usize = 4096;

/// Maximum number of characters of a warning that is shortened.
const WARNING_LIMIT: usize = 256;

/// The warnings of a response, each once.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds those that are not yet there, as upstream's recorder (apiserver endpoints/filters/warning.go).
    pub fn add(&self, warnings: impl IntoIterator<Item = String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
    }

    /// Moves them into the response, as upstream shortened if they are too long together.
    pub fn write(&self, answer: &mut Answer) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let lengths = all.iter().map(|warning| warning.chars().count());
        let is_long = lengths.sum::<usize>() > WARNINGS_LIMIT;
        let mut written = 0;
        for warning in all {
            if is_long && written >= WARNINGS_LIMIT {
                break;
            }
            let warning: String =
                warning.chars().take(if is_long { WARNING_LIMIT } else { usize::MAX }).collect();
            written += warning.chars().count();
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                answer.headers_mut().append(WARNING, value);
            }
        }
    }
}

/// Dispatches `call` by its verb.
pub async fn dispatch(call: &Call<'_>, verb: &'static str) -> Result<Answer> {
    let resource = call.path.resource;
    check_verb(call, verb)?;
    if let ("create", None, None) = (verb, &call.path.namespace, &call.path.name)
        && resource.namespaced
        && resource.custom.is_some()
    {
        return Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    let connects = call.path.subresource.as_deref().is_some_and(|name| connect::SUBRESOURCES.contains(&name));
    let formed = call.path.subresource.as_deref() != Some("log") && !connects;
    if formed {
        call.negotiate()?;
    }
    let of_version = resource.custom.and_then(|kind| kind.deprecation.clone());
    call.warnings.add(of_version.or(resource.deprecation.map(str::to_owned)));
    options::check_write(&call.query, verb, call.media_type() == apply::MEDIA_TYPE)?;
    if verb == "watch" {
        call.check_table()?;
    }
    check_conversion(call, verb)?;
    let scales = call.path.subresource.as_deref() == Some("scale");
    let answer = match verb {
        _ if scales => scale::handle(call, verb),
        "get" | "create" if connects => connect::handle(call).await,
        "get" if call.path.subresource.as_deref() == Some("log") => log::handle(call).await,
        "get" => get::handle(call),
        "list" => list::handle(call),
        "watch" => watch::handle(call),
        "create" if resource.storage.is_virtual() => auth::review(call),
        "create" => create::handle(call),
        "update" => update::handle(call),
        "patch" => patch::handle(call),
        "delete" => delete::handle(call),
        "deletecollection" => delete::handle_collection(call),
        _ => Err(Status::method_not_allowed()),
    };
    // Before the answer, so that the kind is served when its definition is.
    if resource.storage == Storage::Definitions && !matches!(verb, "get" | "list" | "watch") {
        call.store().kinds().refresh(call.store());
    }
    // Deletions answer with a `Status`, which has no other forms.
    if formed && answer.is_ok() && !matches!(verb, "watch" | "delete") {
        call.check_form(matches!(verb, "list" | "deletecollection"))?;
    }
    answer
}

/// Rejects what has no path, and verbs that a path does not have. Custom kinds have other texts, since their handler
/// (apiextensions-apiserver `customresource_handler.go`) does not use the routes of go-restful.
fn check_verb(call: &Call<'_>, verb: &str) -> Result<()> {
    let resource = call.path.resource;
    let custom = resource.custom.is_some();
    match &call.path.subresource {
        None if resource.storage.is_virtual() && call.path.name.is_some() => Err(Status::unknown_resource()),
        // Only lists and watches are of all namespaces.
        None if verb == "create" && resource.namespaced && call.path.namespace.is_none() && !custom => {
            Err(Status::method_not_allowed())
        }
        None if resource.verbs().contains(&verb) => Ok(()),
        None => Err(Status::method_not_allowed()),
        Some(name) => {
            let unknown = || match (custom, &call.path.name) {
                (true, Some(object)) => Status::not_found(resource, object),
                _ => Status::unknown_resource(),
            };
            let subresource = resource.subresource(name).ok_or_else(unknown)?;
            match subresource.verbs.contains(&verb) {
                true => Ok(()),
                false if custom => Err(Status::verb_not_supported(resource, verb)),
                false => Err(Status::method_not_allowed()),
            }
        }
    }
}

/// Rejects what would have to call a conversion webhook, with upstream's error for one that fails. Upstream opens watches,
/// and ends them at the first object.
fn check_conversion(call: &Call<'_>, verb: &str) -> Result<()> {
    let resource = call.path.resource;
    let Some((kind, stored)) =
        resource.custom.and_then(|kind| Some((kind, kind.unconverted_from.as_deref()?)))
    else {
        return Ok(());
    };
    let exists = match &call.path.name {
        Some(_) => call.store().get(resource.storage, &call.key()?).is_some(),
        None => !call.store().list(resource.storage, call.path.namespace.as_deref()).0.is_empty(),
    };
    let version = match verb {
        "create" => resource.version,
        "patch" if !exists && call.media_type() == apply::MEDIA_TYPE => resource.version,
        "watch" => stored,
        _ if exists => stored,
        _ => return Ok(()),
    };
    Err(Status::unclassified(format!(
        "conversion webhook for {}/{version}, Kind={} failed: claimcheck's API server does not call conversion webhooks: \
         use version {stored}",
        resource.group, kind.kind
    )))
}

impl Call<'_> {
    /// The objects of the cluster.
    pub fn store(&self) -> &Store {
        &self.api.store
    }

    /// The name in the path.
    fn name(&self) -> Result<&str> {
        self.path.name.as_deref().ok_or_else(Status::method_not_allowed)
    }

    /// The key in the path.
    fn key(&self) -> Result<Key> {
        Ok(Key::new(self.path.namespace.as_deref().unwrap_or_default(), self.name()?))
    }

    /// The object in the path.
    fn object(&self) -> Result<Arc<Object>> {
        let key = self.key()?;
        let found = self.store().get(self.path.resource.storage, &key);
        found.ok_or_else(|| Status::not_found(self.path.resource, &key.name))
    }

    /// One object as the response.
    fn answer(&self, status: StatusCode, object: &Object) -> Answer {
        let accepted = self.accepted();
        let body = accepted.write(self.path.resource, object);
        response::bytes(status, accepted.encoding.media_type(), Bytes::from(body))
    }

    /// One object that is not stored (a dry run) as the response.
    fn answer_value(&self, status: StatusCode, value: &Value) -> Answer {
        let accepted = self.accepted();
        response::object(status, accepted.encoding, &accepted.present(self.path.resource, value))
    }

    /// An object of another kind, such as `Status`, as the response. It has no other forms.
    pub fn answer_other(&self, status: StatusCode, object: &Value) -> Answer {
        response::object(status, self.accepted().encoding, object)
    }
}
