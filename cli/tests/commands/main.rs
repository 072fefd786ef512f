//! The commands of the binary, as users call them; one binary for all, since each takes half a minute to link.
//!
//! Tests here run concurrently. What looks at all processes, mounts and loop devices of the machine is in `host`.

mod canaries;
mod command_line;
mod component_faults;
mod components;
mod csi;
mod dashboards;
mod failed_starts;
mod history;
mod hostile;
mod http;
mod kind;
mod load;
mod logs;
mod monitor;
mod monitor_install;
mod observe;
mod pages;
mod permissions;
mod private_files;
mod push;
mod scenarios;
mod schemas;
mod stock_sidecars;
mod tap;
mod testdriver;
mod traces;
mod workflow;
