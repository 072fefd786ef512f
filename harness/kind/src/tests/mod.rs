//! Tests with fake `kind` and `docker` programs on the PATH, which log their arguments, and fail, hang or
//! respond like the real ones.

mod config;
mod lifecycle;
mod programs;
