//! An embedded Kubernetes API server for storage: generic store, watch, admission
