//! A conflict between two pods that use the same volume, and the text of its event.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// The property in which two pods differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// The SELinux label of the mount option.
    Label,
    /// Whether the label is a mount option.
    ChangePolicy,
}

impl Property {
    /// Its name in texts, and the label `property` of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "SELinuxLabel",
            Self::ChangePolicy => "SELinuxChangePolicy",
        }
    }

    /// The reason of the event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Label => "SELinuxLabelConflict",
            Self::ChangePolicy => "SELinuxChangePolicyConflict",
        }
    }
}

/// A conflict as one of the two pods has it; the other pod has the reverse. Upstream: `Conflict` in
/// `pkg/controller/volume/selinuxwarning/cache/conflict.go`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The property.
    pub property: Property,
    /// The pod that the event is about.
    pub pod: Arc<Pod>,
    /// Its value of the property.
    pub value: String,
    /// The other pod.
    pub other: Arc<Pod>,
    /// The value of the other pod.
    pub other_value: String,
}

impl Conflict {
    /// The same conflict as the other pod has it.
    #[must_use]
    pub fn reverse(&self) -> Self {
        Self {
            property: self.property,
            pod: self.other.clone(),
            value: self.other_value.clone(),
            other: self.pod.clone(),
            other_value: self.value.clone(),
        }
    }

    /// The text of the event: `EventMessage`. It names no pod of another namespace, to which the reader may have no
    /// access; the missing space in that text is upstream's.
    pub fn message(&self) -> String {
        let Self { value, other_value, .. } = self;
        let property = self.property.name();
        let consequence = "If both pods land on the same node, only one of them may access the volume.";
        if self.pod.metadata.namespace == self.other.metadata.namespace {
            let other = self.other.metadata.name.as_deref().unwrap_or_default();
            format!(
                "{property} \"{value}\" conflicts with pod {other} that uses the same volume as this pod with \
                 {property} \"{other_value}\". {consequence}"
            )
        } else {
            format!(
                "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with a \
                 different {property}. {consequence}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    #[test]
    fn the_texts_are_those_of_upstream() {
        let mut conflict = Conflict {
            property: Property::Label,
            pod: Arc::new(testing::pod("p", "", &[])),
            value: ":::s0:c1,c2".into(),
            other: Arc::new(testing::pod("q", "", &[])),
            other_value: ":::s0:c3,c4".into(),
        };
        assert_eq!(
            conflict.message(),
            "SELinuxLabel \":::s0:c1,c2\" conflicts with pod q that uses the same volume as this pod with \
             SELinuxLabel \":::s0:c3,c4\". If both pods land on the same node, only one of them may access the \
             volume."
        );
        let mut other = testing::pod("q", "", &[]);
        other.metadata.namespace = Some("secret".into());
        conflict.other = Arc::new(other);
        assert_eq!(
            conflict.message(),
            "SELinuxLabel\":::s0:c1,c2\" conflicts with another pod that uses the same volume as this pod with a \
             different SELinuxLabel. If both pods land on the same node, only one of them may access the volume."
        );
    }
}
