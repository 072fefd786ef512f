//! Why a side cannot be started.

use std::{io, path::PathBuf};

use claimcheck_csi::BindError;
use claimcheck_stock::PrepareError;
use kube::config::KubeconfigError;

/// A side cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A folder cannot be created.
    #[error("cannot create a folder in {}", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program cannot be started.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The driver cannot listen.
    #[error("the scripted driver cannot listen")]
    Driver(#[from] BindError),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig of the API server cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    /// A request failed.
    #[error("cannot {what}")]
    Request {
        /// What it was for.
        what: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server does not become ready.
    #[error("{what} is not ready in time: on a busy machine, run it again{last_lines}")]
    Late {
        /// What.
        what: String,
        /// The last lines of the logs.
        last_lines: String,
    },
    /// Controllers do not begin to work.
    #[error("the {side} controllers do not begin to work: {step}; {}", of_ended(ended))]
    Idle {
        /// The side.
        side: &'static str,
        /// The step of the probe that waits for them.
        step: String,
        /// The programs that have ended.
        ended: Vec<String>,
    },
}

fn of_ended(ended: &[String]) -> String {
    match ended {
        [] => "all programs still run, so the machine may be too busy".to_owned(),
        ended => format!("these ended: {}", ended.join(", ")),
    }
}

pub fn cannot(what: impl Into<String>) -> impl FnOnce(kube::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Request { what, source: Box::new(source) }
}
