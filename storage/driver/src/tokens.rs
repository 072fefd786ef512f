//! Service account tokens that the kubelet passes to NodePublishVolume (KEP-1855), checked if the driver
//! requires them.

use std::collections::BTreeMap;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Deserialize;

use crate::error::{Error, Result};

/// The map that contains the tokens: the volume context, or since KEP-5538 the secrets.
const KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    token: String,
    expiration_timestamp: Timestamp,
}

/// A field of NodePublishVolume that may carry tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TokenField {
    /// The kubelet's default
    VolumeContext,
    /// With serviceAccountTokenInSecrets in the CSIDriver object
    Secrets,
}

/// Whether each audience of `required` has a token that is valid at `now`, and no token is outside of `field`.
pub(crate) fn check(
    required: &[String],
    field: Option<TokenField>,
    context: &BTreeMap<String, String>,
    secrets: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<()> {
    let elsewhere = match field {
        Some(TokenField::VolumeContext) => secrets.contains_key(KEY).then_some("secrets"),
        Some(TokenField::Secrets) => context.contains_key(KEY).then_some("volume_context"),
        None => None,
    };
    if let Some(elsewhere) = elsewhere {
        let reason = format!("{KEY} is not accepted here; see serviceAccountTokenInSecrets of CSIDriver");
        return Err(Error::invalid(elsewhere, reason));
    }
    if required.is_empty() {
        return Ok(());
    }
    let raw = secrets.get(KEY).or_else(|| context.get(KEY)).ok_or_else(|| {
        Error::invalid(
            "volume_context",
            format!("{KEY} is missing; set tokenRequests in the CSIDriver object"),
        )
    })?;
    // The parser's words may repeat what it read.
    let malformed = |_| Error::invalid("volume_context", format!("{KEY} is not a JSON object of tokens"));
    let tokens: BTreeMap<String, Token> = serde_json::from_str(raw).map_err(malformed)?;
    for audience in required {
        match tokens.get(audience) {
            Some(token) if token.token.is_empty() => {
                return Err(Error::Unauthenticated(format!("the token for audience {audience:?} is empty")));
            }
            Some(token) if token.expiration_timestamp <= now => {
                return Err(Error::Unauthenticated(format!(
                    "the token for audience {audience:?} expired at {}; publish again with a fresh one \
                     (requiresRepublish in the CSIDriver object)",
                    token.expiration_timestamp
                )));
            }
            Some(_) => {}
            None => {
                let reason = format!("{KEY} has no token for audience {audience:?}");
                return Err(Error::invalid("volume_context", reason));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn only_good_tokens_count() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let expected = ["vault".to_owned()];
        let tokens = |audience: &str, token: &str, expires: &str| {
            let json = format!(r#"{{"{audience}":{{"token":"{token}","expirationTimestamp":"{expires}"}}}}"#);
            BTreeMap::from([(KEY.to_owned(), json)])
        };
        let none = BTreeMap::new();
        let good = tokens("vault", "secret", "2026-01-01T00:00:01Z");
        check(&expected, None, &good, &none, now).unwrap();
        check(&expected, None, &none, &good, now).unwrap();
        check(&[], None, &none, &none, now).unwrap();
        let garbage = BTreeMap::from([(KEY.to_owned(), "secret".to_owned())]);
        let table = [
            (&none, Code::InvalidArgument, "tokenRequests"),
            (&garbage, Code::InvalidArgument, "not a JSON object"),
            (&tokens("other", "secret", "2026-01-01T00:00:01Z"), Code::InvalidArgument, "audience"),
            (&tokens("vault", "secret", "2026-01-01T00:00:00Z"), Code::Unauthenticated, "expired"),
            (&tokens("vault", "", "2026-01-01T00:00:01Z"), Code::Unauthenticated, "empty"),
        ];
        for (context, code, words) in table {
            let error = check(&expected, None, context, &none, now).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(words) && !error.to_string().contains("secret"), "{error}");
        }
        let (in_context, in_secrets) = (Some(TokenField::VolumeContext), Some(TokenField::Secrets));
        check(&expected, in_context, &good, &none, now).unwrap();
        check(&expected, in_secrets, &none, &good, now).unwrap();
        for (field, context, secrets) in
            [(in_context, &none, &good), (in_context, &good, &good), (in_secrets, &good, &none)]
        {
            let error = check(&expected, field, context, secrets, now).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(error.to_string().contains("serviceAccountTokenInSecrets"), "{error}");
        }
    }
}
