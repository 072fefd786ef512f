//! Against a `kind` and a `docker` of our own on the PATH, which log what they are asked for, and fail, hang or
//! answer as the real ones do.

mod config;
mod lifecycle;
mod programs;
