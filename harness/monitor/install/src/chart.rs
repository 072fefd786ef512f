//! Generates the Helm chart of the monitor from the manifests. `ci/chart` writes it.
//!
//! The parameters are rendered by the code of an installation, with the name of a value instead of each value, and these
//! become template expressions. The templates only use `{{ .Values.x | quote }}`, `{{- if .Values.x }}`, ranges over the
//! canaries and the arguments, the limit of canaries and the quoted braces of dashboards and alerts, so the tests can
//! render them without helm. Texts are quoted: a namespace `123` or `on` is no text in YAML otherwise.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use serde_json::Value;

use super::{Options, values};

const CHART: &str = "\
# Generated from manifests/monitor by ci/chart.
apiVersion: v2
name: claimcheck-monitor
description: Follows every volume of a cluster, with any CSI driver; reads only
type: application
version: 0.1.0
appVersion: 0.1.0
kubeVersion: \">=1.25.0-0\"
";

const VALUES: &str = "\
# Generated, see Chart.yaml.

# The namespace, which the chart creates. It is not the one of the release.
namespace: claimcheck-monitor
# The image of the monitor and the observers.
image: claimcheck:dev
# One replica serves the series of volumes, the others replace it.
replicas: 2
# An observer on each node, in the namespace claimcheck-system, which must admit privileged pods.
observer: false
# Each CLASS=INTERVAL, such as standard=5m: a life cycle of a volume of this class at this interval.
canary: []
# The number of canaries that run at the same time; the quota of their namespace is twice as high.
canaryLimit: 2
# Further arguments of `claimcheck monitor run`, such as --stuck-after=10m or --canary-image=registry.example.com/busybox:1.
args: []
# Emit an Event on each claim that waits longer than 15 minutes.
events: false
# ServiceMonitor and PrometheusRules, and a PodMonitor of the observers; requires prometheus-operator.
prometheusOperator: false
# Dashboards for the sidecar of Grafana.
grafana: false
";

/// The schema by which helm checks values. Without it the text "false" is true in a template, and a misspelled name has no
/// effect.
const SCHEMA: &str = r#"{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "$comment": "Generated, see Chart.yaml",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "global": { "type": "object" },
    "namespace": { "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" },
    "image": { "type": "string", "pattern": "^\\S+$" },
    "replicas": { "type": "integer", "minimum": 1, "maximum": 16 },
    "observer": { "type": "boolean" },
    "canary": { "type": "array", "uniqueItems": true, "items": { "type": "string", "pattern": "^[^=*]+=[0-9]" } },
    "canaryLimit": { "type": "integer", "minimum": 1, "maximum": 1000 },
    "args": { "type": "array", "items": { "type": "string", "pattern": "^--[a-z]" } },
    "events": { "type": "boolean" },
    "prometheusOperator": { "type": "boolean" },
    "grafana": { "type": "boolean" }
  }
}
"#;

/// The folder in which the test writes the chart.
const WRITE: &str = "CLAIMCHECK_WRITE_CHART";

/// Stands for a value in the objects: a plain scalar in YAML.
const SENTINEL: &str = "VALUE.";
/// How the scalars with values are written.
const SCALARS: [(&str, &str); 7] = [
    ("VALUE.namespace", "{{ .Values.namespace | quote }}"),
    ("VALUE.image", "{{ .Values.image | quote }}"),
    ("VALUE.replicas", "{{ .Values.replicas }}"),
    ("--canary=VALUE.canary", CANARY),
    (LIMIT_SENTINEL, LIMIT),
    (QUOTA_SENTINEL, QUOTA),
    ("VALUE.args", ARGUMENT),
];
/// One canary of a range.
const CANARY: &str = "{{ printf \"--canary=%s\" . | quote }}";
/// The argument for the number of canaries, and twice that number.
const LIMIT: &str = "{{ printf \"--canary-limit=%d\" (int .Values.canaryLimit) | quote }}";
const QUOTA: &str = "{{ mul 2 .Values.canaryLimit | quote }}";
/// What stands for these two: the number is no text, so it cannot be a [`SENTINEL`].
const LIMIT_NUMBER: u32 = 424_242;
const LIMIT_SENTINEL: &str = "--canary-limit=424242";
const QUOTA_SENTINEL: &str = "\"848484\"";
/// One argument of a range.
const ARGUMENT: &str = "{{ . | quote }}";
/// The lines around an argument: a condition or a range.
const END: &str = "{{- end }}";
/// The literal that helm prints as two opening braces.
const BRACES: &str = "{{ \"{{\" }}";

/// The options of the manifests with one optional part; its value.
fn parts() -> [(&'static str, &'static str, Options); 5] {
    let base = Options {
        namespace: format!("{SENTINEL}namespace"),
        image: format!("{SENTINEL}image"),
        canary_limit: LIMIT_NUMBER,
        ..Options::default()
    };
    let canary = vec![format!("{SENTINEL}canary")];
    [
        ("canary", "canary", Options { canary, ..base.clone() }),
        ("events", "events", Options { events: true, ..base.clone() }),
        ("prometheus-operator", "prometheusOperator", Options { prometheus_operator: true, ..base.clone() }),
        ("grafana", "grafana", Options { grafana: true, ..base.clone() }),
        ("observer", "observer", Options { observer: true, ..base }),
    ]
}

fn key(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    format!("{} {} {}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn by_key(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|object| (key(&object), object)).collect()
}

/// Objects as a template. An argument of a component is inside of its condition.
fn template(objects: &[Value]) -> String {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(object).unwrap();
        let document = document.replace("{{", BRACES);
        text.push_str("---\n");
        for line in document.trim_end().lines() {
            let scalar = SCALARS.iter().find(|(scalar, _)| line.ends_with(&format!(" {scalar}")));
            let line = match scalar {
                Some((scalar, expression)) => line.replace(scalar, expression),
                None => line.to_owned(),
            };
            assert!(!line.contains(SENTINEL), "{line}: part of a scalar cannot be quoted");
            let argument = line.trim_start().trim_start_matches(['-', ' ', '"', '\'']);
            let condition = [
                (line.contains(CANARY), "{{- range .Values.canary }}"),
                (line.contains(LIMIT), "{{- if .Values.canary }}"),
                (line.contains(ARGUMENT), "{{- range .Values.args }}"),
                (argument.starts_with("event-threshold="), "{{- if .Values.events }}"),
            ];
            let condition =
                condition.into_iter().find_map(|(applies, condition)| applies.then_some(condition));
            match condition {
                Some(condition) => text.push_str(&format!("{condition}\n{line}\n{END}\n")),
                None => text.push_str(&format!("{line}\n")),
            }
        }
    }
    text
}

/// Path and text of every file of the chart.
fn chart() -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([
        ("Chart.yaml".to_owned(), CHART.to_owned()),
        ("values.yaml".to_owned(), VALUES.to_owned()),
        ("values.schema.json".to_owned(), SCHEMA.to_owned()),
    ]);
    let parts = parts();
    let [(_, _, canary), ..] = &parts;
    // With all optional arguments.
    let base_options = Options { events: true, args: vec![format!("{SENTINEL}args")], ..canary.clone() };
    let without = Options { events: false, canary: Vec::new(), ..base_options.clone() };
    let base = by_key(values(&without));
    let mut objects = values(&base_options);
    objects.retain(|object| base.contains_key(&key(object)));
    for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
        object["spec"]["replicas"] = format!("{SENTINEL}replicas").into();
    }
    files.insert("templates/monitor.yaml".to_owned(), template(&objects));
    let of_parts = parts.clone().map(|(_, _, options)| options);
    for (file, name, options) in parts {
        let mut objects = values(&options);
        objects.retain(|object| !base.contains_key(&key(object)));
        assert!(!objects.is_empty(), "{file}");
        let text = format!("{{{{- if .Values.{name} }}}}\n{}{{{{- end }}}}\n", template(&objects));
        files.insert(format!("templates/{file}.yaml"), text);
    }
    // What both of them require.
    let [.., prometheus_operator, _, observer] = of_parts;
    let either: BTreeMap<String, Value> =
        by_key(values(&observer)).into_iter().chain(by_key(values(&prometheus_operator))).collect();
    let mut objects = values(&Options { prometheus_operator: true, ..observer });
    objects.retain(|object| !either.contains_key(&key(object)));
    assert!(!objects.is_empty());
    let conditions = "{{- if .Values.observer }}\n{{- if .Values.prometheusOperator }}\n";
    let text = format!("{conditions}{}{{{{- end }}}}\n{{{{- end }}}}\n", template(&objects));
    files.insert("templates/observer-prometheus-operator.yaml".to_owned(), text);
    files
}

/// A value in the output: quoted as JSON, which YAML reads.
fn quoted(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Value::String(text).to_string()
}

/// What helm prints for these values, as objects.
fn render(files: &BTreeMap<String, String>, values: &Value) -> BTreeMap<String, Value> {
    let is_set = |name: &str| match &values[name] {
        Value::Bool(set) => *set,
        Value::Array(all) => !all.is_empty(),
        other => panic!("{name}: {other}"),
    };
    let mut objects = Vec::new();
    for (_, text) in files.iter().filter(|(path, _)| path.starts_with("templates/")) {
        let (mut rendered, mut conditions) = (String::new(), Vec::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("{{- if .Values.") {
                conditions.push(is_set(rest.strip_suffix(" }}").unwrap()));
            } else if line.starts_with("{{- range ") {
                conditions.push(true);
            } else if line == END {
                conditions.pop().unwrap();
            } else if conditions.iter().all(|is_true| *is_true) {
                let each = |name: &str, prefix: &str, expression: &str| -> Vec<String> {
                    let all = values[name].as_array().unwrap().iter();
                    let argument = |one: &Value| format!("{prefix}{}", one.as_str().unwrap()).into();
                    all.map(|one| line.replace(expression, &quoted(&argument(one)))).collect()
                };
                let lines = if line.contains(CANARY) {
                    each("canary", "--canary=", CANARY)
                } else if line.contains(ARGUMENT) {
                    each("args", "", ARGUMENT)
                } else {
                    let limit = values["canaryLimit"].as_u64().unwrap();
                    let argument = quoted(&format!("--canary-limit={limit}").into());
                    vec![line.replace(LIMIT, &argument).replace(QUOTA, &quoted(&(2 * limit).into()))]
                };
                for mut line in lines {
                    line = line.replace(BRACES, "\u{1}");
                    for name in ["namespace", "image"] {
                        let expression = format!("{{{{ .Values.{name} | quote }}}}");
                        line = line.replace(&expression, &quoted(&values[name]));
                    }
                    line = line.replace("{{ .Values.replicas }}", &values["replicas"].to_string());
                    assert!(!line.contains("{{"), "{line}: another expression");
                    rendered.push_str(&line.replace('\u{1}', "{{"));
                    rendered.push('\n');
                }
            }
        }
        assert!(conditions.is_empty());
        if !rendered.is_empty() {
            objects.extend(serde_saphyr::from_multiple::<Value>(&rendered).unwrap());
        }
    }
    // An empty document before the first separator.
    objects.retain(|object| !object.is_null());
    by_key(objects)
}

fn defaults() -> Value {
    serde_saphyr::from_str(VALUES).unwrap()
}

#[test]
#[ignore = "ci/chart runs it"]
fn the_chart_is_written() {
    let folder = PathBuf::from(env::var_os(WRITE).expect(WRITE));
    fs::create_dir_all(folder.join("templates")).unwrap();
    for (path, text) in chart() {
        fs::write(folder.join(path), text).unwrap();
    }
}

#[test]
fn the_chart_with_its_default_values_is_the_kustomization() {
    let defaults = defaults();
    let expected = by_key(claimcheck_deploy::install::resolve_with("monitor", &[]));
    assert_eq!(render(&chart(), &defaults), expected);
}

#[test]
fn each_value_of_the_chart_is_an_option_of_the_installation() {
    let options = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        options
    };
    let table: [(&str, Value, Options); 12] = [
        ("namespace", "elsewhere".into(), options(|options| options.namespace = "elsewhere".into())),
        // Texts that are none in YAML unless they are quoted.
        ("namespace", "123".into(), options(|options| options.namespace = "123".into())),
        ("namespace", "on".into(), options(|options| options.namespace = "on".into())),
        ("image", "reg.example/c:1".into(), options(|options| options.image = "reg.example/c:1".into())),
        ("image", "\"a\":{b}#c".into(), options(|options| options.image = "\"a\":{b}#c".into())),
        ("replicas", 3.into(), options(|options| options.replicas = 3)),
        (
            "canary",
            vec!["fast=1m", "slow=1h"].into(),
            options(|options| options.canary = vec!["fast=1m".into(), "slow=1h".into()]),
        ),
        (
            "args",
            vec!["--stuck-after=1m", "--canary-image=\"a\""].into(),
            options(|options| options.args = vec!["--stuck-after=1m".into(), "--canary-image=\"a\"".into()]),
        ),
        ("events", true.into(), options(|options| options.events = true)),
        ("prometheusOperator", true.into(), options(|options| options.prometheus_operator = true)),
        ("grafana", true.into(), options(|options| options.grafana = true)),
        ("observer", true.into(), options(|options| options.observer = true)),
    ];
    let chart = chart();
    let unchanged = render(&chart, &defaults());
    let mut both = defaults();
    (both["observer"], both["prometheusOperator"]) = (true.into(), true.into());
    let scraped = Options { observer: true, prometheus_operator: true, ..Options::default() };
    assert_eq!(render(&chart, &both), by_key(values(&scraped)));
    let mut many = defaults();
    (many["canary"], many["canaryLimit"]) = (vec!["fast=1m"].into(), 5.into());
    let limited = Options { canary: vec!["fast=1m".into()], canary_limit: 5, ..Options::default() };
    assert_eq!(render(&chart, &many), by_key(values(&limited)));
    for (name, value, options) in table {
        let mut changed = defaults();
        assert!(changed.get(name).is_some(), "{name} is not in values.yaml");
        changed[name] = value;
        let rendered = render(&chart, &changed);
        assert_eq!(rendered, by_key(values(&options)), "{name}");
        assert_ne!(rendered, unchanged, "{name}");
    }
}

#[test]
fn helm_checks_each_value() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let checked = schema["properties"].as_object().unwrap();
    for (name, value) in defaults().as_object().unwrap() {
        let expected = match value {
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::Array(_) => "array",
            _ => "string",
        };
        assert_eq!(checked[name]["type"], expected, "{name}");
    }
    // `global` is that of a chart which contains this one.
    assert_eq!(checked.len(), defaults().as_object().unwrap().len() + 1);
}
