//! Users and their permissions: tokens, certificates, RBAC, impersonation and reviews.

use claimcheck_apiserver::{Certificates, Config, IssueError, kubeconfig};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::harness::{Fixture, create, pod, refusal};

const ROBOT: &str = "system:serviceaccount:default:robot";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

async fn connect(text: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn with_token(fixture: &Fixture, token: &str) -> Client {
    connect(&fixture.server.kubeconfig().replace(fixture.server.token(), token)).await
}

/// A client of the service account `robot`.
async fn robot(fixture: &Fixture) -> Client {
    connect(&fixture.server.kubeconfig_for("default", "robot").unwrap()).await
}

/// Posts JSON with additional headers; returns the code and the answer.
async fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let mut request = Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// The user that the server takes a client for.
async fn who_am_i(client: &Client, headers: &[(&str, &str)]) -> (u16, Value) {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let (code, answer) =
        post(client, &format!("{AUTHENTICATION}/selfsubjectreviews"), headers, &review).await;
    (code, if code == 201 { answer["status"]["userInfo"].clone() } else { answer })
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({ "verbs": verbs, "apiGroups": [""], "resources": resources })
}

fn to_robot(kind: &str, role: &str) -> Value {
    json!({
        "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "robot", "namespace": "default" }],
    })
}

#[tokio::test]
async fn denials_are_recorded_once_and_logged_with_their_user() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.ndjson");
    let fixture = Fixture::with(Config { audit_log: Some(log.clone()), ..Config::default() }).await;
    let client = robot(&fixture).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for _ in 0..2 {
        assert!(pods.list(&ListParams::default()).await.is_err());
    }
    let another: Pod = serde_json::from_value(pod("p")).unwrap();
    assert!(pods.create(&PostParams::default(), &another).await.is_err());
    // An administrator tries what others may do.
    let admin = connect(&fixture.server.kubeconfig()).await;
    let review = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
    let (code, _) =
        post(&admin, "/api/v1/namespaces/default/pods", &[("impersonate-user", "jane")], &review).await;
    assert_eq!(code, 403);
    let texts: Vec<String> = fixture.server.denials().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "ServiceAccount default/robot may not create pods in namespace default",
            "ServiceAccount default/robot may not list pods in namespace default",
        ]
    );
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let denied: Vec<Value> = lines.filter(|line| line["denied"] == true).collect();
    let users: Vec<&str> = denied.iter().filter_map(|line| line["user"].as_str()).collect();
    assert_eq!(users, [ROBOT, ROBOT, ROBOT, "jane"]);
}

#[tokio::test]
async fn accounts_may_do_what_is_bound_to_them() {
    let fixture = Fixture::start().await;
    let client = robot(&fixture).await;
    let (pods, all): (Api<Pod>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::all(client.clone()));
    let refused = pods.list(&ListParams::default()).await.unwrap_err();
    let expected = format!(
        "pods is forbidden: User \"{ROBOT}\" cannot list resource \"pods\" in API group \"\" in the namespace \
         \"default\""
    );
    assert!(refused.to_string().contains(&expected), "{refused}");

    create(
        &fixture.api::<Role>(),
        json!({ "metadata": { "name": "pods" }, "rules": [rule(&["list", "create"], &["pods"])] }),
    )
    .await;
    create(&fixture.api::<RoleBinding>(), to_robot("Role", "pods")).await;
    create(&pods, pod("p")).await;
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
    for refused in [
        refusal(all.list(&ListParams::default()).await),
        refusal(pods.get("p").await),
        refusal(pods.get_status("p").await),
        refusal(pods.delete("p", &DeleteParams::default()).await),
        refusal(pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await),
    ] {
        assert_eq!(refused, (403, "Forbidden".to_owned()));
    }

    // Everywhere, by a cluster role; and single objects.
    let mut one = rule(&["get"], &["secrets"]);
    one["resourceNames"] = json!(["known"]);
    let rules = json!([rule(&["*"], &["pods"]), one]);
    create(&fixture.cluster::<ClusterRole>(), json!({ "metadata": { "name": "more" }, "rules": rules }))
        .await;
    create(&fixture.cluster::<ClusterRoleBinding>(), to_robot("ClusterRole", "more")).await;
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(pods.get("p").await.is_ok());
    assert_eq!(refusal(pods.get_status("p").await).0, 403, "a subresource is permitted on its own");
    for name in ["known", "other"] {
        create(&fixture.api::<Secret>(), json!({ "metadata": { "name": name } })).await;
    }
    let secrets: Api<Secret> = Api::default_namespaced(client);
    assert!(secrets.get("known").await.is_ok());
    assert_eq!(refusal(secrets.get("other").await).0, 403);

    let bindings = fixture.cluster::<ClusterRoleBinding>();
    bindings.delete("more", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(all.list(&ListParams::default()).await).0, 403);
}

#[tokio::test]
async fn paths_are_permitted_by_the_default_roles() {
    let fixture = Fixture::start().await;
    let client = robot(&fixture).await;
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        client.send(request).await.unwrap().status().as_u16()
    };
    for (path, expected) in [
        ("/version", 200),
        ("/readyz", 200),
        ("/apis", 200),
        ("/apis/authorization.k8s.io/v1", 200),
        ("/openapi/v3", 200),
        ("/openid/v1/jwks", 200),
        ("/metrics", 403),
        // As upstream, what is unknown is refused first.
        ("/api/v1/unknown", 403),
    ] {
        assert_eq!(get(path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn tokens_end_with_their_pod() {
    let fixture = Fixture::start().await;
    let pods = fixture.api::<Pod>();
    let uid = create(&pods, pod("p")).await.metadata.uid.unwrap();
    let request = async |audiences: Value| {
        let spec = json!({
            "audiences": audiences, "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "p" },
        });
        let body = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec });
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let answer = fixture.accept("POST", path, "application/json", &body).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let token = request(json!([])).await;
    let client = with_token(&fixture, &token).await;
    let (code, user) = who_am_i(&client, &[]).await;
    assert_eq!((code, &user["username"]), (201, &"system:serviceaccount:default:default".into()));
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));

    let vault = request(json!(["vault"])).await;
    let (head, signature) = token.rsplit_once('.').unwrap();
    let mut altered: Vec<char> = signature.chars().collect();
    altered[10] = if altered[10] == 'A' { 'B' } else { 'A' };
    let altered = format!("{head}.{}", altered.into_iter().collect::<String>());
    for wrong in [&vault, &altered] {
        let (code, status) = who_am_i(&with_token(&fixture, wrong).await, &[]).await;
        assert_eq!(
            (code, &status["reason"], &status["message"]),
            (401, &"Unauthorized".into(), &"Unauthorized".into())
        );
    }

    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(who_am_i(&client, &[]).await.0, 401, "the pod is gone");
}

#[tokio::test]
async fn tokens_are_for_the_account_of_their_pod() {
    let fixture = Fixture::start().await;
    create(&fixture.api::<Pod>(), pod("p")).await;
    fixture.server.token_for("default", "robot").unwrap();
    let spec =
        json!({ "audiences": [], "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "p" } });
    let body = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec });
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (code, answer) = fixture.send("POST", path, "application/json", &body).await;
    assert_eq!(code, 400, "{answer}");
}

#[tokio::test]
async fn certificates_of_the_run_are_credentials() {
    let fixture = Fixture::start().await;
    let issued = fixture.server.certificate_for("jane", Some("dev")).unwrap();
    let (url, ca) = (fixture.server.url(), fixture.server.ca_pem());
    let jane = connect(&kubeconfig::render_certificate(&url, ca, &issued.certificate, &issued.key)).await;
    let (code, user) = who_am_i(&jane, &[]).await;
    assert_eq!((code, &user["username"]), (201, &"jane".into()));
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    let pods: Api<Pod> = Api::default_namespaced(jane.clone());
    assert_eq!(refusal(pods.list(&ListParams::default()).await).0, 403);
    let master = fixture.server.certificate_for("root", Some("system:masters")).unwrap();
    let master = connect(&kubeconfig::render_certificate(&url, ca, &master.certificate, &master.key)).await;
    let pods: Api<Pod> = Api::default_namespaced(master);
    assert!(pods.list(&ListParams::default()).await.is_ok());

    let other = Certificates::generate([127, 0, 0, 1].into()).unwrap();
    let text = kubeconfig::render_certificate(&url, ca, &other.client_certificate, &other.client_key);
    assert_eq!(who_am_i(&connect(&text).await, &[]).await.0, 401, "another CA signed it");
}

#[tokio::test]
async fn impersonation_must_be_permitted() {
    let fixture = Fixture::start().await;
    let client = robot(&fixture).await;
    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "dev"), ("impersonate-extra-k", "v")];
    let (code, user) = who_am_i(&fixture.client, &as_jane).await;
    let expected = json!({
        "username": "jane", "groups": ["dev", "system:authenticated"], "extra": { "k": ["v"] },
    });
    assert_eq!((code, &user), (201, &expected));
    // The admin has the permissions of the other user then.
    let (code, _) = post(&fixture.client, "/api/v1/namespaces/default/pods", &as_jane, &pod("p")).await;
    assert_eq!(code, 403);

    let (code, status) = who_am_i(&client, &as_jane).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        format!(
            "users \"jane\" is forbidden: User \"{ROBOT}\" cannot impersonate resource \"users\" in API group \"\" at \
             the cluster scope"
        )
    );
    create(
        &fixture.cluster::<ClusterRole>(),
        json!({ "metadata": { "name": "act" }, "rules": [rule(&["impersonate"], &["users"])] }),
    )
    .await;
    create(&fixture.cluster::<ClusterRoleBinding>(), to_robot("ClusterRole", "act")).await;
    assert_eq!(who_am_i(&client, &as_jane[..1]).await.1["username"], "jane");
    assert_eq!(who_am_i(&client, &as_jane).await.0, 403, "the group is not permitted");
    let (code, status) = who_am_i(&fixture.client, &as_jane[1..]).await;
    assert_eq!(code, 400, "{status}");
}

#[tokio::test]
async fn access_reviews_answer_what_is_permitted() {
    let fixture = Fixture::start().await;
    let client = robot(&fixture).await;
    create(
        &fixture.api::<Role>(),
        json!({ "metadata": { "name": "pods" }, "rules": [rule(&["list"], &["pods"])] }),
    )
    .await;
    create(&fixture.api::<RoleBinding>(), to_robot("Role", "pods")).await;
    let review = async |client: &Client, path: &str, kind: &str, spec: Value| {
        let body = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec });
        post(client, &format!("{AUTHORIZATION}/{path}"), &[], &body).await
    };
    let list = |namespace: &str| json!({ "verb": "list", "resource": "pods", "namespace": namespace });
    for (namespace, expected) in [("default", true), ("kube-system", false), ("", false)] {
        let spec = json!({ "resourceAttributes": list(namespace) });
        let (code, own) =
            review(&client, "selfsubjectaccessreviews", "SelfSubjectAccessReview", spec.clone()).await;
        assert_eq!((code, &own["status"]["allowed"]), (201, &expected.into()), "{own}");
        let (mut of_robot, admin) = (spec, &fixture.client);
        of_robot["user"] = ROBOT.into();
        let (_, other) = review(admin, "subjectaccessreviews", "SubjectAccessReview", of_robot).await;
        assert_eq!(own["status"], other["status"]);
    }
    let spec = json!({ "user": ROBOT, "resourceAttributes": list("default") });
    let path = "namespaces/default/localsubjectaccessreviews";
    let (_, local) = review(&fixture.client, path, "LocalSubjectAccessReview", spec.clone()).await;
    let reason =
        "RBAC: allowed by RoleBinding \"pods/default\" of Role \"pods\" to ServiceAccount \"robot/default\"";
    assert_eq!(local["status"], json!({ "allowed": true, "reason": reason }));
    let path = "namespaces/kube-system/localsubjectaccessreviews";
    assert_eq!(review(&fixture.client, path, "LocalSubjectAccessReview", spec.clone()).await.0, 422);
    // Reviews about others are not for everybody.
    assert_eq!(review(&client, "subjectaccessreviews", "SubjectAccessReview", spec).await.0, 403);
    let both =
        json!({ "resourceAttributes": list(""), "nonResourceAttributes": { "path": "/", "verb": "get" } });
    for spec in [json!({}), both] {
        let (code, answer) =
            review(&client, "selfsubjectaccessreviews", "SelfSubjectAccessReview", spec).await;
        assert_eq!(code, 422, "{answer}");
    }
    let spec = json!({ "nonResourceAttributes": { "path": "/metrics", "verb": "get" } });
    let (_, answer) =
        review(&fixture.client, "selfsubjectaccessreviews", "SelfSubjectAccessReview", spec).await;
    assert_eq!(answer["status"], json!({ "allowed": true }));

    let spec = json!({ "namespace": "default" });
    let (code, rules) = review(&client, "selfsubjectrulesreviews", "SelfSubjectRulesReview", spec).await;
    let resources = rules["status"]["resourceRules"].as_array().unwrap();
    assert!(code == 201 && resources.contains(&rule(&["list"], &["pods"])), "{rules}");
    assert!(rules["status"]["nonResourceRules"].as_array().is_some_and(|rules| !rules.is_empty()));
    assert_eq!(rules["status"]["incomplete"], false);
    assert_eq!(review(&client, "selfsubjectrulesreviews", "SelfSubjectRulesReview", json!({})).await.0, 400);
}

#[tokio::test]
async fn token_reviews_return_the_user() {
    let fixture = Fixture::start().await;
    let review = async |client: &Client, spec: Value| {
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec });
        post(client, &format!("{AUTHENTICATION}/tokenreviews"), &[], &body).await
    };
    let token = fixture.server.token_for("default", "robot").unwrap();
    let (code, answer) = review(&fixture.client, json!({ "token": token })).await;
    assert_eq!(code, 201);
    let status = &answer["status"];
    assert_eq!((&status["authenticated"], &status["user"]["username"]), (&true.into(), &ROBOT.into()));
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    let (_, admin) = review(&fixture.client, json!({ "token": fixture.server.token() })).await;
    assert_eq!(admin["status"]["user"]["groups"], json!(["system:masters", "system:authenticated"]));

    let (_, wrong) = review(&fixture.client, json!({ "token": "wrong" })).await;
    assert_eq!(wrong["status"], json!({ "user": {}, "error": "invalid bearer token" }));
    let (_, vault) = review(&fixture.client, json!({ "token": token, "audiences": ["vault"] })).await;
    assert!(
        vault["status"]["error"].as_str().is_some_and(|error| error.contains("target audiences")),
        "{vault}"
    );
    assert_eq!(review(&fixture.client, json!({})).await.0, 400);
    assert_eq!(review(&robot(&fixture).await, json!({ "token": token })).await.0, 403);
}

#[tokio::test]
async fn reviews_are_created_only() {
    let fixture = Fixture::start().await;
    let list = fixture.accept("GET", AUTHORIZATION, "application/json", &Value::Null).await;
    let entries = list["resources"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().filter_map(|entry| entry["name"].as_str()).collect();
    let expected = [
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ];
    assert_eq!(names, expected);
    assert!(entries.iter().all(|entry| entry["verbs"] == json!(["create"])), "{list}");
    assert!(entries.iter().all(|entry| entry["storageVersionHash"].is_null()), "{list}");
    let path = format!("{AUTHENTICATION}/tokenreviews");
    for (path, expected) in [(&path, 405), (&format!("{path}/x"), 404)] {
        let (code, _) = fixture.send("GET", path, "application/json", &Value::Null).await;
        assert_eq!(code, expected, "{path}");
    }
}

#[tokio::test]
async fn credentials_are_issued_for_existing_namespaces() {
    let fixture = Fixture::start().await;
    let error = fixture.server.kubeconfig_for("missing", "robot").unwrap_err();
    assert!(matches!(error, IssueError::NamespaceMissing { .. }), "{error}");
    let (first, second) = (robot(&fixture).await, robot(&fixture).await);
    let (code, user) = who_am_i(&first, &[]).await;
    assert_eq!(code, 201);
    assert_eq!(who_am_i(&second, &[]).await.1["uid"], user["uid"], "the account is created once");
    let accounts: Api<ServiceAccount> = fixture.api();
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    assert_eq!(who_am_i(&first, &[]).await.0, 401, "the account is gone");
    let (code, again) = who_am_i(&robot(&fixture).await, &[]).await;
    assert_eq!(code, 201);
    assert_ne!(again["uid"], user["uid"]);
}
