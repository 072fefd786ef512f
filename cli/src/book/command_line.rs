//! The page `docs/reference/command-line.md`: every command with its arguments, and the variables that set them.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command, CommandFactory as _};

use super::{page, workspace};
use crate::Cli;

const HEAD: &str = "\
# Command line

Made of the arguments of the program by `ci/docs --write`. `claimcheck COMMAND --help` prints the same, `-h` a shorter form.
All commands accept:

";

/// More values are not listed: of defects and variants, which have pages of their own.
const MANY: usize = 20;

/// The commands that set an argument by a variable, and the argument.
type Variables = BTreeMap<String, (String, BTreeSet<String>)>;

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Angle brackets in prose are no HTML, except in code.
    let escape = |(number, part): (usize, &str)| {
        if number % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() }
    };
    text.split('`').enumerate().map(escape).collect::<Vec<_>>().join("`").replace('|', "\\|")
}

/// The argument as it is written: `-o, --out <FILE>`.
fn written(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values = match names {
        _ if !arg.get_action().takes_values() => String::new(),
        [] => format!("<{}>", arg.get_id().as_str().to_uppercase()),
        names => names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" "),
    };
    if arg.is_positional() {
        return format!("`{values}`");
    }
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().map(|name| format!("--{name}"));
    let flags = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    format!("`{}`", format!("{flags} {values}").trim())
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = cell(&help);
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), cell(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if values.len() > MANY {
        text += ". Values: those that `--help` lists";
    } else if !values.is_empty() {
        text += &format!(". Values: {}", values.join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        text += &format!(". Default: `{}`", defaults.join(" "));
    }
    if let Some(variable) = arg.get_env() {
        text += &format!(". Variable: `{}`", variable.to_string_lossy());
    }
    text
}

fn row(arg: &Arg) -> String {
    format!("| {} | {} |\n", written(arg).replace('|', "\\|"), meaning(arg))
}

fn table(rows: &[String]) -> String {
    format!("| argument | meaning |\n|---|---|\n{}\n", rows.concat())
}

/// The commands below one, without that for help.
fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

/// The arguments that belong to a command, without those of every command.
fn arguments(command: &Command) -> Vec<&Arg> {
    let general = |arg: &&Arg| arg.is_global_set() || ["help", "version"].contains(&arg.get_id().as_str());
    command.get_arguments().filter(|arg| !general(arg) && !arg.is_hide_set()).collect()
}

/// The page while it is written.
#[derive(Default)]
struct Page {
    text: String,
    variables: Variables,
    /// The rows of `claimcheck run`, which other commands have, too.
    run: BTreeSet<String>,
}

impl Page {
    fn add(&mut self, name: &str, command: &Command) {
        let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
        self.text += &format!("## {name}\n\n{}.\n\n", about.unwrap_or_default().replace('<', "&lt;"));
        let mut groups: Vec<(Option<&str>, Vec<String>)> = Vec::new();
        let mut shared = Vec::new();
        for arg in arguments(command) {
            let row = row(arg);
            if let Some(variable) = arg.get_env() {
                let variable = variable.to_string_lossy().into_owned();
                let entry = self.variables.entry(variable).or_insert_with(|| (written(arg), BTreeSet::new()));
                entry.1.insert(name.trim_start_matches("claimcheck ").to_owned());
            }
            if name == "claimcheck run" {
                self.run.insert(row.clone());
            } else if self.run.contains(&row) {
                shared.push(written(arg));
                continue;
            }
            let heading = arg.get_help_heading();
            match groups.iter_mut().find(|(name, _)| *name == heading) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((heading, vec![row])),
            }
        }
        for (heading, rows) in groups {
            self.text += &heading.map(|heading| format!("{heading}:\n\n")).unwrap_or_default();
            self.text += &table(&rows);
        }
        if !shared.is_empty() {
            self.text += &format!("As for [`claimcheck run`](#claimcheck-run): {}.\n\n", shared.join(", "));
        }
        for below in subcommands(command) {
            self.add(&format!("{name} {}", below.get_name()), below);
        }
    }
}

/// The page.
fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let general: Vec<String> = command.get_arguments().filter(|arg| arg.is_global_set()).map(row).collect();
    let mut page = Page { text: HEAD.to_owned() + &table(&general), ..Page::default() };
    for below in subcommands(&command) {
        page.add(&format!("claimcheck {}", below.get_name()), below);
    }
    let variables: String = page
        .variables
        .into_iter()
        .map(|(variable, (argument, commands))| {
            let commands = commands.into_iter().collect::<Vec<_>>().join(", ");
            format!("| `{variable}` | {} | {commands} |\n", argument.replace('|', "\\|"))
        })
        .collect();
    page.text
        + "## Variables\n\nArguments that a variable sets, too; the argument takes precedence.\n\n\
           | variable | argument | commands |\n|---|---|---|\n"
        + &variables
}

#[test]
fn command_line_page_is_up_to_date() {
    page::check(workspace(), "docs/reference/command-line.md", &page());
}
