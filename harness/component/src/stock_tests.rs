//! The flags of `claimcheck controller` compared with those of stock sidecars, by their `--help`. Requires the programs in
//! `CLAIMCHECK_STOCK_SIDECARS`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use claimcheck_controllers::Name;
use clap::{Arg, Args};

use crate::{ControllerArgs, gates, go, scope};

const PROGRAMS: [(Name, &str); 5] = [
    (Name::Provisioner, "csi-provisioner"),
    (Name::Attacher, "csi-attacher"),
    (Name::Resizer, "csi-resizer"),
    (Name::Snapshotter, "csi-snapshotter"),
    (Name::SnapshotController, "snapshot-controller"),
];

/// Flags with other defaults, which docs/contributors/differences.md lists.
const OTHER_DEFAULTS: [&str; 5] = [
    "kube-api-qps",
    "kube-api-burst",
    "kube-api-capacity-qps",
    "kube-api-capacity-burst",
    "capacity-ownerref-level",
];

/// Flags of clap's own.
const BUILT_IN: [&str; 1] = ["version"];

/// The flags that a program prints, with their defaults: `  -name type`, or `      --name type   usage` of pflag.
fn flags(help: &str) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::<String, String>::new();
    let mut last = String::new();
    for line in help.lines() {
        let text = line.trim_start();
        let is_flag = line.len() - text.len() <= 6 && text.starts_with('-');
        if is_flag {
            let name = text.strip_prefix("-v, ").unwrap_or(text).trim_start_matches('-');
            last = name.split([' ', '[', '\t']).next().unwrap_or_default().to_owned();
            flags.insert(last.clone(), String::new());
        }
        let default = text.rsplit_once("(default ").and_then(|(_, default)| default.strip_suffix(')'));
        if let (Some(default), Some(flag)) = (default, flags.get_mut(&last)) {
            flag.clone_from(&default.trim_matches('"').to_owned());
        }
    }
    flags
}

/// The gates that a program prints, with their defaults.
fn printed_gates(help: &str) -> BTreeSet<String> {
    let gates = help.lines().filter_map(|line| line.trim().split_once("=true|false ("));
    gates.map(|(name, _)| name.to_owned()).collect()
}

fn help_of(folder: &Path, program: &str) -> String {
    let output = Command::new(folder.join(program)).arg("--help").output().expect("the program runs");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

/// The default of a built-in controller, in the words of upstream.
fn default_of(name: Name, arg: &Arg) -> String {
    let given: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    match (arg.get_long(), name) {
        (Some("timeout"), name) => format!("{}s", name.timeout().expect("it calls a driver").as_secs()),
        (Some("resync"), name) => format!("{}s", name.resync().as_secs()),
        // `WORKERS` of the controllers.
        (Some("worker-threads"), Name::Provisioner) => "100".to_owned(),
        (Some("worker-threads"), _) => "10".to_owned(),
        _ => given.concat(),
    }
}

fn are_equal(built_in: &str, stock: &str) -> bool {
    let durations = [built_in, stock].map(go::interval);
    match &durations {
        [Ok(built_in), Ok(stock)] => built_in == stock,
        // Go prints no default that is the zero value of its type.
        _ => {
            built_in == stock
                || (stock.is_empty() && ["0", "false"].contains(&built_in))
                || (stock == "map[]" && built_in.is_empty())
        }
    }
}

#[test]
#[ignore = "requires sidecars"]
fn names_and_defaults_are_those_of_stock_sidecars() {
    claimcheck_needs::require("sidecars");
    let folder = PathBuf::from(std::env::var_os("CLAIMCHECK_STOCK_SIDECARS").expect("it is required"));
    let command = ControllerArgs::augment_args(clap::Command::new("controller"));
    let find = |flag: &str| {
        command.get_arguments().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(flag) || aliases.contains(&flag)
        })
    };
    let helps = PROGRAMS.map(|(name, program)| (name, help_of(&folder, program)));
    let mut wrong = Vec::new();
    for (name, help) in &helps {
        let stock = flags(help);
        assert!(stock.len() > 20, "{name}: {help}");
        for (flag, default) in stock.iter().filter(|(flag, _)| !BUILT_IN.contains(&flag.as_str())) {
            let Some(arg) = find(flag) else {
                wrong.push(format!("{name} has no --{flag}"));
                continue;
            };
            let long = arg.get_long().unwrap_or_default();
            if scope::controllers(long).is_some_and(|names| !names.contains(name)) {
                wrong.push(format!("{name} refuses --{flag}"));
            }
            let built_in = default_of(*name, arg);
            if !OTHER_DEFAULTS.contains(&flag.as_str()) && !are_equal(&built_in, default) {
                wrong.push(format!("{name} --{flag} is {built_in:?} by default, and upstream {default:?}"));
            }
        }
        // Upstream has each flag that is limited to some controllers, and names them so.
        for arg in command.get_arguments() {
            let long = arg.get_long().unwrap_or_default();
            let is_own = ["capacity-namespace"].contains(&long);
            let aliases = arg.get_all_aliases().unwrap_or_default();
            let has = [long].into_iter().chain(aliases).any(|flag| stock.contains_key(flag));
            if scope::controllers(long).is_some_and(|names| names.contains(name)) && !is_own && !has {
                wrong.push(format!("upstream's {name} has no --{long}"));
            }
        }
    }
    // Gates that all programs have are those of Kubernetes' libraries.
    let of_all = helps.iter().map(|(_, help)| printed_gates(help)).reduce(|all, one| &all & &one);
    let of_all = of_all.unwrap_or_default();
    assert!(of_all.contains("WatchList"), "{of_all:?}");
    for (name, help) in &helps {
        let known: BTreeSet<String> =
            gates::feature_gates(&[*name]).iter().map(ToString::to_string).collect();
        wrong.extend(
            (&(&printed_gates(help) - &of_all) - &known)
                .into_iter()
                .map(|gate| format!("{name}: gate {gate}")),
        );
        assert!(of_all.contains(gates::RELEASE_ON_EXIT) && known.contains(gates::RELEASE_ON_EXIT));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
