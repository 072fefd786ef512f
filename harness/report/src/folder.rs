//! The run folder: `<out>/<time>-<cluster>`, new for every run and never overwritten; accessible to its owner only. Only
//! the folder of a run that could not start is used again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use claimcheck_files::make_folder_private;
use claimcheck_model::ClusterKind;
use jiff::Timestamp;

use super::{ReportError, ending::State, outputs, summary::Summary};

/// The maximum number of runs that may start within one second.
const SAME_SECOND: u32 = 1000;
/// The summary, which states whether the run started.
pub(super) const SUMMARY: &str = "summary.json";
/// A file of the cluster, as [`CLUSTER`] is a folder of it; the others are those of the outputs.
const KUBECONFIG: &str = "kubeconfig";
/// The folder of the cluster's logs.
const CLUSTER: &str = "cluster";
/// What the logs of a start that failed are renamed to, with a number.
const FAILED_START: &str = "failed-start";
/// Space on the disk that is kept free until the end of a run, for its verdict.
const RESERVE: usize = 128 << 10;

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

    /// The requested folder, or a new one below `folders`. An existing empty folder is accepted (as created by
    /// `mktemp -d`), and the folder of a run that could not start, with its logs: no result is overwritten. It
    /// becomes accessible to its owner only.
    ///
    /// # Errors
    /// As [`Self::at`] and [`Self::create`].
    pub fn choose(out: Option<&Path>, folders: &Path, cluster: ClusterKind) -> Result<Self, FolderError> {
        let is_empty =
            |path: &Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match out {
            Some(path) => match Self::at(path) {
                Err(FolderError::Exists { .. }) if is_empty(path) || clear_failed_start(path) => {
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
        let path = self.path.join(CLUSTER);
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(|source| FolderError::of(&path, source))?;
        Ok(path)
    }

    /// The path of the kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join(KUBECONFIG)
    }

    /// Records that the cluster could not start, for a command without reports: the folder can be used again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_failed_start(&self, reason: &str) -> Result<(), ReportError> {
        self.write(SUMMARY, &Summary::not_started(reason).to_json())
    }

    /// Keeps space free until it is dropped, if the disk has it. The file has no name, so that it ends with the process.
    pub(super) fn reserve(&self) -> Option<File> {
        let mut file = tempfile::tempfile_in(&self.path).ok()?;
        file.write_all(&vec![0; RESERVE]).ok()?;
        Some(file)
    }

    /// The file that shows the result: the page, or the folder if there is none.
    pub fn result(&self) -> PathBuf {
        let page = self.path.join("report.html");
        if page.is_file() { page } else { self.path.clone() }
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
}

/// Creates a folder and its missing parents.
fn with_parents(path: &Path) -> Result<(), FolderError> {
    let refused = |source| FolderError::Refused { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(refused)
}

/// Clears the folder of a run that could not start, and reports whether it was one. Its logs are renamed; a folder with
/// any other file is left as it is.
fn clear_failed_start(folder: &Path) -> bool {
    let summary = std::fs::read(folder.join(SUMMARY)).ok();
    let summary: Option<Summary> = summary.and_then(|json| serde_json::from_slice(&json).ok());
    let Some(Summary { state: State::NotStarted { .. }, .. }) = summary else { return false };
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let files: Vec<&str> = outputs::files().chain([KUBECONFIG]).filter(|file| *file != SUMMARY).collect();
    let is_known = |name: &str| {
        name == SUMMARY || name == CLUSTER || name.starts_with(FAILED_START) || files.contains(&name)
    };
    if !entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(is_known)) {
        return false;
    }
    // Of two runs that find it, the one that removes this file uses the folder.
    if std::fs::remove_file(folder.join(SUMMARY)).is_err() {
        return false;
    }
    for name in files {
        // What cannot be removed cannot be created again, which is reported there.
        let _ = std::fs::remove_file(folder.join(name));
    }
    let names = (1..SAME_SECOND).map(|n| folder.join(format!("{FAILED_START}-{n}")));
    if let Some(unused) = names.into_iter().find(|path| !path.exists()) {
        let _ = std::fs::rename(folder.join(CLUSTER), unused);
    }
    true
}

/// Creates a file that must not exist yet, for its owner only.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
