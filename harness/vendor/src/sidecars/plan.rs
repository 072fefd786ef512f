//! What stock programs replace, and the place and socket of each.

use std::{collections::BTreeSet, fmt};

use claimcheck_controllers::Name;
use claimcheck_model::nearest;

/// A built-in component that `--sidecar` replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replaceable {
    /// csi-provisioner.
    Provisioner,
    /// csi-attacher.
    Attacher,
    /// csi-resizer.
    Resizer,
    /// csi-snapshotter.
    Snapshotter,
    /// snapshot-controller.
    SnapshotController,
    /// csi-node-driver-registrar.
    Registrar,
    /// No built-in one runs on virtual nodes, since no kubelet probes their driver.
    LivenessProbe,
}

/// Names of upstream's programs and repositories, which are not those of `--sidecar`.
const UPSTREAM: [(&str, Replaceable); 15] = [
    ("csi-provisioner", Replaceable::Provisioner),
    ("external-provisioner", Replaceable::Provisioner),
    ("csi-attacher", Replaceable::Attacher),
    ("external-attacher", Replaceable::Attacher),
    ("csi-resizer", Replaceable::Resizer),
    ("external-resizer", Replaceable::Resizer),
    ("csi-snapshotter", Replaceable::Snapshotter),
    ("external-snapshotter", Replaceable::Snapshotter),
    ("csi-snapshot-controller", Replaceable::SnapshotController),
    ("csi-node-driver-registrar", Replaceable::Registrar),
    ("node-driver-registrar", Replaceable::Registrar),
    ("driver-registrar", Replaceable::Registrar),
    ("csi-livenessprobe", Replaceable::LivenessProbe),
    ("liveness-probe", Replaceable::LivenessProbe),
    ("liveness", Replaceable::LivenessProbe),
];

impl Replaceable {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Provisioner,
        Self::Attacher,
        Self::Resizer,
        Self::Snapshotter,
        Self::SnapshotController,
        Self::Registrar,
        Self::LivenessProbe,
    ];

    /// Its name in `--sidecar`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Provisioner => Name::Provisioner.as_str(),
            Self::Attacher => Name::Attacher.as_str(),
            Self::Resizer => Name::Resizer.as_str(),
            Self::Snapshotter => Name::Snapshotter.as_str(),
            Self::SnapshotController => Name::SnapshotController.as_str(),
            Self::Registrar => "registrar",
            Self::LivenessProbe => "livenessprobe",
        }
    }

    /// The sidecar with an image, a program or a container of this name: upstream's, or a copy with a prefix or the
    /// platform behind it (`mirrored-sig-storage-csi-provisioner`, `ose-csi-external-provisioner-rhel9`).
    pub fn from_image(name: &str) -> Option<Self> {
        let others = [Self::SnapshotController, Self::LivenessProbe]
            .map(|replaceable| (replaceable.name(), replaceable));
        let mut known = UPSTREAM.into_iter().chain(others);
        let name = match name.rsplit_once('-') {
            Some((name, platform)) if is_platform(platform) => name,
            Some(_) | None => name,
        };
        let is_of = |known: &str| {
            name.strip_suffix(known).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
        };
        known.find(|(known, _)| is_of(known)).map(|(_, replaceable)| replaceable)
    }

    /// The name of upstream's program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Resizer => "csi-resizer",
            Self::Snapshotter => "csi-snapshotter",
            Self::SnapshotController => "snapshot-controller",
            Self::Registrar => "csi-node-driver-registrar",
            Self::LivenessProbe => "livenessprobe",
        }
    }

    /// The component of `manifests/rbac` with the rights that upstream's program requires; none without requests to the
    /// API server.
    pub fn component(self) -> Option<&'static str> {
        match self {
            Self::Provisioner
            | Self::Attacher
            | Self::Resizer
            | Self::Snapshotter
            | Self::SnapshotController => Some(self.program()),
            Self::Registrar | Self::LivenessProbe => None,
        }
    }

    /// The built-in controller that does not run then.
    pub fn controller(self) -> Option<Name> {
        match self {
            Self::Provisioner => Some(Name::Provisioner),
            Self::Attacher => Some(Name::Attacher),
            Self::Resizer => Some(Name::Resizer),
            Self::Snapshotter => Some(Name::Snapshotter),
            Self::SnapshotController => Some(Name::SnapshotController),
            Self::Registrar | Self::LivenessProbe => None,
        }
    }
}

/// Whether the end of an image's name is a platform: `amd64`, `rhel9`, `ubi8`.
fn is_platform(name: &str) -> bool {
    const PROCESSORS: [&str; 6] = ["amd64", "arm", "arm64", "ppc64le", "s390x", "riscv64"];
    let is_numbered =
        |base: &str| name.strip_prefix(base).is_some_and(|version| version.parse::<u8>().is_ok());
    PROCESSORS.contains(&name) || is_numbered("rhel") || is_numbered("ubi")
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It replaces a built-in component.
    Replaces(Replaceable),
    /// It runs in addition to the built-in components, here.
    Additional(Placement),
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Once, on the first node, like the pod of a Deployment.
    FirstNode,
    /// Once per node, like the pods of a DaemonSet.
    EveryNode,
}

/// The socket that a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A tap before the driver's controller service, which records its calls.
    Tapped,
    /// The driver's socket itself. A registrar passes its path on to the node agent, so that a tap there would record
    /// the calls of the agent a second time.
    Driver,
}

/// A name that `--sidecar` does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is probably a slip, or upstream's name.
    Meant(Replaceable),
    /// A built-in controller that is no sidecar.
    NotReplaceable(Name),
    /// It is no name of a process.
    Invalid,
}

/// The longest name: the path of its socket is limited to 107 bytes.
const LONGEST: usize = 32;

/// A name for an additional program that runs in this container of a manifest, unlike those that are taken.
pub fn additional_name(container: &str, taken: &BTreeSet<String>) -> String {
    let short = container.strip_prefix("csi-").unwrap_or(container);
    let short = short.strip_prefix("external-").unwrap_or(short);
    let is_plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    // Three characters remain for a number.
    let name: String = short.chars().filter(is_plain).take(LONGEST - 3).collect();
    let numbered = (2..100).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !name.is_empty() && !taken.contains(name)).unwrap_or_default()
}

impl Role {
    /// The role of the program with this name.
    pub fn of(name: &str) -> Result<Self, NameError> {
        if let Some(replaceable) = Replaceable::ALL.into_iter().find(|known| known.name() == name) {
            return Ok(Self::Replaces(replaceable));
        }
        if let Ok(controller) = name.parse::<Name>() {
            return Err(NameError::NotReplaceable(controller));
        }
        let upstream = UPSTREAM.into_iter().find(|(upstream, _)| *upstream == name).map(|(_, meant)| meant);
        let similar = || {
            let nearest = nearest(name, Replaceable::ALL.map(Replaceable::name))?;
            Replaceable::ALL.into_iter().find(|known| known.name() == nearest)
        };
        if let Some(meant) = upstream.or_else(similar) {
            return Err(NameError::Meant(meant));
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=LONGEST).contains(&name.len()) && name.chars().all(is_plain);
        if is_name { Ok(Self::Additional(Placement::FirstNode)) } else { Err(NameError::Invalid) }
    }

    /// Where it runs, without `--node-deployment`.
    pub fn placement(self) -> Placement {
        match self {
            Self::Replaces(Replaceable::Registrar | Replaceable::LivenessProbe) => Placement::EveryNode,
            Self::Replaces(
                Replaceable::Provisioner
                | Replaceable::Attacher
                | Replaceable::Resizer
                | Replaceable::Snapshotter
                | Replaceable::SnapshotController,
            ) => Placement::FirstNode,
            Self::Additional(placement) => placement,
        }
    }

    /// Whether upstream's program can run on every node and serve the volumes of its node there (`--node-deployment`).
    pub fn can_run_on_every_node(self) -> bool {
        matches!(self, Self::Replaces(Replaceable::Provisioner | Replaceable::Snapshotter))
    }

    /// The socket that it calls.
    pub fn socket(self) -> Socket {
        match self {
            Self::Replaces(Replaceable::Registrar | Replaceable::LivenessProbe)
            | Self::Additional(Placement::EveryNode) => Socket::Driver,
            Self::Replaces(
                Replaceable::Provisioner
                | Replaceable::Attacher
                | Replaceable::Resizer
                | Replaceable::Snapshotter
                | Replaceable::SnapshotController,
            )
            | Self::Additional(Placement::FirstNode) => Socket::Tapped,
        }
    }

    /// Whether it replaces a built-in controller, so that it is stopped and killed together with the controllers.
    pub fn replaces_controller(self) -> bool {
        match self {
            Self::Replaces(replaced) => replaced.controller().is_some(),
            Self::Additional(_) => false,
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Replaceable::ALL.map(Replaceable::name).join(", ");
        match self {
            Self::Meant(meant) => write!(
                f,
                "did you mean {}? The built-in components that can be replaced are {known}; name an additional \
                 program differently",
                meant.name()
            ),
            Self::NotReplaceable(name) => write!(
                f,
                "the built-in controller {name} cannot be replaced, only {known}; stock controllers run with \
                 --controllers stock"
            ),
            Self::Invalid => write!(
                f,
                "use one of {known}, or a name of at most {LONGEST} lower-case letters, digits and dashes for an \
                 additional program"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_role_or_a_suggestion() {
        use Replaceable::{Attacher, LivenessProbe, Provisioner, Registrar};
        let table = [
            ("provisioner", Ok(Role::Replaces(Provisioner))),
            ("livenessprobe", Ok(Role::Replaces(LivenessProbe))),
            ("health-monitor", Ok(Role::Additional(Placement::FirstNode))),
            ("a1", Ok(Role::Additional(Placement::FirstNode))),
            ("provisoner", Err(NameError::Meant(Provisioner))),
            ("Attacher", Err(NameError::Meant(Attacher))),
            ("csi-attacher", Err(NameError::Meant(Attacher))),
            ("node-driver-registrar", Err(NameError::Meant(Registrar))),
            ("scheduler", Err(NameError::NotReplaceable(Name::Scheduler))),
            ("garbage", Err(NameError::NotReplaceable(Name::Garbage))),
            ("", Err(NameError::Invalid)),
            ("../../up", Err(NameError::Invalid)),
            ("my program", Err(NameError::Invalid)),
            ("a-name-that-is-longer-than-the-path-of-a-socket-permits", Err(NameError::Invalid)),
        ];
        for (name, expected) in table {
            assert_eq!(Role::of(name), expected, "{name}");
        }
        for known in Replaceable::ALL {
            assert_eq!(Role::of(known.name()), Ok(Role::Replaces(known)));
        }
    }

    #[test]
    fn images_of_upstream_are_sidecars_under_any_prefix() {
        use Replaceable::{LivenessProbe, Provisioner, Registrar, SnapshotController};
        let table = [
            ("csi-provisioner", Some(Provisioner)),
            ("mirrored-sig-storage-csi-provisioner", Some(Provisioner)),
            ("ose-csi-external-provisioner-rhel9", Some(Provisioner)),
            ("csi-provisioner-arm64", Some(Provisioner)),
            ("csi-provisioner-webhook", None),
            ("csi-node-driver-registrar", Some(Registrar)),
            ("livenessprobe", Some(LivenessProbe)),
            ("snapshot-controller", Some(SnapshotController)),
            ("csi-external-health-monitor-controller", None),
            ("provisioner", None),
            ("hostpathplugin", None),
        ];
        for (image, expected) in table {
            assert_eq!(Replaceable::from_image(image), expected, "{image}");
        }
    }

    #[test]
    fn additional_programs_have_short_names_of_their_own() {
        let taken = BTreeSet::from(["provisioner".to_owned()]);
        let table = [
            ("csi-external-health-monitor-controller", "health-monitor-controller"),
            ("provisioner", "provisioner-2"),
            ("a-name-that-is-longer-than-the-path-of-a-socket", "a-name-that-is-longer-than-th"),
            ("csi-", "-2"),
        ];
        for (container, expected) in table {
            let name = additional_name(container, &taken);
            assert_eq!(name, expected);
            assert!(name.len() <= LONGEST, "{name}");
        }
    }

    #[test]
    fn registrar_and_livenessprobe_run_on_every_node_with_the_socket_of_the_driver() {
        for known in Replaceable::ALL {
            let per_node = matches!(known, Replaceable::Registrar | Replaceable::LivenessProbe);
            let role = Role::Replaces(known);
            let expected = match per_node {
                true => (Placement::EveryNode, Socket::Driver, false),
                false => (Placement::FirstNode, Socket::Tapped, true),
            };
            assert_eq!((role.placement(), role.socket(), role.replaces_controller()), expected, "{role:?}");
        }
        for (placement, socket) in
            [(Placement::FirstNode, Socket::Tapped), (Placement::EveryNode, Socket::Driver)]
        {
            let additional = Role::Additional(placement);
            let actual = (additional.placement(), additional.socket(), additional.replaces_controller());
            assert_eq!(actual, (placement, socket, false));
        }
    }
}
