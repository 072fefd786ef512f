//! The run folder: `<out>/<time>-<cluster>`, new for every run and never overwritten; accessible to its owner only.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use claimcheck_files::make_folder_private;
use claimcheck_model::{ClusterKind, LoggedEvent};
use jiff::Timestamp;

use super::{ReportError, events::EVENTS};

/// The maximum number of runs that may start within one second.
const SAME_SECOND: u32 = 1000;

/// The run folder could not be created.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It exists already: runs are never overwritten.
    #[error("the run folder {} already exists: pass a new path with --out, or move that folder away", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// The operating system refused to create it.
    #[error("cannot create the run folder {}: choose a writable folder with --out", path.display())]
    Refused {
        /// Which.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Refused { path, source },
        }
    }
}

/// The folder of one run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Creates `<out>/<now>-<cluster>`, with the suffix `-2`, `-3`, ... if that exists.
    ///
    /// # Errors
    /// If it cannot be created; see [`FolderError`].
    pub fn create(out: &Path, now: Timestamp, cluster: ClusterKind) -> Result<Self, FolderError> {
        let name = format!("{}-{}", now.strftime("%Y%m%dT%H%M%SZ"), cluster.name());
        let names = std::iter::once(name.clone()).chain((2..SAME_SECOND).map(|n| format!("{name}-{n}")));
        for name in names {
            let path = out.join(name);
            match Self::at(&path) {
                Err(FolderError::Exists { .. }) => {}
                made_or_refused => return made_or_refused,
            }
        }
        Err(FolderError::Exists { path: out.join(name) })
    }

    /// Creates `path` itself, which must not exist: if two runs request the same folder, one of them fails.
    ///
    /// # Errors
    /// If it exists, or cannot be created.
    pub fn at(path: &Path) -> Result<Self, FolderError> {
        if let Some(parent) = path.parent() {
            with_parents(parent)?;
        }
        // It will hold a kubeconfig: for its owner only.
        DirBuilder::new().mode(0o700).create(path).map_err(|source| FolderError::of(path, source))?;
        Ok(Self { path: path.to_owned() })
    }

    /// The requested folder, or a new one below `folders`. An existing empty folder is
    /// accepted (as created by `mktemp -d`): nothing is overwritten. It becomes accessible to its owner only.
    ///
    /// # Errors
    /// As [`Self::at`] and [`Self::create`].
    pub fn choose(out: Option<&Path>, folders: &Path, cluster: ClusterKind) -> Result<Self, FolderError> {
        let is_empty =
            |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match out {
            Some(path) => match Self::at(path) {
                Err(FolderError::Exists { .. }) if is_empty(path) => {
                    make_folder_private(path).map_err(|source| FolderError::of(path, source))?;
                    Ok(Self { path: path.to_owned() })
                }
                made_or_refused => made_or_refused,
            },
            None => Self::create(folders, Timestamp::now(), cluster),
        }
    }

    /// The folder for the cluster's own logs; created by the first call.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn cluster_dir(&self) -> Result<PathBuf, FolderError> {
        let path = self.path.join("cluster");
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(|source| FolderError::of(&path, source))?;
        Ok(path)
    }

    /// The path of the kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of the folder, which must not exist yet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), ReportError> {
        let path = self.path.join(name);
        let written = create_new(&path).and_then(|mut file| file.write_all(content));
        written.map_err(|source| ReportError { path, source })
    }

    pub(super) fn log(&self) -> Result<Log, ReportError> {
        let path = self.path.join(EVENTS);
        match create_new(&path) {
            Ok(file) => Ok(Log { file: BufWriter::new(file), path }),
            Err(source) => Err(ReportError { path, source }),
        }
    }
}

/// Creates a folder and its missing parents.
fn with_parents(path: &Path) -> Result<(), FolderError> {
    let refused = |source| FolderError::Refused { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(refused)
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// `events.ndjson`.
#[derive(Debug)]
pub(super) struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Log {
    pub fn append(&mut self, event: &LoggedEvent) -> Result<(), ReportError> {
        let written = serde_json::to_writer(&mut self.file, event).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|source| self.failed(source))
    }

    pub fn flush(&mut self) -> Result<(), ReportError> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> ReportError {
        ReportError { path: self.path.clone(), source }
    }
}
