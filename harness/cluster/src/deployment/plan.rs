//! What a run starts for a vendor's manifests: which container is the driver, which is a sidecar, and their commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use claimcheck_node::image_reference::last_component;
use k8s_openapi::api::{
    core::v1::Container,
    storage::v1::{CSIDriver, StorageClass},
};
use serde_json::{Value, json};

use super::{
    DeploymentObjects, DriverDeployment,
    command::{self, Part},
    environment::{self, Resources},
    error::{Place, PlanError, Problem, Unsupported},
    files::Link,
    idle::Idle,
    image::{self, ImageRootfs, StandIn},
    manifests::{Manifests, Workload, WorkloadKind},
    paths::{Location, Mounts, is_below},
    unpack::Unpacked,
};
use crate::{
    driver_command::DriverCommand,
    sidecars::{
        self, Account, InitProgram, Sidecar, StockSidecars,
        plan::{Placement, Replaceable, Role, additional_name},
    },
};

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// What a plan depends on.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub manifests: &'a Manifests,
    pub images: &'a [ImageRootfs],
    /// The images of the container engine, by reference.
    pub unpacked: &'a BTreeMap<String, Unpacked>,
    /// The objects of `--sidecar-rbac`.
    pub roles: &'a [Value],
    /// The resources of a virtual node.
    pub allocatable: &'a Resources,
    /// Whether a path exists on this machine.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// The place of a driver's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Service {
    /// On every node.
    Node,
    /// Once.
    Controller,
}

/// Plans the run of a vendor's manifests.
///
/// # Errors
/// [`PlanError`], which names the document, the container and the field, and the remedy.
pub(super) fn plan(world: World<'_>) -> Result<DriverDeployment, PlanError> {
    let manifests = world.manifests;
    let mut idle = Idle::default();
    idle.of_manifests(manifests);
    let all = parts(world, &mut idle)?;
    one_program_per_image(&all)?;
    let (init_parts, parts): (Vec<_>, Vec<_>) = all.into_iter().partition(|part| part.is_init);
    let sockets = command::sockets(&parts, |part| service(part.workload));
    let (driver, controller) = drivers(&parts, &sockets)?;
    let words = |part: &Part<'_>| command::words(part, &sockets, world.exists);
    let exec = |at: usize| words(&parts[at]).map(DriverCommand::Exec);

    let accounts_of_pods = default_accounts(parts.iter().chain(&init_parts));
    let given = manifests.applied.iter().chain(world.roles);
    let objects: Vec<Value> = given.chain(&accounts_of_pods).cloned().collect();
    let accounts = sidecars::accounts(&objects);
    let mut names: BTreeSet<String> = Replaceable::ALL.map(|known| known.name().to_owned()).into();
    let mut programs = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if at == driver || Some(at) == controller {
            continue;
        }
        if let Some(kind) = part.kind
            && !runs(part, kind, &parts, &mut idle)?
        {
            continue;
        }
        let (role, name) = match part.kind {
            Some(kind) => (Role::Replaces(kind), kind.name().to_owned()),
            None => {
                let name = additional_name(&part.container.name, &names);
                names.insert(name.clone());
                let placement = match part.workload.kind {
                    WorkloadKind::DaemonSet => Placement::EveryNode,
                    WorkloadKind::Deployment | WorkloadKind::StatefulSet => Placement::FirstNode,
                };
                (Role::Additional(placement), name)
            }
        };
        let account = match part.kind {
            Some(Replaceable::Registrar | Replaceable::LivenessProbe) => None,
            Some(_) | None => Some(account(part.workload, &accounts)?),
        };
        programs.push((Sidecar::planned(name, role, words(part)?), account));
    }
    let mut init = Vec::new();
    for part in &init_parts {
        let name = format!("init-{}", additional_name(&part.container.name, &names));
        names.insert(name.trim_start_matches("init-").to_owned());
        let placement = match service(part.workload) {
            Service::Node => Placement::EveryNode,
            Service::Controller => Placement::FirstNode,
        };
        let sidecar = Sidecar::planned(name, Role::Additional(placement), words(part)?);
        init.push(InitProgram { sidecar, account: account(part.workload, &accounts)? });
    }
    let driver_account = account(parts[driver].workload, &accounts)?;
    let controller_account =
        controller.map(|controller| account(parts[controller].workload, &accounts)).transpose()?;
    let (class_parameters, csi_driver) = (class_parameters(manifests, &mut idle), csi_driver(manifests)?);
    let every_part: Vec<&Part<'_>> = parts.iter().chain(&init_parts).collect();
    // Only drivers and init containers have directories with the secrets of their pods.
    let drivers = [Some(driver), controller].map(|at| at.map(|at| parts[at].workload));
    let has_secrets = |part: &Part<'_>| {
        part.is_init || drivers.into_iter().flatten().any(|workload| std::ptr::eq(workload, part.workload))
    };
    let volumes = volumes(&every_part, &sockets, world.exists, &has_secrets, &mut idle);
    Ok(DriverDeployment {
        driver: exec(driver)?,
        controller: controller.map(exec).transpose()?,
        sidecars: StockSidecars::planned(programs, objects),
        class_parameters,
        objects: DeploymentObjects {
            csi_driver,
            driver_account: Some(driver_account),
            controller_account,
            init,
            ..volumes
        },
        warning: idle.warning(),
    })
}

/// The containers, with their images, and whether they run before the others of their pods.
fn containers(manifests: &Manifests) -> Result<Vec<(&Workload, &Container, &str, bool)>, PlanError> {
    let mut containers = Vec::new();
    for workload in manifests.workloads.iter().filter(|workload| !workload.is_for_windows()) {
        let init = workload.init_containers().map(|container| (container, true));
        for (container, is_init) in init.chain(workload.containers().map(|container| (container, false))) {
            let Some(image) = container.image.as_deref().filter(|image| !image.is_empty()) else {
                return Err(unsupported(workload, container, "image", Problem::NoImage));
            };
            containers.push((workload, container, image, is_init));
        }
    }
    Ok(containers)
}

/// The images that the container engine must provide.
///
/// # Errors
/// A container has no image, or the options do not fit the images.
pub(super) fn of_engine<'a>(
    manifests: &'a Manifests,
    options: &[ImageRootfs],
) -> Result<Vec<&'a str>, PlanError> {
    let images = containers(manifests)?.into_iter().map(|(_, _, image, _)| image).collect();
    let chosen = image::choose(options, &images)?;
    let is_of_engine = |image: &&str| chosen.get(image).is_some_and(|stand_in| **stand_in == StandIn::Engine);
    Ok(images.iter().copied().filter(is_of_engine).collect())
}

/// The containers that have a program, with their variables and mounts.
fn parts<'a>(world: World<'a>, idle: &mut Idle) -> Result<Vec<Part<'a>>, PlanError> {
    let containers = containers(world.manifests)?;
    let images = containers.iter().map(|(_, _, image, _)| *image).collect();
    let chosen = image::choose(world.images, &images)?;
    let mut parts = Vec::new();
    let missing = containers.iter().filter(|(_, _, image, _)| !chosen.contains_key(image));
    let missing = missing.map(|(workload, container, image, _)| {
        (*image, format!("container {} of {}", container.name, workload.title()))
    });
    image::check_missing(missing, &images)?;
    for (workload, container, image, is_init) in containers {
        let Some(stand_in) = chosen.get(image).copied() else { continue };
        if *stand_in == StandIn::Nothing {
            continue;
        }
        let mut variables = environment::variables(world.manifests, world.allocatable, workload, container)?;
        let unpacked = world.unpacked.get(image).filter(|_| *stand_in == StandIn::Engine);
        if let Some(unpacked) = unpacked {
            variables.add_of_image(&unpacked.variables);
        }
        let mounts = Mounts::of((world.manifests, world.allocatable), workload, container, &variables)?;
        idle.of_container(workload, container);
        let kind = Replaceable::of_image(last_component(image)).filter(|_| !is_init);
        parts.push(Part { workload, container, image, stand_in, unpacked, kind, is_init, variables, mounts });
    }
    Ok(parts)
}

fn unsupported(workload: &Workload, container: &Container, field: &str, problem: Problem) -> PlanError {
    let place = Place::container(workload, &container.name, field);
    PlanError::Unsupported(Unsupported { place, problem })
}

/// Checks that no program stands for two programs of one image.
fn one_program_per_image(parts: &[Part<'_>]) -> Result<(), PlanError> {
    let mut first_of: BTreeMap<&str, &Part<'_>> = BTreeMap::new();
    for part in parts {
        match part.stand_in {
            StandIn::Folder(_) | StandIn::Engine | StandIn::Nothing => continue,
            StandIn::Program(_) => {}
        }
        let first = first_of.entry(part.image).or_insert(part);
        if first.entrypoint() != part.entrypoint() {
            return Err(PlanError::TwoPrograms {
                image: part.image.to_owned(),
                first: first.title(),
                second: part.title(),
            });
        }
    }
    Ok(())
}

/// The drivers: of the nodes, and the separate controller, if any. In each workload it is the container that passes the
/// CSI socket to its program as an endpoint, else the one that mentions the socket, except for clients.
fn drivers(parts: &[Part<'_>], sockets: &BTreeSet<Location>) -> Result<(usize, Option<usize>), PlanError> {
    use command::Reference::{Endpoint, Mention};
    let found = |wanted: command::Reference, workload: &Workload| -> Vec<usize> {
        let is_wanted = |part: &Part<'_>| {
            std::ptr::eq(part.workload, workload) && command::reference(part, sockets) == wanted
        };
        (0..parts.len()).filter(|at| is_wanted(&parts[*at])).collect()
    };
    let (mut node, mut controller): (Option<usize>, Option<usize>) = (None, None);
    let mut seen: Vec<&Workload> = Vec::new();
    for part in parts {
        if seen.iter().any(|workload| std::ptr::eq(*workload, part.workload)) {
            continue;
        }
        seen.push(part.workload);
        let mut candidates = found(Endpoint, part.workload);
        if candidates.is_empty() {
            candidates = found(Mention, part.workload);
        }
        let service = service(part.workload);
        for at in candidates {
            let (slot, place) = match service {
                Service::Node => (&mut node, "of the nodes"),
                Service::Controller => (&mut controller, "of the controller"),
            };
            if let Some(first) = *slot {
                let (first, second) = (parts[first].title(), parts[at].title());
                return Err(PlanError::TwoDrivers { first, second, place });
            }
            *slot = Some(at);
        }
    }
    match (node, controller) {
        (Some(node), controller) => Ok((node, controller)),
        (None, Some(controller)) => Err(PlanError::NoNodeDriver(parts[controller].title())),
        (None, None) => Err(PlanError::NoDriver),
    }
}

/// What the driver of a workload serves: a pod with a registrar is one of a node.
fn service(workload: &Workload) -> Service {
    let is_registrar = |container: &Container| {
        let name = last_component(container.image.as_deref().unwrap_or_default());
        Replaceable::of_image(name) == Some(Replaceable::Registrar)
    };
    match workload.kind {
        WorkloadKind::DaemonSet => Service::Node,
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
            if workload.containers().any(is_registrar) {
                Service::Node
            } else {
                Service::Controller
            }
        }
    }
}

/// Whether a sidecar runs: of those that run on every node, that of the controller's pod does not if the pods of nodes
/// have one.
fn runs(part: &Part<'_>, kind: Replaceable, parts: &[Part<'_>], idle: &mut Idle) -> Result<bool, PlanError> {
    let of_node = |part: &Part<'_>| service(part.workload) == Service::Node;
    let others = || {
        let same = parts.iter().filter(|other| other.kind == Some(kind));
        same.filter(|other| !std::ptr::eq(*other, part))
    };
    match Role::Replaces(kind).placement() {
        Placement::EveryNode => {
            if !of_node(part) && others().any(of_node) {
                idle.add("a second sidecar of a kind", part.title());
                return Ok(false);
            }
            if let Some(other) = others().find(|other| of_node(other) == of_node(part)) {
                return Err(two_sidecars(part, other, kind));
            }
        }
        Placement::FirstNode => {
            if let Some(other) = others().next() {
                return Err(two_sidecars(part, other, kind));
            }
        }
    }
    Ok(true)
}

fn two_sidecars(part: &Part<'_>, other: &Part<'_>, kind: Replaceable) -> PlanError {
    PlanError::TwoSidecars { first: part.title(), second: other.title(), sidecar: kind.name() }
}

/// The service account of a pod: without a name the namespace's `default`, which exists in every namespace.
fn account(workload: &Workload, available: &BTreeSet<Account>) -> Result<Account, PlanError> {
    let name = workload.account_name().unwrap_or(DEFAULT_ACCOUNT);
    let account = Account { namespace: workload.namespace.clone(), name: name.to_owned() };
    if name == DEFAULT_ACCOUNT || available.contains(&account) {
        return Ok(account);
    }
    let place = Place::pod(workload, "serviceAccountName");
    Err(PlanError::Unsupported(Unsupported { place, problem: Problem::NoAccount(account.to_string()) }))
}

/// The default accounts of the pods: no controller of the embedded cluster creates them.
fn default_accounts<'a>(parts: impl Iterator<Item = &'a Part<'a>>) -> Vec<Value> {
    let unnamed =
        parts.filter(|part| part.workload.account_name().is_none_or(|name| name == DEFAULT_ACCOUNT));
    let namespaces: BTreeSet<&str> = unnamed.map(|part| part.workload.namespace.as_str()).collect();
    let account = |namespace| {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": DEFAULT_ACCOUNT, "namespace": namespace },
        })
    };
    namespaces.into_iter().map(account).collect()
}

/// The parameters of the default class, else of the first one.
fn class_parameters(manifests: &Manifests, idle: &mut Idle) -> BTreeMap<String, String> {
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(claimcheck_model::DEFAULT_CLASS))
            .is_some_and(|text| text == "true")
    };
    let classes = &manifests.classes;
    let Some(chosen) = classes.iter().find(is_default).or(classes.first()) else { return BTreeMap::new() };
    for other in classes.iter().filter(|class| !std::ptr::eq(*class, chosen)) {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        idle.add("a second StorageClass", format!("StorageClass {name}"));
    }
    chosen.parameters.clone().unwrap_or_default()
}

fn csi_driver(manifests: &Manifests) -> Result<Option<CSIDriver>, PlanError> {
    let name = |at: usize| manifests.csi_drivers[at].metadata.name.clone().unwrap_or_default();
    match manifests.csi_drivers.len() {
        0 => Ok(None),
        1 => Ok(manifests.csi_drivers.first().cloned()),
        _ => Err(PlanError::TwoCsiDrivers(name(0), name(1))),
    }
}

/// Where pods have their service account, and the directories that each driver and init container has of its own.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SECRETS: [&str; 2] = ["/var/run/secrets/", "/run/secrets/"];

/// The folders, files and links of all mounts. A link replaces a path that programs have compiled in; it is possible
/// only if the machine has no directory of the path's first component, since that one is the host's.
fn volumes(
    parts: &[&Part<'_>],
    sockets: &BTreeSet<Location>,
    exists: &dyn Fn(&Path) -> bool,
    has_secrets: &dyn Fn(&Part<'_>) -> bool,
    idle: &mut Idle,
) -> DeploymentObjects {
    const NO_PATH: &str = "a volume at a path that no argument contains and that cannot be created";
    let mut objects = DeploymentObjects::default();
    let has_socket = |folder: &str| {
        sockets.iter().any(|socket| match socket {
            Location::State(path) => is_below(path, folder),
            Location::Node(_) | Location::Image { .. } => false,
        })
    };
    for part in parts {
        for file in &part.mounts.files {
            if !objects.files.contains(file) {
                objects.files.push(file.clone());
            }
        }
        for token in &part.mounts.tokens {
            if !objects.tokens.contains(token) {
                objects.tokens.push(token.clone());
            }
        }
        for (link, is_folder) in part.mounts.links() {
            if has_socket(&link.to) {
                continue;
            }
            if is_folder && !objects.folders.contains(&link.to) {
                objects.folders.push(link.to.clone());
            }
            // The service account is there in any case.
            if is_below(&link.at, SERVICE_ACCOUNT) {
                continue;
            }
            if let Some(below) = SECRETS.iter().find_map(|folder| link.at.strip_prefix(folder)) {
                let below = Link { at: below.to_owned(), to: link.to };
                let other = objects.secret_links.iter().find(|other| other.at == below.at);
                match other {
                    Some(other) if other.to == below.to => {}
                    None if has_secrets(part) => objects.secret_links.push(below),
                    Some(_) | None if part.mentions(&link.at) => {}
                    Some(_) | None => idle.add(NO_PATH, format!("{} of {}", link.at, part.title())),
                }
                continue;
            }
            let top = link.at.trim_start_matches('/').split('/').next().unwrap_or_default();
            let is_free = !top.is_empty() && !exists(&Path::new("/").join(top));
            let other = objects.links.iter().find(|other| other.at == link.at);
            match other {
                Some(other) if other.to == link.to => {}
                None if is_free => objects.links.push(link),
                Some(_) | None if part.mentions(&link.at) => {}
                Some(_) | None => idle.add(NO_PATH, format!("{} of {}", link.at, part.title())),
            }
        }
    }
    objects.links.sort_by_key(|link| link.at.len());
    objects
}
