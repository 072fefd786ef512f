//! Requests for resources that the API server does not serve, mostly in versions that Kubernetes has removed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::denial::subject;

/// A resource that a program requested in a version in which the API server does not serve it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Unserved {
    /// The user, `system:serviceaccount:NAMESPACE:NAME` for a service account.
    pub user: String,
    /// The group and version: `storage.k8s.io/v1beta1`, or `v1` of the core group.
    pub version: String,
    /// The resource: `csistoragecapacities`.
    pub resource: String,
    /// The groups and versions in which the API server serves it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served: Vec<String>,
}

impl Unserved {
    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// A request for tests, of `ServiceAccount storage/driver`, in a version that Kubernetes 1.27 removed.
    #[doc(hidden)]
    pub fn example() -> Self {
        Self {
            user: "system:serviceaccount:storage:driver".to_owned(),
            version: "storage.k8s.io/v1beta1".to_owned(),
            resource: "csistoragecapacities".to_owned(),
            served: vec!["storage.k8s.io/v1".to_owned()],
        }
    }

    /// What to do if the program requires the resource.
    pub fn remedy(&self) -> String {
        match self.served.as_slice() {
            [] => {
                "if the program requires it, add its CustomResourceDefinition with --deployment FILE, or use \
                   --cluster envtest if it is a resource of Kubernetes"
                    .to_owned()
            }
            served => format!("use a version of the program that requests {}", served.join(" or ")),
        }
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, version, resource, .. } = self;
        write!(f, "{} requested {resource} of {version}, which the API server does not serve", subject(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_a_served_version_or_a_definition() {
        let removed = Unserved::example();
        assert_eq!(
            removed.to_string(),
            "ServiceAccount storage/driver requested csistoragecapacities of storage.k8s.io/v1beta1, which the API \
             server does not serve"
        );
        assert_eq!(removed.remedy(), "use a version of the program that requests storage.k8s.io/v1");
        let unknown = Unserved { version: "v1".to_owned(), served: Vec::new(), ..removed.clone() };
        assert!(unknown.remedy().contains("CustomResourceDefinition"));
        assert_eq!((removed.group(), unknown.group()), ("storage.k8s.io", ""));
    }
}
