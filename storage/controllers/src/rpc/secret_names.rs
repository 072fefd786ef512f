//! Secrets named by templates in a class, such as `${pvc.name}`. Only names are handled here; no secret is
//! read.
//!
//! Upstream: `verifyAndGetSecretNameAndNamespaceTemplate` and `resolveTemplate`, in external-provisioner
//! `pkg/controller/controller.go` and external-snapshotter `pkg/utils/util.go` alike.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecretReference;

/// Class parameters with this prefix are for Kubernetes and do not reach the driver.
pub const RESERVED: &str = "csi.storage.k8s.io/";

/// Invalid secret parameters in a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    /// One parameter of the pair is missing or empty.
    #[error("the class parameters {key}name and {key}namespace must both be set, or neither")]
    HalfNamed {
        /// The common prefix of both keys.
        key: String,
    },
    /// A token that does not exist, or is not permitted there.
    #[error("the class parameter value {template:?} has the unknown token ${{{token}}}")]
    UnknownToken {
        /// The value.
        template: String,
        /// The token.
        token: String,
    },
    /// The resolved name is empty or has invalid characters.
    #[error(
        "the class parameter value {template:?} resolves to {resolved:?}, which cannot be the name of a {what}"
    )]
    BadName {
        /// The value.
        template: String,
        /// The resolved name.
        resolved: String,
        /// "secret" or "namespace".
        what: &'static str,
    },
}

/// The templates of a secret's name and namespace.
#[derive(Clone, Copy, Debug)]
pub struct Templates<'p> {
    name: &'p str,
    namespace: &'p str,
}

impl<'p> Templates<'p> {
    /// The templates in a class's parameters; `infix` is the part between the prefix and `secret-name`. `None`
    /// if they have none.
    pub fn of(
        parameters: &'p BTreeMap<String, String>,
        infix: &str,
    ) -> Result<Option<Self>, SecretNameError> {
        let key = format!("{RESERVED}{infix}secret-");
        let value = |end: &str| parameters.get(&format!("{key}{end}")).map(String::as_str);
        match (value("name"), value("namespace")) {
            (None, None) => Ok(None),
            (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
                Ok(Some(Self { name, namespace }))
            }
            (_, _) => Err(SecretNameError::HalfNamed { key }),
        }
    }

    /// The secret, with the values of the tokens of its name and of its namespace.
    pub fn resolve<'v>(
        self,
        in_name: impl Fn(&str) -> Option<&'v str>,
        in_namespace: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<SecretReference, SecretNameError> {
        Ok(SecretReference {
            name: Some(resolve(self.name, in_name, "secret")?),
            namespace: Some(resolve(self.namespace, in_namespace, "namespace")?),
        })
    }
}

/// Replaces each `${token}`.
fn resolve<'v>(
    template: &str,
    value_of: impl Fn(&str) -> Option<&'v str>,
    what: &'static str,
) -> Result<String, SecretNameError> {
    let mut resolved = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (token, after) = after.split_once('}').unwrap_or((after, ""));
        let value = value_of(token).ok_or_else(|| SecretNameError::UnknownToken {
            template: template.to_owned(),
            token: token.to_owned(),
        })?;
        resolved.push_str(before);
        resolved.push_str(value);
        rest = after;
    }
    resolved.push_str(rest);
    if is_name(&resolved, what == "secret") {
        Ok(resolved)
    } else {
        Err(SecretNameError::BadName { template: template.to_owned(), resolved, what })
    }
}

/// A DNS label or, for secrets, a DNS subdomain (RFC 1123). This keeps `../` out of request paths.
fn is_name(name: &str, dots: bool) -> bool {
    let (longest, labels): (_, Vec<&str>) =
        if dots { (253, name.split('.').collect()) } else { (63, vec![name]) };
    name.len() <= longest
        && labels.iter().all(|label| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        })
}
