//! The driver as its callers see it: over a unix socket, with real mounts, two nodes on one state directory.

mod support;

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use claimcheck_csi::{
    Driver as Client,
    v1::{
        CapacityRange, ControllerGetCapabilitiesRequest, CreateSnapshotRequest, CreateVolumeRequest,
        GetCapacityRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest, ListVolumesRequest,
        NodeGetCapabilitiesRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest, ProbeRequest,
        ValidateVolumeCapabilitiesRequest,
        volume_capability::access_mode::Mode,
    },
};
use claimcheck_driver::{Args, host::RealHost};
use clap::Parser;
use support::Place;
use tokio::sync::oneshot;
use tonic::Code;
