//! Watch caches with indexes, and the reconcile queue, shared by controllers and node
