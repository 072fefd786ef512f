//! The container engine's program: `docker`, `podman` or `nerdctl`, as far as clusters of kind need it.

use std::{path::Path, time::Duration};

use super::{
    answers::{Container, DockerInfo, Info, PodmanContainer, PodmanInfo},
    cli::{lines, words},
    config::DATA_DIR,
    program::{Program, ProgramError, Tools},
};

/// The label that kind puts on the containers of a cluster; its value is the cluster's name
/// (`pkg/cluster/internal/providers/docker/constants.go`).
pub const CLUSTER_LABEL: &str = "io.x-k8s.kind.cluster";

/// The network that all clusters of kind share.
pub const NETWORK: &str = "kind";

/// What a question may take.
const QUERY: Duration = Duration::from_secs(60);
/// What a change may take.
const CHANGE: Duration = Duration::from_secs(180);
/// What a build or a saved image may take.
const LONG: Duration = Duration::from_secs(1800);

/// Which family of programs an engine's is of: they differ in what they print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Docker,
    Podman,
    Nerdctl,
}

/// A container engine, through its program.
#[derive(Clone, Debug)]
pub struct Engine {
    program: Program,
    family: Family,
}

/// A `KIND_EXPERIMENTAL_PROVIDER` that kind would ignore.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// kind knows none of this name.
    #[error("KIND_EXPERIMENTAL_PROVIDER={0:?} is not known: use docker, podman, nerdctl or finch")]
    Unknown(String),
    /// Its program is not there.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Engine {
    /// The engine that is asked for by name; otherwise the first of docker, nerdctl and podman that is there,
    /// which is kind's own order (`pkg/cluster/provider.go`).
    ///
    /// # Errors
    /// There is none, or kind knows none of this name.
    pub fn find(tools: &Tools) -> Result<Self, EngineError> {
        let named = |name: &str, family| {
            let remedy = "install it, or name another engine by KIND_EXPERIMENTAL_PROVIDER";
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

    /// Its program's name, as `KIND_EXPERIMENTAL_PROVIDER` has it.
    pub fn name(&self) -> &str {
        self.program.name()
    }

    pub(super) fn is_docker(&self) -> bool {
        self.family == Family::Docker
    }

    /// `info`: whether it answers, and what it can.
    ///
    /// # Errors
    /// It does not answer.
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
    /// The command fails, or the node does not run.
    pub async fn exec(&self, node: &str, command: &[&str]) -> Result<String, ProgramError> {
        self.program.call(&[&["exec", "--privileged", node], command].concat(), CHANGE).await
    }

    /// `ps -a`: the containers of one cluster of kind, or of all; also those that do not run.
    ///
    /// # Errors
    /// It does not answer.
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

    /// The containers of clusters that we have made, on whatever machine or account: they bear our data folder,
    /// from the moment that they exist.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn marked(&self) -> Result<Vec<Container>, ProgramError> {
        let (label, volume) = (format!("label={CLUSTER_LABEL}"), format!("volume={DATA_DIR}"));
        match self.family {
            // Its filter took only volumes with a name until 4.4 (podman#16019).
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

    /// As podman has it: how a template gets at a label has changed with its versions 5 and 6.
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

    /// Whether kind's network is there.
    ///
    /// # Errors
    /// The engine does not answer.
    pub async fn has_network(&self) -> Result<bool, ProgramError> {
        let answer = self.program.call(&["network", "ls", "--format", "{{.Name}}"], QUERY).await?;
        Ok(lines(&answer).iter().any(|name| name == NETWORK))
    }

    /// Removes kind's network if no cluster, of whoever it may be, has a container left; says whether it did.
    ///
    /// # Errors
    /// The engine does not answer, or the network is in use by something else.
    pub async fn remove_unused_network(&self) -> Result<bool, ProgramError> {
        if !self.containers(None).await?.is_empty() || !self.has_network().await? {
            return Ok(false);
        }
        self.program.call(&["network", "rm", NETWORK], CHANGE).await.map(|_| true)
    }

    /// `build`: makes an image of a folder and a Dockerfile, with these build arguments.
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
    /// There is no such image, or the file cannot be written.
    pub async fn save(&self, images: &[&str], archive: &Path) -> Result<(), ProgramError> {
        let mut args = words(["save", "-o"]);
        args.push(archive.into());
        args.extend(images.iter().map(Into::into));
        self.program.call(&args, LONG).await.map(drop)
    }

    /// Saves an image under the name by which pods find it: one without a registry is docker.io's to Kubernetes,
    /// and localhost's to podman.
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

    /// `image inspect`: the id of an image that the engine has.
    ///
    /// # Errors
    /// It has none of this name.
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
