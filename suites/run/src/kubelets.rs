//! The versions of the nodes' kubelets, where these are not the API server's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::ListParams};

/// Which nodes have which version, as a run's information; none if all have that of the API server.
///
/// # Errors
/// The nodes cannot be listed.
pub(super) async fn kubelets(client: Client, api_server: &str) -> kube::Result<Option<String>> {
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
    let versions = nodes.items.into_iter().map(|node| {
        let version = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let version = version.map(|info| info.kubelet_version.clone()).unwrap_or_default();
        (version, node.name_any())
    });
    Ok(others(versions, api_server))
}

fn others(versions: impl Iterator<Item = (String, String)>, api_server: &str) -> Option<String> {
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (version, node) in versions {
        // Virtual nodes and those of clouds add something of their own.
        let plain = version.split(['+', '-']).next().unwrap_or_default();
        nodes.entry(plain.to_owned()).or_default().push(node);
    }
    let is_other = |version: &String| api_server.split(['+', '-']).next() != Some(version);
    let differ = nodes.keys().any(is_other);
    let all = nodes.iter().map(|(version, nodes)| format!("{version} on {}", nodes.join(", ")));
    differ.then(|| all.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_of_another_version_are_listed_by_node() {
        let of = |versions: &[(&str, &str)]| {
            let versions = versions.iter().map(|(version, node)| ((*version).to_owned(), (*node).to_owned()));
            others(versions, "v1.36.2")
        };
        assert_eq!(of(&[("v1.36.2", "a"), ("v1.36.2+claimcheck.0.1.0", "b"), ("v1.36.2-eks-1", "c")]), None);
        let expected = "v1.34.9 on a, c; v1.36.2 on b";
        assert_eq!(of(&[("v1.34.9", "a"), ("v1.36.2", "b"), ("v1.34.9", "c")]), Some(expected.to_owned()));
    }
}
