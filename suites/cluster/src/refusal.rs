//! An error that a Warning Event reports, in words that do not depend on the case, so that cases can be compared.

use std::fmt;

/// The message of errors that a case injects itself.
pub(crate) const INJECTED: &str = "injected by the test case";
/// The codes after which CSI permits no retry without a change of the request or the configuration.
const FINAL: [&str; 4] = ["InvalidArgument", "Unimplemented", "PermissionDenied", "Unauthenticated"];
/// The Event that kubelets emit in addition to the one with the reason.
const SUMMARY: &str = "Unable to attach or mount volumes";
/// Objects that an administrator creates: without them a request fails until then.
const PREREQUISITES: [&str; 3] = ["secrets \"", "secret \"", "storageclass.storage.k8s.io \""];
/// What external-provisioner says in the Event if it calls the driver again only after minutes.
const DELAYED: &str = "Retries will be delayed.";
/// What stands for a name of the case.
const NAME: &str = "…";

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// The reason of the Event.
    reason: String,
    /// Its message, without names of the case.
    message: String,
    /// It is not soon repeated.
    delayed: bool,
}

impl Refusal {
    /// The error in an Event of the case with this namespace; none if the case has injected it, or if it summarizes
    /// others.
    pub(crate) fn of(reason: &str, message: &str, namespace: &str) -> Option<Self> {
        if message.contains(INJECTED) || message.starts_with(SUMMARY) {
            return None;
        }
        let delayed = message.contains(DELAYED);
        // What precedes the driver's answer names the object.
        let mut answer = message.find("rpc error: code = ").map_or(message, |at| &message[at..]);
        // Some components quote the answer, the first quote of which is left out here.
        if answer.matches('"').count() % 2 == 1 {
            answer = answer.strip_suffix('"').unwrap_or(answer);
        }
        Some(Self { reason: reason.to_owned(), message: without_names(answer, namespace), delayed })
    }

    /// Whether it has this reason.
    pub(crate) fn is_of(&self, reason: &str) -> bool {
        self.reason == reason
    }

    /// Whether the request is repeated only after minutes, so that one occurrence is all that a case sees.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed
    }

    /// Whether a retry cannot succeed.
    pub(crate) fn is_final(&self) -> bool {
        if let Some((_, text)) = self.message.split_once("code = ") {
            let code = text.split(' ').next().unwrap_or_default();
            return FINAL.contains(&code);
        }
        // RBAC, in the message of the API server.
        if self.message.contains(" is forbidden: User \"") {
            return true;
        }
        self.message.ends_with("not found") && PREREQUISITES.iter().any(|kind| self.message.contains(kind))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// The text with one sign for each word that contains the namespace, which names of classes begin with, or a UID, which
/// names of volumes contain; and for numbers in hexadecimal.
fn without_names(text: &str, namespace: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut out = String::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(if is_name(word, namespace) { NAME } else { word });
        let next = after.find(is_part).unwrap_or(after.len());
        out.push_str(&after[..next]);
        rest = &after[next..];
    }
    out
}

fn is_name(word: &str, namespace: &str) -> bool {
    word.contains(namespace) || word.split(['-', '_', '.', '/']).any(is_hexadecimal)
}

/// Whether the text is a number that is generated: the parts of UIDs have up to 12 digits.
fn is_hexadecimal(part: &str) -> bool {
    part.len() >= 8 && part.chars().all(|c| c.is_ascii_hexdigit()) && part.chars().any(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &str) -> String {
        Refusal::of("R", message, "cc-1f2e-volumes-3").unwrap().to_string()
    }

    #[test]
    fn errors_of_different_cases_are_equal() {
        for (message, expected) in [
            (
                "failed to provision volume with StorageClass \"cc-1f2e-volumes-3\": rpc error: code = Internal desc = no \
                 space for pvc-0b5ca1e3-7d0e-4d3c-8e1f-2f6d1c1d0a11 at /pool",
                "R: rpc error: code = Internal desc = no space for … at /pool",
            ),
            (
                "storageclass.storage.k8s.io \"cc-1f2e-volumes-3-manual\" not found",
                "R: storageclass.storage.k8s.io \"…\" not found",
            ),
            (
                "failed to take snapshot of the volume v: \"rpc error: code = Internal desc = no\"",
                "R: rpc error: code = Internal desc = no",
            ),
            ("hash 0a1b2c3d4e5f, device sda, deadbeef", "R: hash …, device sda, deadbeef"),
        ] {
            assert_eq!(text(message), expected);
        }
        for message in [
            "rpc error: code = InvalidArgument desc = injected by the test case",
            "Unable to attach or mount volumes: unmounted volumes=[v0]",
        ] {
            assert_eq!(Refusal::of("R", message, "ns"), None);
        }
    }

    #[test]
    fn an_announced_delay_is_recorded() {
        let answer = "rpc error: code = InvalidArgument desc = bad";
        let delayed =
            format!("Volume provisioning failed with infeasible error. Retries will be delayed. {answer}");
        for (message, expected) in [(answer, false), (delayed.as_str(), true)] {
            let refusal = Refusal::of("R", message, "ns").unwrap();
            assert_eq!((refusal.is_delayed(), refusal.to_string()), (expected, format!("R: {answer}")));
        }
    }

    #[test]
    fn only_errors_that_no_retry_resolves_are_final() {
        for (message, expected) in [
            ("rpc error: code = InvalidArgument desc = bad", true),
            ("rpc error: code = Unauthenticated desc = who", true),
            ("rpc error: code = Internal desc = code = InvalidArgument", false),
            ("rpc error: code = NotFound desc = volume not found", false),
            ("error getting secret s: secrets \"s\" not found", true),
            ("storageclass.storage.k8s.io \"x\" not found", true),
            ("error getting snapshot s: volumesnapshots \"s\" not found", false),
            ("secrets \"s\" is forbidden: User \"u\" cannot get resource \"secrets\"", true),
            ("timed out", false),
        ] {
            assert_eq!(Refusal::of("R", message, "ns").unwrap().is_final(), expected, "{message}");
        }
    }
}
