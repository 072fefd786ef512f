//! What a dashboard must have to be readable, and that Grafana finds everything it names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::files::{dashboards, groups, list, text, yaml};

/// Grafana's own variables.
const BUILT_IN: [&str; 3] = ["__range", "__rate_interval", "datasource"];
const PANELS: [&str; 6] = ["barchart", "bargauge", "heatmap", "stat", "table", "timeseries"];

/// The names of the variables in a text: `$name` and `${name}`.
fn variables(text: &str) -> BTreeSet<String> {
    let parts = text.split('$').skip(1);
    let name = |part: &str| {
        let part = part.trim_start_matches('{');
        part[..part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len())].to_owned()
    };
    parts.map(name).collect()
}

/// Calls `see` with every object in `value`.
fn objects(value: &Value, see: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            see(object);
            object.values().for_each(|inner| objects(inner, see));
        }
        Value::Array(all) => all.iter().for_each(|inner| objects(inner, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_panel_has_a_description() {
    for dashboard in dashboards() {
        let (file, panels) = (&dashboard.file, dashboard.panels());
        assert!((6..=14).contains(&panels.len()), "{file} has {} panels", panels.len());
        let titles: BTreeSet<_> = panels.iter().map(|panel| text(panel, "title")).collect();
        assert_eq!(titles.len(), panels.len(), "{file}: two panels have one title");
        for panel in panels {
            let place = format!("{file}: {}", text(panel, "title"));
            assert!(PANELS.contains(&text(panel, "type")), "{place}");
            assert!(text(panel, "description").ends_with('.'), "{place}: describe it in sentences");
            assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{place}");
            let targets = list(panel, "targets");
            let ids: BTreeSet<_> = targets.iter().map(|target| text(target, "refId")).collect();
            assert_eq!(ids.len(), targets.len(), "{place}");
            for target in targets {
                assert!(target["instant"].as_bool() != target["range"].as_bool(), "{place}");
            }
        }
    }
}

#[test]
fn panels_fill_the_grid_and_do_not_overlap() {
    for dashboard in dashboards() {
        let mut taken = BTreeSet::new();
        for panel in dashboard.panels() {
            let side = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            assert!(side("w") > 0 && side("h") > 2 && side("x") + side("w") <= 24, "{panel}");
            for cell in (side("y")..side("y") + side("h"))
                .flat_map(|y| (side("x")..side("x") + side("w")).map(move |x| (x, y)))
            {
                assert!(taken.insert(cell), "{}: {} overlaps", dashboard.file, panel["title"]);
            }
        }
        let rows = taken.iter().map(|(_, y)| y + 1).max().expect("cells");
        assert_eq!(taken.len() as u64, rows * 24, "{}: there is a hole between panels", dashboard.file);
    }
}

/// Grafana adds thresholds to a panel that has none: values above 80 are red.
#[test]
fn a_single_value_is_red_only_by_its_own_thresholds() {
    for dashboard in dashboards() {
        let values = |panel: &&Value| ["stat", "gauge", "bargauge"].contains(&text(panel, "type"));
        for panel in dashboard.panels().iter().filter(values) {
            let defaults = &panel["fieldConfig"]["defaults"];
            let is_fixed = defaults["color"]["mode"] == "fixed";
            assert!(is_fixed || defaults["thresholds"].is_object(), "{}: {}", dashboard.file, panel["title"]);
        }
    }
}

#[test]
fn identities_are_unique_and_nothing_unknown_is_named() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards() {
        let (file, json) = (&dashboard.file, &dashboard.json);
        assert!(uids.insert(text(json, "uid").to_owned()), "{file}");
        assert!(text(json, "uid").len() <= 40, "{file}: Grafana refuses longer ones");
        assert!(json["schemaVersion"].as_u64() >= Some(39), "{file}");
        assert!(json.get("__inputs").is_none() && json.get("id").is_none(), "{file} is to be provisioned");
        let ids: BTreeSet<_> = dashboard.panels().iter().map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), dashboard.panels().len(), "{file}");
        objects(json, &mut |object| {
            if let Some(source) = object.get("datasource") {
                assert_eq!(
                    source,
                    &serde_json::json!({"type": "prometheus", "uid": "${datasource}"}),
                    "{file}"
                );
            }
            // Names of Grafana's palette follow the theme.
            for key in ["color", "fixedColor", "fill"] {
                let colour = object.get(key).and_then(Value::as_str).unwrap_or_default();
                assert!(!colour.starts_with('#') && !colour.starts_with("rgb"), "{file}: {colour}");
            }
        });
    }
}

#[test]
fn variables_are_used_and_used_variables_exist() {
    for dashboard in dashboards() {
        let declared: BTreeSet<_> =
            dashboard.variables().iter().map(|variable| text(variable, "name").to_owned()).collect();
        let mut used: BTreeSet<_> = dashboard.targets().flat_map(|target| variables(target.expr)).collect();
        let mut before = BTreeSet::new();
        for variable in dashboard.variables() {
            assert!(!text(variable, "label").is_empty() && !text(variable, "description").is_empty());
            let asked = variables(variable["query"]["query"].as_str().unwrap_or_default());
            assert!(asked.is_subset(&before), "{}: {} comes too early", dashboard.file, variable["name"]);
            before.insert(text(variable, "name").to_owned());
            used.extend(asked);
        }
        let built_in = BUILT_IN.map(str::to_owned).into();
        let of_ours: BTreeSet<_> = used.difference(&built_in).cloned().collect();
        let choosable: BTreeSet<_> = declared.difference(&built_in).cloned().collect();
        assert_eq!(of_ours, choosable, "{}", dashboard.file);
    }
}

#[test]
fn everything_is_installed() {
    for (file, groups) in groups() {
        let object = yaml(&format!("prometheus/{file}"));
        assert_eq!(object["spec"]["groups"], groups, "{file}: write the rules there, too");
    }
    let kustomization = yaml("kustomization.yaml");
    let maps = list(&kustomization, "configMapGenerator").iter();
    let listed: Vec<_> = maps.flat_map(|map| list(map, "files")).filter_map(Value::as_str).collect();
    for dashboard in dashboards() {
        assert!(listed.contains(&format!("grafana/{}", dashboard.file).as_str()), "{}", dashboard.file);
    }
    let compose = yaml("compose.yaml");
    let mounts = list(&compose["services"]["grafana"], "volumes");
    let provider = yaml("grafana/provisioning/dashboards/claimcheck.yaml");
    let path = text(&provider["providers"][0]["options"], "path");
    assert!(mounts.iter().any(|mount| mount.as_str() == Some(&format!("./grafana:{path}:ro"))), "{mounts:?}");
}
