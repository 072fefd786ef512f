//! Resources that programs of a cluster with virtual nodes requested in versions that it does not serve, with those that
//! it serves.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::Unserved;
use kube::{Client, Error};
use serde_json::Value;

/// Adds the versions in which the API server serves each resource. Without them the requests are still worth a report.
pub(crate) async fn with_served(client: &Client, mut requests: Vec<Unserved>) -> Vec<Unserved> {
    let groups: BTreeSet<String> = requests.iter().map(|request| request.group().to_owned()).collect();
    let mut served = BTreeMap::new();
    for group in groups {
        match resources(client, &group).await {
            Ok(resources) => drop(served.insert(group, resources)),
            Err(error) => tracing::warn!(%error, group, "cannot list the resources of the group"),
        }
    }
    for request in &mut requests {
        let of_group = served.get(request.group()).map(Vec::as_slice).unwrap_or_default();
        let same = of_group.iter().filter(|(_, resource)| *resource == request.resource);
        request.served = same.map(|(version, _)| version.clone()).collect();
    }
    requests
}

/// The resources of a group, each with its version; none of a group that does not exist.
async fn resources(client: &Client, group: &str) -> Result<Vec<(String, String)>, Error> {
    let versions = match group {
        "" => client.list_core_api_versions().await?.versions,
        _ => {
            let groups = client.list_api_groups().await?.groups;
            let versions =
                groups.into_iter().filter(|other| other.name == group).flat_map(|group| group.versions);
            versions.map(|version| version.group_version).collect()
        }
    };
    let mut found = Vec::new();
    for version in versions {
        let list = match group {
            "" => client.list_core_api_resources(&version).await?,
            _ => client.list_api_group_resources(&version).await?,
        };
        found.extend(list.resources.into_iter().map(|resource| (version.clone(), resource.name)));
    }
    Ok(found)
}

/// The requests in an audit log of kube-apiserver that no handler served: the response to those for an object that does
/// not exist names it.
pub(crate) fn from_audit_log(text: &str) -> Vec<Unserved> {
    let mut requests = BTreeSet::new();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let (status, object) = (&event["responseStatus"], &event["objectRef"]);
        if status["code"] != 404 || !status["details"]["name"].is_null() || object["resource"].is_null() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = match text(&object["apiGroup"]) {
            group if group.is_empty() => text(&object["apiVersion"]),
            group => format!("{group}/{}", text(&object["apiVersion"])),
        };
        requests.insert(Unserved {
            user: text(&event["user"]["username"]),
            version,
            resource: text(&object["resource"]),
            served: Vec::new(),
        });
    }
    requests.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_read_from_an_audit_log() {
        let event = |object: Value, status: Value| {
            json!({ "user": { "username": "u" }, "objectRef": object, "responseStatus": status }).to_string()
        };
        let object = |group: &str, version: &str| json!({ "resource": "things", "apiGroup": group, "apiVersion": version });
        // As kube-apiserver 1.36 logs them: of a group that it serves, and of one that it does not.
        let unserved =
            json!({ "metadata": {}, "status": "Failure", "reason": "NotFound", "details": {}, "code": 404 });
        let unknown = json!({ "metadata": {}, "code": 404 });
        let log = [
            event(object("storage.k8s.io", "v1beta1"), unserved.clone()),
            event(object("storage.k8s.io", "v1beta1"), unserved.clone()),
            event(json!({ "resource": "things", "apiVersion": "v1" }), unserved.clone()),
            event(object("example.com", "v1"), unknown),
            event(
                object("storage.k8s.io", "v1"),
                json!({ "status": "Failure", "reason": "NotFound", "details": { "name": "a" }, "code": 404 }),
            ),
            event(Value::Null, unserved),
            "{\"truncated".to_owned(),
        ];
        let requests = from_audit_log(&log.join("\n"));
        let versions: Vec<&str> = requests.iter().map(|request| request.version.as_str()).collect();
        assert_eq!(versions, ["example.com/v1", "storage.k8s.io/v1beta1", "v1"]);
    }
}
