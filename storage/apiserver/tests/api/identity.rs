//! What pods are: service accounts and their tokens, priorities, what namespaces hold for them.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::wait::await_condition;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::harness::{Fixture, TIMEOUT, create, pod, refusal};

#[tokio::test]
async fn namespaces_have_default_objects_that_are_recreated() {
    let fixture = Fixture::start().await;
    create(&fixture.cluster::<Namespace>(), json!({ "metadata": { "name": "n" } })).await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "n");
    let ca = maps.get("kube-root-ca.crt").await.unwrap();
    assert_eq!(ca.data.unwrap()["ca.crt"], fixture.server.ca_pem());
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client.clone(), "n");
    let first = accounts.get("default").await.unwrap().uid();
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    let back = await_condition(accounts.clone(), "default", |account: Option<&ServiceAccount>| {
        account.is_some_and(|account| account.uid() != first)
    });
    tokio::time::timeout(TIMEOUT, back).await.unwrap().unwrap();
}

#[tokio::test]
async fn tokens_contain_their_subject_and_audience() {
    let fixture = Fixture::start().await;
    create(&fixture.api::<Pod>(), pod("p")).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = |spec: Value| json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec });
    let spec = json!({
        "audiences": ["storage"], "expirationSeconds": 900,
        "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "p" },
    });
    let answer = fixture.accept("POST", path, "application/json", &request(spec)).await;
    assert_eq!(answer["spec"]["expirationSeconds"], 900);
    assert!(answer["status"]["expirationTimestamp"].is_string());
    let token = answer["status"]["token"].as_str().unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    assert_eq!(parts.len(), 3, "{token}");
    let claims = decode(parts[1]);
    assert_eq!(claims["aud"], json!(["storage"]));
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(claims["kubernetes.io"]["pod"]["name"], "p");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 900);
    let keys = fixture.accept("GET", "/openid/v1/jwks", "application/json", &Value::Null).await;
    assert_eq!(keys["keys"][0]["kid"], decode(parts[0])["kid"]);

    for (spec, code) in [
        (json!({ "audiences": [], "expirationSeconds": 10 }), 422),
        (json!({ "audiences": [], "boundObjectRef": { "kind": "Pod", "name": "other" } }), 404),
        (json!({ "audiences": [], "boundObjectRef": { "kind": "Pod", "name": "p", "uid": "x" } }), 409),
    ] {
        let (refused, answer) = fixture.send("POST", path, "application/json", &request(spec)).await;
        assert_eq!(refused, code, "{answer}");
    }
}

fn decode(part: &str) -> Value {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = part
        .chars()
        .flat_map(|c| {
            let digit = ALPHABET.find(c).unwrap();
            (0..6).rev().map(move |bit| (digit >> bit & 1) as u8)
        })
        .collect();
    let bytes: Vec<u8> =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | bit)).collect();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn pods_act_as_an_account_that_exists() {
    let fixture = Fixture::start().await;
    let mut stranger = pod("p");
    stranger["spec"]["serviceAccountName"] = "nobody".into();
    let pods = fixture.api::<Pod>();
    let stranger: Pod = serde_json::from_value(stranger).unwrap();
    let refused = pods.create(&Default::default(), &stranger).await.unwrap_err();
    assert!(refused.to_string().contains("serviceaccount \"nobody\" not found"), "{refused}");
}

#[tokio::test]
async fn priorities_come_from_classes() {
    let fixture = Fixture::start().await;
    let pods = fixture.api::<Pod>();
    let classes = fixture.cluster::<PriorityClass>();
    assert_eq!(names(&classes).await, ["system-cluster-critical", "system-node-critical"]);
    let plain = create(&pods, pod("plain")).await.spec.unwrap();
    assert_eq!((plain.priority, plain.priority_class_name), (Some(0), None));

    create(&classes, json!({ "metadata": { "name": "high" }, "value": 1000, "preemptionPolicy": "Never" }))
        .await;
    let pod_of_class = |name: &str, class: &str, priority: Value| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = class.into();
        pod["spec"]["priority"] = priority;
        serde_json::from_value::<Pod>(pod).unwrap()
    };
    let made = pods.create(&Default::default(), &pod_of_class("a", "high", Value::Null)).await.unwrap();
    let spec = made.spec.clone().unwrap();
    assert_eq!((spec.priority, spec.preemption_policy.as_deref()), (Some(1000), Some("Never")));
    // A whole update may leave it out.
    let mut again = made;
    again.spec.as_mut().unwrap().priority = None;
    let again = pods.replace("a", &Default::default(), &again).await.unwrap();
    assert_eq!(again.spec.unwrap().priority, Some(1000));

    for (class, priority) in [("none", Value::Null), ("high", json!(5)), ("", json!(5))] {
        let refused = pods.create(&Default::default(), &pod_of_class("b", class, priority)).await;
        assert_eq!(refusal(refused).0, 403, "{class}");
    }
    create(&classes, json!({ "metadata": { "name": "usual" }, "value": 7, "globalDefault": true })).await;
    let usual = create(&pods, pod("usual")).await.spec.unwrap();
    assert_eq!((usual.priority, usual.priority_class_name.as_deref()), (Some(7), Some("usual")));
}

async fn names<K>(api: &Api<K>) -> Vec<String>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}
