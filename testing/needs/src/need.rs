//! The things that a test can require, and whether this machine has them.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The folder with the programs of a stock control plane.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// The folder with the programs of kubernetes-csi.
const SIDECARS: &str = "CLAIMCHECK_STOCK_SIDECARS";
/// A kubectl for the scripts of commands, which take minutes.
const KUBECTL: &str = "CLAIMCHECK_KUBECTL";
const PROGRAMS_OF_ENVTEST: [&str; 2] = ["kube-apiserver", "etcd"];
const PROGRAMS_OF_SIDECARS: [&str; 8] = [
    "hostpathplugin",
    "csi-node-driver-registrar",
    "livenessprobe",
    "csi-attacher",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "snapshot-controller",
];
/// Where Debian has programs that are not in the `PATH` of every user.
const FOLDERS_OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Something that a test requires of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root, with the right to mount.
    Root,
    /// User namespaces in which one may mount.
    Mounts,
    /// Loop devices.
    Loop,
    /// XFS: its tools, and a kernel that mounts it.
    Xfs,
    /// A kubectl in the `PATH`.
    Kubectl,
    /// A kubectl for the scripts of kubectl commands.
    KubectlScripts,
    /// docker with a running daemon.
    Docker,
    /// kind.
    Kind,
    /// A stock kube-apiserver with etcd.
    Envtest,
    /// A stock kube-controller-manager and kube-scheduler.
    Stock,
    /// The sidecars and the hostpath driver of kubernetes-csi, as programs.
    Sidecars,
    /// node and npm.
    Npm,
    /// Prometheus with promtool.
    Prometheus,
    /// Chromium.
    Chromium,
    /// Python 3.
    Python,
    /// Kubernetes' own e2e tests.
    E2e,
    /// cargo-mutants.
    Mutants,
}

impl Need {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 17] = [
        Self::Root,
        Self::Mounts,
        Self::Loop,
        Self::Xfs,
        Self::Kubectl,
        Self::KubectlScripts,
        Self::Docker,
        Self::Kind,
        Self::Envtest,
        Self::Stock,
        Self::Sidecars,
        Self::Npm,
        Self::Prometheus,
        Self::Chromium,
        Self::Python,
        Self::E2e,
        Self::Mutants,
    ];

    /// The word for it in `#[ignore = "requires .."]` and `CLAIMCHECK_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Mounts => "mounts",
            Self::Loop => "loop",
            Self::Xfs => "xfs",
            Self::Kubectl => "kubectl",
            Self::KubectlScripts => "kubectl-scripts",
            Self::Docker => "docker",
            Self::Kind => "kind",
            Self::Envtest => "envtest",
            Self::Stock => "stock",
            Self::Sidecars => "sidecars",
            Self::Npm => "npm",
            Self::Prometheus => "prometheus",
            Self::Chromium => "chromium",
            Self::Python => "python",
            Self::E2e => "e2e",
            Self::Mutants => "mutants",
        }
    }

    /// Those of a list with commas.
    ///
    /// # Errors
    /// The first word that is none of their names.
    pub fn parse(list: &str) -> Result<Vec<Self>, String> {
        let word = |word: &str| {
            Self::ALL.into_iter().find(|need| need.name() == word).ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("{word:?} is not something that a test can require: write {names}")
            })
        };
        list.split(',').map(str::trim).map(word).collect()
    }

    /// What this machine lacks of it and how to get that; `None` if it has all. Determined once per process.
    pub fn missing(self) -> Option<String> {
        static FOUND: [OnceLock<Option<String>>; Need::ALL.len()] =
            [const { OnceLock::new() }; Need::ALL.len()];
        FOUND[self as usize].get_or_init(|| self.find().err()).clone()
    }

    fn find(self) -> Result<(), String> {
        match self {
            Self::Root => root(),
            Self::Mounts => {
                let arguments = ["--user", "--map-root-user", "--mount", "true"];
                let how = "permit user namespaces (user.max_user_namespaces), in a container by --privileged";
                run("unshare", &arguments).map_err(|error| format!("{error}: {how}"))
            }
            Self::Loop => loop_device(),
            Self::Xfs => xfs(),
            Self::Kubectl => in_path(&["kubectl"], "apt-get install kubernetes-client"),
            Self::KubectlScripts => kubectl_of_scripts(),
            Self::Docker => in_path(&["docker"], "install it").and_then(|()| {
                run("docker", &["version"]).map_err(|error| format!("{error}: start its daemon"))
            }),
            Self::Kind => in_path(&["kind"], "see https://kind.sigs.k8s.io"),
            Self::Envtest => envtest().map(drop),
            Self::Stock => in_folder(ASSETS, &["kube-controller-manager", "kube-scheduler"]),
            Self::Sidecars => in_folder(SIDECARS, &PROGRAMS_OF_SIDECARS),
            Self::Npm => in_path(&["node", "npm"], "apt-get install nodejs npm"),
            Self::Mutants => in_path(&["cargo-mutants"], "cargo install --locked cargo-mutants"),
            Self::Prometheus => in_path(&["prometheus", "promtool"], "apt-get install prometheus"),
            Self::Chromium => in_path(&["chromium"], "apt-get install chromium"),
            Self::Python => in_path(&["python3"], "apt-get install python3"),
            Self::E2e => match env::var_os("E2E_TEST") {
                Some(program) if Path::new(&program).is_file() => Ok(()),
                Some(program) => Err(format!("E2E_TEST is {}, which is not a file", program.display())),
                None if in_folder(ASSETS, &["e2e.test"]).is_ok() => Ok(()),
                None => in_path(&["e2e.test"], "set E2E_TEST to the test program of Kubernetes"),
            },
        }
    }
}

/// The folder with kube-apiserver and etcd: `KUBEBUILDER_ASSETS`, or one of the `PATH`.
///
/// # Errors
/// What is missing.
pub fn envtest() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let has_all = |folder: &PathBuf| PROGRAMS_OF_ENVTEST.iter().all(|name| folder.join(name).is_file());
    let folders = env::var_os(ASSETS).map(PathBuf::from).into_iter().chain(env::split_paths(&path));
    let missing = format!(
        "neither {ASSETS} nor PATH has {}: install them with setup-envtest of controller-runtime, and set {ASSETS}",
        PROGRAMS_OF_ENVTEST.join(" and ")
    );
    { folders }.find(has_all).ok_or(missing)
}

fn root() -> Result<(), String> {
    // Real, effective, saved, of the file system.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    if user != Some("0") {
        return Err("this user is not root: run the tests as root".to_owned());
    }
    let how = "run the tests with CAP_SYS_ADMIN, in a container by --privileged";
    run("unshare", &["--mount", "true"]).map_err(|error| format!("{error}: {how}"))
}

/// Attaches a device and detaches it.
fn loop_device() -> Result<(), String> {
    let image = env::temp_dir().join(format!("claimcheck-needs-{}", std::process::id()));
    let attached = File::create(&image).and_then(|file| file.set_len(1 << 20)).and_then(|()| {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).arg(&image).env("PATH", path()).output()
    });
    let result = match attached {
        Ok(output) if output.status.success() => {
            let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            run("losetup", &["--detach", &device])
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("losetup: {error}")),
    };
    let _ = fs::remove_file(image);
    let how = "run the tests as root (modprobe loop), in a container by --privileged";
    result.map_err(|error| format!("{error}: {how}"))
}

fn xfs() -> Result<(), String> {
    in_path(&["mkfs.xfs"], "apt-get install xfsprogs")?;
    let is_known = || {
        let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        filesystems.lines().any(|line| line.split_whitespace().last() == Some("xfs"))
    };
    // A mount loads the module, too.
    if is_known() || (run("modprobe", &["xfs"]).is_ok() && is_known()) {
        return Ok(());
    }
    Err("the kernel does not mount XFS: modprobe xfs".to_owned())
}

fn kubectl_of_scripts() -> Result<(), String> {
    match env::var_os(KUBECTL) {
        Some(program) if Path::new(&program).is_file() => Ok(()),
        Some(program) => Err(format!("{KUBECTL} is {}, which is not a file", program.display())),
        None if in_folder(ASSETS, &["kubectl"]).is_ok() => Ok(()),
        None => Err(format!(
            "the commands take minutes: set {KUBECTL} to kubectl, or {ASSETS} to a folder with it (and with \
             etcd, kube-apiserver and kube-controller-manager to compare with a stock API server)"
        )),
    }
}

/// The `PATH`, with the folders of root.
fn path() -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(FOLDERS_OF_ROOT.map(PathBuf::from));
    env::join_paths(folders).unwrap_or(path)
}

fn in_path(programs: &[&str], how: &str) -> Result<(), String> {
    let folders: Vec<PathBuf> = env::split_paths(&path()).collect();
    match programs.iter().find(|program| !folders.iter().any(|folder| folder.join(program).is_file())) {
        Some(missing) => Err(format!("{missing} is not in the PATH: {how}")),
        None => Ok(()),
    }
}

/// Whether the folder that a variable names has these programs.
fn in_folder(variable: &str, programs: &[&str]) -> Result<(), String> {
    let Some(folder) = env::var_os(variable).map(PathBuf::from) else {
        return Err(format!("{variable} is not set: set it to a folder with {}", programs.join(", ")));
    };
    match programs.iter().find(|program| !folder.join(program).is_file()) {
        Some(missing) => {
            Err(format!("{variable} is {}, which has no {missing}: add it there", folder.display()))
        }
        None => Ok(()),
    }
}

/// Runs a program to its end; the error is the last line that it prints.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", path()).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program}: {}", text.trim().lines().last().unwrap_or("it fails")))
        }
        Err(error) => Err(format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        let names = Need::ALL.map(Need::name).join(", ");
        assert_eq!(Need::parse(&names).unwrap(), Need::ALL);
        assert!(Need::parse("").unwrap_err().contains("write root, mounts"));
        for (at, need) in Need::ALL.into_iter().enumerate() {
            assert_eq!(need as usize, at, "the order of ALL is that of the declaration");
        }
    }

    #[test]
    fn programs_are_found_in_folders_of_root_and_variables() {
        in_path(&["sh"], "").unwrap();
        let error = in_path(&["sh", "no-such-program"], "build it").unwrap_err();
        assert_eq!(error, "no-such-program is not in the PATH: build it");
        let error = in_folder("CLAIMCHECK_NO_SUCH_VARIABLE", &["a", "b"]).unwrap_err();
        assert_eq!(error, "CLAIMCHECK_NO_SUCH_VARIABLE is not set: set it to a folder with a, b");
        let folder = env!("CARGO_MANIFEST_DIR");
        in_folder("CARGO_MANIFEST_DIR", &["Cargo.toml"]).unwrap();
        let error = in_folder("CARGO_MANIFEST_DIR", &["Cargo.toml", "etcd"]).unwrap_err();
        assert_eq!(error, format!("CARGO_MANIFEST_DIR is {folder}, which has no etcd: add it there"));
    }

    #[test]
    fn the_error_of_a_program_is_its_last_line() {
        run("true", &[]).unwrap();
        let error = run("sh", &["-c", "echo first >&2; echo last >&2; exit 1"]).unwrap_err();
        assert_eq!(error, "sh: last");
        assert!(run("no-such-program", &[]).unwrap_err().starts_with("no-such-program: "));
    }
}
