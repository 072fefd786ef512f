//! The processing of a request: path, user, body, handler, counters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, Entry, RequestCount};
use crate::auth::{Auth, Requester};
use crate::denials::Denials;
use crate::faults::Faults;
use crate::handlers::{self, Call, Warnings};
use crate::interference::Interference;
use crate::request::{ObjectPath, Query, Target};
use crate::response::{self, Answer};
use crate::status::{Result, Status};
use crate::store::Store;
use crate::tokens::Signer;
use crate::unserved::UnservedRequests;
use crate::{bootstrap, discovery, health, openapi, pretty};

/// Maximum size of a body; upstream allows 3 MiB.
const BODY_LIMIT: usize = 3 << 20;

/// State shared by all connections.
pub struct Api {
    /// All objects.
    pub store: Arc<Store>,
    /// Ends watches when the server stops.
    pub stop: CancellationToken,
    /// Injected faults.
    pub faults: Faults,
    /// What seeds defects of components, if any.
    pub interference: Option<Arc<dyn Interference>>,
    /// Signs the tokens of service accounts.
    pub signer: Signer,
    /// Users and permissions.
    pub auth: Auth,
    /// What RBAC did not permit.
    pub denials: Denials,
    /// What service accounts requested in versions that are not served.
    pub unserved: UnservedRequests,
    /// The CA that clients trust.
    pub ca_pem: String,
    address: SocketAddr,
    /// The `Authorization` header of the admin.
    pub authorization: String,
    /// The `Authorization` header of requests to nodes.
    pub node_authorization: String,
    git_version: String,
    audit: Audit,
}

/// Address and credentials of a server.
pub struct Issued {
    /// Its address.
    pub address: SocketAddr,
    /// The bearer token of the cluster admin.
    pub token: String,
    /// The bearer token of requests to nodes.
    pub node_token: String,
    /// The CA that clients trust, PEM.
    pub ca_pem: String,
    /// Signs the tokens of service accounts.
    pub signer: Signer,
}

impl Api {
    /// An API over `store`, with the default objects of every cluster.
    pub fn new(
        store: Arc<Store>,
        identity: Issued,
        git_version: String,
        audit: Audit,
        stop: CancellationToken,
        interference: Option<Arc<dyn Interference>>,
    ) -> Self {
        let Issued { address, token, node_token, ca_pem, signer } = identity;
        bootstrap::bootstrap_cluster(&store, &ca_pem);
        Self {
            auth: Auth::new(store.clone()),
            denials: Denials::default(),
            unserved: UnservedRequests::default(),
            store,
            stop,
            faults: Faults::default(),
            interference,
            signer,
            ca_pem,
            address,
            authorization: format!("Bearer {token}"),
            node_authorization: format!("Bearer {node_token}"),
            git_version,
            audit,
        }
    }

    /// The counters of requests.
    pub fn requests(&self) -> Vec<RequestCount> {
        self.audit.counts()
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<Incoming>) -> Answer {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let target = Target::parse(head.uri.path(), self.store.kinds());
        let query = Query::parse(head.uri.query());
        let verb = verb(&head.method, &target, &query);
        let resource = match &target {
            Target::Objects(ObjectPath { resource, subresource: None, .. }) => resource.qualified_plural(),
            Target::Objects(ObjectPath { resource, subresource: Some(subresource), .. }) => {
                format!("{}/{subresource}", resource.qualified_plural())
            }
            _ => head.uri.path().to_owned(),
        };
        let agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let agent = agent.split([' ', '/']).next().unwrap_or_default();
        self.audit.count(agent, verb, &resource);
        let is_pretty = match target {
            Target::OpenApi | Target::OpenApiV2 | Target::OpenApiDocument(..) | Target::KeySet => false,
            Target::Version => true,
            _ => pretty::is_requested(&query, &head.headers),
        };
        let (mut received, mut requester) = (Bytes::new(), Requester::default());
        let about = (&mut received, &mut requester);
        let answer = match self.dispatch(&head, &target, query, verb, body, about).await {
            Ok(answer) => answer,
            Err(status) => status.into_answer(handlers::status_encoding(&head)),
        };
        let answer = if is_pretty { pretty::indent(answer) } else { answer };
        self.audit.log(Entry {
            agent,
            user: requester.user.as_ref().map_or("", |user| user.name.as_str()),
            is_denied: requester.is_denied,
            verb,
            resource: &resource,
            uri: head.uri.path_and_query().map_or("", |uri| uri.as_str()),
            code: answer.status().as_u16(),
            request_bytes: received.len() as u64,
            response_bytes: match answer.body() {
                Either::Left(whole) => whole.size_hint().exact().unwrap_or_default(),
                Either::Right(_) => 0,
            },
            took: began.elapsed(),
        });
        answer
    }

    async fn dispatch(
        &self,
        head: &Parts,
        target: &Target,
        query: Query,
        verb: &'static str,
        body: Incoming,
        (received, requester): (&mut Bytes, &mut Requester),
    ) -> Result<Answer> {
        // As upstream, health and version are for everybody, except with invalid credentials.
        let user = match target {
            Target::Health | Target::Version => {
                let user = self.identify(head)?;
                requester.user = Some(user.clone());
                user
            }
            _ => self.authorize(head, &query, requester)?,
        };
        match target {
            Target::Health => Ok(health::answer(head.uri.path(), &query)),
            Target::Objects(path) => {
                if let Some(fault) = self.faults.on_request(verb, path.resource.plural) {
                    fault.apply().await?;
                }
                let body = read(body).await?;
                received.clone_from(&body);
                let mut call =
                    Call { api: self, path, query, user, head, body, warnings: Warnings::default() };
                let mut answer = match self.interfered(&mut call, verb).await {
                    Ok(answer) => answer,
                    Err(status) => status.into_answer(handlers::status_encoding(head)),
                };
                call.warnings.write(&mut answer);
                Ok(answer)
            }
            Target::UnknownResource => {
                self.unserved.record(&user.name, head.uri.path());
                Err(Status::unknown_resource())
            }
            Target::Unknown => {
                self.unserved.record(&user.name, head.uri.path());
                Ok(response::text(StatusCode::NOT_FOUND, "404 page not found\n"))
            }
            _ if head.method != Method::GET => Err(Status::method_not_allowed()),
            Target::Version => Ok(response::json(StatusCode::OK, &self.version())),
            Target::KeySet => Ok(response::json(StatusCode::OK, &self.signer.key_set())),
            Target::CoreVersions => discovery::core(head, self.address, &self.store.kinds().kinds()),
            Target::Groups => discovery::groups(head, &self.store.kinds().kinds()),
            Target::Group(group) => discovery::group(head, group, &self.store.kinds().kinds()),
            Target::GroupVersion(group, version) => {
                discovery::resources(head, group, version, &self.store.kinds().kinds())
            }
            Target::OpenApiV2 => Ok(openapi::v2::document(&head.headers, &self.store.kinds().kinds())),
            Target::OpenApi => Ok(openapi::index(&self.store.kinds().kinds())),
            Target::OpenApiDocument(group, version) => {
                openapi::document(group, version, &self.store.kinds().kinds())
            }
        }
    }

    fn version(&self) -> Value {
        let mut numbers = self.git_version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let before = minor
            .parse::<u32>()
            .map_or_else(|_| minor.to_owned(), |minor| minor.saturating_sub(1).to_string());
        json!({
            "major": major,
            "minor": minor,
            "emulationMajor": major,
            "emulationMinor": minor,
            "minCompatibilityMajor": major,
            "minCompatibilityMinor": before,
            "gitVersion": self.git_version,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": concat!("claimcheck ", env!("CARGO_PKG_VERSION")),
            "compiler": "rustc",
            "platform": "linux/amd64",
        })
    }
}

async fn read(body: Incoming) -> Result<Bytes> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Status::too_large(BODY_LIMIT)),
        Err(error) => Err(Status::bad_request(format!("could not read the body: {error}"))),
    }
}

/// The Kubernetes verb of a request.
fn verb(method: &Method, target: &Target, query: &Query) -> &'static str {
    let Target::Objects(path) = target else { return if method == Method::GET { "get" } else { "other" } };
    match (method.as_str(), &path.name) {
        ("GET" | "HEAD", Some(_)) => "get",
        ("GET" | "HEAD", None) if query.flag("watch") => "watch",
        ("GET" | "HEAD", None) => "list",
        ("POST", _) => "create",
        ("PUT", Some(_)) => "update",
        ("PATCH", Some(_)) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => "other",
    }
}
