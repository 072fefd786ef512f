//! What runs leave on this machine. The tests look at all its processes, mounts and loop devices, so no other test
//! may run at the same time: cargo runs one test binary after the other.

mod connections;
mod deployment;
mod killed_at_events;
mod kind_run;
mod kubectl;
mod least_privilege;
mod leaves_nothing;
mod stock_controllers;
mod stock_sidecars;
