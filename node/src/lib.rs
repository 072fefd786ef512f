//! The node: the kubelet's volume manager, plugin registration, and pods as real processes
