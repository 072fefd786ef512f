//! What a run starts for a vendor's manifests: which container is the driver, which is a sidecar, and their commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use k8s_openapi::api::{
    core::v1::Container,
    storage::v1::{CSIDriver, StorageClass},
};
use serde_json::{Value, json};

use super::{
    DeploymentObjects, DriverDeployment,
    command::{self, Part, Service},
    environment::{self, Resources},
    error::{Place, PlanError, Problem, Unsupported},
    files::Link,
    idle::Idle,
    image::{self, ImageRootfs, StandIn},
    kinds::{self, DeploymentSidecar, Known},
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
    /// The containers that are declared to be sidecars.
    pub sidecars: &'a [DeploymentSidecar],
    /// The storage class to use.
    pub class: Option<&'a str>,
    /// The images of the container engine, by reference.
    pub unpacked: &'a BTreeMap<String, Unpacked>,
    /// The objects of `--sidecar-rbac`.
    pub roles: &'a [Value],
    /// The resources of a virtual node.
    pub allocatable: &'a Resources,
    /// Whether a path exists on this machine.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// Plans the run of a vendor's manifests.
///
/// # Errors
/// [`PlanError`], which names the document, the container and the field, and the remedy.
pub(super) fn plan(world: World<'_>) -> Result<DriverDeployment, PlanError> {
    let manifests = world.manifests;
    let mut idle = Idle::default();
    idle.add_manifests(manifests);
    check_sidecars(world)?;
    if manifests.workloads.is_empty() && world.images.is_empty() {
        return objects_alone(world, idle);
    }
    let Parts { parts: all, left_out } = parts(world, &mut idle)?;
    one_program_per_image(&all)?;
    let (init_parts, parts): (Vec<_>, Vec<_>) = all.into_iter().partition(|part| part.is_init);
    let sockets = command::sockets(&parts);
    let Drivers { node: driver, controller, repeated } = drivers(&parts, &sockets)?;
    for at in &repeated {
        idle.add("a second process of the driver's controller", parts[*at].title());
    }
    let words = |part: &Part<'_>| command::words(part, &sockets, world.exists);
    let exec = |at: usize| words(&parts[at]).map(DriverCommand::Exec);

    let accounts_of_pods = default_accounts(parts.iter().chain(&init_parts));
    let given = manifests.applied.iter().chain(world.roles);
    let objects: Vec<Value> = given.chain(&accounts_of_pods).cloned().collect();
    let accounts = sidecars::accounts(&objects);
    let mut names: BTreeSet<String> = Replaceable::ALL.map(|known| known.name().to_owned()).into();
    let mut programs = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if at == driver || Some(at) == controller || repeated.contains(&at) {
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
        let placement = match part.service {
            Service::Node => Placement::EveryNode,
            Service::Controller => Placement::FirstNode,
        };
        let sidecar = Sidecar::planned(name, Role::Additional(placement), words(part)?);
        init.push(InitProgram { sidecar, account: account(part.workload, &accounts)? });
    }
    let driver_account = account(parts[driver].workload, &accounts)?;
    let controller_account =
        controller.map(|controller| account(parts[controller].workload, &accounts)).transpose()?;
    let (class, csi_driver) = (class(world, &mut idle)?, csi_driver(manifests)?);
    let every_part: Vec<&Part<'_>> = parts.iter().chain(&init_parts).collect();
    // Only drivers and init containers have directories with the secrets of their pods.
    let drivers = [Some(driver), controller].map(|at| at.map(|at| parts[at].workload));
    let has_secrets = |part: &Part<'_>| {
        part.is_init || drivers.into_iter().flatten().any(|workload| std::ptr::eq(workload, part.workload))
    };
    let volumes = volumes(&every_part, &sockets, world.exists, &has_secrets, &mut idle);
    let served = parts
        .iter()
        .flat_map(|part| part.kind.into_iter().chain(kinds::declared(world.sidecars, &part.container.name)));
    let shipped = Shipped::new(served.collect(), left_out, csi_driver.as_ref());
    Ok(DriverDeployment {
        driver: Some(exec(driver)?),
        controller: controller.map(exec).transpose()?,
        sidecars: StockSidecars::planned(programs, objects, shipped.absent.clone()),
        class_parameters: class.parameters.unwrap_or_default(),
        class_mount_options: class.mount_options.unwrap_or_default(),
        objects: DeploymentObjects {
            csi_driver,
            driver_account: Some(driver_account),
            controller_account,
            init,
            secrets: manifests.secrets.clone(),
            ..volumes
        },
        notice: notice(&shipped, idle),
    })
}

/// What files without workloads add to a driver of `--driver`, next to which built-in sidecars run.
fn objects_alone(world: World<'_>, mut idle: Idle) -> Result<DriverDeployment, PlanError> {
    let manifests = world.manifests;
    let class = class(world, &mut idle)?;
    let objects: Vec<Value> = manifests.applied.iter().chain(world.roles).cloned().collect();
    Ok(DriverDeployment {
        driver: None,
        controller: None,
        sidecars: StockSidecars::planned(Vec::new(), objects, BTreeSet::new()),
        class_parameters: class.parameters.unwrap_or_default(),
        class_mount_options: class.mount_options.unwrap_or_default(),
        objects: DeploymentObjects {
            csi_driver: csi_driver(manifests)?,
            secrets: manifests.secrets.clone(),
            ..DeploymentObjects::default()
        },
        notice: idle.warning(),
    })
}

/// Checks that the files have the declared sidecars.
fn check_sidecars(world: World<'_>) -> Result<(), PlanError> {
    let workloads = world.manifests.workloads.iter();
    let names: BTreeSet<String> =
        workloads.flat_map(Workload::containers).map(|container| container.name.clone()).collect();
    match world.sidecars.iter().find(|option| !names.contains(&option.container)) {
        Some(option) => Err(PlanError::NoContainer {
            container: option.container.clone(),
            containers: names.into_iter().collect(),
        }),
        None => Ok(()),
    }
}

/// What a deployment consists of, compared with what Kubernetes requires of one.
struct Shipped {
    /// The sidecars of the files that the options leave out: built-in ones run in their place.
    left_out: BTreeSet<Replaceable>,
    /// Those that no container is.
    absent: BTreeSet<Replaceable>,
    has_csi_driver: bool,
}

impl Shipped {
    fn new(
        served: BTreeSet<Replaceable>,
        left_out: BTreeSet<Replaceable>,
        csi_driver: Option<&CSIDriver>,
    ) -> Self {
        let attaches = csi_driver.is_none_or(|object| object.spec.attach_required != Some(false));
        let is_required = |kind: &Replaceable| match kind {
            Replaceable::Attacher => attaches,
            Replaceable::Provisioner
            | Replaceable::Resizer
            | Replaceable::Snapshotter
            | Replaceable::Registrar => true,
            // A component of the cluster, and one that no node here calls.
            Replaceable::SnapshotController | Replaceable::LivenessProbe => false,
        };
        let absent = Replaceable::ALL.into_iter().filter(|kind| !served.contains(kind));
        let absent = absent.filter(|kind| !left_out.contains(kind)).filter(is_required).collect();
        Self { left_out, absent, has_csi_driver: csi_driver.is_some() }
    }
}

/// What a user should know before the run.
fn notice(shipped: &Shipped, idle: Idle) -> Option<String> {
    let names = |kinds: &BTreeSet<Replaceable>| {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.program()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let left_out = names(&shipped.left_out).map(|names| {
        format!("--deployment: built-in ones run in place of images that are set to none: {names}")
    });
    let absent = names(&shipped.absent)
        .map(|names| format!("--deployment: the files have no {names}, and nothing runs in place of those"));
    let object = (!shipped.has_csi_driver).then(|| {
        "--deployment: the files have no CSIDriver object, so that Kubernetes attaches the driver's volumes".to_owned()
    });
    let lines: Vec<String> = left_out.into_iter().chain(absent).chain(object).chain(idle.warning()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
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
pub(super) fn engine_images<'a>(
    manifests: &'a Manifests,
    options: &[ImageRootfs],
) -> Result<Vec<&'a str>, PlanError> {
    let images = containers(manifests)?.into_iter().map(|(_, _, image, _)| image).collect();
    let chosen = image::choose(options, &images)?;
    let is_of_engine = |image: &&str| chosen.get(image).is_some_and(|stand_in| **stand_in == StandIn::Engine);
    Ok(images.iter().copied().filter(is_of_engine).collect())
}

/// The containers of the files.
struct Parts<'a> {
    /// Those that have a program, with their variables and mounts.
    parts: Vec<Part<'a>>,
    /// The sidecars among the others.
    left_out: BTreeSet<Replaceable>,
}

fn parts<'a>(world: World<'a>, idle: &mut Idle) -> Result<Parts<'a>, PlanError> {
    let containers = containers(world.manifests)?;
    let images = containers.iter().map(|(_, _, image, _)| *image).collect();
    let chosen = image::choose(world.images, &images)?;
    let (mut parts, mut left_out) = (Vec::new(), BTreeSet::new());
    let missing = containers.iter().filter(|(_, _, image, _)| !chosen.contains_key(image));
    let missing = missing.map(|(workload, container, image, _)| {
        (*image, format!("container {} of {}", container.name, workload.title()))
    });
    image::check_missing(missing, &images)?;
    for (workload, container, image, is_init) in containers {
        let Some(stand_in) = chosen.get(image).copied() else { continue };
        let unpacked = world.unpacked.get(image).filter(|_| *stand_in == StandIn::Engine);
        let program = match stand_in {
            StandIn::Program(words) => words.first(),
            StandIn::Engine => unpacked.and_then(|image| image.entrypoint.first()),
            StandIn::Folder(_) | StandIn::Nothing => None,
        };
        let known = kinds::of(container, program.map(String::as_str), world.sidecars).filter(|_| !is_init);
        let kind = known.map(|known| known.kind);
        if *stand_in == StandIn::Nothing {
            left_out.extend(kind);
            continue;
        }
        let mut variables = environment::variables(world.manifests, world.allocatable, workload, container)?;
        if let Some(unpacked) = unpacked {
            variables.add_of_image(&unpacked.variables);
        }
        let mounts = Mounts::of((world.manifests, world.allocatable), workload, container, &variables)?;
        idle.add_container(workload, container);
        parts.push(Part {
            workload,
            container,
            image,
            stand_in,
            unpacked,
            kind,
            is_upstream: known.is_some_and(|known: Known| known.is_upstream),
            service: service(workload, world.sidecars),
            is_init,
            variables,
            mounts,
        });
    }
    Ok(Parts { parts, left_out })
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
/// CSI socket to its program as an endpoint, else the one that mentions the socket, else the one that has it as the address
/// of sidecars (Carina), except for clients.
///
/// A sidecar in a pod of its own, such as Synology's snapshotter, has a second process of the driver next to it; here it
/// calls the first one.
fn drivers(parts: &[Part<'_>], sockets: &BTreeSet<Location>) -> Result<Drivers, PlanError> {
    use command::Reference::{Address, Endpoint, Mention};
    let found = |expected: command::Reference, workload: &Workload| -> Vec<usize> {
        let is_expected = |part: &Part<'_>| {
            std::ptr::eq(part.workload, workload) && command::reference(part, sockets) == expected
        };
        (0..parts.len()).filter(|at| is_expected(&parts[*at])).collect()
    };
    let (mut node, mut controller): (Option<usize>, Option<usize>) = (None, None);
    let (mut seen, mut repeated): (Vec<&Workload>, Vec<usize>) = (Vec::new(), Vec::new());
    for part in parts {
        if seen.iter().any(|workload| std::ptr::eq(*workload, part.workload)) {
            continue;
        }
        seen.push(part.workload);
        let kinds = [Endpoint, Mention, Address].into_iter();
        let mut candidates = kinds.map(|kind| found(kind, part.workload)).filter(|found| !found.is_empty());
        let candidates = candidates.next().unwrap_or_default();
        for at in candidates {
            let (slot, place) = match part.service {
                Service::Node => (&mut node, "of the nodes"),
                Service::Controller => (&mut controller, "of the controller"),
            };
            if let Some(first) = *slot {
                if is_repeated(&parts[first], &parts[at]) {
                    repeated.push(at);
                    continue;
                }
                let (first, second) = (parts[first].title(), parts[at].title());
                return Err(PlanError::TwoDrivers { first, second, place });
            }
            *slot = Some(at);
        }
    }
    match (node, controller) {
        (Some(node), controller) => Ok(Drivers { node, controller, repeated }),
        (None, Some(controller)) => Err(PlanError::NoNodeDriver(parts[controller].title())),
        (None, None) => Err(PlanError::NoDriver),
    }
}

/// The containers that are the driver.
struct Drivers {
    node: usize,
    /// The separate controller.
    controller: Option<usize>,
    /// Further processes of the controller, which do not run.
    repeated: Vec<usize>,
}

/// Whether a driver's controller runs in another workload, too.
fn is_repeated(first: &Part<'_>, second: &Part<'_>) -> bool {
    second.service == Service::Controller
        && !std::ptr::eq(first.workload, second.workload)
        && first.image == second.image
        && first.entrypoint() == second.entrypoint()
}

/// What the driver of a workload serves: a pod with a registrar is one of a node.
fn service(workload: &Workload, sidecars: &[DeploymentSidecar]) -> Service {
    let is_registrar = |container: &Container| {
        kinds::of(container, None, sidecars).is_some_and(|known| known.kind == Replaceable::Registrar)
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
/// have one; of the others, that of the pods of nodes does not if the controller's pod has one.
fn runs(part: &Part<'_>, kind: Replaceable, parts: &[Part<'_>], idle: &mut Idle) -> Result<bool, PlanError> {
    let of_node = |part: &Part<'_>| part.service == Service::Node;
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
            // As in the manifests of Hammerspace, where the pods of nodes have a resizer, too.
            if of_node(part) && others().any(|other| !of_node(other)) {
                idle.add("a second sidecar of a kind", part.title());
                return Ok(false);
            }
            if let Some(other) = others().find(|other| of_node(other) == of_node(part)) {
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

/// The wanted class, else the default one, else the first one.
fn class(world: World<'_>, idle: &mut Idle) -> Result<StorageClass, PlanError> {
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(claimcheck_model::DEFAULT_CLASS))
            .is_some_and(|text| text == "true")
    };
    let classes = &world.manifests.classes;
    let name = |class: &StorageClass| class.metadata.name.clone().unwrap_or_default();
    let chosen = match world.class {
        Some(expected) => {
            let found = classes.iter().find(|class| name(class) == expected);
            found.ok_or_else(|| PlanError::NoClass {
                expected: expected.to_owned(),
                classes: classes.iter().map(name).collect(),
            })?
        }
        None => match classes.iter().find(is_default).or(classes.first()) {
            Some(class) => class,
            None => return Ok(StorageClass::default()),
        },
    };
    for other in classes.iter().filter(|class| !std::ptr::eq(*class, chosen)) {
        idle.add("a second StorageClass", format!("StorageClass {}", name(other)));
    }
    Ok(chosen.clone())
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
