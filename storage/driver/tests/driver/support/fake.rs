//! A machine for tests without root: real files, but mounts and loop devices are only a table. Of all
//! tools it has only mkfs.ext4.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use claimcheck_driver::{
    filesystem::{Found, FsType},
    host::{Backing, Entry, FileId, Host, LoopDevice, LoopUse, Mounted, RawLoop, RealHost, Stamp, Usage},
    mount_options::MountOptions,
};

/// Path of a loop device's node: below a directory that does not exist, so that it is never opened.
fn device(number: usize) -> PathBuf {
    PathBuf::from(format!("/fake/loop{number}"))
}

/// Also of the name that a mount's backing gives.
fn number(device: &Path) -> Option<usize> {
    let device = device.to_str()?;
    device.strip_prefix("/fake/loop").or(device.strip_prefix("/dev/loop"))?.parse().ok()
}

/// Writes an ext4 superblock as large as the image: blocks of 1 KiB in groups of 8192.
fn fill(image: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(image)?;
    let blocks = u32::try_from(file.metadata()?.len() / 1024).unwrap();
    for (offset, value) in [(4, blocks), (20, 1), (32, 8192), (96, 0x42)] {
        file.write_all_at(&value.to_le_bytes(), 1024 + offset)?;
    }
    Ok(())
}

/// Clones share the table, which so outlives a driver, as the kernel does.
#[derive(Clone, Default)]
pub struct FakeHost {
    without_loops: bool,
    without_online_growth: bool,
    kernel: Arc<Mutex<Kernel>>,
}

#[derive(Default)]
struct Kernel {
    /// What was ever attached, and for what: a number is not given away twice.
    loops: Vec<(FileId, Option<LoopUse>)>,
    /// The image behind each loop device, which the real tools reach through the device.
    images: Vec<PathBuf>,
    /// The directories that were bind mounted, by the identity of their content.
    directories: Vec<(FileId, PathBuf)>,
    /// Mounts by path, the topmost last.
    mounts: BTreeMap<PathBuf, Vec<Mounted>>,
    /// Images with file systems that have no writers.
    frozen: BTreeSet<(u64, u64)>,
}

impl FakeHost {
    /// A machine as an ordinary user has it.
    pub fn without_loops() -> Self {
        Self { without_loops: true, ..Self::default() }
    }

    /// A machine with a kernel that does not expand a mounted ext4.
    pub fn without_online_growth() -> Self {
        Self { without_online_growth: true, ..Self::default() }
    }

    /// How many loop devices are attached for raw use.
    pub fn raw_count(&self) -> usize {
        let raw = |(_, expected): &&(_, _)| matches!(expected, Some(LoopUse::Raw { .. }));
        self.kernel.lock().unwrap().loops.iter().filter(raw).count()
    }

    /// Where something is mounted.
    pub fn mounts(&self) -> Vec<PathBuf> {
        self.kernel.lock().unwrap().mounts.keys().cloned().collect()
    }

    /// How many file systems are frozen.
    pub fn frozen_count(&self) -> usize {
        self.kernel.lock().unwrap().frozen.len()
    }

    /// The image below the mount at `path`.
    fn image_at(&self, path: &Path) -> io::Result<(u64, u64)> {
        let backing = self.mounted(path)?.and_then(|mounted| mounted.backing);
        backing
            .map(|backing| (backing.file.device, backing.file.inode))
            .ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// The machine loses its mounts and loop devices and keeps its disk.
    pub fn reboot(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.mounts.clear();
        kernel.frozen.clear();
        kernel.loops.iter_mut().for_each(|(_, expected)| *expected = None);
    }

    fn push(&self, target: &Path, mounted: Mounted) -> io::Result<()> {
        if !target.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.kernel.lock().unwrap().mounts.entry(target.to_owned()).or_default().push(mounted);
        Ok(())
    }
}

impl Host for FakeHost {
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        RealHost::default().make_dir(path, mode)
    }

    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()> {
        RealHost::default().make_sparse(path, size)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        RealHost::default().write_file(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealHost::default().rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealHost::default().remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if self.mounted(path)?.is_some() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        RealHost::default().remove_dir(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        assert!(self.mounts().iter().all(|mount| !mount.starts_with(path)), "removing below a mount");
        RealHost::default().remove_tree(path)
    }

    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()> {
        if fs != FsType::Ext4 {
            return Err(io::ErrorKind::NotFound.into());
        }
        OpenOptions::new().write(true).open(image)?.write_all_at(&[0x53, 0xef], 1024 + 56)?;
        fill(image)
    }

    fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        RealHost::default().make_file(path, mode)
    }

    fn grow_file(&self, path: &Path, size: u64) -> io::Result<()> {
        RealHost::default().grow_file(path, size)
    }

    fn grow_image(&self, image: &Path, _: FsType, _: &File) -> io::Result<()> {
        fill(image)
    }

    fn grow_mounted(&self, device: &Path, _: &Path, _: FsType) -> io::Result<()> {
        fill(&self.kernel.lock().unwrap().images[number(device).unwrap()])
    }

    fn attach_loop(&self, image: &Path, expected: LoopUse) -> io::Result<LoopDevice> {
        let backing = RealHost::default().file_id(image)?.ok_or(io::ErrorKind::NotFound)?;
        let mut kernel = self.kernel.lock().unwrap();
        kernel.images.push(image.to_owned());
        kernel.loops.push((backing, Some(expected)));
        Ok(LoopDevice { path: device(kernel.loops.len() - 1), hold: None })
    }

    fn detach_loop(&self, device: &Path) -> io::Result<()> {
        self.kernel.lock().unwrap().loops[number(device).unwrap()].1 = None;
        Ok(())
    }

    fn resize_loop(&self, device: &Path) -> io::Result<()> {
        let attached = self.kernel.lock().unwrap().loops[number(device).unwrap()].1.is_some();
        if attached { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn mount(&self, device: &Path, target: &Path, _: FsType, options: &MountOptions) -> io::Result<()> {
        let number = number(device).unwrap();
        let file = self.kernel.lock().unwrap().loops[number].0;
        let root = FileId { device: 0x700 + number as u64, inode: 2 };
        let backing = Some(Backing { loop_number: number as u32, file });
        self.push(target, Mounted { root, read_only: options.is_read_only(), backing })
    }

    fn bind(&self, source: &Path, target: &Path) -> io::Result<()> {
        if let Some(number) = number(source) {
            let file = self.kernel.lock().unwrap().loops[number].0;
            let root = FileId { device: 6, inode: number as u64 };
            let backing = Some(Backing { loop_number: number as u32, file });
            return self.push(target, Mounted { root, read_only: false, backing });
        }
        let root = self.file_id(source)?.ok_or(io::ErrorKind::NotFound)?;
        self.kernel.lock().unwrap().directories.push((root, source.to_owned()));
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

    fn unmount_lazy(&self, target: &Path) -> io::Result<()> {
        self.unmount(target)
    }

    fn copy_file(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        RealHost::default().copy_file(from, to, until)
    }

    fn copy_tree(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        RealHost::default().copy_tree(from, to, until)
    }

    fn flush(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn freeze(&self, path: &Path) -> io::Result<()> {
        let image = self.image_at(path)?;
        let fresh = self.kernel.lock().unwrap().frozen.insert(image);
        if fresh { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
    }

    fn thaw(&self, path: &Path) -> io::Result<()> {
        let image = self.image_at(path)?;
        self.kernel.lock().unwrap().frozen.remove(&image);
        Ok(())
    }

    fn mounted_loops(&self, image: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(file) = RealHost::default().file_id(image)? else { return Ok(Vec::new()) };
        let kernel = self.kernel.lock().unwrap();
        let numbers = kernel.mounts.values().flatten().filter_map(|mounted| mounted.backing);
        let numbers = numbers.filter(|backing| backing.file == file).map(|backing| backing.loop_number);
        // A frozen file system holds its device, whether it is mounted or not.
        let frozen = kernel.frozen.contains(&(file.device, file.inode));
        let attached = kernel.loops.iter().position(|(backing, _)| frozen && *backing == file);
        let numbers: BTreeSet<usize> = numbers.map(|number| number as usize).chain(attached).collect();
        Ok(numbers.into_iter().map(device).collect())
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        // All was written long ago: how often a copy is made again must not depend on how fast a test is.
        Ok(Stamp { newest: Duration::ZERO, ..RealHost::default().stamp(path)? })
    }

    fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        RealHost::default().open_file(path)
    }

    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>> {
        match self.mounted(path)? {
            Some(mounted) => Ok(Some(mounted.root)),
            None => RealHost::default().file_id(path),
        }
    }

    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>> {
        Ok(self.kernel.lock().unwrap().mounts.get(path).and_then(|stack| stack.last().copied()))
    }

    fn deleted_at(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(mounted) = self.mounted(path)? else { return Ok(Vec::new()) };
        let kernel = self.kernel.lock().unwrap();
        let image = mounted
            .backing
            .map(|backing| (backing.file, kernel.images[backing.loop_number as usize].clone()));
        let directory = kernel.directories.iter().find(|(root, _)| *root == mounted.root).cloned();
        let mut deleted = Vec::new();
        for (id, name) in image.into_iter().chain(directory) {
            if RealHost::default().file_id(&name)? != Some(id) {
                deleted.push(name);
            }
        }
        Ok(deleted)
    }

    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        RealHost::default().read_file(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        RealHost::default().list_dir(path)
    }

    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<Found>> {
        RealHost::default().probe_filesystem(image)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        RealHost::default().entry(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealHost::default().resolve(path)
    }

    fn raw_loops(&self, image: &Path) -> io::Result<Vec<RawLoop>> {
        let kernel = self.kernel.lock().unwrap();
        let attached = kernel.loops.iter().enumerate().filter(|(number, _)| kernel.images[*number] == image);
        Ok(attached
            .filter_map(|(number, (_, expected))| match expected {
                Some(LoopUse::Raw { read_only }) => {
                    Some(RawLoop { path: device(number), read_only: *read_only })
                }
                Some(LoopUse::Mount) | None => None,
            })
            .collect())
    }

    fn grows_mounted(&self, fs: FsType) -> io::Result<bool> {
        Ok(fs == FsType::Xfs || !self.without_online_growth)
    }

    fn usage(&self, path: &Path) -> io::Result<Usage> {
        RealHost::default().usage(path)
    }

    fn probe_loop(&self) -> io::Result<()> {
        if self.without_loops { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<File>> {
        RealHost::default().open_dir(path)
    }
}
