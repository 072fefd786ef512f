//! A run as root gives up the capabilities that it does not need.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::leaves_nothing::{Run, alone, claimcheck, nothing_left, processes};

/// Numbers of capabilities, as in linux/capability.h.
const DAC_OVERRIDE: u64 = 1;
const SYS_ADMIN: u64 = 21;
/// SYS_PACCT, SYS_BOOT, SYS_TIME, SYS_TTY_CONFIG, AUDIT_CONTROL, SYSLOG: they concern the whole machine.
const OF_THE_MACHINE: [u64; 6] = [20, 22, 25, 26, 30, 34];

#[test]
#[ignore = "requires root"]
fn capabilities_that_a_run_does_not_need_are_dropped() {
    claimcheck_needs::require("root");
    let _alone = alone();
    let mut run = Run::start("capabilities", &mut claimcheck(), &["cluster", "up", "--nodes", "1"]);
    let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
    let up = lines.any(|line| line.is_ok_and(|line| line.contains("Ctrl-C")));
    assert!(up, "the cluster is not up");

    let effective = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).unwrap_or_default()
    };
    let component = |pid: i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.split('\0').nth(1).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    // The first process only waits for the others.
    for pid in processes(&run.tag).into_iter().filter(|pid| *pid != run.pid()) {
        let (component, mask) = (component(pid), effective(pid));
        match &*component {
            "controller" => assert_eq!(mask & !(1 << DAC_OVERRIDE), 0, "{component}: {mask:x}"),
            "driver" | "node" | "runtime" => {
                assert_ne!(mask & (1 << SYS_ADMIN), 0, "{component} mounts: {mask:x}");
            }
            _ => {}
        }
        for number in OF_THE_MACHINE {
            assert_eq!(mask & (1 << number), 0, "{component} has capability {number}: {mask:x}");
        }
        found.push(component);
    }
    for component in ["controller", "driver", "node", "runtime"] {
        assert!(found.iter().any(|found| found == component), "no {component} among {found:?}");
    }
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    assert_eq!(run.child.wait().expect("it was ours").code(), Some(0));
    nothing_left(&run.tag);
}
