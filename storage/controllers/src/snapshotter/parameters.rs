//! A snapshot class's parameters: those for the driver, and secrets.
//!
//! Upstream: `GetSecretReference` and `RemovePrefixedParameters` in `pkg/utils/util.go`.

use std::collections::BTreeMap;

use claimcheck_model::snapshot::{VolumeSnapshot, VolumeSnapshotClass};
use k8s_openapi::api::core::v1::SecretReference;

use crate::{
    claims::name,
    rpc::{RESERVED, SecretNameError, Templates},
};

/// A call that may require a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// CreateSnapshot, DeleteSnapshot.
    Snapshot,
    /// GetSnapshot, ListSnapshots.
    List,
}

impl Purpose {
    fn infix(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshotter-",
            Self::List => "snapshotter-list-",
        }
    }
}

/// An unknown parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found unknown parameter key \"{0}\" with reserved prefix {RESERVED}; remove it from the class")]
pub struct UnknownParameter(String);

/// The secret in the class's parameters for this purpose; `None` if they have none. The snapshot is unknown
/// where its content is processed.
pub fn secret(
    purpose: Purpose,
    class: &VolumeSnapshotClass,
    content: &str,
    snapshot: Option<&VolumeSnapshot>,
) -> Result<Option<SecretReference>, SecretNameError> {
    let Some(parameters) = &class.parameters else { return Ok(None) };
    let Some(templates) = Templates::of(parameters, purpose.infix())? else { return Ok(None) };
    // Users choose the names of snapshots, so these must not choose the namespace.
    let in_namespace = |token: &str| match token {
        "volumesnapshotcontent.name" => Some(content),
        "volumesnapshot.namespace" => snapshot?.metadata.namespace.as_deref(),
        _ => None,
    };
    let in_name = |token: &str| match token {
        "volumesnapshot.name" => snapshot.map(name),
        other => in_namespace(other),
    };
    templates.resolve(in_name, in_namespace).map(Some)
}

/// The class's parameters for the driver.
pub fn for_driver(class: &VolumeSnapshotClass) -> Result<BTreeMap<String, String>, UnknownParameter> {
    let known = |key: &str| {
        [Purpose::Snapshot, Purpose::List].iter().any(|purpose| {
            let end = key.strip_prefix(purpose.infix());
            matches!(end, Some("secret-name" | "secret-namespace"))
        })
    };
    let mut passed = BTreeMap::new();
    for (key, value) in class.parameters.iter().flatten() {
        match key.strip_prefix(RESERVED) {
            None => drop(passed.insert(key.clone(), value.clone())),
            Some(rest) if known(rest) => {}
            Some(_) => return Err(UnknownParameter(key.clone())),
        }
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(parameters: &[(&str, &str)]) -> VolumeSnapshotClass {
        let pairs = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        VolumeSnapshotClass { parameters: Some(pairs.collect()), ..VolumeSnapshotClass::default() }
    }

    #[test]
    fn secrets_and_plain_parameters_are_distinguished() {
        let class = class(&[
            ("csi.storage.k8s.io/snapshotter-secret-name", "${volumesnapshot.name}-key"),
            ("csi.storage.k8s.io/snapshotter-secret-namespace", "${volumesnapshot.namespace}"),
            ("tier", "cold"),
        ]);
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.name = Some("s".into());
        snapshot.metadata.namespace = Some("n".into());
        let found = secret(Purpose::Snapshot, &class, "c", Some(&snapshot)).unwrap().unwrap();
        assert_eq!((found.namespace.as_deref(), found.name.as_deref()), (Some("n"), Some("s-key")));
        assert_eq!(secret(Purpose::List, &class, "c", Some(&snapshot)), Ok(None));
        assert_eq!(for_driver(&class).unwrap(), BTreeMap::from([("tier".to_owned(), "cold".to_owned())]));
    }

    #[test]
    fn users_do_not_choose_namespaces_and_typos_are_found() {
        let chosen = class(&[
            ("csi.storage.k8s.io/snapshotter-secret-name", "s"),
            ("csi.storage.k8s.io/snapshotter-secret-namespace", "${volumesnapshot.name}"),
        ]);
        let refused = secret(Purpose::Snapshot, &chosen, "c", Some(&VolumeSnapshot::default()));
        assert!(matches!(refused, Err(SecretNameError::UnknownToken { .. })));
        let typo = class(&[("csi.storage.k8s.io/snapshoter-secret-name", "s")]);
        let key = "csi.storage.k8s.io/snapshoter-secret-name".to_owned();
        assert_eq!(for_driver(&typo), Err(UnknownParameter(key)));
    }
}
