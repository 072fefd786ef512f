//! The parts of the page, top to bottom.

use std::collections::BTreeMap;

use claimcheck_model::{CapabilityLine, Phase, TransitionKind};
use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    super::{
        ending::Ending, missing_rules::missing_rules, nodes, quantiles::Quantiles, summary::Summary,
        tables::human,
    },
    charts::{self, DOWN, Step, UP, colour},
    timelines::Times,
};

/// Beyond this part of an axis a label is placed to the left of its line, for lack of space to the right.
const NEAR_THE_END: f64 = 0.8;

fn of<'a>(summary: &'a Summary, name: &str) -> &'a str {
    summary.environment.get(name).map_or("", String::as_str)
}

fn measure<'a>(summary: &'a Summary, phase: Phase, name: &str) -> Option<&'a Quantiles> {
    summary.phases.get(&phase)?.iter().find(|quantiles| quantiles.name == name)
}

/// The title of the window.
pub(super) fn title(summary: &Summary) -> String {
    format!("{} {} · claimcheck", of(summary, "driver"), summary.ending().words())
}

/// Verdict, environment, and navigation.
pub(super) fn header(summary: &Summary, started: u64, has_trend: bool) -> Markup {
    let (class, word) = match summary.ending() {
        Ending::Passed => ("pass", "Passed"),
        Ending::Failed | Ending::ThresholdMissed => ("fail", "Failed"),
        Ending::NotStarted => ("fail", "Could not start"),
        Ending::NotEnded => ("fail", "Did not end"),
        Ending::NothingTested => ("fail", "Nothing was tested"),
        Ending::Interrupted => ("fail", "Interrupted"),
    };
    let cases = summary.cases;
    let failed = cases.failed + summary.load.as_ref().map_or(0, |load| load.failed);
    let disorder: u64 = summary.violations.values().sum();
    let counts = [
        ("passed", cases.passed, "good"),
        ("failed", failed, "bad"),
        ("faults of built-in components", summary.component_faults.len() as u64, "bad"),
        ("skipped", cases.skipped, "dim"),
        ("leaked", summary.leaks.len() as u64, "bad"),
        ("missing rights", summary.denials.len() as u64, "warn"),
        ("unserved APIs", summary.unserved.len() as u64, "warn"),
        ("calls out of order", disorder, "bad"),
        ("thresholds not met", summary.unmet_slos().count() as u64, "bad"),
    ];
    html! {
        header {
            div.brand { span.mark aria-hidden="true" { "✓" } "claimcheck" }
            div.verdict.(class) {
                h1 { span.word { (word) } " " span.driver-name { (of(summary, "driver")) } }
                @if !summary.environment.is_empty() {
                    p.what {
                        (of(summary, "cluster")) " cluster · Kubernetes " (of(summary, "kubernetes_version").trim_start_matches('v'))
                        " · " (human(summary.elapsed_s)) " · " (when(started))
                    }
                }
                @if let Some(shortfall) = summary.shortfall() { pre { (shortfall) } }
                ul.counts {
                    @for (what, count, class) in counts {
                        @if count > 0 { li.(class) { strong { (count) } " " (what) } }
                    }
                    @if let Some(load) = &summary.load {
                        li.good { strong { (load.volumes.saturating_sub(load.failed)) } " volumes completed" }
                    }
                }
            }
            @if summary.ending() != Ending::NotStarted {
                nav aria-label="Sections" {
                    @for (id, name, present) in sections(summary, has_trend) {
                        @if present { a href=(format!("#{id}")) { (name) } }
                    }
                }
            }
        }
    }
}

/// The sections in the navigation, and whether this run has them.
fn sections(summary: &Summary, has_trend: bool) -> [(&'static str, &'static str, bool); 10] {
    let measured = !summary.phases.is_empty();
    let failed =
        summary.cases.failed > 0 || summary.load.as_ref().is_some_and(|load| !load.errors.is_empty());
    [
        ("failures", "Failures", failed),
        ("typical", "Time breakdown", measured),
        ("thresholds", "Thresholds", !summary.slos.is_empty()),
        ("phases", "Phases", true),
        ("trend", "Trend", has_trend),
        ("timeline", "Timeline", true),
        ("counts", "Counts", true),
        ("cases", "Cases", !summary.results.is_empty()),
        ("capabilities", "Capabilities", !summary.capabilities.is_empty()),
        ("environment", "Environment", true),
    ]
}

/// Formats milliseconds since the Unix epoch.
fn when(millis: u64) -> String {
    let stamp = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    stamp
        .filter(|_| millis > 0)
        .map(|stamp| stamp.strftime("%Y-%m-%d %H:%M UTC").to_string())
        .unwrap_or_default()
}

/// The time breakdown of a typical volume, as a sentence and a chart. Only if pods became ready there is a time until then.
pub(super) fn typical(summary: &Summary) -> Markup {
    let steps = |phases: &[Phase]| -> Vec<Step> {
        let step = |phase: &Phase| {
            let total = measure(summary, *phase, "total")?.p50;
            let driver = measure(summary, *phase, "driver").filter(|_| phase.info().rpc.is_some());
            Some(Step { phase: *phase, total, driver: driver.map(|driver| driver.p50) })
        };
        phases.iter().filter_map(step).collect()
    };
    let (up, down) = (steps(&UP), steps(&DOWN));
    let scale = f64::max(charts::whole(&up), charts::whole(&down));
    if up.is_empty() && down.is_empty() {
        return html! {};
    }
    let has_ready_pods = up.iter().any(|step| step.phase == Phase::Start);
    let has_pods = summary.load.as_ref().is_none_or(|load| load.pods_per_volume > 0);
    html! {
        section #typical aria-labelledby="typical-h" {
            h2 #typical-h { "Time breakdown of a typical volume" }
            @if has_ready_pods {
                @if let Some(words) = sentence(&up) { p.lead { (words) } }
            } @else if has_pods {
                p.lead { "No pod became Ready." }
            }
            p.legend {
                span { span.key.driver {} " driver calls" }
                span { span.key.kubernetes {} " Kubernetes overhead" }
                span.dim { "medians of all phases" }
            }
            @if !up.is_empty() {
                h3 { (if has_ready_pods { "From claim to running pod" } else { "Phases after the creation of the claim" }) }
                (charts::waterfall(&up, scale))
            }
            @if !down.is_empty() { h3 { "From pod deletion to deleted volume" } (charts::waterfall(&down, scale)) }
        }
    }
}

/// The total duration, the driver's share, and the longest phase.
fn sentence(up: &[Step]) -> Option<Markup> {
    let whole = charts::whole(up);
    let longest = up.iter().max_by(|a, b| a.total.total_cmp(&b.total))?;
    let driver: f64 = up.iter().filter_map(|step| step.driver).sum();
    let share = |part: f64| format!("{:.0} %", part / whole * 100.0);
    (whole > 0.0).then(|| html! {
        "From claim to running pod a typical volume takes " strong { (human(whole)) } "."
        @if driver > 0.0 { " Driver calls account for " strong { (human(driver)) } " of that (" (share(driver)) "), Kubernetes for the rest." }
        " The longest phase is " strong { (longest.phase.name()) } " with " (human(longest.total)) " (" (share(longest.total)) ")."
    })
}

/// Thresholds and their results.
pub(super) fn slos(summary: &Summary) -> Markup {
    if summary.slos.is_empty() {
        return html! {};
    }
    html! {
        section #thresholds aria-labelledby="thresholds-h" {
            h2 #thresholds-h { "Thresholds" }
            div.scroll tabindex="0" role="region" aria-labelledby="thresholds-h" {
                table {
                    thead { tr { th scope="col" { "threshold" } th.num scope="col" { "n" } th.num scope="col" { "max" } th.num scope="col" { "measured" } th scope="col" { "met" } } }
                    tbody { @for judgement in &summary.slos {
                        tr {
                            th scope="row" { (judgement.slo) }
                            td.num { (judgement.count) }
                            td.num { (judgement.max) }
                            td.num { (judgement.measured.as_deref().unwrap_or("–")) }
                            td.(if judgement.met { "good" } else { "bad" }) { (if judgement.met { "✓" } else { "✗ " }) (judgement.reason) }
                        }
                    } }
                }
            }
        }
    }
}

/// Every phase in numbers, with its distribution.
pub(super) fn phases(summary: &Summary, times: &BTreeMap<Phase, Times>) -> Markup {
    let range = charts::range(times.values());
    let time = |quantiles: Option<&Quantiles>, pick: fn(&Quantiles) -> f64| {
        quantiles.map_or_else(|| "–".to_owned(), |quantiles| human(pick(quantiles)))
    };
    html! {
        section #phases aria-labelledby="phases-h" {
            h2 #phases-h { "Phases" }
            @if summary.phases.is_empty() { p.dim { "No phase was measured." } } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="phases-h" {
                    table.phases {
                        thead { tr {
                            th scope="col" { "phase" }
                            @for name in ["n", "P50", "P95", "P99", "max"] { th.num scope="col" { (name) } }
                            th.num scope="col" title="Median of the driver's part" { "driver" }
                            th.num scope="col" title="Median of what Kubernetes adds" { "overhead" }
                            th.dist scope="col" {
                                span.axis { @for (at, words) in charts::marks(range) { span.end[at > NEAR_THE_END] style=(format!("left:{:.1}%", at * 100.0)) { (words) } } }
                            }
                        } }
                        tbody {
                            @for (phase, quantiles) in &summary.phases {
                                @let total = quantiles.iter().find(|q| q.name == "total");
                                tr {
                                    th scope="row" title=(phase.info().doc) { span.dot.(colour(*phase)) {} (phase.name()) }
                                    td.num { (total.map_or(0, |total| total.count)) }
                                    td.num { strong { (time(total, |q| q.p50)) } }
                                    td.num { (time(total, |q| q.p95)) }
                                    td.num { (time(total, |q| q.p99)) }
                                    td.num { (time(total, |q| q.max)) }
                                    td.num { (time(measure(summary, *phase, "driver").filter(|_| phase.info().rpc.is_some()), |q| q.p50)) }
                                    td.num { (time(measure(summary, *phase, "overhead"), |q| q.p50)) }
                                    td.dist { @if let Some(times) = times.get(phase) { (charts::distribution(*phase, times, range)) } }
                                }
                            }
                        }
                    }
                }
            }
            @if !summary.unfinished.is_empty() {
                ul.notes {
                    @for (phase, unfinished) in &summary.unfinished {
                        li { strong { (phase.name()) } ": "
                            @if unfinished.aborted > 0 { (unfinished.aborted) " never ended" }
                            @if unfinished.aborted > 0 && unfinished.unobserved > 0 { ", " }
                            @if unfinished.unobserved > 0 { (unfinished.unobserved) " start not observed" }
                        }
                    }
                }
            }
        }
    }
}

/// The canvas of the script. It shows nothing that is not in the tables too.
pub(super) fn timeline(rows: usize, omitted: usize) -> Markup {
    html! {
        section #timeline aria-labelledby="timeline-h" {
            h2 #timeline-h { "Volume timelines" }
            @if rows == 0 { p.dim { "No volume was observed." } } @else {
                noscript { p.dim { "This needs JavaScript." } }
                @if omitted > 0 { p.dim { "The " (rows) " longest volumes; " (omitted) " others are in events.ndjson and included in all numbers above." } }
                div #lives hidden {
                    div.tools {
                        label { "Filter " input #find type="search" placeholder="claim, volume, case, node or class" size="34"; }
                        label { "Order " select #order {
                            option value="begin" { "by start time" }
                            option value="long" { "longest first" }
                            option value="phase" { "slowest in phase" }
                            option value="error" { "failed calls first" }
                        } }
                        label #which hidden { "Phase " select #phase {} }
                        label { input #align type="checkbox"; " align start times" }
                        span.buttons role="group" aria-label="Zoom" {
                            button type="button" data-do="in" aria-label="Zoom in" { "+" }
                            button type="button" data-do="out" aria-label="Zoom out" { "−" }
                            button type="button" data-do="all" { "All" }
                        }
                        output #found {}
                    }
                    div.phases-key #key role="group" aria-label="Phases shown" {}
                    canvas #overview height="44" aria-hidden="true" {}
                    div #frame { div #space { canvas #canvas tabindex="0" role="application" aria-roledescription="timeline" aria-label="Timeline of volumes. Up and down choose a volume, left and right move in time, plus and minus zoom." {} } }
                    p.hint.dim { "Drag to move, Ctrl+wheel or pinch to zoom, drag on the strip above to select a range; arrow keys, + and − work too. Lines inside bars are driver calls; red ones failed." }
                    div #detail aria-live="polite" {}
                    div #tip role="tooltip" hidden {}
                }
            }
        }
    }
}

/// Attached, staged, mounted: in and out must be equal. Calls and leaked objects.
pub(super) fn counts(summary: &Summary) -> Markup {
    let rows = [
        ("attached to nodes", TransitionKind::Attach, TransitionKind::Detach),
        ("staged on nodes", TransitionKind::Stage, TransitionKind::Unstage),
        ("mounted in pods", TransitionKind::Mount, TransitionKind::Unmount),
    ];
    html! {
        section #counts aria-labelledby="counts-h" {
            h2 #counts-h { "Counts and balance" }
            div.columns {
                table {
                    thead { tr { th scope="col" { "volumes" } th.num scope="col" { "in" } th.num scope="col" { "out" } th.num scope="col" { "left" } } }
                    tbody { @for (name, enter, leave) in rows {
                        @let (entered, left) = (summary.count(enter), summary.count(leave));
                        tr {
                            th scope="row" { (name) }
                            td.num { (entered) } td.num { (left) }
                            td.num { @if entered == left { span.good { "0 ✓" } } @else { span.bad { (i128::from(entered) - i128::from(left)) " ✗" } } }
                        }
                    } }
                }
                @if !summary.calls.is_empty() {
                    div.scroll tabindex="0" role="region" aria-label="CSI calls" { table {
                        thead { tr { th scope="col" { "CSI call" } th.num scope="col" { "n" } th.num scope="col" { "errors" } th.num scope="col" { "retries" } } }
                        tbody { @for (method, calls) in &summary.calls {
                            tr { th scope="row" { (method) } td.num { (calls.calls) } td.num.(if calls.errors > 0 { "warn" } else { "" }) { (calls.errors) } td.num { (calls.retries) } }
                        } }
                    } }
                }
            }
            @if !summary.violations.is_empty() {
                h3.bad { "Calls out of order" }
                ul { @for (rule, count) in &summary.violations { li { code { (rule.name()) } " × " (count) } } }
            }
            @if !summary.denials.is_empty() {
                h3.bad { "Missing rights (requests answered with 403 Forbidden)" }
                ul { @for rule in missing_rules(&summary.denials) { li { (rule.what) br; span.dim { (rule.remedy) } } } }
            }
            @if !summary.unserved.is_empty() {
                h3.bad { "Unserved APIs (requests answered with 404 Not Found)" }
                ul { @for request in &summary.unserved { li { (request) br; span.dim { (request.remedy()) } } } }
            }
            @if summary.leaks.is_empty() { p.good { "No leaked objects." } } @else {
                h3.bad { "Leaked objects" }
                ul.leaks { @for leak in &summary.leaks { li { (leak.kind.name()) " " code { (leak.name) }
                    @if let Some(case) = &leak.case { span.dim { " by " (case) } } } } }
            }
        }
    }
}

/// Declared, detected and untested capabilities of the driver.
pub(super) fn capabilities(summary: &Summary) -> Markup {
    if summary.capabilities.is_empty() {
        return html! {};
    }
    let declared = |line: &CapabilityLine| match line.declared {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    };
    html! {
        section #capabilities aria-labelledby="capabilities-h" {
            h2 #capabilities-h { "Capabilities" }
            div.scroll tabindex="0" role="region" aria-labelledby="capabilities-h" {
                table.matrix {
                    thead { tr { th scope="col" { "capability" } th scope="col" { "declared" } th scope="col" { "detected" } th.num scope="col" { "passed" } th.num scope="col" { "failed" } th.num scope="col" { "skipped" } th scope="col" { "reason" } } }
                    tbody { @for line in &summary.capabilities {
                        tr {
                            th scope="row" title=(line.name.doc()) { (line.name.name()) }
                            td { (declared(line)) }
                            td.(if line.detected { "good" } else { "dim" }) { (if line.detected { "yes" } else { "no" }) }
                            td.num { (line.passed) }
                            td.num.(if line.failed > 0 { "bad" } else { "" }) { (line.failed) }
                            td.num { (line.skipped) }
                            td.reason { (line.reason.as_deref().unwrap_or_default()) }
                        }
                    } }
                }
            }
        }
    }
}

/// The cost of a load.
pub(super) fn load(summary: &Summary) -> Markup {
    let Some(load) = &summary.load else { return html! {} };
    let mebibytes = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let mut rows = vec![
        ("volumes", load.volumes.to_string()),
        ("concurrency", load.concurrency.to_string()),
        ("volumes per second", format!("{:.1}", load.volumes_per_s)),
        ("CPU time per volume", human(load.per_volume.cpu_s)),
        ("calls per volume", format!("{:.1}", load.rpcs as f64 / load.volumes.max(1) as f64)),
        ("peak memory (PSS)", mebibytes(load.peak_pss_bytes)),
    ];
    if let Some(controllers) = load.controllers {
        rows.push(("CPU time of controllers per volume", human(controllers.cpu_per_volume_s)));
        rows.push(("peak memory of controllers (PSS)", mebibytes(controllers.peak_pss_bytes)));
    }
    for (name, quantiles) in
        [("claim to pod ready, P50 / P99", &load.up), ("claim to all deleted, P50 / P99", &load.life)]
    {
        rows.extend(quantiles.iter().map(|q| (name, format!("{} / {}", human(q.p50), human(q.p99)))));
    }
    html! {
        section #load aria-labelledby="load-h" {
            h2 #load-h { "Load" }
            table { tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td.num { (value) } } } } }
        }
    }
}

/// Clocks of real nodes.
pub(super) fn nodes(summary: &Summary) -> Markup {
    if summary.clocks.is_empty() {
        return html! {};
    }
    html! {
        section #nodes aria-labelledby="nodes-h" {
            h2 #nodes-h { "Node clocks" }
            ul { @for (node, state) in &summary.clocks { li { strong { (node) } ": " (nodes::clock(state)) } } }
        }
    }
}

/// Driver, cluster and environment.
pub(super) fn environment(summary: &Summary) -> Markup {
    html! {
        section #environment aria-labelledby="environment-h" {
            h2 #environment-h { "Environment" }
            table { tbody { @for (name, value) in &summary.environment { tr { th scope="row" { (name.replace('_', " ")) } td { (value) } } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{Denial, Unserved};

    use super::*;
    use crate::{CaseCounts, CaseLine, Durations, LoadSummary, State};

    #[test]
    fn a_time_until_a_pod_is_ready_requires_ready_pods() {
        let of = |phases: &[Phase], load: Option<LoadSummary>| {
            let measured = |phase: &Phase| (*phase, vec![Durations::of(&[1.0]).quantiles("total")]);
            let phases = phases.iter().map(measured).collect();
            typical(&Summary { phases, load, ..Summary::default() }).into_string()
        };
        let ready = of(&UP, None);
        assert!(ready.contains("From claim to running pod a typical volume takes"), "{ready}");
        let failed = of(&UP[..4], None);
        assert!(failed.contains("No pod became Ready.") && !failed.contains("running pod"), "{failed}");
        let without_pods = of(&UP[..2], Some(LoadSummary::default()));
        assert!(!without_pods.contains("No pod") && !without_pods.contains("running pod"), "{without_pods}");
    }

    #[test]
    fn failures_precede_all_numbers() {
        let result = claimcheck_model::CaseResult::failed("no".to_owned());
        let case = claimcheck_model::CaseId::new("s", "c");
        let summary = Summary {
            state: State::Finished,
            cases: CaseCounts { failed: 1, ..CaseCounts::default() },
            results: vec![CaseLine { case, result, seconds: 0.1 }],
            phases: [(Phase::Provision, vec![Durations::of(&[1.0]).quantiles("total")])].into(),
            ..Summary::default()
        };
        let page = super::super::render(&summary, &super::super::Timelines::default(), &[]);
        let at = |id: &str| page.find(&format!("<section id=\"{id}\"")).unwrap();
        assert!(at("failures") < at("typical") && at("typical") < at("phases"), "{page}");
    }

    #[test]
    fn missing_rights_are_listed_with_their_remedy() {
        let page = counts(&Summary { denials: vec![Denial::example()], ..Summary::default() }).into_string();
        let expected = "<li>ServiceAccount storage/driver may not list nodes at the cluster scope<br>\
                        <span class=\"dim\">add the rule {apiGroups: [&quot;&quot;], resources: [nodes], verbs: [list]} to \
                        ClusterRole runner</span></li>";
        assert!(page.contains(expected), "{page}");
        assert!(!counts(&Summary::default()).into_string().contains("Missing rights"));
    }

    #[test]
    fn unserved_apis_are_listed_with_their_remedy() {
        let page =
            counts(&Summary { unserved: vec![Unserved::example()], ..Summary::default() }).into_string();
        let expected = "<br><span class=\"dim\">use a version of the program that requests storage.k8s.io/v1</span></li>";
        assert!(page.contains(expected), "{page}");
        assert!(!counts(&Summary::default()).into_string().contains("Unserved APIs"));
    }
}
