//! Acting as another user, with the headers `Impersonate-User`, `-Uid`, `-Group` and `-Extra-<key>`.
//!
//! Mirrors apiserver pkg/endpoints/filters/impersonation with the verb `impersonate`. The verbs of constrained
//! impersonation (KEP-5284), such as `impersonate:user-info`, permit nothing here.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::Value;

use super::action::{Action, ResourceTarget};
use super::user::{
    ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account_groups, split_service_account,
};
use crate::request::decode;
use crate::status::{Result, Status};

const EXTRA: &str = "impersonate-extra-";

/// Whether the headers may name another user. Requests without them pay for one look at each header only.
pub fn is_requested(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// The user that the headers name, as they name it.
///
/// # Errors
/// 400 if there is no name.
pub fn requested(headers: &HeaderMap) -> Result<Option<User>> {
    let texts = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut extra = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.insert(decode(key), texts(name.as_str()));
        }
    }
    let user = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        extra,
    };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    match user == User::default() {
        true => Ok(None),
        false => {
            Err(Status::bad_request(format!("requested {} without impersonating a user name", in_go(&user))))
        }
    }
}

/// What must be permitted for that.
pub fn actions(user: &User) -> Vec<Action> {
    let action = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        Action::on_resource("impersonate", ResourceTarget { group, resource, subresource, namespace, name })
    };
    let authentication = "authentication.k8s.io";
    let mut actions = vec![match split_service_account(&user.name) {
        Some((namespace, name)) => action("", "serviceaccounts", "", namespace, name),
        None => action("", "users", "", "", &user.name),
    }];
    if !user.uid.is_empty() {
        actions.push(action(authentication, "uids", "", "", &user.uid));
    }
    actions.extend(user.groups.iter().map(|group| action("", "groups", "", "", group)));
    for (key, values) in &user.extra {
        actions.extend(values.iter().map(|value| action(authentication, "userextras", key, "", value)));
    }
    actions
}

/// The user with the groups that the headers need not name.
pub fn completed(mut user: User) -> User {
    if let (true, Some((namespace, _))) = (user.groups.is_empty(), split_service_account(&user.name)) {
        user.groups = service_account_groups(namespace);
    }
    let group = match user.name == ANONYMOUS {
        true => UNAUTHENTICATED,
        false if user.is_in(UNAUTHENTICATED) => return user,
        false => AUTHENTICATED,
    };
    if !user.is_in(group) {
        user.groups.push(group.to_owned());
    }
    user
}

/// The user in Go's `%#v`, which is part of the error.
fn in_go(user: &User) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let list = |texts: &[String]| match texts {
        [] => "[]string(nil)".to_owned(),
        texts => {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[]string{{{}}}", texts.join(", "))
        }
    };
    let entries: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{}:{}", quoted(key), list(values))).collect();
    let extra = match entries.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => format!("map[string][]string{{{}}}", entries.join(", ")),
    };
    let (name, uid, groups) = (quoted(&user.name), quoted(&user.uid), list(&user.groups));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::auth::action::ActionTarget;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    /// The required permissions, and the groups of the user.
    fn outcome(pairs: &[(&'static str, &'static str)]) -> (Vec<String>, Vec<String>) {
        let user = requested(&headers(pairs)).unwrap().unwrap();
        let actions = actions(&user).into_iter().map(|action| match action.target {
            ActionTarget::Resource(target) => {
                format!("{} {} {}/{}", target.group, target.combined(), target.namespace, target.name)
            }
            ActionTarget::Path(path) => path,
        });
        (actions.collect(), completed(user).groups)
    }

    #[test]
    fn each_part_must_be_permitted() {
        let (user, group) = ("impersonate-user", "impersonate-group");
        #[expect(clippy::type_complexity, reason = "headers, what must be permitted, groups")]
        let table: [(&[(&str, &str)], &[&str], &[&str]); 6] = [
            (&[(user, "bob")], &[" users /bob"], &["system:authenticated"]),
            (
                &[(user, "bob"), (group, "dev"), (group, "ops"), ("impersonate-uid", "7")],
                &[" users /bob", "authentication.k8s.io uids /7", " groups /dev", " groups /ops"],
                &["dev", "ops", "system:authenticated"],
            ),
            (
                &[(user, "bob"), ("impersonate-extra-example.com%2fscopes", "view")],
                &[" users /bob", "authentication.k8s.io userextras/example.com/scopes /view"],
                &["system:authenticated"],
            ),
            (
                &[(user, "system:serviceaccount:ns:sa")],
                &[" serviceaccounts ns/sa"],
                &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            ),
            (&[(user, "system:anonymous")], &[" users /system:anonymous"], &["system:unauthenticated"]),
            (
                &[(user, "bob"), (group, "system:unauthenticated")],
                &[" users /bob", " groups /system:unauthenticated"],
                &["system:unauthenticated"],
            ),
        ];
        for (pairs, actions, groups) in table {
            let (required, members) = outcome(pairs);
            assert_eq!((&required[..], &members[..]), (&owned(actions)[..], &owned(groups)[..]), "{pairs:?}");
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_required() {
        assert!(requested(&headers(&[("accept", "*/*")])).unwrap().is_none());
        assert!(!is_requested(&headers(&[("accept", "*/*")])));
        let headers = headers(&[("impersonate-group", "dev"), ("impersonate-extra-a", "b")]);
        assert!(is_requested(&headers));
        let status = requested(&headers).unwrap_err().to_value();
        assert_eq!(status["code"], 400);
        assert_eq!(
            status["message"],
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"dev\"}, \
             Extra:map[string][]string{\"a\":[]string{\"b\"}}} without impersonating a user name"
        );
    }
}
