//! What a request carries, as JSON without its secrets and tokens: for those who ask what a driver was sent.

use claimcheck_model::RpcMethod;
use serde_json::Value;

use super::{
    facts::TOKENS,
    redact::{STRIPPED, without_secrets},
};
use crate::message::{Method, frames};

/// The request in a body, without fields that have their default; none if it cannot be parsed.
pub(super) fn readable(method: &RpcMethod, body: &[u8], secrets: &[String]) -> Option<Value> {
    let shape = Method::at(method.path())?.request;
    let [message] = frames(body).ok()?[..] else { return None };
    let mut request = shape.decode(message).ok()?;
    hide(&mut request, secrets);
    Some(request)
}

/// Replaces all secrets and tokens, and what contains one.
fn hide(value: &mut Value, secrets: &[String]) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    (TOKENS, value) => *value = STRIPPED.into(),
                    ("secrets", Value::Object(values)) => {
                        values.values_mut().for_each(|value| *value = STRIPPED.into());
                    }
                    (_, value) => hide(value, secrets),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::String(text) => *text = without_secrets(text, secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CsiMethod;
    use serde_json::json;

    use super::*;
    use crate::message::frame;

    #[test]
    fn a_request_has_its_fields_and_no_secret() {
        let method = RpcMethod::from(CsiMethod::NodePublishVolume);
        let request = json!({
            "volume_id": "v",
            "secrets": { "user": "x", "password": "hunter22" },
            "volume_context": { TOKENS: "{\"a\":{\"token\":\"t\"}}", "copy": "is hunter22", "plain": "x" },
        });
        let message = Method::at(method.path()).unwrap().request.encode(&request).unwrap();
        let secrets = ["x".to_owned(), "hunter22".to_owned()];
        let seen = readable(&method, &frame(&message), &secrets).unwrap();
        assert_eq!(seen["secrets"], json!({ "user": STRIPPED, "password": STRIPPED }));
        assert_eq!(seen["volume_context"][TOKENS], STRIPPED);
        assert_eq!(seen["volume_context"]["copy"], format!("is {STRIPPED}"));
        assert_eq!(seen["volume_id"], "v");
        assert_eq!(readable(&method, b"cut", &secrets), None);
    }
}
