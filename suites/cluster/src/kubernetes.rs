//! What the Kubernetes of a run has: features that cases need, and that older versions lack.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};

/// A feature that the oldest supported Kubernetes lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// VolumeAttributesClasses of `storage.k8s.io/v1`.
    AttributesClasses,
    /// `serviceAccountTokenInSecrets` of a CSIDriver.
    TokenInSecrets,
    /// `nodeAllocatableUpdatePeriodSeconds` of a CSIDriver.
    AllocatableUpdates,
}

impl Feature {
    /// What Kubernetes has, its enhancement proposal, the first minor version with it by default, and its feature gate
    /// (`pkg/features/kube_features.go`).
    const fn row(self) -> (&'static str, u32, u32, &'static str) {
        match self {
            Self::AttributesClasses => {
                ("VolumeAttributesClasses of storage.k8s.io/v1", 3751, 34, "VolumeAttributesClass")
            }
            Self::TokenInSecrets => {
                ("serviceAccountTokenInSecrets of CSIDrivers", 5538, 35, "CSIServiceAccountTokenSecrets")
            }
            Self::AllocatableUpdates => (
                "nodeAllocatableUpdatePeriodSeconds of CSIDrivers",
                4876,
                35,
                "MutableCSINodeAllocatableCount",
            ),
        }
    }
}

/// A version of Kubernetes, with what its API server reveals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// As the API server returns it; empty before a cluster is started.
    version: String,
    /// The minor version; none if it is not known, and then each feature is expected.
    minor: Option<u32>,
    /// The minor version of the oldest kubelet, if it is older than the API server.
    older_kubelet: Option<u32>,
    /// Feature gates from the API server's metrics; empty if they may not be read.
    gates: BTreeMap<String, bool>,
    /// Whether VolumeAttributesClasses of v1 are served.
    attributes_classes: bool,
}

impl Kubernetes {
    /// A version that has each feature.
    pub const NEWEST: Self = Self {
        version: String::new(),
        minor: None,
        older_kubelet: None,
        gates: BTreeMap::new(),
        attributes_classes: true,
    };

    /// The Kubernetes of a cluster.
    ///
    /// # Errors
    /// The version, the nodes or the resources of `storage.k8s.io/v1` cannot be read. Metrics may be forbidden: then the version
    /// decides.
    pub async fn of(client: &Client) -> Result<Self, kube::Error> {
        let version = client.apiserver_version().await?;
        let served = client.list_api_group_resources("storage.k8s.io/v1").await?.resources;
        let metrics = http::Request::get("/metrics").body(Vec::new()).map_err(kube::Error::HttpError)?;
        let metrics = client.request_text(metrics).await.unwrap_or_default();
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
        let kubelets = nodes.items.iter().filter_map(|node| {
            let info = node.status.as_ref()?.node_info.as_ref()?;
            info.kubelet_version.split('.').nth(1)?.parse::<u32>().ok()
        });
        // Providers append to it: "34+".
        let minor = version.minor.trim_end_matches('+').parse().ok();
        Ok(Self {
            minor,
            older_kubelet: kubelets.min().filter(|kubelet| minor.is_some_and(|minor| *kubelet < minor)),
            version: version.git_version,
            gates: gates(&metrics),
            attributes_classes: served.iter().any(|resource| resource.name == "volumeattributesclasses"),
        })
    }

    /// The reason why a feature is missing; none if it is there.
    pub fn lack(&self, feature: Feature) -> Option<String> {
        let (what, kep, since, gate) = feature.row();
        let of_kubelets = matches!(feature, Feature::TokenInSecrets | Feature::AllocatableUpdates);
        if let Some(kubelet) = self.older_kubelet.filter(|kubelet| of_kubelets && *kubelet < since) {
            return Some(format!(
                "the kubelets of Kubernetes 1.{kubelet} have no {what} (KEP-{kep}): use nodes of 1.{since} or later"
            ));
        }
        let is_new_enough = self.minor.is_none_or(|minor| minor >= since);
        let has = match feature {
            Feature::AttributesClasses => self.attributes_classes,
            Feature::TokenInSecrets | Feature::AllocatableUpdates => {
                self.gates.get(gate).copied().unwrap_or(is_new_enough)
            }
        };
        let remedy = match is_new_enough {
            true => format!("enable feature gate {gate}"),
            false => format!("use Kubernetes 1.{since} or later"),
        };
        (!has).then(|| {
            format!("Kubernetes {} has no {what} (KEP-{kep}): {remedy}", self.version.trim_start_matches('v'))
        })
    }
}

/// The feature gates in the metrics of an API server: `kubernetes_feature_enabled{name="..",stage=".."} 1`
/// (`k8s.io/component-base/metrics/prometheus/feature`).
fn gates(metrics: &str) -> BTreeMap<String, bool> {
    let gate = |line: &str| {
        let (name, rest) = line.strip_prefix("kubernetes_feature_enabled{name=\"")?.split_once('"')?;
        Some((name.to_owned(), rest.ends_with(" 1")))
    };
    metrics.lines().filter_map(gate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubernetes(minor: u32, metrics: &str) -> Kubernetes {
        Kubernetes {
            version: format!("v1.{minor}.2"),
            minor: Some(minor),
            older_kubelet: None,
            gates: gates(metrics),
            attributes_classes: minor >= 34,
        }
    }

    #[test]
    fn a_feature_is_missing_by_version_by_gate_or_by_discovery() {
        let gate = |value| {
            format!(
                "# TYPE kubernetes_feature_enabled gauge\n\
                 kubernetes_feature_enabled{{name=\"MutableCSINodeAllocatableCount\",stage=\"BETA\"}} {value}\n"
            )
        };
        let updates = "nodeAllocatableUpdatePeriodSeconds of CSIDrivers (KEP-4876)";
        let classes = "VolumeAttributesClasses of storage.k8s.io/v1 (KEP-3751)";
        let (on, off) = (gate(1), gate(0));
        for (minor, metrics, feature, lack) in [
            (35, "", Feature::AllocatableUpdates, None),
            (34, "", Feature::AllocatableUpdates, Some((updates, "use Kubernetes 1.35 or later"))),
            (34, &*on, Feature::AllocatableUpdates, None),
            (
                36,
                &*off,
                Feature::AllocatableUpdates,
                Some((updates, "enable feature gate MutableCSINodeAllocatableCount")),
            ),
            (34, "", Feature::AttributesClasses, None),
            (33, &*on, Feature::AttributesClasses, Some((classes, "use Kubernetes 1.34 or later"))),
            (35, &*off, Feature::TokenInSecrets, None),
        ] {
            let lack = lack.map(|(what, remedy)| format!("Kubernetes 1.{minor}.2 has no {what}: {remedy}"));
            assert_eq!(kubernetes(minor, metrics).lack(feature), lack, "1.{minor}, {feature:?}");
        }
        assert_eq!(Kubernetes::NEWEST.lack(Feature::AllocatableUpdates), None);
        let skewed = |kubelet| Kubernetes { older_kubelet: Some(kubelet), ..kubernetes(36, &on) };
        let lack = "the kubelets of Kubernetes 1.34 have no serviceAccountTokenInSecrets of CSIDrivers (KEP-5538): \
                    use nodes of 1.35 or later";
        assert_eq!(skewed(34).lack(Feature::TokenInSecrets).as_deref(), Some(lack));
        assert_eq!(skewed(35).lack(Feature::TokenInSecrets), None);
        assert_eq!(skewed(33).lack(Feature::AttributesClasses), None);
    }
}
