//! Removes tokens, and the secrets that stock programs pass to the driver, from the texts of events. Messages of drivers
//! reach reports through Kubernetes Events, conditions and logs, and drivers have quoted the tokens of pods in them
//! (CVE-2023-2878, CVE-2024-3744); built-in components remove the secrets of their calls themselves.

use std::borrow::Cow;

use claimcheck_csi::tap::KnownSecrets;
use claimcheck_model::{CaseResult, ComponentFault, Event, LoadEvent};
use serde_json::Value;

/// Removes these secrets and all tokens from an event.
pub(crate) fn redact(event: &mut Event, secrets: &KnownSecrets) {
    let text = |of: &mut String| {
        if let Cow::Owned(clean) = secrets.hide(of) {
            *of = clean;
        }
    };
    match event {
        Event::FailureDump(evidence) => {
            evidence.objects.iter_mut().for_each(|object| value(object, &text));
            evidence.events.iter_mut().for_each(|event| text(&mut event.message));
            evidence.logs.iter_mut().for_each(|log| text(&mut log.text));
        }
        Event::Step { failed: Some(reason), .. }
        | Event::CaseFinished {
            result: CaseResult::Failed { reason, .. } | CaseResult::Skipped { reason },
            ..
        }
        | Event::Load(LoadEvent::Failed { reason, .. })
        | Event::Warning { text: reason, .. } => text(reason),
        Event::ComponentFault(ComponentFault::Panicked { message, .. }) => text(message),
        Event::ComponentExited(end) => end.last_lines.iter_mut().for_each(text),
        // The others contain names and numbers.
        _ => {}
    }
}

fn value(of: &mut Value, text: &impl Fn(&mut String)) {
    match of {
        Value::String(string) => text(string),
        Value::Array(items) => items.iter_mut().for_each(|item| value(item, text)),
        Value::Object(fields) => fields.values_mut().for_each(|field| value(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CaseId, ComponentEnd, FailureDump, Log, ObjectEvent, Stamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_of_a_driver_brings_a_token_or_secret_into_a_report() {
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2QifQ.c2lnbmF0dXJl";
        let message = || format!("rpc error: code = Unauthenticated desc = bad token {token} of \"hunter2\"");
        let case = || CaseId::new("suite", "case");
        let object =
            json!({ "status": { "attachError": { "message": message() }, "phases": ["Failed", message()] } });
        let events = [
            Event::FailureDump(FailureDump {
                case: case(),
                objects: vec![object],
                events: vec![ObjectEvent { message: message(), ..ObjectEvent::default() }],
                logs: vec![Log { of: "node/agent".into(), text: message() }],
            }),
            Event::Step {
                case: case(),
                what: "pod to run".into(),
                start: Stamp::default(),
                seconds: 1.0,
                failed: Some(message()),
            },
            Event::CaseFinished { case: case(), result: CaseResult::failed(message()), seconds: 1.0 },
            Event::Load(LoadEvent::Failed { claims: Vec::new(), reason: message() }),
            Event::Warning { case: case(), text: message() },
            Event::ComponentExited(ComponentEnd { last_lines: vec![message()], ..ComponentEnd::default() }),
        ];
        let secrets = KnownSecrets::default();
        secrets.add(&["hunter2".to_owned()]);
        for mut event in events {
            redact(&mut event, &secrets);
            let line = serde_json::to_string(&event).unwrap();
            assert!(line.contains("bad token [hidden by claimcheck]") && !line.contains("eyJ"), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }
}
