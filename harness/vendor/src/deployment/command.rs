//! The command of a container on a virtual node: the program that stands for its image, with its arguments and
//! variables, in the placeholders of `--driver` and `--sidecar`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use claimcheck_node::image_reference::last_component;
use k8s_openapi::api::core::v1::Container;

use super::{
    environment::{Variable, Variables},
    error::{Place, Problem, Unsupported},
    flags,
    image::StandIn,
    manifests::Workload,
    paths::{Location, Mounts, is_below, paths},
    unpack::Unpacked,
};
use crate::sidecars::plan::Replaceable;

/// The socket that upstream's sidecars call by default (`RegisterCommonFlags` in csi-lib-utils/standardflags).
const DEFAULT_ADDRESS: &str = "/run/csi/socket";
/// Other programs of kubernetes-csi that call a driver.
const CLIENTS: [&str; 3] =
    ["csi-external-health-monitor-controller", "csi-external-health-monitor-agent", "csi-snapshot-metadata"];
/// Where images have their programs.
const DIRECTORIES: [&str; 7] = ["", "usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];
const SHELLS: [&str; 4] = ["sh", "bash", "ash", "dash"];

/// A container with a program.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub workload: &'a Workload,
    pub container: &'a Container,
    pub image: &'a str,
    pub stand_in: &'a StandIn,
    /// The image itself, if the container engine provides it.
    pub unpacked: Option<&'a Unpacked>,
    /// The sidecar, if it is one.
    pub kind: Option<Replaceable>,
    /// It has the flags of upstream's sidecar.
    pub is_upstream: bool,
    /// Where it runs.
    pub service: Service,
    /// Whether it ends before the other containers of its pod start.
    pub is_init: bool,
    pub variables: Variables,
    pub mounts: Mounts,
}

/// The place of a driver's process, and of the containers of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    /// On every node.
    Node,
    /// Once.
    Controller,
}

/// How a container that is no known sidecar refers to the CSI socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// It is a known sidecar, or calls the socket.
    Client,
    /// As an endpoint: `--endpoint`, `CSI_ENDPOINT`.
    Endpoint,
    /// In any other argument or variable.
    Mention,
    /// As the address that upstream's sidecars call (`--csi-address`); some drivers listen on it.
    Address,
    /// Not at all.
    Absent,
}

impl Part<'_> {
    /// For messages.
    pub(super) fn title(&self) -> String {
        format!("container {} of {}", self.container.name, self.workload.title())
    }

    /// The program that the manifest starts in place of the image's.
    pub(super) fn entrypoint(&self) -> Option<String> {
        let first = self.container.command.as_ref().and_then(|command| command.first());
        first.map(|first| self.variables.expand(first)).or_else(|| self.program_in_arguments())
    }

    /// The program of an image without an entrypoint, as the first argument: a path that ends with the image's name.
    fn program_in_arguments(&self) -> Option<String> {
        let has_command = self.container.command.as_ref().is_some_and(|command| !command.is_empty());
        let first = self.container.args.as_ref().and_then(|args| args.first()).filter(|_| !has_command)?;
        let path = Path::new(first).is_absolute().then(|| Path::new(first))?;
        let is_program = path.file_name().is_some_and(|name| name == last_component(self.image));
        is_program.then(|| first.clone())
    }

    /// The program, if it is known, and its arguments, with the container's own paths. Upstream:
    /// `ExpandContainerCommandAndArgs` in pkg/kubelet/container/helpers.go; the container runtime adds those of the
    /// image: its arguments only to its own entrypoint.
    fn command_line(&self) -> (Option<String>, Vec<String>) {
        let given = |words: &Option<Vec<String>>| -> Vec<String> {
            words.iter().flatten().map(|word| self.variables.expand(word)).collect()
        };
        let (mut command, mut args) = (given(&self.container.command), given(&self.container.args));
        if let Some(image) = self.unpacked.filter(|_| command.is_empty()) {
            command = image.entrypoint.clone();
            if args.is_empty() {
                args = image.arguments.clone();
            }
        }
        let is_image = self.unpacked.is_some();
        if !is_image && self.program_in_arguments().is_some() {
            command.push(args.remove(0));
        }
        let mut words = command.into_iter();
        let program = words.next();
        let mut rest = words.chain(args);
        // An image may have no entrypoint: then its first argument is the program.
        let program = if is_image { program.or_else(|| rest.next()) } else { program };
        (program, rest.collect())
    }

    /// What follows the program.
    fn arguments(&self) -> Vec<String> {
        self.command_line().1
    }

    /// Whether an argument or variable contains the path, or one below it.
    pub(super) fn mentions(&self, directory: &str) -> bool {
        let contains = |text: &str| paths(text).any(|path| is_below(path, directory));
        self.arguments().iter().any(|word| contains(word))
            || self.variables.set.iter().any(|variable| contains(&variable.value))
    }

    fn fail(&self, field: &str, problem: Problem) -> Unsupported {
        Unsupported { place: Place::container(self.workload, &self.container.name, field), problem }
    }
}

/// The CSI sockets: those that sidecars call, and the endpoints of the other containers. Of several endpoints of a service
/// only those that its sidecars call are CSI sockets, if there are any: a driver may have further ones.
pub(super) fn sockets(parts: &[Part<'_>]) -> BTreeSet<Location> {
    let (mut called, mut endpoints_of) = (BTreeSet::new(), BTreeMap::<Service, BTreeSet<Location>>::new());
    for part in parts {
        let arguments = part.arguments();
        let locate = |path: &str| part.mounts.locate(path);
        match part.kind.filter(|_| part.is_upstream) {
            Some(Replaceable::SnapshotController) => {}
            Some(
                Replaceable::Provisioner
                | Replaceable::Attacher
                | Replaceable::Resizer
                | Replaceable::Snapshotter
                | Replaceable::Registrar
                | Replaceable::LivenessProbe,
            ) => {
                let address = flags::value(&arguments, "csi-address").unwrap_or(DEFAULT_ADDRESS);
                called.extend(paths(address).map(locate));
            }
            None => {
                let is_socket = |path: &&str| path.ends_with(".sock") || path.ends_with("/socket");
                let of_part = endpoints(part, &arguments).filter(|(name, _)| is_endpoint(name));
                let found = of_part.flat_map(|(_, value)| paths(value).filter(is_socket).map(locate));
                endpoints_of.entry(part.service).or_default().extend(found);
            }
        }
    }
    let uncalled = endpoints_of.into_values().filter(|endpoints| endpoints.is_disjoint(&called));
    let uncalled: Vec<Location> = uncalled.flatten().collect();
    called.into_iter().chain(uncalled).collect()
}

/// Flags and variables with their values.
fn endpoints<'a>(part: &'a Part<'_>, arguments: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let variables = part.variables.set.iter();
    let variables = variables.map(|variable| (variable.name.as_str(), variable.value.as_str()));
    flags::named(arguments).into_iter().chain(variables)
}

pub(super) fn is_endpoint(name: &str) -> bool {
    name.to_ascii_lowercase().contains("endpoint")
}

/// How a container refers to the CSI socket.
pub(super) fn reference(part: &Part<'_>, sockets: &BTreeSet<Location>) -> Reference {
    let arguments = part.arguments();
    let mentions = |text: &str| paths(text).any(|path| sockets.contains(&part.mounts.locate(path)));
    let calls = |word: &String| word.contains("unix-connect:");
    // Ceph's images probe the driver with the driver's own program.
    let is_probe = part.container.name.contains("liveness");
    let is_client = part.kind.is_some()
        || is_probe
        || CLIENTS.contains(&last_component(part.image))
        || arguments.iter().any(calls);
    if is_client {
        return Reference::Client;
    }
    if endpoints(part, &arguments).any(|(name, value)| is_endpoint(name) && mentions(value)) {
        return Reference::Endpoint;
    }
    if flags::value(&arguments, "csi-address").is_some_and(mentions) {
        return Reference::Address;
    }
    let is_mentioned = arguments.iter().any(|word| mentions(word))
        || part.variables.set.iter().any(|variable| mentions(&variable.value));
    if is_mentioned { Reference::Mention } else { Reference::Absent }
}

/// Program and arguments, with placeholders; env(1) sets the variables, as in `--driver 'exec:env NAME=VALUE ..'`.
///
/// # Errors
/// The program does not exist, or the container depends on something that virtual nodes do not have.
pub(super) fn words(
    part: &Part<'_>,
    sockets: &BTreeSet<Location>,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<Vec<String>, Unsupported> {
    let program = program(part, exists)?;
    let arguments = part.arguments();
    let mut arguments: Vec<String> =
        arguments.iter().map(|word| part.mounts.replace(word, sockets)).collect();
    let variables: Vec<String> = (part.variables.set.iter())
        .map(|Variable { name, value, .. }| format!("{name}={}", part.mounts.replace(value, sockets)))
        .collect();
    match part.kind.filter(|_| part.is_upstream) {
        Some(kind) => flags::adapt(kind, &mut arguments),
        None => flags::free_ports(&mut arguments),
    }
    let env = (!variables.is_empty()).then(|| "env".to_owned());
    Ok(env.into_iter().chain(variables).chain(program).chain(arguments).collect())
}

/// The program that stands for the image, with its first arguments.
fn program(part: &Part<'_>, exists: &dyn Fn(&Path) -> bool) -> Result<Vec<String>, Unsupported> {
    let image = || part.image.to_owned();
    let entrypoint = part.entrypoint();
    match part.stand_in {
        StandIn::Nothing => Err(part.fail("image", Problem::NoStandIn { image: image() })),
        StandIn::Program(words) => {
            let name =
                |program: &String| Path::new(program).file_name().map(|name| name.display().to_string());
            let shell = entrypoint
                .filter(|program| name(program).is_some_and(|program| SHELLS.contains(&program.as_str())));
            if let Some(shell) = shell {
                return Err(part.fail("command", Problem::Shell { image: image(), shell }));
            }
            match words.first() {
                Some(program) if program.contains('/') && !exists(Path::new(program)) => {
                    let problem = Problem::NoHostProgram { image: image(), program: program.clone() };
                    Err(part.fail("image", problem))
                }
                Some(_) | None => Ok(words.clone()),
            }
        }
        StandIn::Folder(_) | StandIn::Engine => {
            let folder = match (part.stand_in, part.unpacked) {
                (StandIn::Folder(folder), _) => folder,
                (_, Some(unpacked)) => &unpacked.folder,
                (_, None) => return Err(part.fail("image", Problem::NoStandIn { image: image() })),
            };
            let (field, expected) = match (entrypoint, part.command_line().0) {
                (Some(entrypoint), _) => ("command", entrypoint),
                (None, Some(of_image)) => ("image", of_image),
                (None, None) => ("image", last_component(part.image).to_owned()),
            };
            let relative = expected.trim_start_matches('/');
            let candidates: Vec<PathBuf> = match expected.contains('/') {
                true => vec![folder.join(relative)],
                false => DIRECTORIES.iter().map(|directory| folder.join(directory).join(relative)).collect(),
            };
            match candidates.into_iter().find(|path| exists(path)) {
                Some(path) => Ok(vec![path.display().to_string()]),
                None => {
                    let problem = Problem::NoProgram { folder: folder.clone(), program: expected };
                    Err(part.fail(field, problem))
                }
            }
        }
    }
}
