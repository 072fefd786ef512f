//! The flags of upstream's sidecars: those that the kubelet or the pod would provide are set, and HTTP servers get a
//! free port, since virtual nodes share the machine's network.

use crate::sidecars::plan::Replaceable;

/// Any free port of the machine. Nothing connects to it: no kubelet probes the programs.
const FREE_PORT: &str = "127.0.0.1:0";

/// The flags with values among some arguments, and each value: `--name=value`, `-name value`.
pub(super) fn named(arguments: &[String]) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let Some(flag) = flag(word) else { continue };
        match (flag.split_once('='), arguments.get(at + 1)) {
            (Some((name, value)), _) => found.push((name, value)),
            (None, Some(value)) if !value.starts_with('-') => found.push((flag, value.as_str())),
            (None, _) => {}
        }
    }
    found
}

/// A word without its dashes, if it is a flag. Go's flag package accepts one dash or two.
fn flag(word: &str) -> Option<&str> {
    word.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest)).filter(|rest| !rest.is_empty())
}

/// The value of a flag.
pub(super) fn value<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    named(arguments).into_iter().rfind(|(flag, _)| *flag == name).map(|(_, value)| value)
}

/// Whether a boolean flag is set.
pub fn is_set(arguments: &[String], name: &str) -> bool {
    let is_true = |value: &str| ["1", "t", "T", "true", "TRUE", "True"].contains(&value);
    arguments.iter().filter_map(|word| flag(word)).any(|flag| match flag.split_once('=') {
        Some((flag, value)) => flag == name && is_true(value),
        None => flag == name,
    })
}

/// Sets a flag with a value, in its place if it is given.
pub(super) fn set(arguments: &mut Vec<String>, name: &str, value: &str) {
    let at = remove(arguments, name).unwrap_or(arguments.len());
    arguments.insert(at, format!("--{name}={value}"));
}

/// Removes a flag with a value; the place of the first one, if it was given.
fn remove(arguments: &mut Vec<String>, name: &str) -> Option<usize> {
    let mut first = None;
    while let Some(at) = arguments.iter().position(|word| {
        flag(word).is_some_and(|flag| flag.split_once('=').map_or(flag, |(flag, _)| flag) == name)
    }) {
        let is_separate = !arguments[at].contains('=');
        arguments.remove(at);
        if is_separate && arguments.get(at).is_some_and(|value| !value.starts_with('-')) {
            arguments.remove(at);
        }
        first.get_or_insert(at);
    }
    first
}

/// Gives HTTP servers a free port: each node would listen on the same one.
pub(super) fn free_ports(arguments: &mut Vec<String>) {
    const SERVERS: [&str; 4] =
        ["http-endpoint", "metrics-address", "metrics-bind-address", "health-probe-bind-address"];
    let is_address = |text: &str| {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        port.is_some_and(|port| port.parse::<u16>().is_ok())
    };
    for server in SERVERS {
        if value(arguments, server).is_some_and(is_address) {
            set(arguments, server, FREE_PORT);
        }
    }
}

/// Adapts the arguments of a sidecar to a virtual node.
pub(super) fn adapt(kind: Replaceable, arguments: &mut Vec<String>) {
    match kind {
        Replaceable::Provisioner
        | Replaceable::Attacher
        | Replaceable::Resizer
        | Replaceable::Snapshotter => set(arguments, "csi-address", "{socket}"),
        Replaceable::SnapshotController => {}
        Replaceable::Registrar => {
            set(arguments, "csi-address", "{socket}");
            set(arguments, "kubelet-registration-path", "{socket}");
            set(arguments, "plugin-registration-path", "{registration_dir}");
            remove(arguments, "health-port");
        }
        Replaceable::LivenessProbe => {
            set(arguments, "csi-address", "{socket}");
            remove(arguments, "metrics-address");
            // It serves a fixed port by default, which only the first node could use. The flag for an address is set only
            // if it was given: earlier versions do not have it, and later ones accept only one of the two.
            match value(arguments, "http-endpoint") {
                Some(_) => {
                    remove(arguments, "health-port");
                }
                None => set(arguments, "health-port", "0"),
            }
        }
    }
    free_ports(arguments);
    // There is no pod that could own CSIStorageCapacity objects.
    if kind == Replaceable::Provisioner && is_set(arguments, "enable-capacity") {
        set(arguments, "capacity-ownerref-level", "-1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_are_those_of_go() {
        let arguments = words("-v=5 --endpoint unix:///s --leader-election --x=false -y=1 positional");
        assert_eq!(value(&arguments, "v"), Some("5"));
        assert_eq!(value(&arguments, "endpoint"), Some("unix:///s"));
        assert_eq!(value(&arguments, "leader-election"), None);
        let flags = ["leader-election", "x", "y", "z"].map(|name| is_set(&arguments, name));
        assert_eq!(flags, [true, false, true, false]);
    }

    #[test]
    fn servers_listen_on_a_free_port() {
        let mut arguments =
            words("--metrics-address=0.0.0.0:29645 --http-endpoint : --metrics-bind-address=0 -v=2");
        free_ports(&mut arguments);
        let expected = "--metrics-address=127.0.0.1:0 --http-endpoint : --metrics-bind-address=0 -v=2";
        assert_eq!(arguments, words(expected));
    }

    #[test]
    fn sidecars_get_what_a_pod_would_provide() {
        use Replaceable::{LivenessProbe, Provisioner, Registrar, Resizer, SnapshotController};
        let table = [
            (Resizer, "-v=5 -csi-address=/csi/csi.sock", "-v=5 --csi-address={socket}"),
            (
                Provisioner,
                "--enable-capacity --capacity-ownerref-level 0 --http-endpoint=:8080",
                "--enable-capacity --capacity-ownerref-level=-1 --http-endpoint=127.0.0.1:0 --csi-address={socket}",
            ),
            (SnapshotController, "--v=5", "--v=5"),
            (
                Registrar,
                "--kubelet-registration-path=/var/lib/kubelet/plugins/d/csi.sock --health-port=9809",
                "--kubelet-registration-path={socket} --csi-address={socket} \
                 --plugin-registration-path={registration_dir}",
            ),
            (
                LivenessProbe,
                "--csi-address=/csi/csi.sock --health-port=9898",
                "--csi-address={socket} --health-port=0",
            ),
            (
                LivenessProbe,
                "--csi-address=/csi/csi.sock --http-endpoint=:9898",
                "--csi-address={socket} --http-endpoint=127.0.0.1:0",
            ),
        ];
        for (kind, given, expected) in table {
            let mut arguments = words(given);
            adapt(kind, &mut arguments);
            assert_eq!(arguments, words(expected), "{kind:?}");
        }
    }
}
