//! What happens to a virtual node from outside: a script of its administrator, and a reboot.

use std::fs;

use claimcheck_substrate::Capabilities;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{common::Common, node::Node, supervisor::last_output};
use crate::disruption::{DisruptError, Disruption};

/// Unmounts everything below the kubelet's folder, which is a mount itself: lower ones come later in the list.
const UNMOUNT: &str = r#"
awk '$5 ~ "^/var/lib/kubelet/" { print $5 }' /proc/self/mountinfo | tac | while read -r path; do
    umount -l "$(printf '%b' "$path")"
done
"#;

impl Node {
    /// Runs a script of `sh` in the node's mounts.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub(crate) async fn run(&self, common: &Common, script: &str) -> Result<(), DisruptError> {
        let name = format!("script {}", self.paths.name);
        let args = vec!["-euc".into(), script.into()];
        let mut spec = common.component(name, args, Some(self.namespace.clone()));
        spec.program = "/bin/sh".into();
        spec.capabilities = Capabilities::All;
        let failed = |what: String| DisruptError::Script { node: self.paths.name.clone(), what };
        let ended = async {
            spec.spawn().map_err(|error| error.to_string())?.wait().await.map_err(|of| of.to_string())
        };
        match ended.await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(format!("{status}: {}", last_output(&spec)))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Ends all its processes at the same time, its mounts, and starts it again. Loop devices stay: as disks, they are
    /// still attached.
    ///
    /// # Errors
    /// A mount stays.
    pub(crate) async fn reboot(&self, common: &Common) -> Result<(), DisruptError> {
        let processes = [&self.agent, &self.driver.process];
        for process in processes {
            // Neither sees the other end.
            process.disrupt(Disruption::Pause).await;
        }
        let containers = self.runtime.pid().map(children).unwrap_or_default();
        for container in containers {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(container), Signal::SIGKILL);
        }
        let unmounted = self.run(common, UNMOUNT).await;
        for process in processes {
            process.disrupt(Disruption::Kill).await;
        }
        unmounted
    }
}

fn children(of: u32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
