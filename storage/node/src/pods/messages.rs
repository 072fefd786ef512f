//! The termination message: what a container left for its reader when it ended.
//! Upstream: `getTerminationMessage` in `pkg/kubelet/kuberuntime/kuberuntime_container.go`.

use std::path::Path;

use claimcheck_runtime::Exit;
use k8s_openapi::api::core::v1::Container;

use crate::{effects::Host, layout::Layout, volumes::PodUid};

/// Maximum size of a message in bytes.
const MESSAGE_LIMIT: usize = 4096;
/// Maximum part of the log that replaces a missing message, in bytes and lines.
const LOG_LIMIT: usize = 2048;
const LOG_LINES: usize = 80;

/// The message of an attempt that has ended: its file, or the end of its log if it failed without a message and
/// requests that. `None` if there is none.
pub(super) fn termination_message<H: Host>(
    host: &H,
    layout: &Layout,
    pod: &PodUid,
    container: &str,
    attempt: u32,
    spec: Option<&Container>,
    exit: Exit,
) -> Option<String> {
    let message = read(host, &layout.termination_message(pod, container, attempt));
    let message = &message[..message.len().min(MESSAGE_LIMIT)];
    if !message.is_empty() {
        return Some(String::from_utf8_lossy(message).into_owned());
    }
    let policy = spec.and_then(|spec| spec.termination_message_policy.as_deref());
    if policy != Some("FallbackToLogsOnError") || exit.code() == 0 {
        return None;
    }
    let log = read(host, &layout.container_log(pod, container, attempt));
    let log = &log[log.len().saturating_sub(LOG_LIMIT)..];
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    (!last.is_empty()).then_some(last)
}

fn read<H: Host>(host: &H, path: &Path) -> Vec<u8> {
    let content = host.read(path).inspect_err(|error| {
        tracing::warn!(path = %path.display(), %error, "a termination message cannot be read");
    });
    content.ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::RealHost;

    #[test]
    fn the_message_else_the_log_of_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let pod = PodUid::from("u");
        RealHost.make_dir(&layout.container(&pod, "c")).unwrap();
        let spec = |policy: &str| Container {
            termination_message_policy: Some(policy.into()),
            ..Container::default()
        };
        let get = |policy: &str, code| {
            termination_message(&RealHost, &layout, &pod, "c", 0, Some(&spec(policy)), Exit::Code(code))
        };
        assert_eq!(get("File", 1), None);
        RealHost.write(&layout.container_log(&pod, "c", 0), b"one\ntwo\n").unwrap();
        assert_eq!(get("FallbackToLogsOnError", 1).as_deref(), Some("one\ntwo"));
        assert_eq!(get("FallbackToLogsOnError", 0), None);
        RealHost.write(&layout.termination_message(&pod, "c", 0), &[b'x'; 5000]).unwrap();
        assert_eq!(get("File", 0).map(|message| message.len()), Some(4096));
    }
}
