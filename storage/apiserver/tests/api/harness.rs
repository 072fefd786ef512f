//! A server of its own for every test, and clients of it.

use std::time::Duration;

use claimcheck_apiserver::{Config, Server, start};
use http::Request;
use http_body_util::BodyExt;
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Long enough for anything on loopback, also on a machine that has much else to do.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A server and a client with its token.
pub struct Fixture {
    pub server: Server,
    pub client: Client,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::with(Config::default()).await
    }

    pub async fn with(config: Config) -> Self {
        let server = start(config).await.unwrap();
        let client = client(&server, true).await;
        Self { server, client }
    }

    /// Objects in the namespace `default`.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// Objects without a namespace.
    pub fn cluster<K>(&self) -> Api<K>
    where
        K: Resource,
        K::DynamicType: Default,
    {
        Api::all(self.client.clone())
    }

    /// Sends JSON, whatever it is; returns the code and the answer.
    pub async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Sends JSON and expects it to be accepted.
    pub async fn accept(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Value {
        let (code, answer) = self.send(method, path, content_type, body).await;
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }
}

/// A client with the token, or without.
pub async fn client(server: &Server, token: bool) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    if !token {
        kubeconfig.auth_infos.clear();
        for context in kubeconfig.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.user = None;
        }
    }
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // Refusals are what the tests look at.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Creates an object from JSON.
pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// The code and the reason of a refusal.
pub fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not refused by the server: {other}"),
    }
}

/// A claim of the class `none`.
pub fn claim(name: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "64Mi" } },
            "storageClassName": "none",
        },
    })
}

/// A pod with one container.
pub fn pod(name: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "c", "image": "x" }] },
    })
}
