//! The data source of a claim.

use std::fmt;

use claimcheck_model::{ObjectKey, snapshot};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The data source of a new volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataSource {
    /// A VolumeSnapshot.
    Snapshot(ObjectKey),
    /// Another claim.
    Claim(ObjectKey),
    /// An object in a namespace that the claim names, which requires a feature that is off by default
    /// (`CrossNamespaceVolumeDataSource`), and a ReferenceGrant unless the namespace is the claim's.
    Elsewhere {
        /// Its namespace.
        namespace: String,
        /// The object; never [`DataSource::Elsewhere`] itself.
        source: Box<DataSource>,
    },
    /// An object of a volume populator (`AnyVolumeDataSource`).
    Other {
        /// The API group; empty for core.
        group: String,
        /// The kind.
        kind: String,
    },
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(key) => write!(f, "VolumeSnapshot {key}"),
            Self::Claim(key) => write!(f, "PersistentVolumeClaim {key}"),
            Self::Elsewhere { namespace, .. } => f.write_str(&elsewhere_term(namespace)),
            Self::Other { group, kind } => write!(f, "{kind} of {group:?}"),
        }
    }
}

/// The term in [`ClaimBy::Source`](crate::ClaimBy::Source) of all claims with [`DataSource::Elsewhere`] in this namespace.
pub fn elsewhere_term(namespace: &str) -> String {
    format!("something in {namespace}")
}

/// The data source of the claim; `None` for an empty volume.
///
/// Upstream: `dataSource` and `prepareProvision` in external-provisioner `pkg/controller/controller.go`: the
/// older of the two fields counts where it is set.
pub fn data_source(claim: &PersistentVolumeClaim) -> Option<DataSource> {
    let spec = claim.spec.as_ref()?;
    let (group, kind, name, namespace) = match (&spec.data_source, &spec.data_source_ref) {
        (Some(source), _) => (source.api_group.as_deref(), &source.kind, &source.name, None),
        (None, Some(source)) => {
            (source.api_group.as_deref(), &source.kind, &source.name, source.namespace.as_deref())
        }
        (None, None) => return None,
    };
    let named = namespace.filter(|namespace| !namespace.is_empty());
    let key = ObjectKey::new(named.or(claim.metadata.namespace.as_deref()).unwrap_or_default(), name);
    let source = match (group.unwrap_or_default(), kind.as_str()) {
        (snapshot::GROUP, "VolumeSnapshot") => DataSource::Snapshot(key),
        ("", "PersistentVolumeClaim") => DataSource::Claim(key),
        (group, kind) => DataSource::Other { group: group.to_owned(), kind: kind.to_owned() },
    };
    Some(match named {
        Some(namespace) => {
            DataSource::Elsewhere { namespace: namespace.to_owned(), source: Box::new(source) }
        }
        None => source,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{TypedLocalObjectReference, TypedObjectReference};

    use super::*;
    use crate::testing::{NAMESPACE, claim};

    #[test]
    fn each_kind_of_source() {
        let of = |group: Option<&str>, kind: &str| {
            let mut claim = claim("c", "", "1Gi");
            let source = TypedLocalObjectReference {
                api_group: group.map(str::to_owned),
                kind: kind.into(),
                name: "s".into(),
            };
            claim.spec.get_or_insert_default().data_source = Some(source);
            data_source(&claim)
        };
        let key = ObjectKey::new(NAMESPACE, "s");
        assert_eq!(of(Some(snapshot::GROUP), "VolumeSnapshot"), Some(DataSource::Snapshot(key.clone())));
        assert_eq!(of(None, "PersistentVolumeClaim"), Some(DataSource::Claim(key)));
        let other = |group: &str, kind: &str| DataSource::Other { group: group.into(), kind: kind.into() };
        assert_eq!(of(Some("x"), "VolumeSnapshot"), Some(other("x", "VolumeSnapshot")));
        assert_eq!(data_source(&claim("c", "", "1Gi")), None);
    }

    #[test]
    fn a_source_in_another_namespace_is_detected() {
        let mut claim = claim("c", "", "1Gi");
        let source = TypedObjectReference {
            kind: "PersistentVolumeClaim".into(),
            name: "s".into(),
            namespace: Some("there".into()),
            api_group: None,
        };
        claim.spec.get_or_insert_default().data_source_ref = Some(source);
        let present = Box::new(DataSource::Claim(ObjectKey::new("there", "s")));
        let expected = DataSource::Elsewhere { namespace: "there".into(), source: present };
        assert_eq!(data_source(&claim), Some(expected.clone()));
        assert_eq!(expected.to_string(), elsewhere_term("there"));
    }
}
