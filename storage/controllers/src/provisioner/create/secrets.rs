//! Which secrets a storage class names for the calls of a volume.
//!
//! Upstream: `getSecretReference` in external-provisioner `pkg/controller/controller.go`. Only names are
//! handled here; no secret is read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, SecretReference};

use crate::rpc::{DEFAULT_SECRET, RESERVED, SecretNameError, Templates};

/// A call that may require a secret.
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

    /// The infix between the prefix and `secret-name` in the parameter's key.
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

    /// Upstream's name of the secret: the `name` of each `secretParamsMap`.
    fn secret(self) -> &'static str {
        match self {
            Self::Provision => "Provisioner",
            Self::ControllerPublish => "ControllerPublish",
            Self::NodeStage => "NodeStage",
            Self::NodePublish => "NodePublish",
            Self::ControllerExpand => "ControllerExpand",
            Self::NodeExpand => "NodeExpand",
            Self::ControllerModify => "ControllerModify",
        }
    }
}

/// Whether a reserved class parameter names a secret.
pub fn is_secret_parameter(key: &str) -> bool {
    let Some(key) = key.strip_prefix(RESERVED) else { return false };
    let stem = key.strip_suffix("secret-name").or_else(|| key.strip_suffix("secret-namespace"));
    stem.is_some_and(|stem| stem.is_empty() || Purpose::ALL.iter().any(|purpose| purpose.infix() == stem))
}

/// The secret in the class's parameters for this purpose, or for all; `None` if they have none.
pub fn reference(
    purpose: Purpose,
    parameters: &BTreeMap<String, String>,
    volume: &str,
    claim: &PersistentVolumeClaim,
) -> Result<Option<SecretReference>, SecretNameError> {
    let own = Templates::of(parameters, purpose.infix(), purpose.secret())?;
    let default = || Templates::of(parameters, "", DEFAULT_SECRET);
    let Some(templates) = own.map_or_else(default, |own| Ok(Some(own)))? else { return Ok(None) };
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
    templates.resolve(in_name, in_namespace).map(Some)
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    fn named(
        purpose: Purpose,
        parameters: &[(&str, &str)],
    ) -> Result<Option<(String, String)>, SecretNameError> {
        let parameters =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut claim = testing::claim("data", "fast", "1Gi");
        testing::annotate(&mut claim.metadata, "team", "blue");
        let reference = reference(purpose, &parameters, "pvc-1", &claim)?;
        Ok(reference.map(|secret| (secret.namespace.unwrap(), secret.name.unwrap())))
    }

    fn found(namespace: &str, name: &str) -> Result<Option<(String, String)>, SecretNameError> {
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
    fn bad_templates_are_refused_with_the_text_of_upstream() {
        let pair = |name: &'static str, namespace: &'static str| {
            [("csi.storage.k8s.io/secret-name", name), ("csi.storage.k8s.io/secret-namespace", namespace)]
        };
        let text = |parameters: &[(&str, &str)]| {
            named(Purpose::Provision, parameters).expect_err("it is refused").to_string()
        };
        for ([name, namespace], expected) in [
            (
                pair("s", "${pvc.name}"),
                "error resolving value \"${pvc.name}\": invalid tokens: [\"pvc.name\"]",
            ),
            (
                pair("${nope}-${also}", "n"),
                "error resolving value \"${nope}-${also}\": invalid tokens: [\"also\" \"nope\"]",
            ),
            (pair("../x", "n"), "\"../x\" is not a valid secret name"),
            (
                pair("${pvc.name}/x", "n"),
                "\"${pvc.name}/x\" resolved to \"data/x\" which is not a valid secret name",
            ),
            (pair("s", "a.b"), "\"a.b\" is not a valid namespace name"),
            (
                pair("s", ""),
                "failed to get default name and namespace template from params: Default secrets specified in \
                 parameters but value of either namespace or name is empty",
            ),
        ] {
            assert_eq!(text(&[name, namespace]), expected);
        }
        assert_eq!(
            text(&[("csi.storage.k8s.io/provisioner-secret-name", "s")]),
            "failed to get name and namespace template from params: either name and namespace for Provisioner \
             secrets specified, Both must be specified"
        );
    }

    #[test]
    fn knows_its_parameters() {
        assert!(is_secret_parameter("csi.storage.k8s.io/node-expand-secret-namespace"));
        assert!(is_secret_parameter("csi.storage.k8s.io/secret-name"));
        assert!(!is_secret_parameter("csi.storage.k8s.io/other-secret-name"));
        assert!(!is_secret_parameter("secret-name"));
    }
}
