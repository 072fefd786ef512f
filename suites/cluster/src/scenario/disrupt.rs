//! Disruptions: of components, of nodes, and of what is behind a volume.

use anyhow::{Context, Result};
use claimcheck_cluster::{Disruption, Victim};
use claimcheck_scenario::{How, Step};

use super::play::Player;

/// For each place where the volume `__PV__` is mounted or bound: the device fails, or the folder is emptied.
const REMOVE: &str = r#"
pv=__PV__
found=
for path in $(awk -v pv="/$pv/" 'index($5, pv) { print $5 }' /proc/self/mountinfo); do
    found=1
    if [ -b "$path" ]; then
        device=$(printf '%d:%d' "0x$(stat -c %t "$path")" "0x$(stat -c %T "$path")")
    else
        device=$(awk -v path="$path" '$5 == path { print $3 }' /proc/self/mountinfo | tail -n 1)
    fi
    block=/sys/dev/block/$device
    if [ -e "$block/loop/backing_file" ]; then
        file=$(cat "$block/loop/backing_file")
        sync
        # One sector is left, or writes would make the file larger again, and reads would not fail, but end. It cannot be read.
        truncate -s 512 "$file"
        losetup -c "/dev/$(basename "$(readlink "$block")")"
        : > "$file"
        echo 1 > /proc/sys/vm/drop_caches || true
    elif [ -e "$block/device/delete" ]; then
        echo 1 > "$block/device/delete"
    else
        find "$path" -mindepth 1 -delete
    fi
done
test -n "$found" || { echo "$pv is not mounted here" >&2; exit 3; }
"#;

impl Player {
    /// Disrupts components, or reboots nodes.
    pub(super) async fn disrupt(&self, what: &str, step: &Step) -> Result<()> {
        let disruption = match step.how.unwrap_or(How::Kill) {
            How::Kill => Disruption::Kill,
            How::Stop => Disruption::Stop,
            How::Start => Disruption::Start,
            How::Pause => Disruption::Pause,
            How::Resume => Disruption::Resume,
        };
        let nodes = match &step.node {
            Some(node) => vec![self.node(node)?],
            None => self.t.nodes(),
        };
        let victims: Vec<Victim> = match what {
            "controllers" => vec![Victim::Controllers],
            "agent" => nodes.into_iter().map(Victim::NodeAgent).collect(),
            "node" => nodes.into_iter().map(Victim::Node).collect(),
            "registration" => nodes.into_iter().map(|node| self.registration(node)).collect(),
            _ => nodes.into_iter().map(Victim::Driver).collect(),
        };
        for victim in victims {
            self.cleanup.disrupted(&victim, disruption);
            self.t.disrupt(victim.clone(), disruption).await?;
            // A pod that comes before the kubelet has noticed would still use the driver.
            if let Victim::Registration { node, .. } = victim {
                self.t.driver_is_listed(&node, disruption == Disruption::Start).await?;
            }
        }
        Ok(())
    }

    fn registration(&self, node: String) -> Victim {
        Victim::Registration { node, driver: self.t.driver_name().to_owned() }
    }

    /// Removes what is behind the volume of a claim.
    pub(super) async fn remove(&self, claim: &str) -> Result<()> {
        let (_, namespace, name) = self.actor.references.key(claim).map_err(anyhow::Error::msg)?;
        let volume = self.actor.record.read(|store| {
            let claims = store.own("PersistentVolumeClaim");
            let mut found = claims.filter(|(key, _)| key.1 == namespace && key.2 == name);
            found.find_map(|(_, claim)| claim["spec"]["volumeName"].as_str().map(str::to_owned))
        });
        let volume = volume.with_context(|| format!("{claim} has no volume"))?;
        let script = REMOVE.replace("__PV__", &volume);
        let mut outcomes = Vec::new();
        for node in self.t.nodes() {
            outcomes.push(self.t.on_node(&node, &script).await);
        }
        // On a node where the volume is not mounted the script fails.
        if outcomes.iter().any(Result::is_ok) {
            return Ok(());
        }
        let last = outcomes.pop().context("the cluster has no nodes")?;
        last.with_context(|| format!("{claim} is mounted on no node"))
    }
}
