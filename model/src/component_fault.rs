//! Faults of the built-in components: a request that RBAC does not permit, a panic, or a crash loop. Each fails the run,
//! since its other results may be consequences of it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Denial;

/// A fault of a built-in component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum ComponentFault {
    /// RBAC does not permit a verb that it requested: its role in the manifests lacks a rule.
    Denied(Denial),
    /// It panicked.
    Panicked {
        /// The component: `controllers`, as in the name of its log.
        component: String,
        /// The place in the code, and the message.
        message: String,
    },
    /// It keeps exiting although no case disrupts it.
    CrashLoop {
        /// The component.
        component: String,
        /// The number of unexpected exits.
        times: u64,
        /// The last exit status.
        status: String,
    },
}

impl ComponentFault {
    /// The number of unexpected exits of a component from which on they are a crash loop.
    pub const CRASH_LOOP: u64 = 3;

    /// The name of the kind of fault.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Panicked { .. } => "panicked",
            Self::CrashLoop { .. } => "crash_loop",
        }
    }
}

impl fmt::Display for ComponentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => write!(f, "403 Forbidden: {denial}"),
            Self::Panicked { component, message } => write!(f, "{component} panicked at {message}"),
            Self::CrashLoop { component, times, status } => {
                write!(f, "{component} exited unexpectedly {times} times, the last time with {status}")
            }
        }
    }
}
