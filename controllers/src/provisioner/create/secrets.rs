//! Which secrets a storage class names for the calls of a volume.
//!
//! Upstream: `getSecretReference` in external-provisioner `pkg/controller/controller.go`. Only names are
//! handled here; no secret is read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, SecretReference};

/// Class parameters with this prefix are for Kubernetes and do not reach the driver.
pub const RESERVED: &str = "csi.storage.k8s.io/";

/// A call that may need a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// CreateVolume, DeleteVolume.
    Provision,
    /// ControllerPublishVolume, ControllerUnpublishVolume.
    ControllerPublish,
    /// NodeStageVolume.
    NodeStage,
    /// NodePublishVolume.
    NodePublish,
    /// ControllerExpandVolume.
    ControllerExpand,
    /// NodeExpandVolume.
    NodeExpand,
    /// ControllerModifyVolume.
    ControllerModify,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Purpose; 7] = [
        Self::Provision,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
    ];

    /// What stands between the prefix and `secret-name` in the parameter's key.
    fn infix(self) -> &'static str {
        match self {
            Self::Provision => "provisioner-",
            Self::ControllerPublish => "controller-publish-",
            Self::NodeStage => "node-stage-",
            Self::NodePublish => "node-publish-",
            Self::ControllerExpand => "controller-expand-",
            Self::NodeExpand => "node-expand-",
            Self::ControllerModify => "controller-modify-",
        }
    }
}

/// A class whose secrets are not named properly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// One parameter of the pair is missing or empty.
    #[error("the class parameters {key}name and {key}namespace must both be set, or neither")]
    HalfNamed {
        /// What both keys begin with.
        key: String,
    },
    /// A token that does not exist, or may not be used there.
    #[error("the class parameter value {template:?} has the unknown token ${{{token}}}")]
    UnknownToken {
        /// The value.
        template: String,
        /// The token.
        token: String,
    },
    /// The name came out empty or with characters that names cannot have.
    #[error(
        "the class parameter value {template:?} resolves to {resolved:?}, which cannot be the name of a {what}"
    )]
    BadName {
        /// The value.
        template: String,
        /// What it came to.
        resolved: String,
        /// "secret" or "namespace".
        what: &'static str,
    },
}

/// Whether a reserved class parameter is one that names a secret.
pub fn is_secret_parameter(key: &str) -> bool {
    let Some(key) = key.strip_prefix(RESERVED) else { return false };
    let stem = key.strip_suffix("secret-name").or_else(|| key.strip_suffix("secret-namespace"));
    stem.is_some_and(|stem| stem.is_empty() || Purpose::ALL.iter().any(|purpose| purpose.infix() == stem))
}

/// The secret that the class names for this purpose, or for all; none if it names none.
pub fn reference(
    purpose: Purpose,
    parameters: &BTreeMap<String, String>,
    volume: &str,
    claim: &PersistentVolumeClaim,
) -> Result<Option<SecretReference>, SecretError> {
    let own = templates(parameters, purpose.infix())?;
    let Some((name, namespace)) = own.map_or_else(|| templates(parameters, ""), |own| Ok(Some(own)))? else {
        return Ok(None);
    };
    let meta = &claim.metadata;
    let claim_namespace = meta.namespace.as_deref().unwrap_or_default();
    // The user of a claim controls its name and annotations, so these must not choose the namespace.
    let in_namespace = |token: &str| match token {
        "pv.name" => Some(volume),
        "pvc.namespace" => Some(claim_namespace),
        _ => None,
    };
    let in_name = |token: &str| {
        let annotation = token.strip_prefix("pvc.annotations['").and_then(|rest| rest.strip_suffix("']"));
        match (token, annotation) {
            ("pvc.name", _) => meta.name.as_deref(),
            (_, Some(key)) => meta.annotations.as_ref()?.get(key).map(String::as_str),
            (other, None) => in_namespace(other),
        }
    };
    Ok(Some(SecretReference {
        name: Some(resolve(name, in_name, "secret")?),
        namespace: Some(resolve(namespace, in_namespace, "namespace")?),
    }))
}

fn templates<'p>(
    parameters: &'p BTreeMap<String, String>,
    infix: &str,
) -> Result<Option<(&'p str, &'p str)>, SecretError> {
    let key = format!("{RESERVED}{infix}secret-");
    let value = |end: &str| parameters.get(&format!("{key}{end}")).map(String::as_str);
    match (value("name"), value("namespace")) {
        (None, None) => Ok(None),
        (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
            Ok(Some((name, namespace)))
        }
        (_, _) => Err(SecretError::HalfNamed { key }),
    }
}

/// Replaces each `${token}`.
fn resolve<'v>(
    template: &str,
    value_of: impl Fn(&str) -> Option<&'v str>,
    what: &'static str,
) -> Result<String, SecretError> {
    let mut resolved = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (token, after) = after.split_once('}').unwrap_or((after, ""));
        let value = value_of(token).ok_or_else(|| SecretError::UnknownToken {
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
        Err(SecretError::BadName { template: template.to_owned(), resolved, what })
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

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    fn named(purpose: Purpose, parameters: &[(&str, &str)]) -> Result<Option<(String, String)>, SecretError> {
        let parameters =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut claim = testing::claim("data", "fast", "1Gi");
        testing::annotate(&mut claim.metadata, "team", "blue");
        let reference = reference(purpose, &parameters, "pvc-1", &claim)?;
        Ok(reference.map(|secret| (secret.namespace.unwrap(), secret.name.unwrap())))
    }

    fn found(namespace: &str, name: &str) -> Result<Option<(String, String)>, SecretError> {
        Ok(Some((namespace.into(), name.into())))
    }

    #[test]
    fn own_secret_before_the_default_one() {
        let default = [
            ("csi.storage.k8s.io/secret-name", "all"),
            ("csi.storage.k8s.io/secret-namespace", "kube-system"),
        ];
        let both = [
            default[0],
            default[1],
            ("csi.storage.k8s.io/node-stage-secret-name", "key-${pvc.name}-${pvc.annotations['team']}"),
            ("csi.storage.k8s.io/node-stage-secret-namespace", "${pvc.namespace}"),
        ];
        assert_eq!(named(Purpose::Provision, &[]), Ok(None));
        assert_eq!(named(Purpose::Provision, &default), found("kube-system", "all"));
        assert_eq!(named(Purpose::NodeStage, &both), found("default", "key-data-blue"));
        assert_eq!(named(Purpose::NodePublish, &both), found("kube-system", "all"));
    }

    #[test]
    fn bad_templates_are_refused() {
        let pair = |name: &'static str, namespace: &'static str| {
            [("csi.storage.k8s.io/secret-name", name), ("csi.storage.k8s.io/secret-namespace", namespace)]
        };
        let unknown = |template: &str, token: &str| {
            Err(SecretError::UnknownToken { template: template.into(), token: token.into() })
        };
        assert_eq!(named(Purpose::Provision, &pair("s", "${pvc.name}")), unknown("${pvc.name}", "pvc.name"));
        assert_eq!(named(Purpose::Provision, &pair("${nope}", "n")), unknown("${nope}", "nope"));
        assert!(matches!(named(Purpose::Provision, &pair("../x", "n")), Err(SecretError::BadName { .. })));
        assert!(matches!(named(Purpose::Provision, &pair("s", "")), Err(SecretError::HalfNamed { .. })));
        let half = [("csi.storage.k8s.io/provisioner-secret-name", "s")];
        assert!(matches!(named(Purpose::Provision, &half), Err(SecretError::HalfNamed { .. })));
    }

    #[test]
    fn knows_its_parameters() {
        assert!(is_secret_parameter("csi.storage.k8s.io/node-expand-secret-namespace"));
        assert!(is_secret_parameter("csi.storage.k8s.io/secret-name"));
        assert!(!is_secret_parameter("csi.storage.k8s.io/other-secret-name"));
        assert!(!is_secret_parameter("secret-name"));
    }
}
