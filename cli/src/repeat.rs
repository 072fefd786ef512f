//! The arguments with which `claimcheck run` repeats a case of a run: those of the run without its filters and outputs, and
//! without secrets.

use claimcheck_cluster::without_secrets;
use claimcheck_run::OutputArgs;
use clap::{Args as _, Command};

/// Options of `run` that are about the whole run.
const OF_RUN: [&str; 3] = ["expect", "write-expect", "parallel"];

/// The arguments of this process as a shell reads them, for the subcommand `run`.
pub fn run_arguments(command: &Command, words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.skip_while(|word| word != "run").skip(1).collect();
    arguments(command, &words)
}

fn arguments(run: &Command, words: &[String]) -> String {
    let outputs = OutputArgs::augment_args(Command::new("outputs"));
    let is_output = |name: &str| {
        OF_RUN.contains(&name) || outputs.get_arguments().any(|known| known.get_long() == Some(name))
    };
    let (mut used, mut words) = (Vec::new(), words.iter().peekable());
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        let Some(long) = word.strip_prefix("--") else { continue };
        let (name, given) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let Some(argument) = run.get_arguments().find(|known| known.get_long() == Some(name)) else {
            continue;
        };
        let requires_value = argument.get_num_args().is_none_or(|range| range.min_values() > 0)
            && argument.get_action().takes_values();
        let value = match given {
            None if requires_value => words.next().map(String::as_str),
            given => given,
        };
        if is_output(name) {
            continue;
        }
        let value = value.map(|value| quoted(&without_secrets(value)));
        used.push(match (value, given) {
            (Some(value), None) => format!("--{name} {value}"),
            (Some(value), Some(_)) => format!("--{name}={value}"),
            (None, _) => format!("--{name}"),
        });
    }
    used.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+{}".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_cluster_and_the_driver_are_repeated_without_secrets() {
        let run = crate::run::Args::augment_args(Command::new("run"));
        for (words, expected) in [
            (vec!["volume_io::", "--parallel", "4", "--nodes=3"], "--nodes=3"),
            (
                vec!["--out", "x", "--fault", "api=429@5%", "retries", "--allow-disruptive"],
                "--fault api=429@5% --allow-disruptive",
            ),
            (vec!["--remote-write", "http://u:p@h", "--push-interval", "5", "--repeat", "2"], "--repeat 2"),
            (
                vec![
                    "--driver",
                    "exec:d --password hunter2 {socket}",
                    "--driver-param",
                    "a=b c",
                    "--",
                    "--nodes",
                ],
                "--driver 'exec:d --password *** {socket}' --driver-param 'a=b c'",
            ),
            (vec!["--sidecar", "x=exec:sh -c 'a'"], r"--sidecar 'x=exec:sh -c '\''a'\'''"),
            (vec!["--install", "--image=i"], "--install --image=i"),
        ] {
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            assert_eq!(arguments(&run, &words), expected);
        }
    }
}
