//! From an objective to its rules. Pure.

use claimcheck_model::metric::{PHASE_DURATION, PHASE_WAITING_OLDEST, UNUSED_OBJECTS};

use super::{
    By, Group, Options, Population, Rule, RuleKind,
    bucket::{duration, le},
    quoted,
};
use crate::slo::{Counted, Measure, Objective, Quantile, Samples};

/// How long a phase may last longer than its limit before it counts as stuck, seconds.
const STUCK_AFTER: f64 = 1800.0;

/// Two windows, and how many times faster than permitted the budget is spent in both when the alert fires.
struct Burn {
    long: &'static str,
    short: &'static str,
    factor: &'static str,
    severity: &'static str,
    /// The part of a budget of 30 days that is spent in the long window at this speed.
    spent: &'static str,
}

/// Google's SRE workbook, chapter "Alerting on SLOs", "6: Multiwindow, Multi-Burn-Rate Alerts".
const BURNS: &[Burn] = &[
    Burn { long: "1h", short: "5m", factor: "14.4", severity: "page", spent: "2 %" },
    Burn { long: "6h", short: "30m", factor: "6", severity: "page", spent: "5 %" },
    Burn { long: "1d", short: "2h", factor: "3", severity: "ticket", spent: "10 %" },
    Burn { long: "3d", short: "6h", factor: "1", severity: "ticket", spent: "10 %" },
];

/// The windows of [`BURNS`] except the first, which is derived from the recorded rates.
const WINDOWS: [&str; 6] = ["30m", "1h", "2h", "6h", "1d", "3d"];

/// The rules of an objective.
///
/// # Errors
/// It has no meaning for a service: the text has the field, the reason and the remedy.
pub(super) fn group(objective: &Objective, options: &Options) -> Result<Group, String> {
    let slo = objective.to_string();
    let rules = match objective {
        Objective::Phase { of, measure, quantile, max } => {
            check(*measure)?;
            let budget = budget(*quantile)?;
            let phases = Phases { of, options, within: le(*max)?, slo: &slo };
            let burns = BURNS.iter().map(|burn| phases.alert(burn, budget, *max));
            phases.records(budget).into_iter().chain(burns).chain([phases.stuck(*max)]).collect()
        }
        Objective::Count { what: Counted::Leaks, max } => vec![leaks(&slo, *max, &options.by)],
        Objective::Count { what, .. } => return Err(count_of_a_run(*what)),
    };
    Ok(Group { name: format!("claimcheck-slo {slo}"), rules })
}

fn check(measure: Measure) -> Result<(), String> {
    match measure {
        Measure::Total => Ok(()),
        Measure::Driver | Measure::Overhead => Err(format!(
            "measure: {measure} requires the CSI calls of each volume, which a monitor does not record: remove \
             measure, or alert on the estimates of dashboards/prometheus/driver-time.rules.yaml"
        )),
    }
}

/// The part of the phases that may be slow.
fn budget(quantile: Quantile) -> Result<&'static str, String> {
    match quantile {
        Quantile::P95 => Ok("0.05"),
        Quantile::P99 => Ok("0.01"),
        Quantile::P50 => {
            Err("quantile: P50 permits half of all phases to be slow, so that its budget cannot be \
                              spent more than twice as fast as permitted: use P95 or P99"
                .to_owned())
        }
        Quantile::Max => {
            Err("quantile: max permits no slow phase, so that there is no budget: use P99, which \
                              permits one of a hundred"
                .to_owned())
        }
        Quantile::Mean => {
            Err("quantile: avg limits a mean, which has no number of slow phases: use P95 or P99, \
                               with a greater max"
                .to_owned())
        }
    }
}

fn count_of_a_run(what: Counted) -> String {
    let name = what.name();
    match what {
        Counted::Transitions(_) => format!(
            "count: {name} is a number per run, and grows without end in a service: remove it from this file; \
             count: leaks includes attachments and mounts that no pod uses"
        ),
        Counted::Errors | Counted::Retries | Counted::Violations | Counted::Leaks => format!(
            "count: {name} requires recorded CSI calls, which a monitor does not have: remove it from this file, or \
             alert on claimcheck:csi_call_errors:ratio30m of dashboards/prometheus/driver-time.rules.yaml"
        ),
    }
}

/// The phases of an objective in the series of the monitor.
struct Phases<'a> {
    of: &'a Samples,
    options: &'a Options,
    /// The matcher of the bucket of fast phases.
    within: String,
    slo: &'a str,
}

impl Phases<'_> {
    /// The matchers of phase, driver and class.
    fn matchers(&self) -> String {
        let optional = [("driver_name", &self.of.driver), ("storage_class", &self.of.class)];
        let optional = optional.into_iter().filter_map(|(label, value)| Some((label, value.as_deref()?)));
        let all = [("phase", self.of.phase.name())].into_iter().chain(optional);
        all.map(|(label, value)| format!("{label}={}", quoted(value))).collect::<Vec<_>>().join(", ")
    }

    /// As the judge of a run does, only phases with an observed start and end are counted: `result="ok"`.
    fn samples(&self) -> String {
        let source = match self.options.population {
            Population::Volumes => r#", source!="canary""#,
            Population::Canary => r#", source="canary""#,
            Population::All => "",
        };
        format!(r#"{}, result="ok"{source}"#, self.matchers())
    }

    fn sum(&self) -> String {
        aggregation("sum", &[], &self.options.by)
    }

    fn total(&self, window: &str) -> String {
        format!("{}(rate({}_count{{{}}}[{window}]))", self.sum(), PHASE_DURATION.name, self.samples())
    }

    fn fast(&self, window: &str) -> String {
        let (name, samples, within) = (PHASE_DURATION.name, self.samples(), &self.within);
        format!("{}(rate({name}_bucket{{{samples}, {within}}}[{window}]))", self.sum())
    }

    fn record(&self, record: &str, expr: String) -> Rule {
        let labels = vec![("slo", self.slo.to_owned())];
        Rule { kind: RuleKind::Record(record.to_owned()), expr, labels }
    }

    fn recorded(&self, name: &str) -> String {
        format!("{name}{{slo={}}}", quoted(self.slo))
    }

    /// Budget, rates, and the ratio of slow phases in each window; no ratio without phases.
    fn records(&self, budget: &str) -> Vec<Rule> {
        let (phases, slow) = ("claimcheck:slo_phases:rate5m", "claimcheck:slo_slow_phases:rate5m");
        let mut rules = vec![
            self.record("claimcheck:slo_budget:ratio", format!("vector({budget})")),
            self.record(phases, self.total("5m")),
            self.record(slow, format!("{}\n- {}", self.total("5m"), self.fast("5m"))),
            self.record(&errors("5m"), format!("{}\n/ ({} > 0)", self.recorded(slow), self.recorded(phases))),
        ];
        rules.extend(WINDOWS.map(|window| {
            let expr = format!("1 -\n{}\n/ ({} > 0)", self.fast(window), self.total(window));
            self.record(&errors(window), expr)
        }));
        rules
    }

    fn alert(&self, burn: &Burn, budget: &str, max: f64) -> Rule {
        let Burn { long, short, factor, severity, spent } = burn;
        let summary = match *factor {
            "1" => format!("{}: the error budget of 30 days does not last", self.slo),
            _ => format!("{}: the error budget is spent {factor} times too fast", self.slo),
        };
        let [in_long, in_short] = [long, short].map(|window| self.recorded(&errors(window)));
        Rule {
            kind: RuleKind::Alert {
                name: "ClaimcheckErrorBudgetBurn",
                summary,
                description: format!(
                    "{{{{ $value | humanizePercentage }}}} of the phases of the last {long} took longer than {}. At \
                     this speed, at least {spent} of the error budget of 30 days is spent in {long}. The dashboard \
                     Canary and error budget shows the remaining budget.",
                    duration(max)
                ),
            },
            expr: format!("{in_long} > {factor} * {budget}\nand {in_short} > {factor} * {budget}"),
            labels: vec![
                ("severity", (*severity).to_owned()),
                ("slo", self.slo.to_owned()),
                ("window", (*long).to_owned()),
            ],
        }
    }

    /// A phase that does not end is in no histogram, so it spends no budget.
    fn stuck(&self, max: f64) -> Rule {
        let (name, matchers) = (PHASE_WAITING_OLDEST.name, self.matchers());
        Rule {
            kind: RuleKind::Alert {
                name: "ClaimcheckPhaseStuck",
                summary: format!("{}: a volume of class {{{{ $labels.storage_class }}}} is stuck", self.slo),
                description: format!(
                    "The oldest wait for the end of {} lasts {{{{ $value | humanizeDuration }}}}; the objective is \
                     {}. `claimcheck monitor status` lists the volume, the cause and the remedy.",
                    self.of.phase.name(),
                    duration(max)
                ),
            },
            expr: format!(
                "{}({name}{{{matchers}}})\n> {}",
                aggregation("max", &["driver_name", "storage_class"], &self.options.by),
                max + STUCK_AFTER
            ),
            labels: vec![("severity", "ticket".to_owned()), ("slo", self.slo.to_owned())],
        }
    }
}

/// The name of the recorded ratio of slow phases in a window.
fn errors(window: &str) -> String {
    format!("claimcheck:slo_errors:ratio_rate{window}")
}

/// An operator of PromQL with the labels that its result has, up to its operand.
fn aggregation(operator: &str, labels: &[&str], by: &[By]) -> String {
    let others = by.iter().map(|By(label)| label.as_str()).filter(|label| !labels.contains(label));
    let labels: Vec<&str> = labels.iter().copied().chain(others).collect();
    if labels.is_empty() { operator.to_owned() } else { format!("{operator} by ({}) ", labels.join(", ")) }
}

/// In a service, what a run calls a leak is an object that nothing uses any more. A volume of which the reclaim policy
/// preserves the data is none.
fn leaks(slo: &str, max: u64, by: &[By]) -> Rule {
    Rule {
        kind: RuleKind::Alert {
            name: "ClaimcheckUnusedObjects",
            summary: "{{ $value }} objects of volumes remain although nothing uses them".to_owned(),
            description: format!(
                "The objective permits {max}. `claimcheck monitor status` lists them with what they refer to."
            ),
        },
        expr: format!(
            r#"{}({}{{kind!="volume_without_claim"}}) > {max}"#,
            aggregation("sum", &[], by),
            UNUSED_OBJECTS.name
        ),
        labels: vec![("severity", "ticket".to_owned()), ("slo", slo.to_owned())],
    }
}
