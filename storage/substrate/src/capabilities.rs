//! Linux capabilities that a run as root does not need.
//!
//! The run gives up those that no component needs, before it starts any. Drivers keep the others, as in the privileged
//! container of a DaemonSet; programs that touch neither mounts nor devices keep nearly none.

use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities};

/// Capabilities that concern the whole machine, and neither volumes nor containers.
const UNNEEDED: CapabilitySet = CapabilitySet::SYS_BOOT
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYS_TTY_CONFIG)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::WAKE_ALARM)
    .union(CapabilitySet::BLOCK_SUSPEND)
    .union(CapabilitySet::AUDIT_CONTROL)
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// The capabilities of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capabilities {
    /// Those of the run.
    #[default]
    All,
    /// Only the one with which root reads and writes files and sockets of other users, as those of a driver.
    Files,
}

impl Capabilities {
    /// Limits the programs that this process executes. Allocates nothing, as is required after fork.
    pub(crate) fn limit(self) {
        match self {
            Self::All => {}
            Self::Files => remove_from_bounding_set(CapabilitySet::DAC_OVERRIDE.complement()),
        }
    }
}

/// Gives up the capabilities that no component needs, in this process and all that it starts.
pub(crate) fn drop_unneeded() {
    remove_from_bounding_set(UNNEEDED);
    if let Ok(mut sets) = capabilities(None) {
        for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
            set.remove(UNNEEDED);
        }
        // Without them the run works as well as with them.
        let _ = set_capabilities(None, sets);
    }
}

/// Root has a capability again when it executes a program, unless it is removed from this set.
fn remove_from_bounding_set(removed: CapabilitySet) {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if removed.contains(capability) {
            // An error means that the kernel does not have it, or that a container has withheld CAP_SETPCAP.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}
