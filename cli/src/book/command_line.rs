//! The page `docs/reference/command-line.md`: every command with its arguments, and the variables that set them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::{page, workspace};
use crate::Cli;

const HEAD: &str = "\
# Command line

Made of the arguments of the program by `ci/docs --write`. `claimcheck COMMAND --help` prints the same, `-h` a shorter form.
All commands accept:

";

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
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let values = if arg.get_action().takes_values() {
        let names = if names.is_empty() { vec![arg.get_id().as_str()] } else { names };
        names.iter().map(|name| format!("<{}>", name.to_uppercase())).collect::<Vec<_>>().join(" ")
    } else {
        String::new()
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
    if !values.is_empty() {
        write!(text, ". Values: {}", values.join(", ")).expect("a text grows");
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        write!(text, ". Default: `{}`", defaults.join(" ")).expect("a text grows");
    }
    if let Some(variable) = arg.get_env() {
        write!(text, ". Variable: `{}`", variable.to_string_lossy()).expect("a text grows");
    }
    text
}

fn table(text: &mut String, args: &[&Arg]) {
    text.push_str("| argument | meaning |\n|---|---|\n");
    for arg in args {
        writeln!(text, "| {} | {} |", written(arg).replace('|', "\\|"), meaning(arg)).expect("a text grows");
    }
    text.push('\n');
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

fn describe(text: &mut String, variables: &mut Variables, name: &str, command: &Command) {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
    writeln!(text, "## {name}\n\n{}.\n", about.unwrap_or_default().replace('<', "&lt;"))
        .expect("a text grows");
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for arg in arguments(command) {
        let heading = arg.get_help_heading();
        match groups.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading, vec![arg])),
        }
        if let Some(variable) = arg.get_env() {
            let variable = variable.to_string_lossy().into_owned();
            let (_, commands) = variables.entry(variable).or_insert_with(|| (written(arg), BTreeSet::new()));
            commands.insert(name.to_owned());
        }
    }
    for (heading, args) in groups {
        if let Some(heading) = heading {
            writeln!(text, "{heading}:\n").expect("a text grows");
        }
        table(text, &args);
    }
    for below in subcommands(command) {
        describe(text, variables, &format!("{name} {}", below.get_name()), below);
    }
}

/// The page.
fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let mut text = HEAD.to_owned();
    let general: Vec<&Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).collect();
    table(&mut text, &general);
    let mut variables = Variables::new();
    for below in subcommands(&command) {
        describe(&mut text, &mut variables, &format!("claimcheck {}", below.get_name()), below);
    }
    text.push_str("## Variables\n\nArguments that a variable sets, too; the argument takes precedence.\n\n");
    text.push_str("| variable | argument | commands |\n|---|---|---|\n");
    for (variable, (argument, commands)) in variables {
        let commands: Vec<&str> =
            commands.iter().map(|name| name.trim_start_matches("claimcheck ")).collect();
        writeln!(text, "| `{variable}` | {} | {} |", argument.replace('|', "\\|"), commands.join(", "))
            .expect("a text grows");
    }
    text
}

#[test]
fn command_line_page_is_up_to_date() {
    page::check(workspace(), "docs/reference/command-line.md", &page());
}
