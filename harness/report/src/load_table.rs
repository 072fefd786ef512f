//! The result of a load as text: volumes and costs, total and per volume, and whether
//! anything grew.

use comfy_table::{Attribute, Cell, Color};

use super::{
    growth::{Grows, Growth},
    load::LoadSummary,
    tables::{Style, human, number, section, table},
};

/// The table.
pub(super) fn load(load: &LoadSummary, style: Style) -> String {
    let mut table = table(style, &["load", "total", "per volume"]);
    let mut row = |name: &str, total: String, each: String| {
        let total = number(total).add_attribute(Attribute::Bold);
        table.add_row(vec![Cell::new(name).fg(Color::Cyan), total, number(each)]);
    };
    let each = load.per_volume;
    row("volumes", load.volumes.to_string(), String::new());
    if let Some(up_s) = load.up_s {
        row("all volumes ready", human(up_s), median(load.up.as_ref().map(|up| up.p50)));
    }
    row("all volumes deleted", human(load.elapsed_s), median(load.life.as_ref().map(|life| life.p50)));
    row("volumes per second", format!("{:.1}", load.volumes_per_s), String::new());
    row("CPU time", human(load.cpu_s), human(each.cpu_s));
    if let Some(controllers) = load.controllers {
        row("CPU time of controllers", human(controllers.cpu_s), human(controllers.cpu_per_volume_s));
    }
    if let (Some(total), Some(each)) = (load.api_requests, each.api_requests) {
        row("API requests", total.to_string(), format!("{each:.1}"));
    }
    row("CSI calls", load.rpcs.to_string(), format!("{:.1}", each.rpcs));
    row("peak memory (PSS)", mib(load.peak_pss_bytes as f64), String::new());
    if let Some(controllers) = load.controllers {
        row("peak memory of controllers", mib(controllers.peak_pss_bytes as f64), String::new());
    }
    table.trim_fmt()
}

fn median(seconds: Option<f64>) -> String {
    seconds.map(|seconds| format!("P50 {}", human(seconds))).unwrap_or_default()
}

fn mib(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / (1 << 20) as f64)
}

/// The verdict of a soak test.
pub(super) fn growth(load: &LoadSummary, paint: Style) -> Option<String> {
    let word = |growth: &Growth| match growth.grows {
        true => paint.red("grows"),
        false => paint.green("steady"),
    };
    let lines = load.growth.iter().map(|growth| {
        let format_value = |value: f64| match growth.of {
            Grows::Memory => mib(value),
            Grows::Descriptors | Grows::LoopDevices | Grows::Series => format!("{value:.0}"),
            Grows::Work | Grows::Life => human(value),
        };
        let (middle, last) = (format_value(growth.middle), format_value(growth.last));
        format!("{:18}{middle:>9} → {last:<9} {}", growth.of.name(), word(growth))
    });
    section(format!("Growth, second third → last third of {}", human(load.elapsed_s)), lines)
}

/// Errors by volume.
pub(super) fn errors(load: &LoadSummary, paint: Style) -> Option<String> {
    let errors = load.errors.iter();
    let lines = errors.map(|error| {
        let text = paint.wrap(&format!("{}: {}", error.claims.join(", "), error.reason), "    ");
        format!("{} {}", paint.red("✗"), text.trim_start())
    });
    section(format!("Failed volumes: {}", load.failed), lines)
}
