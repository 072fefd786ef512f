//! `resourceFieldRef`: the resources of a container as text.
//!
//! Upstream: `pkg/api/v1/resource/helpers.go`.

use std::collections::BTreeMap;

use claimcheck_informer::quantity;
use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity,
};

/// The prefix of the names of huge pages, of which the rest is a size.
const HUGE_PAGES: &str = "hugepages-";

/// A reference has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceFieldError {
    /// The pod has no such container.
    #[error("container {0} not found")]
    Container(String),
    /// There is no such resource.
    #[error("Unsupported container resource : {0}")]
    Resource(String),
}

/// A container's limit or request in units of the divisor, rounded up. Without a limit it is the node's allocatable
/// amount, and without a request 0. `own` is the container of a reference that names none.
///
/// # Errors
/// There is no such container or resource.
pub fn resource_field(
    pod: &PodSpec,
    allocatable: &BTreeMap<String, Quantity>,
    selector: &ResourceFieldSelector,
    own: &str,
) -> Result<String, ResourceFieldError> {
    let name = selector.container_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let all = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let container = all.into_iter().find(|container| container.name == name);
    let container = container.ok_or_else(|| ResourceFieldError::Container(name.to_owned()))?;
    let unknown = || ResourceFieldError::Resource(selector.resource.clone());
    let (of, resource) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let is_known = matches!(resource, "cpu" | "memory" | "ephemeral-storage");
    if !is_known && !resource.starts_with(HUGE_PAGES) {
        return Err(unknown());
    }
    let amount = match of {
        "limits" => limit(container, resource).or_else(|| allocatable.get(resource).filter(|_| is_known)),
        "requests" => request(container, resource),
        _ => return Err(unknown()),
    };
    // Processors are counted in thousandths.
    let value = if resource == "cpu" { quantity::millis } else { quantity::bytes };
    let units = |quantity: &Quantity| value(quantity).filter(|value| *value > 0);
    let amount = amount.and_then(units).unwrap_or(0);
    let divisor = selector.divisor.as_ref().and_then(units);
    let divisor = divisor.or_else(|| units(&Quantity("1".to_owned()))).unwrap_or(1);
    Ok((amount / divisor + i64::from(amount % divisor != 0)).to_string())
}

/// A limit of zero is none.
fn limit<'a>(container: &'a Container, resource: &str) -> Option<&'a Quantity> {
    let found = container.resources.as_ref()?.limits.as_ref()?.get(resource)?;
    (quantity::millis(found) != Some(0)).then_some(found)
}

fn request<'a>(container: &'a Container, resource: &str) -> Option<&'a Quantity> {
    container.resources.as_ref()?.requests.as_ref()?.get(resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_those_of_the_kubelet() {
        let pod: PodSpec = serde_json::from_value(json!({
            "containers": [
                { "name": "c", "resources": {
                    "limits": { "cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi" },
                    "requests": { "cpu": "0.25", "memory": "1.5Gi" },
                } },
                { "name": "none", "resources": { "limits": { "memory": "0" } } },
            ],
            "initContainers": [{ "name": "i", "resources": { "limits": { "cpu": "3" } } }],
        }))
        .unwrap();
        let amounts = [
            ("ephemeral-storage", "7Gi"),
            ("cpu", "64"),
            ("memory", "9007199254740993"),
            ("hugepages-2Mi", "2Mi"),
        ];
        let allocatable = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into();
        let rows = [
            ("c", "limits.cpu", "0", "2"),
            ("c", "limits.cpu", "1m", "1500"),
            ("c", "limits.memory", "1", "67108864"),
            ("c", "limits.memory", "1Mi", "64"),
            ("c", "limits.memory", "1Gi", "1"),
            ("c", "limits.ephemeral-storage", "1Gi", "7"),
            ("c", "limits.hugepages-2Mi", "1Mi", "4"),
            ("c", "requests.cpu", "1m", "250"),
            ("c", "requests.cpu", "1", "1"),
            ("c", "requests.memory", "1Mi", "1536"),
            ("c", "requests.ephemeral-storage", "1", "0"),
            ("", "limits.cpu", "1", "64"),
            // More than the digits of a double.
            ("none", "limits.memory", "1", "9007199254740993"),
            ("none", "limits.hugepages-2Mi", "1", "0"),
            ("i", "limits.cpu", "1", "3"),
        ];
        let selector = |container: &str, resource: &str, divisor: &str| ResourceFieldSelector {
            container_name: Some(container.to_owned()),
            resource: resource.to_owned(),
            divisor: Some(Quantity(divisor.to_owned())),
        };
        for (container, resource, divisor, expected) in rows {
            let found = resource_field(&pod, &allocatable, &selector(container, resource, divisor), "none");
            assert_eq!(found.as_deref(), Ok(expected), "{resource} of {container:?} in {divisor}");
        }
        for (container, resource, expected) in [
            ("other", "limits.cpu", "container other not found"),
            ("c", "limits.pods", "Unsupported container resource : limits.pods"),
            ("c", "wishes.cpu", "Unsupported container resource : wishes.cpu"),
            ("c", "cpu", "Unsupported container resource : cpu"),
        ] {
            let error =
                resource_field(&pod, &allocatable, &selector(container, resource, "1"), "c").unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
