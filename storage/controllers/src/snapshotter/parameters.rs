//! The parameters of a class of snapshots or of groups: those for the driver, and secrets.
//!
//! Upstream: `GetSecretReference`, `GetGroupSnapshotSecretReference` and `RemovePrefixedParameters` in
//! `pkg/utils/util.go`.

use std::collections::BTreeMap;

use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{ObjectReference, SecretReference};

use super::content::Content;
use crate::{
    claims::annotation,
    rpc::{RESERVED, SecretNameError, Templates},
};

type Parameters = BTreeMap<String, String>;

/// A call that may require a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// CreateSnapshot, DeleteSnapshot.
    Snapshot,
    /// GetSnapshot, ListSnapshots.
    List,
    /// CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot.
    Group,
    /// GetVolumeGroupSnapshot.
    GroupGet,
}

impl Purpose {
    const ALL: [Self; 4] = [Self::Snapshot, Self::List, Self::Group, Self::GroupGet];

    fn infix(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshotter-",
            Self::List => "snapshotter-list-",
            Self::Group => "group-snapshotter-",
            Self::GroupGet => "group-snapshotter-get-",
        }
    }

    /// Upstream's name of the secret: `SnapshotterSecretParams`, `GroupSnapshotterSecretParams` and the like.
    fn secret(self) -> &'static str {
        match self {
            Self::Snapshot => "Snapshotter",
            Self::List => "SnapshotterList",
            Self::Group => "GroupSnapshotter",
            Self::GroupGet => "GroupSnapshotterGet",
        }
    }

    /// The beginning of the tokens in templates.
    fn object(self) -> &'static str {
        match self {
            Self::Snapshot | Self::List => "volumesnapshot",
            Self::Group | Self::GroupGet => "volumegroupsnapshot",
        }
    }
}

/// An unknown parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found unknown parameter key \"{0}\" with reserved prefix {RESERVED}; remove it from the class")]
pub struct UnknownParameter(String);

/// The secret in the class's parameters for this purpose; `None` if they have none. The snapshot or group is unknown
/// where its content is processed.
pub fn secret(
    purpose: Purpose,
    parameters: Option<&Parameters>,
    content: &str,
    object: Option<&ObjectKey>,
) -> Result<Option<SecretReference>, SecretNameError> {
    let Some(parameters) = parameters else { return Ok(None) };
    let Some(templates) = Templates::of(parameters, purpose.infix(), purpose.secret())? else {
        return Ok(None);
    };
    // Users choose the names of snapshots, so these must not choose the namespace.
    let in_namespace = |token: &str| match token.strip_prefix(purpose.object()) {
        Some("content.name") => Some(content),
        Some(".namespace") => object.map(|object| object.namespace.as_str()),
        _ => None,
    };
    let in_name = |token: &str| match token.strip_prefix(purpose.object()) {
        Some(".name") => object.map(|object| object.name.as_str()),
        _ => in_namespace(token),
    };
    templates.resolve(in_name, in_namespace).map(Some)
}

/// A class's parameters, without those for the secrets.
fn for_driver(parameters: Option<&Parameters>) -> Result<Parameters, UnknownParameter> {
    let known = |key: &str| {
        Purpose::ALL.iter().any(|purpose| {
            let end = key.strip_prefix(purpose.infix());
            matches!(end, Some("secret-name" | "secret-namespace"))
        })
    };
    let mut passed = BTreeMap::new();
    for (key, value) in parameters.into_iter().flatten() {
        match key.strip_prefix(RESERVED) {
            None => drop(passed.insert(key.clone(), value.clone())),
            Some(rest) if known(rest) => {}
            Some(_) => return Err(UnknownParameter(key.clone())),
        }
    }
    Ok(passed)
}

/// The parameters of a call that creates: those of the class for the driver and, with `--extra-create-metadata`, the
/// names of the snapshot or group that the content is bound to and of the content.
pub fn for_creation(
    purpose: Purpose,
    class: Option<&Parameters>,
    has_metadata: bool,
    bound_to: &ObjectReference,
    content: &str,
) -> Result<Parameters, UnknownParameter> {
    let mut passed = for_driver(class)?;
    if has_metadata {
        let object = purpose.object();
        for (key, value) in [
            ("/name", bound_to.name.as_deref().unwrap_or_default()),
            ("/namespace", bound_to.namespace.as_deref().unwrap_or_default()),
            ("content/name", content),
        ] {
            passed.insert(format!("{RESERVED}{object}{key}"), value.to_owned());
        }
    }
    Ok(passed)
}

/// The annotations of a content that record its secret.
pub fn secret_annotations<C: Content>(secret: SecretReference) -> Parameters {
    let values = [secret.name, secret.namespace].map(Option::unwrap_or_default);
    C::SECRET.map(str::to_owned).into_iter().zip(values).collect()
}

/// The secret that a content's annotations name.
pub fn recorded_secret<C: Content>(content: &C) -> Option<SecretReference> {
    let noted = |key| annotation(content, key).filter(|value| !value.is_empty()).map(str::to_owned);
    let [name, namespace] = C::SECRET.map(noted);
    Some(SecretReference { name: Some(name?), namespace: Some(namespace?) })
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::key_of;
    use claimcheck_model::{
        group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContent},
        snapshot::{VolumeSnapshot, VolumeSnapshotClass},
    };

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
        let found = secret(Purpose::Snapshot, class.parameters.as_ref(), "c", Some(&key_of(&snapshot)))
            .unwrap()
            .unwrap();
        assert_eq!((found.namespace.as_deref(), found.name.as_deref()), (Some("n"), Some("s-key")));
        assert_eq!(secret(Purpose::List, class.parameters.as_ref(), "c", Some(&key_of(&snapshot))), Ok(None));
        let passed = for_driver(class.parameters.as_ref()).unwrap();
        assert_eq!(passed, BTreeMap::from([("tier".to_owned(), "cold".to_owned())]));
    }

    #[test]
    fn secrets_of_groups_have_their_own_parameters_and_tokens() {
        let class = class(&[
            ("csi.storage.k8s.io/group-snapshotter-secret-name", "${volumegroupsnapshot.name}-key"),
            ("csi.storage.k8s.io/group-snapshotter-secret-namespace", "${volumegroupsnapshot.namespace}"),
            ("csi.storage.k8s.io/group-snapshotter-get-secret-name", "${volumegroupsnapshotcontent.name}"),
            ("csi.storage.k8s.io/group-snapshotter-get-secret-namespace", "${volumesnapshot.namespace}"),
        ]);
        let mut group = VolumeGroupSnapshot::default();
        group.metadata.name = Some("g".into());
        group.metadata.namespace = Some("n".into());
        let found =
            secret(Purpose::Group, class.parameters.as_ref(), "c", Some(&key_of(&group))).unwrap().unwrap();
        assert_eq!((found.namespace.as_deref(), found.name.as_deref()), (Some("n"), Some("g-key")));
        let refused = secret(Purpose::GroupGet, class.parameters.as_ref(), "c", Some(&key_of(&group)));
        assert!(matches!(refused, Err(SecretNameError::InvalidTokens { .. })), "a token of snapshots");
        assert_eq!(for_driver(class.parameters.as_ref()), Ok(BTreeMap::new()));
    }

    #[test]
    fn the_names_of_the_objects_are_passed_on_request() {
        let class = class(&[("tier", "cold")]);
        let bound_to = ObjectReference {
            name: Some("g".into()),
            namespace: Some("n".into()),
            ..ObjectReference::default()
        };
        let passed = |purpose, has_metadata| {
            let passed = for_creation(purpose, class.parameters.as_ref(), has_metadata, &bound_to, "c");
            passed.unwrap().into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(passed(Purpose::Group, false), ["tier=cold"]);
        let expected = [
            "csi.storage.k8s.io/volumegroupsnapshot/name=g",
            "csi.storage.k8s.io/volumegroupsnapshot/namespace=n",
            "csi.storage.k8s.io/volumegroupsnapshotcontent/name=c",
            "tier=cold",
        ];
        assert_eq!(passed(Purpose::Group, true), expected);
        let of_snapshot = expected.map(|line| line.replace("volumegroupsnapshot", "volumesnapshot"));
        assert_eq!(passed(Purpose::Snapshot, true), of_snapshot);
    }

    #[test]
    fn a_content_records_its_secret() {
        let secret = SecretReference { name: Some("key".into()), namespace: Some("n".into()) };
        let mut content = VolumeGroupSnapshotContent::default();
        assert_eq!(recorded_secret(&content), None);
        content.metadata.annotations = Some(secret_annotations::<VolumeGroupSnapshotContent>(secret.clone()));
        assert_eq!(recorded_secret(&content), Some(secret));
    }

    #[test]
    fn users_do_not_choose_namespaces_and_typos_are_found() {
        let chosen = class(&[
            ("csi.storage.k8s.io/snapshotter-secret-name", "s"),
            ("csi.storage.k8s.io/snapshotter-secret-namespace", "${volumesnapshot.name}"),
        ]);
        let refused =
            secret(Purpose::Snapshot, chosen.parameters.as_ref(), "c", Some(&ObjectKey::new("n", "s")));
        assert!(matches!(refused, Err(SecretNameError::InvalidTokens { .. })));
        let typo = class(&[("csi.storage.k8s.io/snapshoter-secret-name", "s")]);
        let key = "csi.storage.k8s.io/snapshoter-secret-name".to_owned();
        assert_eq!(for_driver(typo.parameters.as_ref()), Err(UnknownParameter(key)));
    }
}
