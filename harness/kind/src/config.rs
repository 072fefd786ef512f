//! The config file of a cluster: the generated part of `kind.x-k8s.io/v1alpha4`, merged with a user's file.
//!
//! Only the parts of a user's file that must be merged are interpreted; the rest is passed on unchanged, and
//! validated by kind. The image of a node, the number of nodes and their settings are taken from the user's file if
//! set; conflicts with required settings are rejected by name ([`ConfigError`]), never silently overridden.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    kubeadm::{self, JsonPatch, StockController},
    options::KindOptions,
    version::{OLDEST_KUBERNETES, Version, default_kubernetes, from_node_image},
};

const API_VERSION: &str = "kind.x-k8s.io/v1alpha4";
const KIND: &str = "Cluster";

/// The path at which all nodes mount the same folder of the host: a volume must be accessible on any node it is
/// attached to. The mount also marks a container as created by claimcheck from its creation on.
///
/// It is not propagated: the built-in driver keeps only files there. Mounts propagated to the host would outlive
/// the nodes, and would fail on a host without shared mount propagation.
pub const DATA_DIR: &str = "/var/lib/claimcheck";

/// The default number of workers: cases that move a volume require two.
pub const DEFAULT_WORKERS: usize = 2;

/// A kind cluster configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    kind: String,
    api_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default)]
    nodes: Vec<Node>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    runtime_config: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubeadm_config_patches: Vec<String>,
    #[serde(default, rename = "kubeadmConfigPatchesJSON6902", skip_serializing_if = "Vec::is_empty")]
    kubeadm_config_patches_json6902: Vec<JsonPatch>,
    #[serde(flatten)]
    other_fields: BTreeMap<String, Value>,
}

/// A node of a [`Cluster`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    #[serde(default)]
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extra_mounts: Vec<Mount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kubeadm_config_patches: Vec<String>,
    #[serde(default, rename = "kubeadmConfigPatchesJSON6902", skip_serializing_if = "Vec::is_empty")]
    kubeadm_config_patches_json6902: Vec<JsonPatch>,
    #[serde(flatten)]
    other_fields: BTreeMap<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    #[default]
    ControlPlane,
    Worker,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    #[serde(default)]
    host_path: PathBuf,
    #[serde(default)]
    container_path: PathBuf,
    #[serde(flatten)]
    other_fields: BTreeMap<String, Value>,
}

/// The storage controllers of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controllers {
    /// The built-in controllers, instead of those of the controller manager that they replace.
    #[default]
    Builtin,
    /// The upstream controllers.
    Stock,
}

impl Controllers {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Builtin => "ours",
            Self::Stock => "stock",
        }
    }
}

/// A user's config file cannot be used, or conflicts with other flags.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("--kind-config {} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not a kind configuration.
    #[error("--kind-config {} is not a kind {KIND}: {reason}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// It sets a field that claimcheck must set.
    #[error("--kind-config: {field} cannot be set: {remedy}")]
    Refused {
        /// The field.
        field: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The built-in controllers cannot replace those of this Kubernetes version.
    #[error(
        "node image {image} has Kubernetes {version}, in which controllers cannot be replaced: use \
         {OLDEST_KUBERNETES} or newer, or `--controllers stock`"
    )]
    TooOld {
        /// The image.
        image: String,
        /// Its version.
        version: Version,
    },
}

impl Cluster {
    /// Reads a user's config file.
    ///
    /// # Errors
    /// It cannot be read, or is not a kind configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let form = |reason| ConfigError::Form { path: path.to_owned(), reason };
        let cluster: Self = serde_saphyr::from_str(&text).map_err(|error| form(error.to_string()))?;
        if (cluster.kind.as_str(), cluster.api_version.as_str()) != (KIND, API_VERSION) {
            let found = format!("{} of {}", cluster.kind, cluster.api_version);
            return Err(form(format!("it contains a {found}, but a {KIND} of {API_VERSION} is required")));
        }
        Ok(cluster)
    }

    /// The config of the desired cluster; settings in `base`, the user's file, take precedence.
    ///
    /// The version of kind, if known, determines the Kubernetes version of nodes without an image. All nodes mount the
    /// folder `data` of the host, an absolute path, at [`DATA_DIR`].
    ///
    /// # Errors
    /// `base` sets a field that claimcheck must set, or a node's Kubernetes is too old.
    pub fn generate(
        expected: &KindOptions,
        kind_version: Option<Version>,
        data: &Path,
        base: Option<Self>,
    ) -> Result<Self, ConfigError> {
        let mut cluster = base.unwrap_or_default();
        cluster.refuse(expected)?;
        (cluster.kind, cluster.api_version) = (KIND.to_owned(), API_VERSION.to_owned());
        if cluster.nodes.is_empty() {
            let worker = Node { role: Role::Worker, ..Node::default() };
            cluster.nodes.push(Node::default());
            cluster.nodes.extend(vec![worker; expected.workers.unwrap_or(DEFAULT_WORKERS)]);
        }
        for node in &mut cluster.nodes {
            node.image = node.image.take().or_else(|| expected.node_image.clone());
            node.extra_mounts.push(Mount {
                host_path: data.to_owned(),
                container_path: DATA_DIR.into(),
                other_fields: BTreeMap::new(),
            });
        }
        for (gate, &on) in &expected.feature_gates {
            cluster.feature_gates.entry(gate.clone()).or_insert(on);
        }
        for (api, on) in &expected.runtime_config {
            cluster.runtime_config.entry(api.clone()).or_insert_with(|| on.clone().into());
        }
        // First, so that a patch of the user's file takes precedence.
        cluster.kubeadm_config_patches.insert(0, kubeadm::node_status_period());
        let kubelet_args: BTreeMap<_, _> = expected.kubelet_args.iter().cloned().collect();
        cluster.kubeadm_config_patches_json6902.extend(kubeadm::kubelet_args(&kubelet_args));
        let mut manager = BTreeMap::new();
        if !expected.keep && cluster.patches_naming(kubeadm::BIND_ADDRESS).is_none() {
            manager.extend(kubeadm::readable(cluster.any_address()));
        }
        match expected.controllers {
            Controllers::Builtin => {
                cluster.check_age()?;
                let present = StockController::replaced_in(cluster.oldest(kind_version));
                manager.extend(kubeadm::without(&present));
            }
            Controllers::Stock => manager.extend(kubeadm::client_limits()),
        }
        let control_planes = cluster.nodes.iter().filter(|node| node.role == Role::ControlPlane).count();
        if control_planes <= 1 && cluster.patches_naming(kubeadm::LEADER_ELECT).is_none() {
            manager.extend(kubeadm::alone());
            // Gates and an IPv6 address are arguments, too.
            let has_arguments = !cluster.feature_gates.is_empty() || cluster.any_address() == "::";
            if !has_arguments && !cluster.patches_scheduler() {
                cluster.kubeadm_config_patches_json6902.extend(kubeadm::scheduler_alone());
            }
        }
        cluster.kubeadm_config_patches_json6902.extend(kubeadm::manager_args(&manager));
        Ok(cluster)
    }

    /// Rejects settings that conflict with those that a run requires.
    fn refuse(&self, expected: &KindOptions) -> Result<(), ConfigError> {
        let refused = |field: String, remedy| Err(ConfigError::Refused { field, remedy });
        if self.name.is_some() {
            return refused("name".to_owned(), "use --name");
        }
        if !self.nodes.is_empty() && expected.workers.is_some() {
            return refused("nodes together with --nodes".to_owned(), "omit one of the two");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.extra_mounts.iter().any(|mount| mount.container_path == Path::new(DATA_DIR)) {
                let field = format!("nodes[{index}].extraMounts at {DATA_DIR}");
                return refused(
                    field,
                    "the built-in driver keeps its data there; choose another containerPath",
                );
            }
        }
        if expected.controllers == Controllers::Builtin
            && let Some(list) = self.patches_naming(kubeadm::CONTROLLERS)
        {
            return refused(
                format!("{list} with the controller manager's `controllers`"),
                "the built-in ones replace some of them; remove it, or use `--controllers stock`",
            );
        }
        Ok(())
    }

    /// The first list of patches that sets this argument of the controller manager.
    fn patches_naming(&self, argument: &str) -> Option<String> {
        let of_nodes = self.nodes.iter().enumerate().map(|(index, node)| {
            let place = format!("nodes[{index}].");
            (place, &node.kubeadm_config_patches, &node.kubeadm_config_patches_json6902)
        });
        let of_cluster = (String::new(), &self.kubeadm_config_patches, &self.kubeadm_config_patches_json6902);
        std::iter::once(of_cluster).chain(of_nodes).find_map(|(place, merged, json)| {
            let list = kubeadm::names_argument(argument, merged, json)?;
            Some(format!("{place}{list}"))
        })
    }

    /// Whether a patch of the whole cluster may change the scheduler.
    fn patches_scheduler(&self) -> bool {
        let json = self.kubeadm_config_patches_json6902.iter().map(|patch| &patch.patch);
        self.kubeadm_config_patches.iter().chain(json).any(|patch| patch.contains("scheduler"))
    }

    /// The wildcard address of a node.
    fn any_address(&self) -> &'static str {
        let family = self.other_fields.get("networking").map(|networking| &networking["ipFamily"]);
        if family.is_some_and(|family| family == "ipv6") { "::" } else { "0.0.0.0" }
    }

    fn check_age(&self) -> Result<(), ConfigError> {
        let images = self.nodes.iter().filter_map(|node| node.image.as_ref());
        let mut aged = images.filter_map(|image| Some((image, from_node_image(image)?)));
        match aged.find(|(_, version)| *version < OLDEST_KUBERNETES) {
            Some((image, version)) => Err(ConfigError::TooOld { image: image.clone(), version }),
            None => Ok(()),
        }
    }

    /// The oldest Kubernetes version of a control plane, or a lower bound; none if one of them is unknown.
    fn oldest(&self, kind: Option<Version>) -> Option<Version> {
        let control_planes = self.nodes.iter().filter(|node| node.role == Role::ControlPlane);
        let versions = control_planes.map(|node| match &node.image {
            Some(image) => from_node_image(image),
            None => kind.map(default_kubernetes),
        });
        versions.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// The number of nodes, including control planes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The file for kind.
    pub fn to_yaml(&self) -> String {
        // Literal blocks keep the patches readable.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: true, compact_list_indent: true };
        serde_saphyr::to_string_with_options(self, options).expect("maps with names for keys")
    }
}
