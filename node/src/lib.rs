//! The node: the kubelet's volume manager, plugin registration, and pods as real processes

/// The container runtime: what the agent asks to start and stop containers.
pub use claimcheck_runtime as runtime;
