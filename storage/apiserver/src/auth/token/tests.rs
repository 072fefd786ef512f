//! Tokens, and the changes that invalidate them.

use serde_json::{Map, json};

use super::*;
use crate::tokens;

const NOW: i64 = 1_000_000;

struct World {
    store: Arc<Store>,
    signer: Signer,
    tokens: Tokens,
}

fn object(store: &Store, storage: Storage, key: Key, uid: &str) -> Arc<Object> {
    let value = json!({ "metadata": { "name": &*key.name, "namespace": &*key.namespace, "uid": uid } });
    store.create(storage, key, value).unwrap()
}

impl World {
    fn new() -> Self {
        let (store, _) = Store::new(16);
        object(&store, Storage::Namespaces, Key::cluster("ns"), "uid-ns");
        object(&store, Storage::ServiceAccounts, Key::new("ns", "sa"), "uid-sa");
        object(&store, Storage::Pods, Key::new("ns", "p"), "uid-p");
        object(&store, Storage::Secrets, Key::new("ns", "s"), "uid-s");
        object(&store, Storage::Nodes, Key::cluster("n"), "uid-n");
        Self { store, signer: Signer::generate().unwrap(), tokens: Tokens::default() }
    }

    /// A token that is bound to `bound`.
    fn claims(bound: Value) -> Value {
        let mut identity = json!({ "namespace": "ns", "serviceaccount": { "name": "sa", "uid": "uid-sa" } });
        for (kind, object) in bound.as_object().into_iter().flatten() {
            identity[kind] = object.clone();
        }
        json!({
            "iss": ISSUER, "aud": [ISSUER], "exp": NOW + 600, "nbf": NOW, "iat": NOW, "jti": "1",
            "kubernetes.io": identity,
        })
    }

    fn authenticate(&self, claims: &Value, now: i64) -> Result<Accepted, TokenError> {
        let token = self.signer.sign(claims).unwrap();
        self.tokens.authenticate(&self.signer, &self.store, &token, &[ISSUER.to_owned()], now)
    }

    fn change(&self, storage: Storage, key: Key, change: impl FnOnce(&mut Value)) {
        let object = self.store.get(storage, &key).unwrap();
        let mut value = object.value.clone();
        change(&mut value);
        self.store.replace(storage, &object, value).unwrap();
    }

    fn remove(&self, storage: Storage, key: Key) {
        let object = self.store.get(storage, &key).unwrap();
        self.store.remove(storage, &object, object.value.clone()).unwrap();
    }
}

fn pod() -> Value {
    json!({ "pod": { "name": "p", "uid": "uid-p" }, "node": { "name": "gone" } })
}

#[test]
fn the_user_has_the_groups_and_objects_of_the_account() {
    let world = World::new();
    let accepted = world.authenticate(&World::claims(pod()), NOW).unwrap();
    assert_eq!(accepted.audiences, [ISSUER]);
    let expected = json!({
        "username": "system:serviceaccount:ns:sa",
        "uid": "uid-sa",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/credential-id": ["JTI=1"],
            "authentication.kubernetes.io/node-name": ["gone"],
            "authentication.kubernetes.io/pod-name": ["p"],
            "authentication.kubernetes.io/pod-uid": ["uid-p"],
        },
    });
    assert_eq!(accepted.user.to_value(), expected);
}

#[test]
fn tokens_are_valid_for_their_time_and_audience() {
    let with = |field: &str, value: Value| {
        let mut claims = World::claims(Value::Null);
        claims[field] = value;
        claims
    };
    let world = World::new();
    let plain = World::claims(Value::Null);
    let audience =
        |given: &str| TokenError::Audience { given: given.to_owned(), required: format!("[\"{ISSUER}\"]") };
    for (claims, now, expected) in [
        (plain.clone(), NOW, None),
        (plain.clone(), NOW + 660, None),
        (plain.clone(), NOW + 661, Some(TokenError::Expired)),
        (plain.clone(), NOW - 60, None),
        (plain.clone(), NOW - 61, Some(TokenError::NotYetValid)),
        (with("iat", json!(NOW + 61)), NOW, Some(TokenError::IssuedInFuture)),
        (with("aud", json!(["vault", ISSUER])), NOW, None),
        (with("aud", json!(["vault", "other"])), NOW, Some(audience(r#"["vault" "other"]"#))),
        // A token without an audience is for this server.
        (with("aud", json!([])), NOW, None),
        (with("iss", json!("https://other")), NOW, Some(TokenError::Foreign)),
    ] {
        assert_eq!(world.authenticate(&claims, now).err(), expected, "{claims} {now}");
    }
    let other = Signer::generate().unwrap().sign(&plain).unwrap();
    let refused = world.tokens.authenticate(&world.signer, &world.store, &other, &[ISSUER.to_owned()], NOW);
    assert_eq!(refused, Err(TokenError::UnknownKey));
}

#[test]
fn tokens_end_with_the_objects_that_they_are_bound_to() {
    let account = || Key::new("ns", "sa");
    let deleted = |value: &mut Value| value["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
    let deleting = |value: &mut Value| value["metadata"]["deletionTimestamp"] = time::in_seconds(30).into();
    let again = |storage: Storage, key: fn() -> Key| {
        move |world: &World| {
            world.remove(storage, key());
            object(&world.store, storage, key(), "uid-new");
        }
    };
    let bound = |kind: &str, name: &str, uid: &str| json!({ kind: { "name": name, "uid": uid } });
    let new_uid = |kind: BoundKind, claimed: &str| TokenError::BoundUid {
        kind,
        found: "uid-new".to_owned(),
        claimed: claimed.to_owned(),
    };
    type Act = Box<dyn Fn(&World)>;
    fn by(act: impl Fn(&World) + 'static) -> Act {
        Box::new(act)
    }
    let table: Vec<(Value, Act, Option<TokenError>)> = vec![
        (pod(), by(|_| {}), None),
        (pod(), by(move |world| world.change(Storage::Pods, Key::new("ns", "p"), deleting)), None),
        (
            pod(),
            by(move |world| world.change(Storage::Pods, Key::new("ns", "p"), deleted)),
            Some(TokenError::Invalidated),
        ),
        (pod(), by(|world| world.remove(Storage::Pods, Key::new("ns", "p"))), Some(TokenError::Invalidated)),
        (pod(), by(again(Storage::Pods, || Key::new("ns", "p"))), Some(new_uid(BoundKind::Pod, "uid-p"))),
        (
            bound("secret", "s", "uid-s"),
            by(|world| world.remove(Storage::Secrets, Key::new("ns", "s"))),
            Some(TokenError::Invalidated),
        ),
        (
            bound("secret", "s", "uid-s"),
            by(again(Storage::Secrets, || Key::new("ns", "s"))),
            Some(new_uid(BoundKind::Secret, "uid-s")),
        ),
        (bound("node", "n", "uid-n"), by(|_| {}), None),
        (
            bound("node", "n", "uid-n"),
            by(|world| world.remove(Storage::Nodes, Key::cluster("n"))),
            Some(TokenError::Invalidated),
        ),
        (
            Value::Null,
            by(move |world| world.remove(Storage::ServiceAccounts, account())),
            Some(TokenError::AccountMissing("sa".to_owned())),
        ),
        (
            Value::Null,
            by(again(Storage::ServiceAccounts, || Key::new("ns", "sa"))),
            Some(TokenError::AccountUid { found: "uid-new".to_owned(), claimed: "uid-sa".to_owned() }),
        ),
        (
            Value::Null,
            by(move |world| world.change(Storage::ServiceAccounts, account(), deleted)),
            Some(TokenError::AccountDeleted("ns".to_owned(), "sa".to_owned())),
        ),
    ];
    for (bound, act, expected) in table {
        let world = World::new();
        let claims = World::claims(bound);
        assert!(world.authenticate(&claims, NOW).is_ok(), "{claims}");
        act(&world);
        // The signature is remembered, the decision is not.
        assert_eq!(world.authenticate(&claims, NOW).err(), expected, "{claims}");
    }
}

#[test]
fn issued_tokens_are_accepted() {
    let world = World::new();
    let account = world.store.get(Storage::ServiceAccounts, &Key::new("ns", "sa")).unwrap();
    let claims = tokens::claims(&account, Map::new(), &[ISSUER.to_owned()], 600);
    let now = claims["iat"].as_i64().unwrap();
    assert!(world.authenticate(&claims, now).is_ok());
    assert!(world.tokens.verified.lock().unwrap().len() == 1);
}
