//! Where the stock programs are.

use std::{env, path::PathBuf};

/// The folder with a stock control plane.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
const OF_ASSETS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];
/// The folder with the programs of kubernetes-csi.
const SIDECARS: &str = "CLAIMCHECK_STOCK_SIDECARS";
const OF_SIDECARS: [&str; 5] =
    ["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller"];

/// Programs that are missing.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// No folder is named.
    #[error("{variable} is not set: set it to a folder with {}: {}", programs.join(", "), remedy(variable))]
    Folder {
        /// The variable.
        variable: &'static str,
        /// What the folder must have.
        programs: &'static [&'static str],
    },
    /// The folder lacks one.
    #[error("{variable} is {}, which has no {program}: {}", folder.display(), remedy(variable))]
    Program {
        /// The variable.
        variable: &'static str,
        /// The folder.
        folder: PathBuf,
        /// The program.
        program: &'static str,
    },
}

fn remedy(variable: &str) -> &'static str {
    match variable {
        ASSETS => {
            "`setup-envtest use` fetches etcd and kube-apiserver, and https://dl.k8s.io/VERSION/bin/linux/ARCH/ has the \
             kube-controller-manager of the same version"
        }
        _ => {
            "copy them from the images of external-provisioner, -attacher, -resizer and -snapshotter, or build them with \
             `make` in their repositories"
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The folder with etcd, kube-apiserver and kube-controller-manager.
    pub assets: PathBuf,
    /// The folder with the sidecars.
    pub sidecars: PathBuf,
}

impl Programs {
    /// Finds them in the folders that `KUBEBUILDER_ASSETS` and `CLAIMCHECK_STOCK_SIDECARS` name.
    ///
    /// # Errors
    /// What is missing.
    pub fn find() -> Result<Self, Missing> {
        Ok(Self { assets: folder(ASSETS, &OF_ASSETS)?, sidecars: folder(SIDECARS, &OF_SIDECARS)? })
    }
}

fn folder(variable: &'static str, programs: &'static [&'static str]) -> Result<PathBuf, Missing> {
    let Some(folder) = env::var_os(variable).map(PathBuf::from) else {
        return Err(Missing::Folder { variable, programs });
    };
    match programs.iter().find(|program| !folder.join(program).is_file()) {
        Some(program) => Err(Missing::Program { variable, folder, program }),
        None => Ok(folder),
    }
}
