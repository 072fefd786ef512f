//! Layers: reproducible tar archives.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Seek, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use super::ImageError;

/// A layer in a file without a name.
pub(super) struct Layer {
    /// Positioned at its beginning.
    pub file: File,
    /// In bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal digits.
    pub digest: String,
    /// Names of the files in folders of programs.
    pub programs: BTreeSet<String>,
}

/// Computes the digest of what is written.
struct Hashing {
    file: BufWriter<File>,
    hash: Sha256,
    size: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Adds files to a layer.
struct Writer {
    tar: Builder<Hashing>,
    programs: BTreeSet<String>,
}

impl Writer {
    fn new(file: File) -> Self {
        let to = Hashing { file: BufWriter::new(file), hash: Sha256::new(), size: 0 };
        Self { tar: Builder::new(to), programs: BTreeSet::new() }
    }

    fn note(&mut self, path: &Path) {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        if let (Some("bin" | "sbin"), Some(name)) = (folder, path.file_name()) {
            self.programs.insert(name.to_string_lossy().into_owned());
        }
    }

    fn finish(self) -> io::Result<Layer> {
        let Hashing { file, hash, size } = self.tar.into_inner()?;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(Layer { file, size, digest: hex(&hash.finalize()), programs: self.programs })
    }
}

/// The layer of a root file system, written to `scratch`.
pub(super) fn from_rootfs(rootfs: &Path, scratch: File) -> Result<Layer, ImageError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ImageError::Rootfs { path, source }
    };
    let mut layer = Writer::new(scratch);
    if fs::metadata(rootfs).map_err(failed(rootfs))?.is_dir() {
        for path in files(rootfs, rootfs).map_err(failed(rootfs))? {
            add(&mut layer, rootfs, &path).map_err(failed(&rootfs.join(&path)))?;
        }
    } else {
        copy(&mut layer, rootfs).map_err(failed(rootfs))?;
    }
    layer.finish().map_err(failed(rootfs))
}

/// The layer with one program, written to `scratch`.
pub(super) fn from_binary(binary: &Path, at: &str, scratch: File) -> io::Result<Layer> {
    let mut layer = Writer::new(scratch);
    let file = File::open(binary)?;
    let mut header = header(EntryType::Regular, 0o755);
    header.set_size(file.metadata()?.len());
    layer.tar.append_data(&mut header, at.trim_start_matches('/'), BufReader::new(file))?;
    layer.finish()
}

/// Everything below the folder, relative to `root` and in order, folders before what is in them.
fn files(root: &Path, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<BTreeSet<_>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let mut found = Vec::new();
    for path in entries? {
        found.push(path.strip_prefix(root).expect("it is below the root").to_owned());
        if fs::symlink_metadata(&path)?.is_dir() {
            found.extend(files(root, &path)?);
        }
    }
    Ok(found)
}

fn add(layer: &mut Writer, root: &Path, path: &Path) -> io::Result<()> {
    let place = root.join(path);
    let meta = fs::symlink_metadata(&place)?;
    let kind = meta.file_type();
    // An engine creates devices itself, and sockets and pipes would have no peer.
    if kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket() {
        return Ok(());
    }
    let entry = if kind.is_dir() {
        EntryType::Directory
    } else if kind.is_symlink() {
        EntryType::Symlink
    } else {
        EntryType::Regular
    };
    let mut header = header(entry, meta.mode() & 0o7777);
    header.set_uid(meta.uid().into());
    header.set_gid(meta.gid().into());
    layer.note(path);
    if kind.is_symlink() {
        layer.tar.append_link(&mut header, path, fs::read_link(&place)?)
    } else if kind.is_dir() {
        layer.tar.append_data(&mut header, path, io::empty())
    } else {
        header.set_size(meta.len());
        layer.tar.append_data(&mut header, path, BufReader::new(File::open(&place)?))
    }
}

/// Copies an archive in its order, on which hard links depend.
fn copy(layer: &mut Writer, archive: &Path) -> io::Result<()> {
    let mut archive = Archive::new(BufReader::new(File::open(archive)?));
    for entry in archive.entries()? {
        let entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() || path == Path::new("./")
        {
            continue;
        }
        let mut header = header(kind, entry.header().mode()? & 0o7777);
        header.set_uid(entry.header().uid()?);
        header.set_gid(entry.header().gid()?);
        layer.note(&path);
        match entry.link_name()?.map(|target| target.into_owned()) {
            Some(target) if kind.is_symlink() || kind.is_hard_link() => {
                layer.tar.append_link(&mut header, &path, target)?;
            }
            _ => {
                header.set_size(entry.size());
                layer.tar.append_data(&mut header, &path, entry)?;
            }
        }
    }
    Ok(())
}

/// A header with owner root and time 0.
pub(super) fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// In hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
