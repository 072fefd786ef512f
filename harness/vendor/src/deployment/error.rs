//! Why a manifest cannot be run, with the document, the container and the field, and the remedy.

use std::{fmt, path::PathBuf};

use claimcheck_node::ResourceFieldError;

use super::{image::ImageError, manifests::Workload, unpack::UnpackError};

/// Files of `--deployment` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// A file cannot be read.
    #[error("--deployment {}: the file cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is no YAML.
    #[error(
        "--deployment {} is not a YAML file of Kubernetes objects: render templates first (helm template, kustomize \
         build)",
        path.display()
    )]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The cause, with its line.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// An object does not have the fields of its kind.
    #[error(
        "--deployment {}{}: {title} is invalid at {field}: write a value of the expected type; a number or boolean that is a \
         text is quoted",
        path.display(),
        line.map(|line| format!(":{line}")).unwrap_or_default()
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line of the field, if it is known.
        line: Option<usize>,
        /// The path of the field.
        field: String,
        /// Its kind and name.
        title: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A file of kustomize.
    #[error(
        "--deployment {} lists files instead of objects: pass the output of `kubectl kustomize` for its folder",
        path.display()
    )]
    Kustomization {
        /// The file.
        path: PathBuf,
    },
    /// An object has no name.
    #[error("--deployment {}: a {kind} has no metadata.name", path.display())]
    Nameless {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: String,
    },
    /// A file of `--sidecar-rbac` cannot be used.
    #[error(transparent)]
    Roles(#[from] crate::sidecars::RbacFileError),
    /// An image cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The manifests cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Manifests that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The images do not fit.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Something is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// No container is the driver.
    #[error(
        "--deployment: no container listens on a CSI socket: add the file with the driver's DaemonSet, or pass the \
         socket to the driver's container in its arguments or variables (--endpoint=unix:///csi/csi.sock); of an operator, \
         which creates the driver's workloads in a cluster, pass these (kubectl get deployments,daemonsets -o yaml)"
    )]
    NoDriver,
    /// The node service is missing.
    #[error(
        "--deployment: {0} is the driver's controller, and no workload runs the driver on nodes: add the file with its \
         DaemonSet"
    )]
    NoNodeDriver(String),
    /// Several containers could be the driver.
    #[error(
        "--deployment: {first} and {second} both are the driver {place}: remove one from the files, or leave its image \
         out with --image-rootfs IMAGE=none"
    )]
    TwoDrivers {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
        /// What they serve.
        place: &'static str,
    },
    /// Two containers are the same sidecar.
    #[error(
        "--deployment: {first} and {second} both are the {sidecar}: remove one from the files, or leave its image out with \
         --image-rootfs IMAGE=none"
    )]
    TwoSidecars {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
        /// The sidecar.
        sidecar: &'static str,
    },
    /// One program cannot stand for two programs of an image.
    #[error(
        "--image-rootfs {image}=exec: {first} and {second} start different programs of this image: give the folder of \
         its root file system instead, or remove one of them from the files"
    )]
    TwoPrograms {
        /// The image.
        image: String,
        /// A container.
        first: String,
        /// A container with another command.
        second: String,
    },
    /// The class that a test driver file names is not in the files.
    #[error(
        "StorageClass.FromExistingClassName {expected}: the --deployment files have no such class{}: add the file with it, \
         or use FromFile or FromName",
        if classes.is_empty() { String::new() } else { format!(", but {}", classes.join(", ")) }
    )]
    NoClass {
        /// The name of the class.
        expected: String,
        /// The classes of the files.
        classes: Vec<String>,
    },
    /// A declared sidecar that is not in the files.
    #[error(
        "--deployment-sidecar {container}=..: no workload of the --deployment files has a container of this name; they \
         have {}",
        containers.join(", ")
    )]
    NoContainer {
        /// The container.
        container: String,
        /// Those of the files.
        containers: Vec<String>,
    },
    /// Two CSIDriver objects.
    #[error("--deployment: the files have CSIDriver {0} and {1}: a run has one driver, remove the other one")]
    TwoCsiDrivers(String, String),
}

/// A field that is not supported, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--deployment: {place}: {problem}")]
pub struct Unsupported {
    /// Where.
    pub(super) place: Place,
    /// What, and the remedy.
    pub(super) problem: Problem,
}

/// A field of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(String);

impl Place {
    /// A field of a container.
    pub(super) fn container(workload: &Workload, container: &str, field: impl fmt::Display) -> Self {
        Self(format!("{}, container {container}, {field}", workload.title()))
    }

    /// A field of a pod.
    pub(super) fn pod(workload: &Workload, field: impl fmt::Display) -> Self {
        Self(format!("{}, {field}", workload.title()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The container has no image.
    NoImage,
    /// Nothing stands for the image.
    NoStandIn { image: String },
    /// The folder has no such program.
    NoProgram { folder: PathBuf, program: String },
    /// A host's program cannot stand for a shell.
    Shell { image: String, shell: String },
    /// A host's program does not exist.
    NoHostProgram { image: String, program: String },
    /// A ConfigMap that is not in the files.
    NoConfigMap(String),
    /// A Secret that is not in the files.
    NoSecret(String),
    /// A key that the object does not have.
    AbsentKey { of: String, key: String },
    /// A variable of a file that an init container writes.
    FileKeyRef,
    /// A field of a pod that virtual nodes do not have.
    FieldRef(String),
    /// A field of a pod that a file cannot have.
    FieldInFile(String),
    /// A resource of a container that has no value.
    ResourceField(ResourceFieldError),
    /// A source of a projected volume.
    ProjectedSource(&'static str),
    /// A path below a volume that is not known before the program starts.
    SubPath(String),
    /// A volume of another kind.
    Volume,
    /// A volume that the pod does not have.
    NoVolume,
    /// The ServiceAccount is not in the files.
    NoAccount(String),
}

impl Problem {
    pub(super) fn absent_data(is_secret: bool, title: String) -> Self {
        if is_secret { Self::NoSecret(title) } else { Self::NoConfigMap(title) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoImage => f.write_str("the container has no image: add it to the manifest"),
            Self::NoStandIn { image } => write!(f, "nothing stands for {image}: add --image-rootfs for it"),
            Self::NoProgram { folder, program } => write!(
                f,
                "{} has no {program}: check the folder, or use --image-rootfs IMAGE=exec:PROGRAM",
                folder.display()
            ),
            Self::Shell { image, shell } => write!(
                f,
                "the container starts {shell}, for which the program of --image-rootfs {image}=exec: cannot stand: \
                 give the folder of the image's root file system, leave its containers out with {image}=none, or replace the \
                 script in the manifest"
            ),
            Self::NoHostProgram { image, program } => {
                write!(f, "--image-rootfs {image}=exec:{program}: there is no such file: check the path")
            }
            Self::NoConfigMap(name) => write!(f, "no file has ConfigMap {name}: add it with --deployment FILE"),
            Self::NoSecret(name) => write!(f, "no file has Secret {name}: add it with --deployment FILE"),
            Self::AbsentKey { of, key } => write!(f, "{of} has no key {key} with text: add it"),
            Self::FileKeyRef => f.write_str(
                "fileKeyRef has no value before the init containers run, and the commands of virtual nodes are known before \
                 that: write the value, use a ConfigMap or Secret, or set optional: true to leave the variable out",
            ),
            Self::FieldRef(path) => write!(
                f,
                "fieldRef {path} has no value on virtual nodes: write a value, or use spec.nodeName, \
                 spec.serviceAccountName, metadata.name, metadata.namespace, metadata.labels['KEY'], status.podIP or \
                 status.hostIP"
            ),
            Self::FieldInFile(path) => write!(
                f,
                "fieldRef {path} has no value in a file on virtual nodes, which share the volumes: use a variable \
                 (env), or metadata.labels, metadata.annotations or metadata.namespace"
            ),
            Self::ResourceField(error) => write!(
                f,
                "resourceFieldRef: {error}: use a container of the pod, and cpu, memory, ephemeral-storage or \
                 hugepages-SIZE of its limits or requests"
            ),
            Self::ProjectedSource(source) => write!(
                f,
                "{source} is not supported in projected volumes on virtual nodes, only configMap, secret, downwardAPI and \
                 serviceAccountToken: write a ConfigMap or Secret with its content"
            ),
            Self::SubPath(path) => write!(
                f,
                "subPath {path:?} is not supported on virtual nodes: all nodes share the volume, so use a path without \
                 variables of the node and without \"..\""
            ),
            Self::Volume => f.write_str(
                "only hostPath, emptyDir, configMap, secret, projected and downwardAPI volumes exist on virtual nodes: use \
                 one of them",
            ),
            Self::NoVolume => f.write_str("the pod has no volume of this name: add it to volumes"),
            Self::NoAccount(account) => write!(
                f,
                "no file has ServiceAccount {account}: add the file with it and its roles with --deployment or \
                 --sidecar-rbac"
            ),
        }
    }
}
