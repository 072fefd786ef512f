//! Disruptions of a kind cluster: with the engine's `exec` in a node.
//!
//! A node's agent is its kubelet, a service of systemd. The driver and the controllers are containers in the
//! node's containerd; `crictl` provides their process ids. A killed container is restarted by
//! the kubelet, so only components that can be scaled down through the API stay down.

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

use super::nodes::KindCluster;
use crate::{
    disruption::{DisruptError, Disruption, Victim},
    real_nodes::controllers::{Components, list, start, stop},
};

impl KindCluster {
    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// The disruption is not supported, or the component does not exist.
    pub async fn disrupt(
        &self,
        client: &Client,
        components: &Components,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        let cannot = || DisruptError::Cannot { victim: victim.clone(), disruption };
        match victim {
            Victim::NodeAgent(node) => self.sh(node, &on_kubelet(disruption)).await,
            Victim::Node(node) if disruption == Disruption::Kill => {
                self.engine().restart(node).await?;
                self.sh(node, NEW_ADDRESS).await
            }
            Victim::Node(_) => Err(cannot()),
            Victim::Registration { node, driver } => {
                let script = disruption.of_registration(driver).ok_or_else(cannot)?;
                self.sh(node, &script).await
            }
            Victim::Driver(node) => {
                let signal = signal(disruption).ok_or_else(cannot)?;
                let label = format!("io.kubernetes.container.name={}", components.driver);
                let namespace = format!("io.kubernetes.pod.namespace={}", components.namespace);
                self.sh(node, &on_containers(signal, &[&label, &namespace])).await
            }
            Victim::Controllers => match (disruption, signal(disruption)) {
                (Disruption::Stop, _) => stop(client, components).await,
                (Disruption::Start, _) => start(client, components).await,
                (_, Some(signal)) => {
                    for (node, uid) in pods(client, components).await? {
                        let label = format!("io.kubernetes.pod.uid={uid}");
                        self.sh(&node, &on_containers(signal, &[&label])).await?;
                    }
                    Ok(())
                }
                (_, None) => Err(cannot()),
            },
        }
    }

    /// Runs a script in a node.
    ///
    /// # Errors
    /// It fails.
    pub(super) async fn sh(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        self.engine().exec(node, &["sh", "-euc", script]).await?;
        Ok(())
    }
}

/// An engine may give a restarted container another address, as when a second cluster has been deleted meanwhile. The
/// entrypoint of kind's own node images changes the kubelet's flag, too; others do not.
const NEW_ADDRESS: &str = r#"
flags=/var/lib/kubelet/kubeadm-flags.env
old=$(sed -n 's/.*--node-ip=\([0-9.]*\).*/\1/p' $flags)
new=$(hostname -i | tr ' ' '\n' | grep -m 1 '[.]')
if [ -n "$old" ] && [ "$old" != "$new" ]; then
    sed -i "s/--node-ip=$old/--node-ip=$new/" $flags
    for _ in $(seq 100); do systemctl restart kubelet && exit; sleep 0.2; done
    exit 1
fi"#;

/// The signal for a disruption of a process that is restarted by other components.
fn signal(disruption: Disruption) -> Option<&'static str> {
    match disruption {
        Disruption::Kill => Some("KILL"),
        Disruption::Pause => Some("STOP"),
        Disruption::Resume => Some("CONT"),
        Disruption::Stop | Disruption::Start | Disruption::Configure(_) => None,
    }
}

/// A script that disrupts a node's kubelet; it fails if there is none, or if it still runs after a stop: a case must not
/// pass because nothing happened. Signals are sent to the process itself, since the `systemctl` of some node images
/// ignores `kill`.
pub(crate) fn on_kubelet(disruption: Disruption) -> String {
    match disruption {
        Disruption::Kill => "pkill -KILL -x kubelet".to_owned(),
        // A paused process would not handle SIGTERM.
        Disruption::Stop => {
            "pkill -CONT -x kubelet || true\nsystemctl stop kubelet\n! pgrep -x kubelet".to_owned()
        }
        Disruption::Start => "systemctl start kubelet".to_owned(),
        Disruption::Pause => "pkill -STOP -x kubelet".to_owned(),
        Disruption::Resume => "pkill -CONT -x kubelet".to_owned(),
        Disruption::Configure(args) => configure_kubelet(args),
    }
}

/// The kubelet's unit reads `KUBELET_EXTRA_ARGS` from `/etc/default/kubelet`, which may contain kind's own
/// arguments and need not exist; the last line takes precedence
/// (`images/base/files/etc/systemd/system/kubelet.service.d` of kind).
fn configure_kubelet(args: &[&str]) -> String {
    let file = "/etc/default/kubelet";
    let add = match args {
        [] => String::new(),
        args => format!(
            "\n. {file}\n\
             printf '# claimcheck\\nKUBELET_EXTRA_ARGS=\"%s\"\\n' \"${{KUBELET_EXTRA_ARGS:-}} {}\" >>{file}",
            args.join(" ")
        ),
    };
    format!("touch {file}\nsed -i '/^# claimcheck$/,$d' {file}{add}\nsystemctl restart kubelet")
}

/// A script that signals the processes of a node's containers with these labels; it fails if there is none.
pub(crate) fn on_containers(signal: &str, labels: &[&str]) -> String {
    let labels: String = labels.iter().map(|label| format!(" --label {label}")).collect();
    format!(
        "ids=$(crictl ps --quiet{labels})\n\
         if [ -z \"$ids\" ]; then echo 'no container runs with{labels}' >&2; exit 1; fi\n\
         for id in $ids; do\n    \
         kill -{signal} \"$(crictl inspect --output go-template --template '{{{{.info.pid}}}}' \"$id\")\"\n\
         done"
    )
}

/// The controllers' running pods: their nodes and uids.
async fn pods(client: &Client, components: &Components) -> Result<Vec<(String, String)>, DisruptError> {
    let pods = list(client, components).await?;
    let place = |pod: Pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod.uid()?));
    Ok(pods.into_iter().filter_map(place).collect())
}
