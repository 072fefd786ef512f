//! Node information of a real cluster in reports: clock offsets, and the metrics of upstream components
//! next to claimcheck's measurements.

use claimcheck_model::{ClockState, CsiMethod, Phase, StockOperation, StockState};
use comfy_table::Cell;

use super::summary::Summary;
use super::tables::{Style, human, number, section, table};

/// One line per observed node.
pub(super) fn clocks(summary: &Summary, paint: Style) -> Option<String> {
    let line =
        |(node, state): (&String, &ClockState)| paint.wrap(&format!("{node}: {}", clock(state)), "    ");
    let lines = summary.clocks.iter().map(line).map(|line| line.trim_start().to_owned());
    section(paint.bold("Node clocks"), lines)
}

/// A node's clock offset, in words.
pub(super) fn clock(state: &ClockState) -> String {
    match state {
        ClockState::Known { ahead_seconds, bound_seconds } => {
            let side = if *ahead_seconds < 0.0 { "behind" } else { "ahead" };
            let (ahead, bound) = (human(ahead_seconds.abs()), human(*bound_seconds));
            format!("{ahead} {side}; its timestamps are accurate to ±{bound}")
        }
        ClockState::Unobserved { reason } => format!("mounts not observed: {reason}"),
        ClockState::Unknown { reason } => {
            format!("offset unknown, its timestamps are upper bounds: {reason}")
        }
    }
}

/// The metrics of upstream components, next to claimcheck's means.
pub(super) fn stock(summary: &Summary, style: Style) -> Option<String> {
    let header = ["stock metrics", "n", "errors", "mean", "95 % within", "our n", "our mean"];
    let mut rows = table(style, &header);
    let mut any = false;
    let mut notes = Vec::new();
    for (component, state) in &summary.stock {
        match state {
            StockState::Absent { reason } => notes.push(format!("{}: {reason}", component.name())),
            StockState::Measured { answered, of, operations, volumes_left } => {
                for operation in operations {
                    any = true;
                    let (count, mean) = builtin_numbers(summary, operation).unwrap_or_default();
                    rows.add_row(vec![
                        Cell::new(format!("{} {}", component.name(), operation.name)),
                        number(operation.count.to_string()),
                        number(operation.errors.to_string()),
                        number(human(operation.mean)),
                        number(operation.p95_within.map_or("–".to_owned(), human)),
                        number(count),
                        number(mean),
                    ]);
                }
                if answered < of {
                    notes.push(format!("{}: {answered} of {of} instances scraped", component.name()));
                }
                if let Some(left) = volumes_left.filter(|left| *left != 0) {
                    notes.push(format!("{}: {left:+} volumes since the run started", component.name()));
                }
            }
        }
    }
    let notes = notes.into_iter().map(|note| style.wrap(&note, "  ").trim_start().to_owned());
    if !any {
        return section(style.bold("Stock metrics"), notes);
    }
    Some(notes.fold(rows.trim_fmt(), |text, note| format!("{text}\n  {note}")))
}

/// The number of observations of an operation, and the measured mean; none for an operation without
/// a corresponding phase.
///
/// A call is compared with the driver's part of its phase, an operation with the whole phase. The phase is longer
/// by definition: it starts when its preconditions hold, not when the component processes it.
fn builtin_numbers(summary: &Summary, operation: &StockOperation) -> Option<(String, String)> {
    let method = CsiMethod::from_name(&operation.name);
    let of_call = Phase::ALL.iter().copied().find(|phase| method.is_some() && phase.info().rpc == method);
    let (phases, measure) = match (of_call, operation.name.as_str()) {
        (Some(phase), _) => (vec![phase], "driver"),
        (None, "volume_attach") => (vec![Phase::Attach], "total"),
        (None, "volume_detach") => (vec![Phase::Detach], "total"),
        // MountDevice and SetUp.
        (None, "volume_mount") => (vec![Phase::Stage, Phase::Publish], "total"),
        (None, "volume_unmount") => (vec![Phase::Unpublish], "total"),
        (None, "unmount_device") => (vec![Phase::Unstage], "total"),
        (None, _) => return None,
    };
    let mut count = 0;
    let mut mean = 0.0;
    for phase in phases {
        let quantiles = summary.phases.get(&phase)?.iter().find(|quantiles| quantiles.name == measure)?;
        count = quantiles.count;
        mean += quantiles.avg;
    }
    Some((count.to_string(), human(mean)))
}

#[cfg(test)]
mod tests {
    use claimcheck_model::StockComponent;

    use super::*;
    use crate::Quantiles;

    fn quantiles(name: &str, count: u64, avg: f64) -> Quantiles {
        Quantiles { name: name.into(), p50: avg, p95: avg, p99: avg, min: avg, max: avg, avg, count }
    }

    #[test]
    fn clocks_and_stock_metrics_are_listed_next_to_builtin_numbers() {
        let mut summary = Summary::default();
        let known = |ahead_seconds| ClockState::Known { ahead_seconds, bound_seconds: 0.0021 };
        summary.clocks.insert("n1".into(), known(-0.35));
        summary.clocks.insert("n2".into(), known(12.0));
        summary.clocks.insert("n3".into(), ClockState::Unknown { reason: "forbidden".into() });
        summary.clocks.insert("n4".into(), ClockState::Unobserved { reason: "no agent is running".into() });
        let of = |total, driver| vec![quantiles("total", 4, total), quantiles("driver", 4, driver)];
        summary.phases.insert(Phase::Stage, of(0.2, 0.1));
        summary.phases.insert(Phase::Publish, of(0.03, 0.01));
        let operation = |name: &str, mean, p95_within| StockOperation {
            name: name.into(),
            count: 4,
            errors: 1,
            mean,
            p95_within,
        };
        let operations = vec![
            operation("NodeStageVolume", 0.099, Some(0.1)),
            operation("verify_controller_attached_volume", 0.001, Some(0.1)),
            operation("volume_mount", 0.15, None),
        ];
        let measured = StockState::Measured { answered: 1, of: 2, operations, volumes_left: Some(1) };
        summary.stock.insert(StockComponent::Kubelet, measured);
        let reason = "no kube-controller-manager is reachable through the API".into();
        summary.stock.insert(StockComponent::KubeControllerManager, StockState::Absent { reason });
        let text = [clocks(&summary, Style::PLAIN).unwrap(), stock(&summary, Style::PLAIN).unwrap()];
        let text = text.join("\n\n");
        insta::assert_snapshot!(text);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_cluster_without_metrics_gets_no_lines() {
        assert_eq!(clocks(&Summary::default(), Style::PLAIN), None);
        assert_eq!(stock(&Summary::default(), Style::PLAIN), None);
    }
}
