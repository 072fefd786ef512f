//! The layer below the driver: effects on the host that are omitted or altered.

use std::{
    fs,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use super::Defect;
use crate::{
    filesystem::{Found, FsType},
    host::{Entry, FileId, Host, LoopDevice, LoopUse, Mounted, RawLoop, Stamp, Usage},
    mount_options::MountOptions,
};

/// A host with a defect.
pub(crate) struct DefectiveHost {
    pub(super) sound: Arc<dyn Host>,
    pub(super) defect: Defect,
}

/// Unaltered effects.
macro_rules! sound {
    ($($name:ident($($argument:ident: $type:ty),*) -> $done:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> io::Result<$done> {
            self.sound.$name($($argument),*)
        })*
    };
}

impl Host for DefectiveHost {
    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()> {
        let mut options = options.clone();
        if self.defect == Defect::XfsWithoutNouuid {
            options.filesystem.retain(|option| option != "nouuid");
        }
        self.sound.mount(device, target, fs, &options)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        let unmounted = self.sound.unmount(target);
        let busy = unmounted.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy);
        if self.defect == Defect::UnpublishDeletesFiles && busy {
            // As `rm -r` of the target: the mount point itself cannot be removed.
            for entry in fs::read_dir(target)? {
                let path = entry?.path();
                let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            }
        }
        unmounted
    }

    sound! {
        remove_tree(path: &Path) -> ();
        bind(source: &Path, target: &Path) -> ();
        copy_file(from: &Path, to: &Path, until: Option<Instant>) -> ();
        copy_tree(from: &Path, to: &Path, until: Option<Instant>) -> ();
        probe_filesystem(image: &Path) -> Option<Found>;
        make_dir(path: &Path, mode: u32) -> ();
        make_sparse(path: &Path, size: u64) -> ();
        write_file(path: &Path, content: &[u8]) -> ();
        rename(from: &Path, to: &Path) -> ();
        remove_file(path: &Path) -> ();
        remove_dir(path: &Path) -> ();
        make_filesystem(image: &Path, fs: FsType) -> ();
        make_file(path: &Path, mode: u32) -> ();
        grow_file(path: &Path, size: u64) -> ();
        grow_image(image: &Path, fs: FsType, hold: &File) -> ();
        grow_mounted(device: &Path, target: &Path, fs: FsType) -> ();
        attach_loop(image: &Path, expected: LoopUse) -> LoopDevice;
        detach_loop(device: &Path) -> ();
        resize_loop(device: &Path) -> ();
        remount_bind(target: &Path, options: &MountOptions) -> ();
        unmount_lazy(target: &Path) -> ();
        flush(path: &Path) -> ();
        freeze(path: &Path) -> ();
        thaw(path: &Path) -> ();
        file_id(path: &Path) -> Option<FileId>;
        entry(path: &Path) -> Option<Entry>;
        resolve(path: &Path) -> PathBuf;
        mounted(path: &Path) -> Option<Mounted>;
        deleted_at(path: &Path) -> Vec<PathBuf>;
        read_file(path: &Path) -> Option<Vec<u8>>;
        list_dir(path: &Path) -> Vec<String>;
        raw_loops(image: &Path) -> Vec<RawLoop>;
        mounted_loops(image: &Path) -> Vec<PathBuf>;
        stamp(path: &Path) -> Stamp;
        open_file(path: &Path) -> Option<File>;
        grows_mounted(fs: FsType) -> bool;
        usage(path: &Path) -> Usage;
        probe_loop() -> ();
        open_dir(path: &Path) -> Option<File>;
    }
}
