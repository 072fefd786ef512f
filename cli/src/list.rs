//! `claimcheck list`: the test cases, their requirements and skip reasons.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_run::ClusterArgs;
use claimcheck_suites::{Planned, catalogue, plan};
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, TableStyle};

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
    let planned = plan(&catalogue(), &args.filter, &place.expected(None));
    let listed: Vec<_> = planned.iter().map(Planned::listed).collect();
    if args.format == Format::Json {
        println!("{}", serde_json::to_string_pretty(&listed)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["CASE", "UPSTREAM", "NEEDS", "SKIPPED BECAUSE"]);
    for case in listed {
        table.add_row([
            case.case.to_string(),
            case.upstream.to_owned(),
            case.needs.join(", "),
            case.skip.unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}
