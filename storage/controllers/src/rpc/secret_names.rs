//! Secrets named by templates in a class, such as `${pvc.name}`. Only names are handled here; no secret is
//! read.
//!
//! Upstream: `verifyAndGetSecretNameAndNamespaceTemplate` and `resolveTemplate`, in external-provisioner
//! `pkg/controller/controller.go` and external-snapshotter `pkg/utils/util.go` alike.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::SecretReference;

/// Class parameters with this prefix are for Kubernetes and do not reach the driver.
pub const RESERVED: &str = "csi.storage.k8s.io/";

/// Upstream's name of the secret for the calls that have none of their own.
pub const DEFAULT_SECRET: &str = "Default";

/// Invalid secret parameters in a class, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    /// One parameter of the pair is missing.
    #[error(
        "failed to get {} from params: either name and namespace for {secret} secrets specified, Both must be \
         specified",
        templates_of(.secret)
    )]
    HalfNamed {
        /// Upstream's name of the secret.
        secret: &'static str,
    },
    /// One parameter of the pair is empty.
    #[error(
        "failed to get {} from params: {secret} secrets specified in parameters but value of either namespace or \
         name is empty",
        templates_of(.secret)
    )]
    Empty {
        /// Upstream's name of the secret.
        secret: &'static str,
    },
    /// Tokens that do not exist, or are not permitted there.
    #[error("error resolving value {template:?}: invalid tokens: {}", quoted(.tokens))]
    InvalidTokens {
        /// The value.
        template: String,
        /// The tokens.
        tokens: BTreeSet<String>,
    },
    /// The resolved name is empty or has invalid characters.
    #[error("{} is not a valid {what} name", resolution(.template, .resolved))]
    BadName {
        /// The value.
        template: String,
        /// The resolved name.
        resolved: String,
        /// "secret" or "namespace".
        what: &'static str,
    },
}

fn templates_of(secret: &str) -> &'static str {
    if secret == DEFAULT_SECRET {
        "default name and namespace template"
    } else {
        "name and namespace template"
    }
}

/// As Go's `%q` prints a list.
fn quoted(tokens: &BTreeSet<String>) -> String {
    let quoted: Vec<String> = tokens.iter().map(|token| format!("{token:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn resolution(template: &str, resolved: &str) -> String {
    if template == resolved {
        format!("{template:?}")
    } else {
        format!("{template:?} resolved to {resolved:?} which")
    }
}

/// The templates of a secret's name and namespace.
#[derive(Clone, Copy, Debug)]
pub struct Templates<'p> {
    name: &'p str,
    namespace: &'p str,
}

impl<'p> Templates<'p> {
    /// The templates in a class's parameters; `infix` is the part between the prefix and `secret-name`, `secret` is
    /// upstream's name of the secret. `None` if they have none.
    pub fn of(
        parameters: &'p BTreeMap<String, String>,
        infix: &str,
        secret: &'static str,
    ) -> Result<Option<Self>, SecretNameError> {
        let key = format!("{RESERVED}{infix}secret-");
        let value = |end: &str| parameters.get(&format!("{key}{end}")).map(String::as_str);
        match (value("name"), value("namespace")) {
            (None, None) => Ok(None),
            (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
                Ok(Some(Self { name, namespace }))
            }
            (Some(_), Some(_)) => Err(SecretNameError::Empty { secret }),
            (Some(_), None) | (None, Some(_)) => Err(SecretNameError::HalfNamed { secret }),
        }
    }

    /// The secret, with the values of the tokens of its name and of its namespace.
    pub fn resolve<'v>(
        self,
        in_name: impl Fn(&str) -> Option<&'v str>,
        in_namespace: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<SecretReference, SecretNameError> {
        let namespace = resolve(self.namespace, in_namespace, "namespace")?;
        let name = resolve(self.name, in_name, "secret")?;
        Ok(SecretReference { name: Some(name), namespace: Some(namespace) })
    }
}

/// Replaces each `${token}`.
fn resolve<'v>(
    template: &str,
    value_of: impl Fn(&str) -> Option<&'v str>,
    what: &'static str,
) -> Result<String, SecretNameError> {
    let mut resolved = String::new();
    let mut unknown = BTreeSet::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (token, after) = after.split_once('}').unwrap_or((after, ""));
        resolved.push_str(before);
        match value_of(token) {
            Some(value) => resolved.push_str(value),
            None => drop(unknown.insert(token.to_owned())),
        }
        rest = after;
    }
    resolved.push_str(rest);
    if !unknown.is_empty() {
        return Err(SecretNameError::InvalidTokens { template: template.to_owned(), tokens: unknown });
    }
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
