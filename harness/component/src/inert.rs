//! Flags of upstream's sidecars without effect on the built-in controllers: they are accepted and checked, since
//! vendors' manifests set them.

use claimcheck_controllers::Name;
use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValuesParser, ValueParser},
    error::Error,
};

use super::go;

const HEADING: &str = "Flags of upstream's sidecars that are accepted without effect";

/// A flag without effect.
pub(super) struct Inert {
    pub(super) name: &'static str,
    /// The controllers that have it upstream; `None` for all.
    pub(super) of: Option<&'static [Name]>,
    value: Value,
    default: &'static str,
    /// What it sets upstream, and why it has no effect here.
    help: &'static str,
}

enum Value {
    Switch,
    Duration,
    Number,
    Format,
    Text(&'static str),
}

const fn log_option(name: &'static str, value: Value, default: &'static str) -> Inert {
    Inert {
        name,
        of: None,
        value,
        default,
        help: "Of klog: RUST_LOG and --log-format set what is logged, and how",
    }
}

/// All of them.
pub(super) const FLAGS: &[Inert] = &[
    log_option("v", Value::Number, "0"),
    log_option("vmodule", Value::Text("PATTERN=N,.."), ""),
    log_option("logging-format", Value::Format, "text"),
    log_option("log-flush-frequency", Value::Duration, "5s"),
    log_option("log-text-split-stream", Value::Switch, "false"),
    log_option("log-text-info-buffer-size", Value::Text("QUANTITY"), ""),
    log_option("log-json-split-stream", Value::Switch, "false"),
    log_option("log-json-info-buffer-size", Value::Text("QUANTITY"), ""),
    Inert {
        name: "max-grpc-log-length",
        of: Some(&[Name::Attacher]),
        value: Value::Number,
        default: "-1",
        help: "Attacher: length of logged gRPC messages, which are not logged here",
    },
    Inert {
        name: "automaxprocs",
        of: None,
        value: Value::Switch,
        default: "false",
        help: "Of Go's scheduler: a controller process has two threads",
    },
    Inert {
        name: "enable-pprof",
        of: Some(&[Name::Provisioner]),
        value: Value::Switch,
        default: "false",
        help: "Provisioner: profiles of Go at /debug/pprof/, which is not served",
    },
    Inert {
        name: "snapshot-orphan-sweep-interval",
        of: Some(&[Name::Provisioner]),
        value: Value::Duration,
        default: "5m",
        help: "Provisioner: interval of the search for orphaned finalizers of snapshots, which are removed at once here",
    },
    Inert {
        name: "retry-crd-interval-max",
        of: Some(&[Name::SnapshotController]),
        value: Value::Duration,
        default: "30s",
        help: "Snapshot controller: how long to wait for the kinds of snapshots, for which it waits without end here",
    },
];

impl Inert {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).help(self.help).help_heading(HEADING);
        let arg = arg.default_value(self.default).hide_default_value(true);
        let value_parser = match self.value {
            Value::Switch => return go::switch(arg.value_name(go::BOOL)),
            Value::Duration => ValueParser::new(go::interval),
            Value::Number => clap::value_parser!(i32).into(),
            Value::Format => PossibleValuesParser::new(["text", "json"]).into(),
            Value::Text(_) => ValueParser::string(),
        };
        let value_name = match self.value {
            Value::Text(name) => name,
            Value::Duration => "DURATION",
            Value::Number | Value::Switch => "N",
            Value::Format => "FORMAT",
        };
        arg.value_name(value_name).value_parser(value_parser).allow_negative_numbers(true)
    }
}

/// The arguments, of which nothing remains.
#[derive(Debug)]
pub(super) struct InertArgs;

impl Args for InertArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Inert::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for InertArgs {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}
