//! The cells of Services: `printService` in pkg/printers/internalversion/printers.go.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{joined, list};

pub(super) fn external_ip(service: &Value) -> Value {
    let spec = &service["spec"];
    let given: Vec<String> =
        list(&spec["externalIPs"]).iter().filter_map(|value| value.as_str().map(str::to_owned)).collect();
    match spec["type"].as_str() {
        Some("ClusterIP" | "NodePort") => joined(&given, "<none>"),
        Some("LoadBalancer") => {
            let address =
                |entry: &Value| entry["ip"].as_str().or(entry["hostname"].as_str()).map(str::to_owned);
            let ingress = list(&service["status"]["loadBalancer"]["ingress"]);
            let balancer: BTreeSet<String> = ingress.iter().filter_map(address).collect();
            joined(&balancer.into_iter().chain(given).collect::<Vec<_>>(), "<pending>")
        }
        Some("ExternalName") => spec["externalName"].clone(),
        _ => "<unknown>".into(),
    }
}

pub(super) fn ports(service: &Value) -> Value {
    let text = |port: &Value| {
        let number = |field: &str| port[field].as_i64().unwrap_or_default();
        let protocol = port["protocol"].as_str().unwrap_or_default();
        match number("nodePort") {
            0 => format!("{}/{protocol}", number("port")),
            node_port => format!("{}:{node_port}/{protocol}", number("port")),
        }
    };
    let ports: Vec<String> = list(&service["spec"]["ports"]).iter().map(text).collect();
    joined(&ports, "<none>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_follow_the_type() {
        let plain = json!({ "spec": {
            "type": "NodePort",
            "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }],
        } });
        let cells = [external_ip, ports].map(|cell| cell(&plain));
        assert_eq!(cells, ["<none>", "80:30080/TCP,53/UDP"]);
        let balanced = json!({
            "spec": { "type": "LoadBalancer", "externalIPs": ["192.0.2.1"] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } },
        });
        assert_eq!(external_ip(&balanced), "192.0.2.9,192.0.2.1");
        let pending = json!({ "spec": { "type": "LoadBalancer" } });
        let cells = [external_ip, ports].map(|cell| cell(&pending));
        assert_eq!(cells, ["<pending>", "<none>"]);
        let alias = json!({ "spec": { "type": "ExternalName", "externalName": "x.example" } });
        assert_eq!(external_ip(&alias), "x.example");
    }
}
