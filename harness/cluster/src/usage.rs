//! The resource usage of the whole process tree, from `/proc`.
//!
//! A sample costs a fraction of a millisecond per process (the kernel walks its page tables for the PSS), so
//! it is taken rarely.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

use claimcheck_model::{ControllersUsage, Usage};

/// PID 1: of the run's own namespace if it has one.
const INIT: u32 = 1;
/// Ticks of `/proc/<pid>/stat` in a second: a constant of the kernel's interface, whatever its own clock.
const USER_HZ: f64 = 100.0;

/// The current usage of the processes below the run's first one, and the part of these controllers. Loop devices and
/// requests are not known here.
///
/// CPU time is complete: that of an exited process is in its parent's, and that of an orphan
/// is in init's.
pub fn process_tree(controllers: &[u32]) -> Usage {
    let processes: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?))
        .collect();
    let us = std::process::id();
    let parent = processes.iter().find(|process| process.pid == us).map(|process| process.parent);
    let root = if parent == Some(INIT) { INIT } else { us };
    let tree = below(root, &processes);
    let of_controllers: HashSet<u32> =
        controllers.iter().flat_map(|controller| below(*controller, &processes)).collect();
    let mut usage = Usage::default();
    for process in processes.iter().filter(|process| tree.contains(&process.pid)) {
        usage.processes += 1;
        usage.threads += process.threads;
        usage.cpu_s += process.ticks as f64 / USER_HZ;
        // A process that exits meanwhile is skipped.
        let rollup = fs::read_to_string(proc(process.pid, "smaps_rollup")).unwrap_or_default();
        let pss_bytes = size(&rollup, "Pss:").unwrap_or_default();
        usage.rss_bytes += size(&rollup, "Rss:").unwrap_or_default();
        usage.pss_bytes += pss_bytes;
        if of_controllers.contains(&process.pid) {
            let part = usage.controllers.get_or_insert_default();
            *part = ControllersUsage {
                cpu_s: part.cpu_s + process.ticks as f64 / USER_HZ,
                pss_bytes: part.pss_bytes + pss_bytes,
            };
        }
        usage.descriptors += fs::read_dir(proc(process.pid, "fd")).map_or(0, |fds| fds.count() as u64);
    }
    usage
}

fn proc(pid: u32, file: &str) -> std::path::PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// The relevant fields of `/proc/<pid>/stat`: proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    /// Own time, and that of children that were waited for.
    ticks: u64,
    threads: u64,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(proc(pid, "stat")).ok()?)
    }

    fn parse(pid: u32, stat: &str) -> Option<Self> {
        // The second field, the program's name, may have spaces and parentheses. The manual counts from 1.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        let (user, system, waited_user, waited_system) = (field(14)?, field(15)?, field(16)?, field(17)?);
        Some(Self {
            pid,
            parent: u32::try_from(field(4)?).ok()?,
            ticks: user + system + waited_user + waited_system,
            threads: field(20)?,
        })
    }
}

/// `root` and all its descendants.
fn below(root: u32, processes: &[Process]) -> HashSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut tree = HashSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        if tree.insert(pid) {
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    tree
}

/// A size of `/proc/<pid>/smaps_rollup`, in bytes.
fn size(rollup: &str, name: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) (b c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 100 9999 12 18446744";
        let read = Process::parse(7, stat);
        assert_eq!(read, Some(Process { pid: 7, parent: 3, ticks: 100, threads: 5 }));
        assert_eq!(Process::parse(7, "7 (a"), None);
    }

    #[test]
    fn sizes_are_bytes() {
        let rollup =
            "55e3-7ffd ---p 00000000 00:00 0 [rollup]\nRss:    2048 kB\nPss:      10 kB\nPss_Dirty: 3 kB\n";
        assert_eq!((size(rollup, "Rss:"), size(rollup, "Pss:")), (Some(2 << 20), Some(10 << 10)));
        assert_eq!(size("", "Pss:"), None);
    }

    #[test]
    fn a_process_tree_has_exactly_the_descendants_of_its_root() {
        let of = |(pid, parent)| Process { pid, parent, ticks: 0, threads: 1 };
        let processes = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1)].map(of);
        assert_eq!(below(2, &processes), HashSet::from([2, 3, 4]));
    }

    #[test]
    fn we_use_something() {
        let usage = process_tree(&[]);
        assert!(usage.processes >= 1 && usage.threads >= usage.processes, "{usage:?}");
        assert!(usage.rss_bytes >= usage.pss_bytes && usage.pss_bytes > 0, "{usage:?}");
        assert_eq!(usage.controllers, None);
    }

    #[test]
    fn the_part_of_controllers_is_that_of_their_processes() {
        let mut controller = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let usage = process_tree(&[controller.id()]);
        let part = usage.controllers.unwrap();
        controller.kill().unwrap();
        controller.wait().unwrap();
        assert!(part.pss_bytes > 0 && part.pss_bytes < usage.pss_bytes, "{usage:?}");
    }
}
