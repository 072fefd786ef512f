//! The cells of kinds on which no built-in controller acts.

use serde_json::Value;

use super::{joined, list};

/// How many hosts or endpoints are shown.
const SHOWN: usize = 3;

pub(in crate::resources) fn int_or_percent(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::Number(number) => number.to_string().into(),
        text => text.clone(),
    }
}

/// `printResourceQuota`: the used and the permitted amounts, of limits or of everything else.
pub(in crate::resources) fn quota(quota: &Value, limits: bool) -> Value {
    let status = &quota["status"];
    let mut names: Vec<&String> =
        status["hard"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    names.retain(|name| name.starts_with("limits.") == limits);
    names.sort();
    let texts = names.iter().map(|name| {
        let amount = |of: &str| status[of][name.as_str()].as_str().unwrap_or("0");
        format!("{name}: {}/{}", amount("used"), amount("hard"))
    });
    texts.collect::<Vec<_>>().join(", ").into()
}

/// `formatEndpoints`.
pub(in crate::resources) fn endpoints(endpoints: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(&endpoints["subsets"]) {
        let addresses = || list(&subset["addresses"]).iter().filter_map(|address| address["ip"].as_str());
        let ports = list(&subset["ports"]);
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|address| match address.contains(':') {
                true => format!("[{address}]:{}", port["port"]),
                false => format!("{address}:{}", port["port"]),
            }));
        }
    }
    if list(&endpoints["subsets"]).is_empty() {
        return "<none>".into();
    }
    first_ones(all)
}

/// `formatHosts`. Rules without a host are not shown, and counted.
pub(in crate::resources) fn hosts(ingress: &Value) -> Value {
    let rules = list(&ingress["spec"]["rules"]);
    let named = |rule: &&Value| rule["host"].as_str().is_some_and(|host| !host.is_empty());
    let mut shown = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN;
        if !more && named(&rule) {
            shown.push(rule["host"].as_str().unwrap_or_default());
        }
    }
    match joined(&shown, "*") {
        Value::String(hosts) if more => format!("{hosts} + {} more...", rules.len() - SHOWN).into(),
        hosts => hosts,
    }
}

/// `ingressLoadBalancerStatusStringer`.
pub(in crate::resources) fn address(ingress: &Value) -> Value {
    let points = list(&ingress["status"]["loadBalancer"]["ingress"]).iter();
    let mut addresses: Vec<&str> = points
        .filter_map(|point| ["ip", "hostname"].into_iter().find_map(|field| point[field].as_str()))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",").into()
}

pub(in crate::resources) fn ingress_ports(ingress: &Value) -> Value {
    if list(&ingress["spec"]["tls"]).is_empty() { "80".into() } else { "80, 443".into() }
}

/// The kind and name of an IngressClass's parameters.
pub(in crate::resources) fn class_parameters(class: &Value) -> Value {
    let parameters = &class["spec"]["parameters"];
    if parameters.is_null() {
        return "<none>".into();
    }
    let text = |field: &str| parameters[field].as_str().unwrap_or_default();
    let group = parameters["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", text("kind"), text("name")).into()
}

/// `formatDiscoveryPorts`.
pub(in crate::resources) fn slice_ports(slice: &Value) -> Value {
    let ports = list(&slice["ports"]).iter().map(|port| match (&port["port"], port["name"].as_str()) {
        (Value::Null, name) => name.unwrap_or("*").to_owned(),
        (number, _) => number.to_string(),
    });
    first_ones(ports.collect())
}

/// `formatDiscoveryEndpoints`.
pub(in crate::resources) fn slice_addresses(slice: &Value) -> Value {
    let endpoints = list(&slice["endpoints"]).iter();
    let addresses = endpoints.flat_map(|endpoint| list(&endpoint["addresses"]));
    first_ones(addresses.map(|address| address.as_str().unwrap_or_default().to_owned()).collect())
}

/// `listWithMoreString`.
fn first_ones(texts: Vec<String>) -> Value {
    if texts.is_empty() {
        return "<unset>".into();
    }
    let text = texts[..texts.len().min(SHOWN)].join(",");
    if texts.len() > SHOWN { format!("{text} + {} more...", texts.len() - SHOWN) } else { text }.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotas_show_limits_apart() {
        let quota_of = json!({ "status": {
            "hard": { "pods": "4", "limits.cpu": "2", "requests.storage": "1Gi" },
            "used": { "pods": "1", "limits.cpu": "500m" },
        } });
        assert_eq!(quota(&quota_of, false), "pods: 1/4, requests.storage: 0/1Gi");
        assert_eq!(quota(&quota_of, true), "limits.cpu: 500m/2");
        assert_eq!(quota(&json!({}), true), "");
        assert_eq!(int_or_percent(&json!("50%")), "50%");
        assert_eq!([&json!(1), &Value::Null].map(int_or_percent), ["1", "N/A"]);
    }

    #[test]
    fn long_lists_are_cut() {
        let address = |last: u8| json!({ "ip": format!("192.0.2.{last}") });
        let subset = |ports: Value, addresses: &[u8]| {
            let addresses: Vec<Value> = addresses.iter().map(|last| address(*last)).collect();
            json!({ "addresses": addresses, "ports": ports })
        };
        let of = |subsets: Value| endpoints(&json!({ "subsets": subsets }));
        assert_eq!(of(Value::Null), "<none>");
        assert_eq!(of(json!([subset(Value::Null, &[1, 2])])), "192.0.2.1,192.0.2.2");
        let two = json!([{ "port": 80 }, { "port": 81 }]);
        assert_eq!(of(json!([subset(two, &[1, 2])])), "192.0.2.1:80,192.0.2.2:80,192.0.2.1:81 + 1 more...");
        let six = json!([{ "addresses": [{ "ip": "2001:db8::1" }], "ports": [{ "port": 80 }] }]);
        assert_eq!(of(six), "[2001:db8::1]:80");
        let rules = |hosts: &[&str]| {
            let rules: Vec<Value> = hosts.iter().map(|host| json!({ "host": host })).collect();
            hosts_of(&rules)
        };
        assert_eq!(rules(&[]), "*");
        assert_eq!(rules(&["a", "", "b"]), "a,b");
        assert_eq!(rules(&["a", "b", "c", "d", ""]), "a,b,c + 2 more...");
    }

    #[test]
    fn classes_and_slices() {
        let class = json!({ "spec": { "parameters": { "apiGroup": "a.io", "kind": "K", "name": "n" } } });
        assert_eq!([class_parameters(&class), class_parameters(&json!({}))], ["K.a.io/n", "<none>"]);
        let slice = json!({
            "ports": [{ "port": 80 }, { "name": "a" }],
            "endpoints": [{ "addresses": ["192.0.2.1", "192.0.2.2"] }, { "addresses": ["192.0.2.3", "192.0.2.4"] }],
        });
        assert_eq!(slice_ports(&slice), "80,a");
        assert_eq!(slice_addresses(&slice), "192.0.2.1,192.0.2.2,192.0.2.3 + 1 more...");
        assert_eq!(slice_ports(&json!({})), "<unset>");
    }

    fn hosts_of(rules: &[Value]) -> Value {
        hosts(&json!({ "spec": { "rules": rules } }))
    }

    #[test]
    fn addresses_are_sorted() {
        let ingress = |names: &[&str]| {
            let points: Vec<Value> = names.iter().map(|name| json!({ "hostname": name })).collect();
            address(&json!({ "status": { "loadBalancer": { "ingress": points } } }))
        };
        assert_eq!(ingress(&["b", "a", "b"]), "a,b");
        assert_eq!(ingress(&[]), "");
        assert_eq!(ingress_ports(&json!({ "spec": { "tls": [{}] } })), "80, 443");
    }
}
