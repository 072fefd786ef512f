//! The paths of a container: what its volume mounts make of them on a virtual node.
//!
//! Programs run without containers, so that a path of a container in an argument is replaced by that of the node. A
//! directory of the kubelet or of the system is the same on virtual nodes; any other directory of the host, and an
//! emptyDir, is a folder in the driver's state directory, which ends with the run.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, ProjectedVolumeSource, Volume,
};

use super::{
    environment::{Resources, Variables, field_in_file, resource},
    error::{Place, Problem, Unsupported},
    files::{File, Link, ProjectedToken},
    manifests::{Contents, Data, Manifests, Workload},
};
use crate::sidecars::Account;

/// Directories of the host that a virtual node shows as they are.
const OF_SYSTEM: [&str; 14] = [
    "/var/lib/kubelet",
    "/dev",
    "/sys",
    "/proc",
    "/run",
    "/var/run",
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/var/lib/iscsi",
    "/var/lib/nfs",
];

/// Where a path of a container is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    /// A path of the node.
    Node(String),
    /// A path relative to the driver's state directory.
    State(String),
    /// A path of the container's image, in this workload.
    Image { workload: String, path: String },
}

/// What a mount shows.
#[derive(Clone, Debug)]
enum Target {
    Node(String),
    State(String),
}

#[derive(Clone, Debug)]
struct Mount {
    path: String,
    target: Target,
    /// Whether its folder is created, empty.
    is_folder: bool,
}

/// The mounts of a container.
#[derive(Clone, Debug)]
pub(super) struct Mounts {
    workload: String,
    /// The deepest first.
    mounts: Vec<Mount>,
    /// The files of its ConfigMaps, Secrets and fields of its pod.
    pub files: Vec<File>,
    /// The tokens of its service account.
    pub tokens: Vec<ProjectedToken>,
}

/// Whether it is an emptyDir: also a volume without a source, such as `emptyDir:` without braces. Upstream:
/// `SetDefaults_Volume` in pkg/apis/core/v1/defaults.go.
fn is_empty_dir(volume: &Volume) -> bool {
    let nameless = Volume { name: String::new(), ..volume.clone() };
    volume.empty_dir.is_some() || nameless == Volume::default()
}

/// The lifetime of a projected token in seconds (`DefaultServiceAccountTokenExpirationSeconds` in
/// pkg/apis/core/v1/defaults.go).
const TOKEN_LIFETIME: i64 = 3600;

impl Mounts {
    /// Those of a container.
    ///
    /// # Errors
    /// A volume is of another kind, or its ConfigMap or Secret is not in the files.
    pub(super) fn of(
        world: (&Manifests, &Resources),
        workload: &Workload,
        container: &Container,
        variables: &Variables,
    ) -> Result<Self, Unsupported> {
        let mut this =
            Self { workload: workload.title(), mounts: Vec::new(), files: Vec::new(), tokens: Vec::new() };
        for mount in container.volume_mounts.iter().flatten() {
            let fail = |problem| {
                let field = format!("volumeMounts {}", mount.name);
                Unsupported { place: Place::container(workload, &container.name, field), problem }
            };
            let volume = workload.pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.ok_or_else(|| fail(Problem::NoVolume))?;
            let target = this.target(world, workload, volume).map_err(fail)?;
            let below = match &mount.sub_path_expr {
                Some(expression) => variables.expand(expression),
                None => mount.sub_path.clone().unwrap_or_default(),
            };
            // The folder would differ from node to node, or its name is unknown.
            if below.contains(['{', '$']) || below.split('/').any(|part| part == "..") {
                return Err(fail(Problem::SubPath(below)));
            }
            let below = below.as_str();
            let target = match target {
                Target::Node(path) => Target::Node(join(&path, below)),
                Target::State(path) => Target::State(join(&path, below)),
            };
            let path = mount.mount_path.trim_end_matches('/').to_owned();
            let is_folder = is_empty_dir(volume) || volume.host_path.as_ref().is_some_and(is_directory);
            this.mounts.push(Mount { path, target, is_folder });
        }
        this.mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        Ok(this)
    }

    /// What a volume shows.
    fn target(
        &mut self,
        world @ (manifests, _): (&Manifests, &Resources),
        workload: &Workload,
        volume: &Volume,
    ) -> Result<Target, Problem> {
        if let Some(host) = &volume.host_path {
            let path = host.path.trim_end_matches('/');
            let is_of_system = path.is_empty() || OF_SYSTEM.iter().any(|system| is_below(path, system));
            return Ok(match is_of_system {
                true => Target::Node(if path.is_empty() { "/".to_owned() } else { path.to_owned() }),
                false => Target::State(slug(path)),
            });
        }
        let folder = slug(&format!("{}-{}", workload.title(), volume.name));
        if is_empty_dir(volume) {
            return Ok(Target::State(folder));
        }
        let (data, name, items, optional, is_secret, mode) = if let Some(source) = &volume.config_map {
            let name = source.name.as_str();
            (&manifests.config_maps, name, &source.items, source.optional, false, source.default_mode)
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            (&manifests.secrets, name, &source.items, source.optional, true, source.default_mode)
        } else if let Some(projected) = &volume.projected {
            self.project(world, workload, &folder, projected)?;
            return Ok(Target::State(folder));
        } else if let Some(fields) = &volume.downward_api {
            let mode = fields.default_mode;
            self.fields(world, workload, (&folder, mode), fields.items.as_deref())?;
            return Ok(Target::State(folder));
        } else {
            return Err(Problem::Volume);
        };
        match data.get(&workload.key(name)) {
            Some(data) => {
                let title = workload.title_of(name);
                self.files.extend(files((&folder, mode), (data, &title), items.as_deref(), optional)?);
            }
            None if optional == Some(true) => {}
            None => return Err(Problem::absent_data(is_secret, workload.title_of(name))),
        }
        Ok(Target::State(folder))
    }

    /// The sources of a projected volume. Upstream: `collectData` in pkg/volume/projected/projected.go.
    fn project(
        &mut self,
        world @ (manifests, _): (&Manifests, &Resources),
        workload: &Workload,
        folder: &str,
        volume: &ProjectedVolumeSource,
    ) -> Result<(), Problem> {
        let mode = volume.default_mode;
        for source in volume.sources.iter().flatten() {
            let (data, name, items, optional, is_secret) = if let Some(source) = &source.config_map {
                (&manifests.config_maps, &source.name, &source.items, source.optional, false)
            } else if let Some(source) = &source.secret {
                (&manifests.secrets, &source.name, &source.items, source.optional, true)
            } else if let Some(fields) = &source.downward_api {
                self.fields(world, workload, (folder, mode), fields.items.as_deref())?;
                continue;
            } else if let Some(token) = &source.service_account_token {
                self.tokens.push(ProjectedToken {
                    path: join(folder, &token.path),
                    account: Account {
                        namespace: workload.namespace.clone(),
                        name: workload.account_name().unwrap_or("default").to_owned(),
                    },
                    audience: token.audience.clone().filter(|audience| !audience.is_empty()),
                    lifetime: token.expiration_seconds.unwrap_or(TOKEN_LIFETIME),
                });
                continue;
            } else if source.cluster_trust_bundle.is_some() {
                return Err(Problem::ProjectedSource("clusterTrustBundle"));
            } else {
                return Err(Problem::ProjectedSource("podCertificate"));
            };
            match data.get(&workload.key(name)) {
                Some(data) => {
                    let title = workload.title_of(name);
                    self.files.extend(files((folder, mode), (data, &title), items.as_deref(), optional)?);
                }
                // The cluster's CA is in every namespace.
                None if name == CLUSTER_CA => {}
                None if optional == Some(true) => {}
                None => return Err(Problem::absent_data(is_secret, workload.title_of(name))),
            }
        }
        Ok(())
    }

    /// Fields of the pod as files. Upstream: `CollectData` in pkg/volume/downwardapi/downwardapi.go.
    fn fields(
        &mut self,
        (_, allocatable): (&Manifests, &Resources),
        workload: &Workload,
        (folder, default_mode): (&str, Option<i32>),
        items: Option<&[DownwardAPIVolumeFile]>,
    ) -> Result<(), Problem> {
        for item in items.into_iter().flatten() {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => {
                    let text = field_in_file(workload, &field.field_path);
                    text.ok_or_else(|| Problem::FieldInFile(field.field_path.clone()))?
                }
                (None, Some(selector)) => resource(workload, allocatable, selector, "")?,
                (None, None) => return Err(Problem::FieldInFile(String::new())),
            };
            let contents = Contents(text.into_bytes());
            let mode = mode(item.mode.or(default_mode));
            self.files.push(File { path: join(folder, &item.path), contents, mode });
        }
        Ok(())
    }

    /// Where a path of the container is. A path of the kubelet is that of the node even if it is not mounted, since
    /// registrars pass the kubelet's view of a socket on.
    pub(super) fn locate(&self, path: &str) -> Location {
        let path = path.trim_end_matches('/');
        let mount = self.mounts.iter().find(|mount| is_below(path, &mount.path));
        match mount {
            Some(Mount { path: at, target, .. }) => match target {
                Target::Node(base) => Location::Node(join(base, &path[at.len()..])),
                Target::State(base) => Location::State(join(base, &path[at.len()..])),
            },
            None if is_below(path, OF_SYSTEM[0]) => Location::Node(path.to_owned()),
            None => Location::Image { workload: self.workload.clone(), path: path.to_owned() },
        }
    }

    /// The text with every path of the container replaced by that on the node; CSI sockets by the placeholder.
    pub(super) fn replace(&self, text: &str, sockets: &BTreeSet<Location>) -> String {
        let replaced = |path: &str| match self.locate(path) {
            location if sockets.contains(&location) => Some("{socket}".to_owned()),
            Location::Node(path) => Some(path),
            Location::State(path) => Some(join("{state_dir}", &path)),
            Location::Image { .. } => None,
        };
        let (mut result, mut from) = (String::new(), 0);
        for (start, end) in spans(text) {
            result.push_str(&text[from..start]);
            let path = &text[start..end];
            result.push_str(&replaced(path).unwrap_or_else(|| path.to_owned()));
            from = end;
        }
        result.push_str(&text[from..]);
        result
    }

    /// Its mounts of the state directory, each with the path at which the program expects it, and whether it is a
    /// folder to create.
    pub(super) fn links(&self) -> impl Iterator<Item = (Link, bool)> {
        let link = |mount: &Mount| match &mount.target {
            Target::State(to) => Some((Link { at: mount.path.clone(), to: to.clone() }, mount.is_folder)),
            Target::Node(_) => None,
        };
        self.mounts.iter().filter_map(link)
    }
}

/// Whether a hostPath is a directory, as far as it declares that.
fn is_directory(host: &HostPathVolumeSource) -> bool {
    matches!(host.type_.as_deref(), None | Some("" | "Directory" | "DirectoryOrCreate"))
}

/// The ConfigMap with the CA of the API server, which kube-controller-manager writes to every namespace.
const CLUSTER_CA: &str = "kube-root-ca.crt";

/// The mode of a file in a volume (`ConfigMapVolumeSourceDefaultMode` in pkg/apis/core/v1/defaults.go).
const DEFAULT_MODE: i32 = 0o644;

/// The mode of a file on virtual nodes: its owner has what the container's user has in any way, and others have nothing.
fn mode(declared: Option<i32>) -> u32 {
    let mode = declared.unwrap_or(DEFAULT_MODE).unsigned_abs();
    (mode | mode << 3 | mode << 6) & 0o700
}

/// The files of a ConfigMap or Secret with this name. Upstream: `MakePayload` in pkg/volume/configmap/configmap.go.
fn files(
    (folder, default_mode): (&str, Option<i32>),
    (data, title): (&Data, &str),
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Vec<File>, Problem> {
    let file = |path: &str, contents: &Contents, of_item: Option<i32>| File {
        path: join(folder, path),
        contents: contents.clone(),
        mode: mode(of_item.or(default_mode)),
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.iter().map(|(key, contents)| file(key, contents, None)).collect());
    };
    let mut found = Vec::new();
    for KeyToPath { key, path, mode, .. } in items {
        match data.get(key) {
            Some(contents) => found.push(file(path, contents, *mode)),
            None if optional == Some(true) => {}
            None => return Err(Problem::AbsentKey { of: title.to_owned(), key: key.clone() }),
        }
    }
    Ok(found)
}

/// Whether a path is a directory or below it.
pub(super) fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn join(base: &str, rest: &str) -> String {
    match rest.trim_matches('/') {
        "" => base.to_owned(),
        rest => format!("{}/{rest}", base.trim_end_matches('/')),
    }
}

/// A name of a folder.
fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.trim_matches('/').chars().map(plain).collect()
}

/// The absolute paths in a text.
pub(super) fn paths(text: &str) -> impl Iterator<Item = &str> {
    spans(text).into_iter().map(|(start, end)| &text[start..end])
}

/// Where the absolute paths in a text are: after its start, or after a character that is no part of a path. The two
/// slashes of a URL's scheme are not part of it, but drivers take `unix://csi/csi.sock` for a path below the root.
fn spans(text: &str) -> Vec<(usize, usize)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-+@~".contains(c);
    let (mut spans, mut from) = (Vec::new(), 0);
    while let Some(found) = text[from..].find('/') {
        let at = from + found;
        let end = text[at..].find(|c: char| !is_part(c)).map_or(text.len(), |length| at + length);
        let before = text[..at].chars().next_back();
        let start = match before {
            Some(':') if text[at..].starts_with("//") => {
                let is_relative = !text[at + 2..].starts_with('/');
                at + if is_relative && text[..at].ends_with("unix:") { 1 } else { 2 }
            }
            _ => at,
        };
        // A path after a placeholder or a relative directory is the rest of a path.
        let continues = before.is_some_and(|c| is_part(c) || c == '}' || c == ')');
        if !continues && text[start..end].starts_with('/') {
            spans.push((start, end));
        }
        from = end;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_are_found_in_arguments() {
        let table: [(&str, &[&str]); 12] = [
            ("unix://csi/csi.sock", &["/csi/csi.sock"]),
            ("https://csi/csi.sock", &[]),
            ("/csi/csi.sock", &["/csi/csi.sock"]),
            ("--csi-address=/csi/csi.sock", &["/csi/csi.sock"]),
            ("unix:///csi/csi.sock", &["/csi/csi.sock"]),
            ("unix:/csi/csi.sock", &["/csi/csi.sock"]),
            ("a=/x,b=/y", &["/x", "/y"]),
            ("exec /bin/d '/etc/d.yaml'", &["/bin/d", "/etc/d.yaml"]),
            ("https://example.com/path", &[]),
            ("csi/csi.sock", &[]),
            ("{state_dir}/x", &[]),
            ("tcp://:10000", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(paths(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn only_whole_components_are_below_a_directory() {
        let table = [("/csi", true), ("/csi/a", true), ("/csi-data", false), ("/cs", false)];
        for (path, expected) in table {
            assert_eq!(is_below(path, "/csi"), expected, "{path}");
        }
    }
}
