//! Who sends a request, and what it may do: authentication, impersonation, RBAC, and the reviews about them.
//!
//! ```text
//! certificate of the connection (certificate) -> admin token -> service account token (token) -> anonymous
//!       -> impersonation -> action (method and path) -> rbac (roles and bindings in the store) -> node (of nodes)
//! ```
//!
//! The admin is a member of `system:masters`: after the comparison of its token nothing else is evaluated.

mod action;
mod certificate;
mod defaults;
mod impersonation;
mod issue;
mod node;
mod rbac;
mod reviews;
mod token;
mod user;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::Timestamp;

pub use action::{Action, ActionTarget};
pub use certificate::{AnyCertificate, Peer};
pub use defaults::bootstrap;
pub use issue::IssueError;
pub use reviews::review;
pub use user::{User, service_account};

use rbac::{Decision, Rbac};
use token::{Accepted, TokenError, Tokens};

use crate::api::Api;
use crate::request::Query;
use crate::status::{Result, Status};
use crate::store::Store;
use crate::tokens::ISSUER;

/// The users and permissions of a server.
pub struct Auth {
    pub admin: Arc<User>,
    anonymous: Arc<User>,
    tokens: Tokens,
    rbac: Rbac,
    store: Arc<Store>,
}

impl Auth {
    /// The permissions that `store` contains.
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            admin: Arc::new(User::admin()),
            anonymous: Arc::new(User::anonymous()),
            tokens: Tokens::default(),
            rbac: Rbac::new(store.clone()),
            store,
        }
    }

    /// Whether `user` may do `action`.
    fn decide(&self, user: &User, action: &Action) -> Decision {
        match self.rbac.decide(user, action) {
            Decision::Allowed(reason) => match node::refusal(&self.store, user, action) {
                Some(refusal) => Decision::Unrelated(refusal),
                None => Decision::Allowed(reason),
            },
            denied => denied,
        }
    }
}

/// Who sent a request, as far as it is known.
#[derive(Debug, Default)]
pub struct Requester {
    /// The user, with valid credentials.
    pub user: Option<Arc<User>>,
    /// Whether another user acts as this one.
    is_impersonated: bool,
    /// Whether RBAC does not permit the request.
    pub is_denied: bool,
}

impl Api {
    /// The user of a request that is permitted. `requester` has what is known of it also if it is not.
    ///
    /// # Errors
    /// 401 for invalid credentials, 403 if RBAC does not permit the action.
    pub fn authorize(&self, head: &Parts, query: &Query, requester: &mut Requester) -> Result<Arc<User>> {
        let mut user = self.identify(head)?;
        requester.user = Some(user.clone());
        if impersonation::is_requested(&head.headers)
            && let Some(requested) = impersonation::requested(&head.headers)?
        {
            for action in impersonation::actions(&requested) {
                self.permit(&user, &action, requester)?;
            }
            user = Arc::new(impersonation::completed(requested));
            requester.user = Some(user.clone());
            requester.is_impersonated = true;
        }
        if user.is_master() {
            return Ok(user);
        }
        let action = Action::from_request(&head.method, head.uri.path(), query);
        self.permit(&user, &action, requester)?;
        if let Some(create) = connection(&action) {
            self.permit(&user, &create, requester)?;
        }
        Ok(user)
    }

    /// The user without credentials.
    pub fn anonymous(&self) -> Arc<User> {
        self.auth.anonymous.clone()
    }

    /// The user with the credentials of a request. As upstream, a trusted certificate comes first, and the absence
    /// of credentials is no error.
    ///
    /// # Errors
    /// 401 for invalid credentials.
    pub fn identify(&self, head: &Parts) -> Result<Arc<User>> {
        let peer = head.extensions.get::<Peer>();
        if let Some(Peer::Trusted(user)) = peer {
            return Ok(user.clone());
        }
        let header = head.headers.get(AUTHORIZATION);
        if header.is_some_and(|header| header.as_bytes() == self.authorization.as_bytes()) {
            return Ok(self.auth.admin.clone());
        }
        match (bearer(&head.headers), peer) {
            (Some(token), _) => match self.authenticate(token, &[ISSUER.to_owned()]) {
                Ok(accepted) => Ok(accepted.user),
                Err(error) => {
                    tracing::debug!(%error, "unable to authenticate a request");
                    Err(Status::unauthorized())
                }
            },
            (None, Some(Peer::Untrusted)) => Err(Status::unauthorized()),
            (None, _) => Ok(self.anonymous()),
        }
    }

    /// The user with `token`, if it is meant for one of `audiences`.
    fn authenticate(&self, token: &str, audiences: &[String]) -> Result<Accepted, TokenError> {
        if self.authorization.strip_prefix("Bearer ") == Some(token) {
            let audiences: Vec<String> = audiences.iter().filter(|name| *name == ISSUER).cloned().collect();
            return match audiences.is_empty() {
                true => Err(TokenError::Foreign),
                false => Ok(Accepted { user: self.auth.admin.clone(), audiences }),
            };
        }
        let now = Timestamp::now().as_second();
        self.auth.tokens.authenticate(&self.signer, &self.store, token, audiences, now)
    }

    /// Checks one permission.
    fn permit(&self, user: &User, action: &Action, requester: &mut Requester) -> Result<()> {
        match self.auth.decide(user, action) {
            Decision::Allowed(_) => Ok(()),
            // No role is missing: the pod may have gone while its node requested this.
            Decision::Unrelated(reason) => Err(refusal(user, action, &reason)),
            Decision::Denied(reason) => {
                requester.is_denied = true;
                // An administrator who acts as another user tries what that one may do.
                if !requester.is_impersonated {
                    self.denials.record(&user.name, action, &reason);
                }
                Err(refusal(user, action, &reason))
            }
        }
    }
}

/// The token of a request.
///
/// Mirrors apiserver pkg/authentication/request/bearertoken.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Connections to containers that begin with GET also require the permission to create them (since Kubernetes
/// 1.35, `AuthorizePodWebsocketUpgradeCreatePermission`).
fn connection(action: &Action) -> Option<Action> {
    let ActionTarget::Resource(target) = &action.target else { return None };
    let connects = target.group.is_empty()
        && target.resource == "pods"
        && matches!(target.subresource.as_str(), "attach" | "exec" | "portforward");
    (connects && action.verb == "get").then(|| Action::on_resource("create", target.clone()))
}

/// 403, with upstream's message (apiserver pkg/endpoints/handlers/responsewriters/errors.go).
fn refusal(user: &User, action: &Action, reason: &str) -> Status {
    let mut message = action.refusal(user);
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    match &action.target {
        ActionTarget::Path(_) => Status::path_not_permitted(&message),
        ActionTarget::Resource(target) => {
            Status::not_permitted(&target.group, &target.resource, &target.name, &message)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::Method;

    use super::*;

    #[test]
    fn tokens_follow_their_scheme() {
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            (" Bearer abc rest", Some("abc")),
            ("Bearer", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(header));
            assert_eq!(bearer(&headers), expected, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn connections_must_be_permitted_to_be_created() {
        for (method, path, expected) in [
            (Method::GET, "/api/v1/namespaces/n/pods/p/exec", Some("create")),
            (Method::GET, "/api/v1/namespaces/n/pods/p/portforward", Some("create")),
            (Method::POST, "/api/v1/namespaces/n/pods/p/exec", None),
            (Method::GET, "/api/v1/namespaces/n/pods/p/log", None),
            (Method::GET, "/apis/example.com/v1/namespaces/n/pods/p/exec", None),
        ] {
            let action = Action::from_request(&method, path, &Query::default());
            let verb = connection(&action).map(|action| action.verb);
            assert_eq!(verb.as_deref(), expected, "{method} {path}");
        }
    }

    #[test]
    fn refusals_have_the_status_of_upstream() {
        let user = User { name: "x".to_owned(), ..User::default() };
        let status = |method: Method, path: &str, reason: &str| {
            refusal(&user, &Action::from_request(&method, path, &Query::default()), reason).to_value()
        };
        let named = status(Method::DELETE, "/apis/apps/v1/namespaces/y/deployments/d", "");
        assert_eq!(
            named["message"],
            "deployments.apps \"d\" is forbidden: User \"x\" cannot delete resource \"deployments\" in API group \
             \"apps\" in the namespace \"y\""
        );
        let details = serde_json::json!({ "name": "d", "group": "apps", "kind": "deployments" });
        assert_eq!(
            (&named["code"], &named["reason"], &named["details"]),
            (&403.into(), &"Forbidden".into(), &details)
        );
        let path = status(Method::GET, "/metrics", "RBAC: gone");
        assert_eq!(path["message"], "forbidden: User \"x\" cannot get path \"/metrics\": RBAC: gone");
        assert_eq!(path["details"], serde_json::json!({}));
    }
}
