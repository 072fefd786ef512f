//! log: the output of one container of a pod, fetched from the kubelet of its node.
//!
//! Mirrors LogLocation in pkg/registry/core/pod/strategy.go and ValidatePodLogOptions in
//! pkg/apis/core/validation.

use std::net::{IpAddr, SocketAddr};

use http::{StatusCode, Uri};
use serde_json::Value;

use super::Call;
use crate::kubelet::{self, Reply};
use crate::request::Query;
use crate::resources::Storage;
use crate::response::{self, Answer};
use crate::status::{FieldError, Result, Status};
use crate::store::Key;

/// The lists that hold a pod's containers, in the order in which upstream names them.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Returns the log as plain text, as a stream while the container runs if it is followed.
pub async fn handle(call: &Call<'_>) -> Result<Answer> {
    let pod = call.object()?;
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    let options = read_options(&call.query);
    let errors = check_options(&call.query);
    if !errors.is_empty() {
        return Err(Status::invalid_kind("PodLogOptions", "", "PodLogOptions", name, &errors));
    }
    let container = choose_container(&pod.value, call.query.get("container"))?;
    let Some(node) = pod.value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        return Ok(response::text(StatusCode::NO_CONTENT, ""));
    };
    let address = kubelet_address(call, node)?;
    let path = format!("/containerLogs/{namespace}/{name}/{container}{options}");
    let internal = |error: &dyn std::fmt::Display| {
        Status::internal(&format!("Get \"https://{address}{path}\": {error}"))
    };
    let uri: Uri = path.parse().map_err(|error| internal(&error))?;
    match kubelet::get(address, &uri, &call.api.node_authorization).await {
        Ok(Reply::Text(text)) => Ok(response::stream("text/plain; charset=utf-8", text)),
        Ok(Reply::Refused(StatusCode::BAD_REQUEST, why)) => Err(Status::bad_request(why)),
        Ok(Reply::Refused(StatusCode::NOT_FOUND, why)) => {
            Err(Status::missing_subresource(call.path.resource, "log", name, &why))
        }
        Ok(Reply::Refused(_, why)) => Err(Status::internal(&why)),
        Err(error) => Err(internal(&error)),
    }
}

/// The options for the kubelet, as a query.
fn read_options(query: &Query) -> String {
    let flags = ["follow", "previous", "timestamps"].into_iter().filter(|flag| query.flag(flag));
    let flags = flags.map(|flag| format!("{flag}=true"));
    let values = ["sinceSeconds", "sinceTime", "tailLines", "limitBytes"].into_iter();
    // A moment's offset from UTC begins with a plus, which would be read as a blank.
    let values = values
        .filter_map(|name| query.get(name).map(|value| format!("{name}={}", value.replace('+', "%2B"))));
    let options: Vec<String> = flags.chain(values).collect();
    if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) }
}

fn check_options(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, least, requirement) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        let Some(text) = query.get(name) else { continue };
        match text.parse::<i64>() {
            Ok(number) if number >= least => {}
            Ok(number) => errors.push(FieldError::invalid(name, &number.into(), requirement)),
            Err(_) => errors.push(FieldError::invalid(name, &text.into(), "must be a number")),
        }
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        let message = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden("", message));
    }
    errors
}

/// The requested container, or the only one.
pub(super) fn choose_container<'a>(pod: &'a Value, asked: Option<&'a str>) -> Result<&'a str> {
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let of = |list: &str| pod["spec"][list].as_array().into_iter().flatten();
    let names = || LISTS.into_iter().flat_map(of).filter_map(|container| container["name"].as_str());
    let plain: Vec<&str> = of("containers").filter_map(|container| container["name"].as_str()).collect();
    match (asked, &plain[..]) {
        (Some(asked), _) if names().any(|name| name == asked) => Ok(asked),
        (Some(asked), _) => {
            Err(Status::bad_request(format!("container {asked} is not valid for pod {pod_name}")))
        }
        (None, [only]) => Ok(only),
        (None, _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            names().collect::<Vec<_>>().join(" ")
        ))),
    }
}

/// The address of the kubelet of `node`, from the node's status.
pub(super) fn kubelet_address(call: &Call<'_>, node: &str) -> Result<SocketAddr> {
    let found = call.store().get(Storage::Nodes, &Key::cluster(node));
    // As upstream, the error has the kind in the path.
    let missing = || Status::not_found(call.path.resource, node);
    let status = &found.as_ref().ok_or_else(missing)?.value["status"];
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let ip = addresses
        .filter(|address| address["type"] == "InternalIP")
        .find_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok());
    let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    match (ip, port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)) {
        (Some(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        (None, _) => {
            Err(Status::internal(&format!("no preferred addresses found; node {node} has no InternalIP")))
        }
        (_, None) => Err(Status::internal(&format!("node {node} does not say where its kubelet listens"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_are_chosen_as_upstream() {
        let pod = |names: &[&str]| {
            let containers: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
            json!({
                "metadata": { "name": "p" },
                "spec": { "containers": containers, "initContainers": [{ "name": "i" }] },
            })
        };
        let several = "a container name must be specified for pod p, choose one of: [i a b]";
        for (names, asked, expected) in [
            (vec!["a"], None, Ok("a")),
            (vec!["a", "b"], Some("b"), Ok("b")),
            (vec!["a"], Some("i"), Ok("i")),
            (vec!["a"], Some("x"), Err("container x is not valid for pod p")),
            (vec!["a", "b"], None, Err(several)),
        ] {
            let pod = pod(&names);
            let chosen = choose_container(&pod, asked).map_err(|status| status.to_value()["message"].clone());
            assert_eq!(chosen, expected.map_err(|message| json!(message)), "{names:?} {asked:?}");
        }
    }

    #[test]
    fn options_are_checked_and_handed_on() {
        let query = |text: &str| Query::parse(Some(text));
        let all = "follow=true&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00%2B01%3A00&x=y&previous=false";
        assert_eq!(
            read_options(&query(all)),
            "?follow=true&sinceTime=2026-01-01T00:00:00%2B01:00&tailLines=5"
        );
        assert_eq!(read_options(&query("")), "");
        for (text, faults) in
            [("tailLines=0", 0), ("tailLines=-1", 1), ("limitBytes=0", 1), ("sinceSeconds=1&sinceTime=x", 1)]
        {
            assert_eq!(check_options(&query(text)).len(), faults, "{text}");
        }
    }
}
