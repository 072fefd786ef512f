//! Faults of the built-in components: they fail the run, and are listed first.

use claimcheck_model::ComponentFault;

use super::summary::Summary;

/// What readers do about one.
const REMEDY: &str = "a fault of claimcheck, not of the driver: other failures may be its consequences; report it with the run folder";

/// The faults, each once, and the remedy.
pub(crate) fn component_faults(summary: &Summary) -> (Vec<String>, &'static str) {
    (summary.component_faults.iter().map(ToString::to_string).collect(), REMEDY)
}

/// Adds the crash loops that the exits of components show.
pub(crate) fn add_crash_loops(summary: &mut Summary) {
    let loops = summary
        .restarts
        .iter()
        .filter(|(_, restarts)| restarts.builtin && restarts.times >= ComponentFault::CRASH_LOOP);
    let loops = loops.map(|(component, restarts)| ComponentFault::CrashLoop {
        component: component.clone(),
        times: restarts.times,
        status: restarts.status.clone(),
    });
    let loops: Vec<_> = loops.collect();
    summary.component_faults.extend(loops);
    summary.component_faults.sort();
    summary.component_faults.dedup();
}
