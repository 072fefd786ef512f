//! The search of the output of drivers and sidecars for secrets and tokens.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use claimcheck_csi::tap::{Disclosure, KnownSecrets};
use claimcheck_informer::response::message;
use claimcheck_substrate::LineFilter;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};

/// The maximum number of recorded lines.
const RECORDED: usize = 100;

/// The outcome of a search.
#[derive(Debug, Default)]
pub struct LogSearch {
    /// The logs that were searched.
    pub searched: Vec<String>,
    /// What could not be searched, with the reason.
    pub unread: Vec<String>,
    /// The lines with a secret or token, each with the name of its log.
    pub found: Vec<(String, Disclosure)>,
}

impl LogSearch {
    /// Searches a text.
    pub(super) fn search(&mut self, log: String, text: &str, known: &KnownSecrets) {
        self.found.extend(Disclosure::all(known, text).into_iter().map(|found| (log.clone(), found)));
        self.searched.push(log);
    }
}

/// The lines with secrets of programs from which they are removed before a line is written: their files do not show them.
/// Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Disclosures(Arc<Mutex<Vec<(String, Disclosure)>>>);

impl Disclosures {
    /// Removes from each line of a log the secrets of the run, and those of a program's command line.
    pub(super) fn filter(&self, log: &Path, known: KnownSecrets, own: KnownSecrets) -> LineFilter {
        let (this, lines) = (self.clone(), AtomicUsize::new(0));
        let name = log.file_name().unwrap_or_default().display().to_string();
        LineFilter::new(move |line| {
            let number = lines.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some(found) = Disclosure::from_line(&known, number, line) {
                let mut all = this.0.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() < RECORDED {
                    all.push((name.clone(), found));
                }
            }
            known.hide(&own.hide(line)).into_owned()
        })
    }

    /// The lines so far.
    pub(super) fn found(&self) -> Vec<(String, Disclosure)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Searches the logs of all containers of the pods that a selector and a condition choose.
pub(super) async fn search_pods(
    client: &Client,
    (pods, labels): (Api<Pod>, &str),
    known: &KnownSecrets,
    is_meant: impl Fn(&Pod) -> bool,
) -> LogSearch {
    let mut search = LogSearch::default();
    let listed = match pods.list(&ListParams::default().labels(labels)).await {
        Ok(list) => list.items,
        Err(error) => {
            search.unread.push(format!("the pods cannot be listed ({})", message(&error)));
            return search;
        }
    };
    for pod in listed.iter().filter(|pod| is_meant(pod)) {
        let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let log = format!("{}/{}", pod.name_any(), container.name);
            let params = LogParams { container: Some(container.name.clone()), ..LogParams::default() };
            match api.logs(&pod.name_any(), &params).await {
                Ok(text) => search.search(log, &text, known),
                Err(error) => {
                    let why = message(&error);
                    search.unread.push(format!("the log of {log} cannot be read ({why})"));
                }
            }
        }
    }
    search
}

/// Whether a pod belongs to a driver that claimcheck has not installed: it mounts the driver's directory of the node, or
/// names the driver in its containers.
pub(super) fn is_of_driver(pod: &Pod, driver: &str) -> bool {
    let spec = pod.spec.as_ref();
    let volumes = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut paths = volumes.filter_map(|volume| volume.host_path.as_ref());
    let mut containers = spec.into_iter().flat_map(|spec| &spec.containers);
    paths.any(|host| Path::new(&host.path).iter().any(|part| part == driver))
        || containers.any(|container| {
            let words = container.args.iter().chain(&container.command).flatten();
            let variables = container.env.iter().flatten().filter_map(|variable| variable.value.as_ref());
            words.chain(variables).any(|text| text.contains(driver))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn lines_are_found_before_their_secrets_are_removed() {
        let (known, own) = (KnownSecrets::default(), KnownSecrets::default());
        known.search_for(&["cc-marker-1-secret".to_owned()]);
        own.add(&["of-the-command-line".to_owned()]);
        let disclosures = Disclosures::default();
        let filter = disclosures.filter(Path::new("/run/driver-node-1.log"), known, own);
        let written: String = ["a\n", "of-the-command-line\n", "b cc-marker-1-secret\n"]
            .map(|line| filter.apply(line))
            .concat();
        assert_eq!(written, "a\n[hidden by claimcheck]\nb [hidden by claimcheck]\n");
        let [(log, found)] = &*disclosures.found() else { panic!("{disclosures:?}") };
        assert_eq!(
            (log.as_str(), found.to_string().as_str()),
            ("driver-node-1.log", "line 3: b [hidden by claimcheck]")
        );
    }

    #[test]
    fn the_pods_of_a_driver_are_found_by_its_directory_or_its_name() {
        let pod = |volumes: Value, args: Value| {
            let spec = json!({ "containers": [{ "name": "c", "args": args }], "volumes": volumes });
            serde_json::from_value::<Pod>(json!({ "spec": spec })).unwrap()
        };
        let path = |path: &str| json!([{ "name": "v", "hostPath": { "path": path } }]);
        for (pod, expected) in [
            (pod(path("/var/lib/kubelet/plugins/d.io/"), json!([])), true),
            (pod(path("/var/lib/kubelet/plugins/d.io.other"), json!([])), false),
            (pod(json!([]), json!(["--drivername=d.io"])), true),
            (pod(json!([]), json!(["--v=5"])), false),
        ] {
            assert_eq!(is_of_driver(&pod, "d.io"), expected);
        }
    }
}
