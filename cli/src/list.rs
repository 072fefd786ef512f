//! `claimcheck list`: the test cases, their requirements and skip reasons.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_engine::{CaseList, Listed, plan};
use claimcheck_run::{ClusterArgs, ScenarioArgs};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, TableStyle};
use serde::Serialize;

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List only cases that contain one of these strings in their name
    filter: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    place: ClusterArgs,
    #[command(flatten)]
    scenarios: ScenarioArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable
    #[default]
    Text,
    /// Machine-readable
    Json,
}

/// Prints the cases; starts nothing.
pub fn list(args: Args) -> Result<ExitCode> {
    let place = match args.place.place() {
        Ok(place) => place,
        Err(error) => return Ok(crate::invalid_target(&error)),
    };
    let cases = match args.scenarios.cases(crate::own_cases()) {
        Ok(cases) => cases,
        Err(error) => return Ok(crate::unreadable(&error.into())),
    };
    let planned = plan(&cases, &args.filter, Some(&place.expected(None)));
    let listed: Vec<_> = planned.iter().map(|planned| planned.listed(planned.case.details())).collect();
    print(listed, args.format == Format::Json, ["UPSTREAM"], |details| [details.upstream.to_owned()])?;
    Ok(ExitCode::SUCCESS)
}

/// The width of a terminal from which on cases are listed as a table: in narrower columns, names would wrap within words.
const TABLE_WIDTH: u16 = 140;

/// Prints a case over several lines, for a narrow terminal.
fn print_block<D: Serialize, const N: usize>(
    case: &Listed<D>,
    titles: [&str; N],
    details: impl Fn(&D) -> [String; N],
) {
    println!("{}", case.case);
    let requirements =
        [("NEEDS", case.needs.join(", ")), ("SKIPPED BECAUSE", case.skip.clone().unwrap_or_default())];
    for (title, text) in titles.into_iter().zip(details(&case.details)).chain(requirements) {
        if !text.is_empty() {
            println!("    {}: {text}", title.to_lowercase());
        }
    }
}

/// Prints a list of cases: as JSON, or as a table in which the cells of `details` follow the name of the case.
pub fn print<D: Serialize, const N: usize>(
    listed: Vec<Listed<D>>,
    json: bool,
    titles: [&str; N],
    details: impl Fn(&D) -> [String; N],
) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(&CaseList::new(listed))?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    // Without a terminal, each case is one line.
    match table.width() {
        Some(width) if width < TABLE_WIDTH => {
            listed.iter().for_each(|case| print_block(case, titles, &details));
            return Ok(());
        }
        Some(_) | None => table.set_content_arrangement(ContentArrangement::Dynamic),
    };
    table.set_header(["CASE"].into_iter().chain(titles).chain(["NEEDS", "SKIPPED BECAUSE"]));
    for case in &listed {
        let requirements = [case.needs.join(", "), case.skip.clone().unwrap_or_default()];
        let cells = [case.case.to_string()].into_iter().chain(details(&case.details));
        table.add_row(cells.chain(requirements));
    }
    println!("{table}");
    Ok(())
}
