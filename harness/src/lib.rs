//! Cluster life cycle, evidence to timeline to samples, metrics and reports
