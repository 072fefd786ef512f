//! Values for tests, as short as they can be written, and a host and a runtime that need no root.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use claimcheck_model::{ObjectKey, Stamp};
use claimcheck_runtime::{ContainerSpec, Execution, Exit, Runtime, RuntimeError, State};
use tokio::sync::{mpsc, oneshot};

use crate::{
    desired::VolumeUse,
    effects::{Host, RealHost},
    volumes::{CsiVolume, Form, FsGroup, PodMount, PodRef, VolumeKey, VolumeSpec, content::Files},
};

/// The driver of all test volumes.
pub const DRIVER: &str = "test.csi.example";

/// A CSI volume as `pod` wants it.
pub fn volume_use(handle: &str, pod: &str) -> VolumeUse {
    VolumeUse {
        key: VolumeKey::csi(DRIVER, handle),
        spec: VolumeSpec::Csi(Box::new(CsiVolume {
            pv: format!("pv-{handle}"),
            driver: DRIVER.into(),
            handle: handle.into(),
            form: Form::Filesystem,
            fs_type: "ext4".into(),
            mount_options: Vec::new(),
            access_modes: vec!["ReadWriteOnce".into()],
            attributes: BTreeMap::new(),
            stage_secret: None,
            publish_secret: None,
            expand_secret: None,
        })),
        mount: PodMount {
            pod: PodRef {
                key: ObjectKey::new("ns", pod),
                uid: pod.into(),
                service_account: "default".into(),
            },
            names: vec!["v".into()],
            directory: format!("pv-{handle}"),
            read_only: false,
            fs_group: None,
        },
    }
}

/// The real host with a mount table of its own, so that nothing needs root.
#[derive(Clone, Debug, Default)]
pub struct FakeHost {
    mounts: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl FakeHost {
    /// Something is mounted there now.
    pub fn mount(&self, path: PathBuf) {
        self.mounts.lock().unwrap().insert(path);
    }

    /// Whether something is.
    pub fn is_mounted(&self, path: &Path) -> bool {
        self.mounts.lock().unwrap().contains(path)
    }

    /// And not any longer.
    pub fn unmount(&self, path: &Path) {
        self.mounts.lock().unwrap().remove(path);
    }
}

impl Host for FakeHost {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealHost.make_dir(path)
    }

    fn open_to_all(&self, path: &Path) -> io::Result<()> {
        RealHost.open_to_all(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealHost.write(path, content)
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        RealHost.read(path)
    }

    fn link(&self, path: &Path, to: &Path) -> io::Result<()> {
        RealHost.link(path, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.mounts.lock().unwrap().contains(path) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        RealHost.remove(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        if self.mounts.lock().unwrap().iter().any(|mount| mount.starts_with(path)) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        RealHost.remove_tree(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        RealHost.list(path)
    }

    fn mount_points(&self) -> io::Result<BTreeSet<PathBuf>> {
        Ok(self.mounts.lock().unwrap().clone())
    }

    fn apply_group(&self, path: &Path, group: FsGroup, read_only: bool, count: &AtomicU64) -> io::Result<()> {
        RealHost.apply_group(path, group, read_only, count)
    }

    fn write_files(&self, path: &Path, files: &Files, group: Option<FsGroup>) -> io::Result<bool> {
        RealHost.write_files(path, files, group)
    }

    fn mount_memory(&self, path: &Path, _: Option<u64>) -> io::Result<()> {
        self.mount(path.to_owned());
        Ok(())
    }

    fn unmount(&self, path: &Path) -> io::Result<()> {
        FakeHost::unmount(self, path);
        Ok(())
    }

    fn usage(&self, path: &Path) -> io::Result<u64> {
        RealHost.usage(path)
    }
}

/// A runtime with a table of containers instead of processes. SIGTERM ends them with 143. Further programs of a container
/// are processes of this machine.
#[derive(Clone, Default)]
pub struct FakeRuntime(Arc<Mutex<Containers>>);

#[derive(Default)]
struct Containers {
    states: BTreeMap<String, (State, ContainerSpec)>,
    listeners: Vec<mpsc::UnboundedSender<(String, State)>>,
}

impl FakeRuntime {
    /// The container's specification.
    pub fn spec(&self, id: &str) -> Option<ContainerSpec> {
        self.0.lock().unwrap().states.get(id).map(|(_, spec)| spec.clone())
    }

    /// The ids of all containers that run.
    pub fn running(&self) -> Vec<String> {
        let containers = self.0.lock().unwrap();
        let runs =
            |(_, (state, _)): &(&String, &(State, ContainerSpec))| matches!(state, State::Running { .. });
        containers.states.iter().filter(runs).map(|(id, _)| id.clone()).collect()
    }

    /// A container ends.
    pub fn end(&self, id: &str, exit: Exit) {
        let mut containers = self.0.lock().unwrap();
        let Some((state, _)) = containers.states.get_mut(id) else { return };
        let State::Running { started, .. } = *state else { return };
        *state = State::Exited { exit, started, finished: Stamp::now() };
        let update = (id.to_owned(), *state);
        containers.listeners.retain(|listener| listener.send(update.clone()).is_ok());
    }
}

impl Runtime for FakeRuntime {
    async fn start(&self, mut spec: ContainerSpec) -> claimcheck_runtime::Result<()> {
        // What is handed over by descriptor is looked at now: the descriptor is closed after the start.
        for mount in spec.mounts.iter_mut().filter(|mount| mount.source.starts_with("/proc/self/fd")) {
            mount.source = std::fs::read_link(&mount.source).unwrap();
        }
        let state = State::Running { pid: 1, started: Stamp::now() };
        self.0.lock().unwrap().states.insert(spec.id.clone(), (state, spec));
        Ok(())
    }

    async fn exec(
        &self,
        id: &str,
        execution: Execution,
    ) -> claimcheck_runtime::Result<oneshot::Receiver<Exit>> {
        let Execution { argv, stdio: [stdin, stdout, stderr], terminal: _ } = execution;
        let mut command = tokio::process::Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(stdin).stdout(stdout).stderr(stderr);
        let failed =
            |error: io::Error| RuntimeError::Refused { id: id.to_owned(), reason: error.to_string() };
        let mut program = command.spawn().map_err(failed)?;
        let (finished, exit) = oneshot::channel();
        tokio::spawn(async move {
            let status = program.wait().await.unwrap();
            let _ = finished.send(Exit::Code(status.code().unwrap_or(-1)));
        });
        Ok(exit)
    }

    async fn signal(&self, id: &str, signal: i32) -> claimcheck_runtime::Result<()> {
        self.end(id, Exit::Signal(signal));
        Ok(())
    }

    async fn list(&self) -> claimcheck_runtime::Result<Vec<(String, State)>> {
        let containers = self.0.lock().unwrap();
        Ok(containers.states.iter().map(|(id, (state, _))| (id.clone(), *state)).collect())
    }

    async fn remove(&self, id: &str) -> claimcheck_runtime::Result<()> {
        self.0.lock().unwrap().states.remove(id);
        Ok(())
    }

    fn events(&self) -> mpsc::UnboundedReceiver<(String, State)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap().listeners.push(sender);
        receiver
    }
}
