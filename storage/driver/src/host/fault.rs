//! A host that stops before the n-th effect, as if the process had been killed there.
//!
//! Part of the crate and not of its tests, so that other crates can also test crashes of the driver.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use super::{Entry, FileId, Host, LoopDevice, LoopUse, Mounted, RawLoop, Stamp, Usage};
use crate::{
    filesystem::{Found, FsType},
    mount_options::MountOptions,
};

/// Wraps a host, records every effect and rejects all of them from a chosen one on: a dead process does nothing
/// more, so the driver's own error handling must not be able to clean up either.
#[derive(Debug)]
pub struct FaultHost<H> {
    inner: H,
    /// Number of effects that may still happen; `None` for all of them.
    budget: Option<usize>,
    effects: Mutex<Vec<String>>,
}

impl<H: Host> FaultHost<H> {
    /// Passes everything through and only records it.
    pub fn recording(inner: H) -> Self {
        Self { inner, budget: None, effects: Mutex::default() }
    }

    /// Passes `effects` effects through and crashes before the next.
    pub fn crashing_after(inner: H, effects: usize) -> Self {
        Self { inner, budget: Some(effects), effects: Mutex::default() }
    }

    /// Every effect so far, in order; the last one did not happen if [`FaultHost::crashed`].
    pub fn effects(&self) -> Vec<String> {
        self.log().clone()
    }

    /// Whether an effect was rejected.
    pub fn crashed(&self) -> bool {
        self.budget.is_some_and(|budget| self.log().len() > budget)
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.effects.lock().expect("nothing panics while it holds the list of effects")
    }

    fn step(&self, effect: &str, path: &Path) -> io::Result<&H> {
        let mut effects = self.log();
        if self.budget.is_some_and(|budget| effects.len() > budget) {
            return Err(crash());
        }
        effects.push(format!("{effect} {}", path.display()));
        if self.budget.is_some_and(|budget| effects.len() > budget) {
            return Err(crash());
        }
        Ok(&self.inner)
    }
}

fn crash() -> io::Error {
    io::Error::other("crashed on purpose before this effect")
}

impl<H: Host> Host for FaultHost<H> {
    fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.step("make_dir", path)?.make_dir(path, mode)
    }

    fn make_sparse(&self, path: &Path, size: u64) -> io::Result<()> {
        self.step("make_sparse", path)?.make_sparse(path, size)
    }

    fn write_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.step("write_file", path)?.write_file(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename", to)?.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step("remove_file", path)?.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step("remove_dir", path)?.remove_dir(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.step("remove_tree", path)?.remove_tree(path)
    }

    fn make_filesystem(&self, image: &Path, fs: FsType) -> io::Result<()> {
        self.step("make_filesystem", image)?.make_filesystem(image, fs)
    }

    fn make_file(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.step("make_file", path)?.make_file(path, mode)
    }

    fn grow_file(&self, path: &Path, size: u64) -> io::Result<()> {
        self.step("grow_file", path)?.grow_file(path, size)
    }

    fn grow_image(&self, image: &Path, fs: FsType, hold: &File) -> io::Result<()> {
        self.step("grow_image", image)?.grow_image(image, fs, hold)
    }

    fn grow_mounted(&self, device: &Path, target: &Path, fs: FsType) -> io::Result<()> {
        self.step("grow_mounted", target)?.grow_mounted(device, target, fs)
    }

    fn attach_loop(&self, image: &Path, expected: LoopUse) -> io::Result<LoopDevice> {
        self.step("attach_loop", image)?.attach_loop(image, expected)
    }

    fn detach_loop(&self, device: &Path) -> io::Result<()> {
        self.step("detach_loop", device)?.detach_loop(device)
    }

    fn resize_loop(&self, device: &Path) -> io::Result<()> {
        self.step("resize_loop", device)?.resize_loop(device)
    }

    fn mount(&self, device: &Path, target: &Path, fs: FsType, options: &MountOptions) -> io::Result<()> {
        self.step("mount", target)?.mount(device, target, fs, options)
    }

    fn bind(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.step("bind", target)?.bind(source, target)
    }

    fn remount_bind(&self, target: &Path, options: &MountOptions) -> io::Result<()> {
        self.step("remount_bind", target)?.remount_bind(target, options)
    }

    fn unmount(&self, target: &Path) -> io::Result<()> {
        self.step("unmount", target)?.unmount(target)
    }

    fn unmount_lazy(&self, target: &Path) -> io::Result<()> {
        self.step("let_go", target)?.unmount_lazy(target)
    }

    fn copy_file(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        self.step("copy_file", to)?.copy_file(from, to, until)
    }

    fn copy_tree(&self, from: &Path, to: &Path, until: Option<Instant>) -> io::Result<()> {
        self.step("copy_tree", to)?.copy_tree(from, to, until)
    }

    fn flush(&self, path: &Path) -> io::Result<()> {
        self.step("flush", path)?.flush(path)
    }

    fn freeze(&self, path: &Path) -> io::Result<()> {
        self.step("freeze", path)?.freeze(path)
    }

    fn thaw(&self, path: &Path) -> io::Result<()> {
        self.step("thaw", path)?.thaw(path)
    }

    fn file_id(&self, path: &Path) -> io::Result<Option<FileId>> {
        self.inner.file_id(path)
    }

    fn mounted(&self, path: &Path) -> io::Result<Option<Mounted>> {
        self.inner.mounted(path)
    }

    fn deleted_at(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.deleted_at(path)
    }

    fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        self.inner.read_file(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list_dir(path)
    }

    fn probe_filesystem(&self, image: &Path) -> io::Result<Option<Found>> {
        self.inner.probe_filesystem(image)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.inner.entry(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn raw_loops(&self, image: &Path) -> io::Result<Vec<RawLoop>> {
        self.inner.raw_loops(image)
    }

    fn mounted_loops(&self, image: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.mounted_loops(image)
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.inner.stamp(path)
    }

    fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        self.inner.open_file(path)
    }

    fn grows_mounted(&self, fs: FsType) -> io::Result<bool> {
        self.inner.grows_mounted(fs)
    }

    fn usage(&self, path: &Path) -> io::Result<Usage> {
        self.inner.usage(path)
    }

    fn probe_loop(&self) -> io::Result<()> {
        self.inner.probe_loop()
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<File>> {
        self.inner.open_dir(path)
    }
}
