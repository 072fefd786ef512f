//! A user: name, groups and attributes, as upstream's `user.Info` (apiserver pkg/authentication/user).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::names;

/// The name of clients without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of clients without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of clients with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group to which everything is permitted.
pub const MASTERS: &str = "system:masters";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The prefix of the names of service accounts, before the namespace.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The name of the user with the admin token, as kubeadm names it.
const ADMIN: &str = "kubernetes-admin";

/// A user, authenticated or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its name, which is unique.
    pub name: String,
    /// Its unique id, or empty.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Additional attributes, such as the pod of a service account.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user with the admin token.
    pub fn admin() -> Self {
        let groups = [MASTERS, AUTHENTICATED].map(str::to_owned).to_vec();
        Self { name: ADMIN.to_owned(), groups, ..Self::default() }
    }

    /// A client without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Whether everything is permitted to it.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whether it is a member of `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|member_of| member_of == group)
    }

    /// With the group of authenticated users.
    ///
    /// Mirrors `AuthenticatedGroupAdder` (apiserver pkg/authentication/group).
    pub fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// As `UserInfo` of authentication.k8s.io.
    pub fn to_value(&self) -> Value {
        let mut value = json!({});
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                value[field] = text.as_str().into();
            }
        }
        if !self.groups.is_empty() {
            value["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            value["extra"] = json!(self.extra);
        }
        value
    }
}

/// The user name of a service account.
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The groups of the service accounts of a namespace.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// The namespace and name of a service account, if `username` is one.
///
/// Mirrors `SplitUsername` (apiserver pkg/authentication/serviceaccount).
pub fn split_service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let valid = names::fault(namespace, true).is_none() && names::fault(name, false).is_none();
    valid.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_service_accounts_are_split_if_they_are_valid() {
        for (username, expected) in [
            ("system:serviceaccount:ns:name", Some(("ns", "name"))),
            ("system:serviceaccount:ns:a.b", Some(("ns", "a.b"))),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccount:ns:a:b", None),
            ("system:serviceaccount::a", None),
            ("system:serviceaccount:n.s:a", None),
            ("system:serviceaccounts:ns:a", None),
            ("jane", None),
        ] {
            assert_eq!(split_service_account(username), expected, "{username}");
        }
        assert_eq!(service_account("ns", "name"), "system:serviceaccount:ns:name");
        assert_eq!(service_account_groups("ns"), ["system:serviceaccounts", "system:serviceaccounts:ns"]);
    }

    #[test]
    fn users_with_credentials_are_in_one_group_more() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..User::default()
        };
        for (user, expected) in [
            (user("jane", &["a"]), vec!["a", AUTHENTICATED]),
            (user("jane", &[AUTHENTICATED]), vec![AUTHENTICATED]),
            (user("jane", &[UNAUTHENTICATED]), vec![UNAUTHENTICATED]),
            (User::anonymous(), vec![UNAUTHENTICATED]),
            (User::admin(), vec![MASTERS, AUTHENTICATED]),
        ] {
            assert_eq!(user.authenticated().groups, expected);
        }
    }

    #[test]
    fn empty_fields_are_omitted() {
        assert_eq!(
            User::anonymous().to_value(),
            json!({ "username": ANONYMOUS, "groups": [UNAUTHENTICATED] })
        );
        assert_eq!(User::default().to_value(), json!({}));
    }
}
