//! Loop devices of nodes of kind: the device nodes that the kubelet's own `losetup` expects.
//!
//! For each raw block volume that is published the kubelet runs `losetup -f` (`makeLoopDevice` of
//! pkg/volume/util/volumepathhandler/volume_path_handler_linux.go). The kernel, which all nodes share, then names any
//! free device; but `/dev` of a container is what it was when the container was made, without the devices that came
//! later (kind#1248). Our driver makes those that it needs; nobody makes the kubelet's.

use tracing::warn;

use claimcheck_kind::Engine;

/// Makes the nodes for devices 0 to 255, as far as they are missing. The kernel hands out the first that is free, so these
/// are enough until as many are in use on the machine. Where devices have partitions (`max_part`), each has more than
/// one minor number.
const MAKE: &str = "parts=$(cat /sys/module/loop/parameters/max_part 2>/dev/null || echo 0); step=1; \
    while [ \"$parts\" -gt 0 ]; do parts=$((parts / 2)); step=$((step * 2)); done; \
    i=0; while [ $i -lt 256 ]; do [ -b /dev/loop$i ] || mknod -m 0660 /dev/loop$i b 7 $((i * step)); i=$((i + 1)); done";

/// Makes them in all these nodes. An engine without root cannot: that is told, and what needs none goes on.
pub(super) async fn make(engine: &Engine, nodes: &[String]) {
    for node in nodes {
        if let Err(error) = engine.exec(node, &["sh", "-euc", MAKE]).await {
            let why = error.gist();
            warn!(node, why, "loop devices cannot be made: pods with raw block volumes may not start on it");
        }
    }
}
