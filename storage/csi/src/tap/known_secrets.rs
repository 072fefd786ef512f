//! Secrets that programs have passed to drivers: programs of other vendors write them to Events and logs when a driver
//! quotes its requests.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use super::redact::{Form, forms_of, is_quoted, nested, without_forms, without_tokens};

/// The secrets of a run, to be removed from texts of programs that do not remove them. Clones share them.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    secrets: BTreeSet<String>,
    /// Their forms, which are removed from every line of a log.
    forms: Arc<[Form]>,
    /// Those that no log may contain. The others may occur in a log by chance.
    searched: BTreeSet<String>,
    searched_forms: Arc<[Form]>,
}

/// Without the secrets.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "KnownSecrets({})", known.secrets.len())
    }
}

impl KnownSecrets {
    /// Adds secrets.
    pub fn add<'a>(&self, secrets: impl IntoIterator<Item = &'a String>) {
        let mut new: Vec<&String> = secrets.into_iter().collect();
        {
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            new.retain(|secret| !secret.trim().is_empty() && !known.secrets.contains(*secret));
        }
        // Nearly all calls have the secrets of earlier ones, or none.
        if !new.is_empty() {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            known.secrets.extend(new.into_iter().cloned());
            let nested: Vec<String> = known.secrets.iter().flat_map(|secret| nested(secret)).collect();
            known.forms = forms_of(&nested).into();
        }
    }

    /// Adds secrets that output is searched for: see [`Disclosure`](super::Disclosure).
    pub fn search_for<'a>(&self, secrets: impl IntoIterator<Item = &'a String>) {
        let secrets: Vec<&String> = secrets.into_iter().filter(|secret| !secret.trim().is_empty()).collect();
        self.add(secrets.iter().copied());
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.searched.extend(secrets.into_iter().cloned());
        let nested: Vec<String> = known.searched.iter().flat_map(|secret| nested(secret)).collect();
        known.searched_forms = forms_of(&nested).into();
    }

    /// Whether a text contains one of the secrets that output is searched for.
    pub(super) fn is_disclosed(&self, text: &str) -> bool {
        let forms = self.0.read().unwrap_or_else(PoisonError::into_inner).searched_forms.clone();
        is_quoted(text, &forms)
    }

    /// The text without them, in any form in which programs quote a string, and without tokens.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let forms = self.0.read().unwrap_or_else(PoisonError::into_inner).forms.clone();
        if !is_quoted(text, &forms) {
            return without_tokens(text);
        }
        let clean = without_forms(text, &forms);
        Cow::Owned(without_tokens(&clean).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver quotes its request, Go's klog the error, and an Event in a log line both.
    #[test]
    fn secrets_are_removed_from_texts_that_are_quoted_several_times() {
        let known = KnownSecrets::default();
        known.add(&["pass\"<&>word".to_owned()]);
        let mut text = "Secret { password: \"pass\\\"<&>word\" }".to_owned();
        for times in 0..3 {
            let clean = known.hide(&text).into_owned();
            assert!(clean.contains("[hidden by claimcheck]") && !clean.contains("<&>"), "{times}: {clean}");
            let quoted = serde_json::Value::from(text).to_string();
            text = format!("err={quoted}");
        }
    }

    #[test]
    fn secrets_of_earlier_calls_are_removed_from_other_texts() {
        let known = KnownSecrets::default();
        let text = "ProvisioningFailed: bad password \"hunter2\\n\"";
        assert!(matches!(known.hide(text), Cow::Borrowed(_)));
        known.add(&["hunter2\n".to_owned(), " ".to_owned()]);
        known.clone().add(&["hunter2\n".to_owned()]);
        assert_eq!(known.hide(text), "ProvisioningFailed: bad password \"[hidden by claimcheck]\"");
        // The encoding of a longer text that ends with the secret.
        assert_eq!(known.hide("Zm9vaHVudGVyMg is encoded"), "Zm9v[hidden by claimcheck] is encoded");
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2QifQ.c2lnbmF0dXJl";
        assert_eq!(known.hide(token), "[hidden by claimcheck]");
        assert_eq!(format!("{known:?}"), "KnownSecrets(1)");
    }
}
