//! The progress of a run on standard error: a bar on a terminal, else one line per case.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use claimcheck_model::{CaseId, CaseResult, Event, INTERRUPTED};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::outputs::{End, Output, Seen, Setup, Sink, Started, started};
use super::tables::{Style, human};
use super::unwritten::ReportError;

pub(crate) const OUTPUT: Output = Output { file: None, start };

/// The maximum redraw rate of the bar, per second.
const REDRAWS: u8 = 10;
/// How many running cases are shown by name.
const NAMED: usize = 2;

/// Whether the terminal cannot draw a progress bar.
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

/// The text of a result below its first line, which has its sign and duration.
fn indented(style: Style, text: &str) -> String {
    style.wrap(text, &" ".repeat(14)).trim_start().to_owned()
}

/// Progress of a run.
#[derive(Debug)]
struct Progress {
    shown: Shown,
    running: Vec<CaseId>,
    done: usize,
    cases: usize,
}

#[derive(Debug)]
enum Shown {
    Lines,
    Bar { bar: ProgressBar, paint: Style },
}

fn start(setup: &Setup) -> Started {
    if setup.terminal { started(Progress::detect()) } else { Ok(None) }
}

impl Sink for Progress {
    fn observe(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        self.enter(&seen.logged.event);
        Ok(())
    }

    fn finish(&mut self, _: &mut End<'_>) -> Result<(), ReportError> {
        if let Shown::Bar { bar, .. } = &self.shown {
            bar.finish_and_clear();
        }
        Ok(())
    }
}

impl Progress {
    /// A bar if standard error is a terminal that can draw one, else lines.
    fn detect() -> Self {
        if is_dumb() || !std::io::stderr().is_terminal() {
            return Self::with(Shown::Lines);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REDRAWS));
        let paint = Style::detect();
        let template = if paint.color {
            "{spinner:.cyan} {pos:>4}/{len} {bar:30.cyan/bright.black} {elapsed:>4}  {wide_msg}"
        } else {
            "{spinner} {pos:>4}/{len} {bar:30} {elapsed:>4}  {wide_msg}"
        };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        bar.set_style(style.progress_chars("━╸─").tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "));
        Self::with(Shown::Bar { bar, paint })
    }

    fn with(shown: Shown) -> Self {
        Self { shown, running: Vec::new(), done: 0, cases: 0 }
    }

    fn enter(&mut self, event: &Event) {
        match event {
            Event::RunStarted(run) => {
                self.cases = run.cases;
                // A load has no cases, and its own live view.
                if let (Shown::Bar { bar, .. }, true) = (&self.shown, run.cases > 0) {
                    bar.set_length(run.cases as u64);
                    bar.enable_steady_tick(Duration::from_millis(1000 / u64::from(REDRAWS)));
                }
            }
            Event::CaseStarted { case, .. } => {
                self.running.push(case.clone());
                self.redraw();
            }
            Event::CaseFinished { case, result, seconds } => {
                self.running.retain(|running| running != case);
                self.done += 1;
                self.print_result(case, result, *seconds);
                self.redraw();
            }
            Event::Leak(leak) => {
                let by_case = leak.case.as_ref().map(|case| format!(" by {case}")).unwrap_or_default();
                self.print(|paint| {
                    paint.red(&format!("  ! leaked{by_case}: {} {}", leak.kind.name(), leak.name))
                });
            }
            Event::ComponentExited(end) => self.print(|paint| {
                let last_line = end.last_lines.last().map(|line| format!(": {line}")).unwrap_or_default();
                paint.red(&format!(
                    "  ! {} exited ({}) and is restarted{last_line}",
                    end.component, end.status
                ))
            }),
            Event::ComponentFault(fault) => self.print(|paint| paint.red(&format!("  ! {fault}"))),
            Event::RunFinished { .. }
            | Event::RunAborted { .. }
            | Event::Phase(_)
            | Event::Transition(_)
            | Event::Rpc(_)
            | Event::ApiWrite(_)
            | Event::Step { .. }
            | Event::FailureDump(_)
            | Event::Violation { .. }
            | Event::Load(_)
            | Event::Clock(_)
            | Event::Stock(_)
            | Event::Warning { .. }
            | Event::Denied(_)
            | Event::Unserved(_)
            | Event::WatchLag { .. } => {}
        }
    }

    fn print_result(&self, case: &CaseId, result: &CaseResult, seconds: f64) {
        // After Ctrl-C, a line for each remaining case would hide those of the cases that ran.
        if matches!(result, CaseResult::Skipped { reason } if reason == INTERRUPTED) {
            return;
        }
        self.print(|paint| {
            let took = human(seconds);
            match result {
                CaseResult::Passed => {
                    format!("{} {took:>8}  {}", paint.green("  ✓"), indented(paint, &case.to_string()))
                }
                CaseResult::Failed { reason, .. } => {
                    let reason = reason.lines().next().unwrap_or_default();
                    let case = indented(paint, &case.to_string());
                    let reason = paint.red(&indented(paint, reason));
                    format!("{} {took:>8}  {case}\n{:14}{reason}", paint.red("  ✗"), "")
                }
                CaseResult::Skipped { reason } => {
                    let text = indented(paint, &format!("{case}  {reason}"));
                    format!("{} {:>8}  {text}", paint.dim("  ○"), "skip")
                }
            }
        });
    }

    fn print(&self, line: impl FnOnce(Style) -> String) {
        match &self.shown {
            Shown::Bar { bar, paint } => bar.println(line(*paint)),
            Shown::Lines => {
                let count =
                    if self.cases == 0 { String::new() } else { format!("[{}/{}]", self.done, self.cases) };
                // Standard error may be closed; the run continues.
                let _ = writeln!(
                    std::io::stderr(),
                    "{count:>9}{}",
                    line(Style { width: usize::MAX, ..Style::PLAIN })
                );
            }
        }
    }

    fn redraw(&self) {
        let Shown::Bar { bar, paint } = &self.shown else { return };
        bar.set_position(self.done as u64);
        let named: Vec<String> = self.running.iter().take(NAMED).map(|case| case.name.clone()).collect();
        let more = self.running.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" +{more}") };
        bar.set_message(paint.dim(&format!("{}{more}", named.join(", "))));
    }
}
