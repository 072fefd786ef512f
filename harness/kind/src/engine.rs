//! The container engine's program: `docker`, `podman` or `nerdctl`, as required for kind clusters.

use std::{path::Path, time::Duration};

use super::{
    answers::{Container, DockerInfo, Info, PodmanContainer, PodmanInfo},
    cli::{lines, words},
    config::DATA_DIR,
    node_images::{self, NodeImageError, Selection},
    program::{Program, ProgramError, Tools},
    version::Version,
};

/// The label that kind sets on the containers of a cluster; its value is the cluster's name
/// (`pkg/cluster/internal/providers/docker/constants.go`).
pub const CLUSTER_LABEL: &str = "io.x-k8s.kind.cluster";

/// The network that all clusters of kind share.
pub const NETWORK: &str = "kind";

/// The timeout of a query.
const QUERY: Duration = Duration::from_secs(60);
/// The timeout of a change.
const CHANGE: Duration = Duration::from_secs(180);
/// The timeout of building or saving an image.
const LONG: Duration = Duration::from_secs(1800);

/// The family of an engine's program: their output formats differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Docker,
    Podman,
    Nerdctl,
}

/// A container engine, used through its program.
#[derive(Clone, Debug)]
pub struct Engine {
    program: Program,
    family: Family,
}

/// The container engine was not found.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A `KIND_EXPERIMENTAL_PROVIDER` that kind does not support.
    #[error("KIND_EXPERIMENTAL_PROVIDER={0:?} is not supported: use docker, podman, nerdctl or finch")]
    Unknown(String),
    /// Its program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Engine {
    /// The engine requested by name; otherwise the first of docker, nerdctl and podman that is installed,
    /// which is kind's own order (`pkg/cluster/provider.go`).
    ///
    /// # Errors
    /// None is installed, or kind does not support the requested one.
    pub fn find(tools: &Tools) -> Result<Self, EngineError> {
        let named = |name: &str, family| {
            let remedy = "install it, or set another engine with KIND_EXPERIMENTAL_PROVIDER";
            let program = tools.find(name, remedy)?;
            Ok(Self { program, family })
        };
        match tools.provider() {
            Some("docker") => named("docker", Family::Docker),
            Some("podman") => named("podman", Family::Podman),
            Some(name @ ("nerdctl" | "nerdctl.lima" | "finch")) => named(name, Family::Nerdctl),
            Some(other) => Err(EngineError::Unknown(other.to_owned())),
            None => {
                let order =
                    [("docker", Family::Docker), ("nerdctl", Family::Nerdctl), ("podman", Family::Podman)];
                let found = order.into_iter().find_map(|(name, family)| named(name, family).ok());
                let remedy = "install Docker (https://docs.docker.com/engine/install/), podman or nerdctl";
                found.ok_or_else(|| {
                    ProgramError::Missing { program: "a container engine".to_owned(), remedy }.into()
                })
            }
        }
    }

    /// Its program's name, as in `KIND_EXPERIMENTAL_PROVIDER`.
    pub fn name(&self) -> &str {
        self.program.name()
    }

    pub(super) fn is_docker(&self) -> bool {
        self.family == Family::Docker
    }

    /// `info`: whether it responds, and its capabilities.
    ///
    /// # Errors
    /// It does not respond.
    pub async fn info(&self) -> Result<Info, ProgramError> {
        let format = match self.family {
            Family::Podman => "json",
            Family::Docker | Family::Nerdctl => "{{json .}}",
        };
        let args = ["info", "--format", format];
        let answer = self.program.call(&args, QUERY).await?;
        let strange = |_| self.program.strange(&args, &answer, "its state as JSON");
        Ok(match self.family {
            Family::Podman => serde_json::from_str::<PodmanInfo>(&answer).map_err(strange)?.into(),
            Family::Docker | Family::Nerdctl => {
                serde_json::from_str::<DockerInfo>(&answer).map_err(strange)?.into()
            }
        })
    }

    /// `exec`: runs a command in a node and returns what it printed.
    ///
    /// # Errors
    /// The command fails, or the node is not running.
    pub async fn exec(&self, node: &str, command: &[&str]) -> Result<String, ProgramError> {
        self.program.call(&[&["exec", "--privileged", node], command].concat(), CHANGE).await
    }

    /// `restart`: ends all processes of a node at once, and starts it again.
    ///
    /// # Errors
    /// It does not exist, or does not start.
    pub async fn restart(&self, node: &str) -> Result<(), ProgramError> {
        self.program.call(&["restart", "--time", "0", node], CHANGE).await.map(drop)
    }

    /// `ps -a`: the containers of one kind cluster, or of all; including stopped ones.
    ///
    /// # Errors
    /// It does not respond.
    pub async fn containers(&self, cluster: Option<&str>) -> Result<Vec<Container>, ProgramError> {
        let label = cluster.map_or_else(
            || format!("label={CLUSTER_LABEL}"),
            |cluster| format!("label={CLUSTER_LABEL}={cluster}"),
        );
        match self.family {
            Family::Podman => Ok(self.list_json(&label).await?.into_iter().map(Into::into).collect()),
            Family::Docker | Family::Nerdctl => self.list(&["--filter", &label]).await,
        }
    }

    /// The containers of clusters created by claimcheck, on any machine or account: they mount its data folder,
    /// from their creation on.
    ///
    /// # Errors
    /// It does not respond.
    pub async fn marked(&self) -> Result<Vec<Container>, ProgramError> {
        let (label, volume) = (format!("label={CLUSTER_LABEL}"), format!("volume={DATA_DIR}"));
        match self.family {
            // Its filter supported only named volumes until 4.4 (podman#16019).
            Family::Podman => {
                let all = self.list_json(&label).await?.into_iter();
                Ok(all.filter(|one| one.mounts.iter().any(|at| at == DATA_DIR)).map(Into::into).collect())
            }
            Family::Docker | Family::Nerdctl => self.list(&["--filter", &label, "--filter", &volume]).await,
        }
    }

    async fn list(&self, filters: &[&str]) -> Result<Vec<Container>, ProgramError> {
        let format = format!("{{{{.Names}}}}|{{{{.Label \"{CLUSTER_LABEL}\"}}}}|{{{{.Status}}}}");
        let args = [&["ps", "-a"], filters, &["--format", &format]].concat();
        let answer = self.program.call(&args, QUERY).await?;
        let container = |line: &str| {
            let mut parts = line.splitn(3, '|');
            let (name, cluster, status) = (parts.next()?, parts.next()?, parts.next()?);
            // "Up 5 minutes", "Exited (137) 2 hours ago", "Created".
            let running = status.starts_with("Up");
            Some(Container { name: name.to_owned(), cluster: cluster.to_owned(), running })
        };
        let understood = lines(&answer).iter().map(|line| container(line)).collect::<Option<Vec<_>>>();
        understood.ok_or_else(|| self.program.strange(&args, &answer, "name|cluster|status"))
    }

    /// For podman: the template syntax for labels changed in versions 5 and 6.
    async fn list_json(&self, label: &str) -> Result<Vec<PodmanContainer>, ProgramError> {
        let args = ["ps", "-a", "--filter", label, "--format", "json"];
        let answer = self.program.call(&args, QUERY).await?;
        serde_json::from_str(&answer).map_err(|_| self.program.strange(&args, &answer, "containers as JSON"))
    }

    /// `rm -f -v`: removes containers with their anonymous volumes, running or not.
    ///
    /// # Errors
    /// One of them cannot be removed.
    pub async fn remove(&self, containers: &[String]) -> Result<(), ProgramError> {
        if containers.is_empty() {
            return Ok(());
        }
        let mut args = words(["rm", "-f", "-v"]);
        args.extend(containers.iter().map(Into::into));
        self.program.call(&args, CHANGE).await.map(drop)
    }

    /// Whether kind's network exists.
    ///
    /// # Errors
    /// The engine does not respond.
    pub async fn has_network(&self) -> Result<bool, ProgramError> {
        let answer = self.program.call(&["network", "ls", "--format", "{{.Name}}"], QUERY).await?;
        Ok(lines(&answer).iter().any(|name| name == NETWORK))
    }

    /// Removes kind's network if no kind cluster, including those of other users, has a container left; returns whether
    /// it did.
    ///
    /// # Errors
    /// The engine does not respond, or the network is in use by something else.
    pub async fn remove_unused_network(&self) -> Result<bool, ProgramError> {
        if !self.containers(None).await?.is_empty() || !self.has_network().await? {
            return Ok(false);
        }
        self.program.call(&["network", "rm", NETWORK], CHANGE).await.map(|_| true)
    }

    /// `build`: builds an image from a folder and a Dockerfile, with these build arguments.
    ///
    /// # Errors
    /// It fails.
    pub async fn build(
        &self,
        folder: &Path,
        dockerfile: &Path,
        tag: &str,
        build_args: &[(&str, &str)],
    ) -> Result<(), ProgramError> {
        let mut args = words(["build", "--tag", tag, "--file"]);
        args.push(dockerfile.into());
        for (name, value) in build_args {
            args.extend(words(["--build-arg", &format!("{name}={value}")]));
        }
        args.push(folder.into());
        self.program.call(&args, LONG).await.map(drop)
    }

    /// `save`: writes images to a tar file.
    ///
    /// # Errors
    /// The image does not exist, or the file cannot be written.
    pub async fn save(&self, images: &[&str], archive: &Path) -> Result<(), ProgramError> {
        let mut args = words(["save", "-o"]);
        args.push(archive.into());
        args.extend(images.iter().map(Into::into));
        self.program.call(&args, LONG).await.map(drop)
    }

    /// Saves an image under the name that pods use: without a registry it defaults to docker.io in Kubernetes,
    /// but to localhost in podman.
    ///
    /// # Errors
    /// As for [`Engine::save`].
    pub(super) async fn save_for_docker_io(&self, image: &str, archive: &Path) -> Result<(), ProgramError> {
        let full = in_full(image);
        if self.family != Family::Podman || full == image {
            return self.save(&[image], archive).await;
        }
        self.program.call(&["tag", image, &full], CHANGE).await?;
        let saved = self.save(&[&full], archive).await;
        self.program.call(&["untag", image, &full], CHANGE).await?;
        saved
    }

    /// `images`: the node images of these versions of Kubernetes.
    ///
    /// # Errors
    /// It does not respond, or has no image of a version.
    pub async fn node_images(
        &self,
        selected: &[Selection],
    ) -> Result<Vec<(Version, String)>, NodeImageError> {
        let args = ["images", "--format", "{{.Repository}}:{{.Tag}}", node_images::REPOSITORY];
        let images: Vec<String> = self.program.call(&args, QUERY).await?.lines().map(str::to_owned).collect();
        node_images::choose(selected, &images, self.name())
    }

    /// `image inspect`: the id of a local image.
    ///
    /// # Errors
    /// It has no image of this name.
    pub async fn image_id(&self, image: &str) -> Result<String, ProgramError> {
        let answer = self.program.call(&["image", "inspect", "-f", "{{ .Id }}", image], QUERY).await?;
        Ok(answer.trim().to_owned())
    }
}

/// The name of an image with its registry, as containerd resolves it (`distribution/reference/normalize.go`).
fn in_full(image: &str) -> String {
    match image.split_once('/') {
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => image.to_owned(),
        Some(_) => format!("docker.io/{image}"),
        None => format!("docker.io/library/{image}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_registry_are_docker_s() {
        let table = [
            ("claimcheck:dev", "docker.io/library/claimcheck:dev"),
            ("vendor/driver:v1", "docker.io/vendor/driver:v1"),
            ("localhost/claimcheck:dev", "localhost/claimcheck:dev"),
            ("registry:5000/driver", "registry:5000/driver"),
            ("quay.io/vendor/driver", "quay.io/vendor/driver"),
        ];
        for (image, full) in table {
            assert_eq!(in_full(image), full);
        }
    }
}
