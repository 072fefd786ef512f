//! A machine for tests without root: real files, but mounts and loop devices are only a table. Of all
//! tools it has only mkfs.ext4.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use claimcheck_driver::{
    filesystem::FsType,
    host::{FileId, Host, LoopDevice, Mounted, RealHost, Usage},
    mount_options::MountOptions,
};

/// Clones share the table, which so outlives a driver, as the kernel does.
#[derive(Clone, Default)]
pub struct FakeHost {
    without_loops: bool,
    kernel: Arc<Mutex<Kernel>>,
}

#[derive(Default)]
struct Kernel {
    loops: Vec<FileId>,
    /// Mounts by path, the topmost last.
    mounts: BTreeMap<PathBuf, Vec<Mounted>>,
}

impl FakeHost {
    /// A machine as an ordinary user has it.
    pub fn without_loops() -> Self {
        Self { without_loops: true, ..Self::default() }
    }

    /// Where something is mounted.
    pub fn mounts(&self) -> Vec<PathBuf> {
        self.kernel.lock().unwrap().mounts.keys().cloned().collect()
    }

    /// The machine loses its mounts and keeps its disk.
    pub fn reboot(&self) {
        self.kernel.lock().unwrap().mounts.clear();
    }

    fn push(&self, target: &Path, mounted: Mounted) -> io::Result<()> {
        if !target.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.kernel.lock().unwrap().mounts.entry(target.to_owned()).or_default().push(mounted);
        Ok(())
    }
}

impl Host for FakeHost {
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        RealHost.make_dir(path, mode)
    }

    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()> {
        RealHost.make_sparse(path, size)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealHost.write_file(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealHost.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealHost.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if self.mounted(path)?.is_some() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        RealHost.remove_dir(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        assert!(self.mounts().iter().all(|mount| !mount.starts_with(path)), "removing below a mount");
        RealHost.remove_tree(path)
    }

    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()> {
        if fs != FsType::Ext4 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = OpenOptions::new().write(true).open(image)?;
        file.write_all_at(&[0x53, 0xef], 1024 + 56)?;
        file.write_all_at(&0x2c2_u32.to_le_bytes(), 1024 + 96)
    }

    fn attach_loop(&self, image: &Path) -> io::Result<LoopDevice> {
        let backing = RealHost.file_id(image)?.ok_or(io::ErrorKind::NotFound)?;
        let mut kernel = self.kernel.lock().unwrap();
        kernel.loops.push(backing);
        Ok(LoopDevice { path: PathBuf::from(format!("/fake/loop{}", kernel.loops.len() - 1)), hold: None })
    }

    fn mount(&self, device: &Path, target: &Path, _: FsType, options: &MountOptions) -> io::Result<()> {
        let number: usize = device.to_str().unwrap().strip_prefix("/fake/loop").unwrap().parse().unwrap();
        let backing = self.kernel.lock().unwrap().loops[number];
        let root = FileId { device: 0x700 + number as u64, inode: 2 };
        self.push(target, Mounted { root, read_only: options.is_read_only(), backing: Some(backing) })
    }

    fn bind(&self, source: &Path, target: &Path) -> io::Result<()> {
        let root = self.file_id(source)?.ok_or(io::ErrorKind::NotFound)?;
        let below = self.mounted(source)?;
        let (read_only, backing) = below.map_or((false, None), |below| (below.read_only, below.backing));
        self.push(target, Mounted { root, read_only, backing })
    }

    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()> {
        let mut kernel = self.kernel.lock().unwrap();
        let mounted = kernel.mounts.get_mut(target).and_then(|stack| stack.last_mut());
        mounted.ok_or(io::ErrorKind::InvalidInput)?.read_only |= options.is_read_only();
        Ok(())
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        let mut kernel = self.kernel.lock().unwrap();
        let stack = kernel.mounts.get_mut(target).ok_or(io::ErrorKind::InvalidInput)?;
        stack.pop();
        if stack.is_empty() {
            kernel.mounts.remove(target);
        }
        Ok(())
    }

    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>> {
        match self.mounted(path)? {
            Some(mounted) => Ok(Some(mounted.root)),
            None => RealHost.file_id(path),
        }
    }

    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>> {
        Ok(self.kernel.lock().unwrap().mounts.get(path).and_then(|stack| stack.last().copied()))
    }

    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        RealHost.read_file(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        RealHost.list_dir(path)
    }

    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<FsType>> {
        RealHost.probe_filesystem(image)
    }

    fn usage(&self, path: &Path) -> io::Result<Usage> {
        RealHost.usage(path)
    }

    fn probe_loop(&self) -> io::Result<()> {
        if self.without_loops { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<File>> {
        RealHost.open_dir(path)
    }
}
