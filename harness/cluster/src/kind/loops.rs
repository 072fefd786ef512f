//! Loop devices of kind nodes: the device nodes that the kubelet's `losetup` expects.
//!
//! For each published raw block volume the kubelet runs `losetup -f` (`makeLoopDevice` of
//! pkg/volume/util/volumepathhandler/volume_path_handler_linux.go). The kernel, which all nodes share, then returns any
//! free device; but `/dev` of a container is populated when the container is created, without devices created
//! later (kind#1248). The built-in driver creates those that it needs; no component creates the kubelet's.

use tracing::warn;

use claimcheck_kind::Engine;

/// Creates missing nodes for devices 0 to 255. The kernel returns the first free device, so these
/// suffice until that many are in use on the machine. If devices have partitions (`max_part`), each has more than
/// one minor number.
const MAKE: &str = "parts=$(cat /sys/module/loop/parameters/max_part 2>/dev/null || echo 0); step=1; \
    while [ \"$parts\" -gt 0 ]; do parts=$((parts / 2)); step=$((step * 2)); done; \
    i=0; while [ $i -lt 256 ]; do [ -b /dev/loop$i ] || mknod -m 0660 /dev/loop$i b 7 $((i * step)); i=$((i + 1)); done";

/// Creates them in all these nodes. A rootless engine cannot: that is logged, and cases without loop devices can run.
pub(super) async fn make(engine: &Engine, nodes: &[String]) {
    for node in nodes {
        if let Err(error) = engine.exec(node, &["sh", "-euc", MAKE]).await {
            let reason = error.gist();
            warn!(
                node,
                reason, "cannot create loop devices: pods with raw block volumes may not start on it"
            );
        }
    }
}
