//! An additional driver: the built-in driver under another name and with other capabilities, for cases about
//! Kubernetes' behaviour with such a driver. Its objects are derived from the manifests of the first.

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    CONTROLLERS, DRIVER, NODE, Options, Sidecars, resolve,
    substitute::{self, TAP},
    typed,
};

/// The label that distinguishes an additional driver's objects from the first one's.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The Role and the RoleBinding of leader election, in which upstream's sidecars take no part here.
const ELECTION: &str = "claimcheck-leader-election";
/// The path of the driver's state in the manifests.
const STATE_DIR: &str = "--state-dir=/var/lib/claimcheck";

/// The parameters of an additional driver.
#[derive(Clone, Copy, Debug)]
pub struct AdditionalDriver<'a> {
    /// Its CSI driver name.
    pub name: &'a str,
    /// Additional arguments of the built-in driver; `{node_id}` stands for the node.
    pub args: &'a [&'a str],
    /// Whether an attacher runs for it.
    pub attacher: bool,
}

impl AdditionalDriver<'_> {
    /// The sidecar controllers that call it.
    fn controllers(&self) -> Vec<&'static str> {
        ["provisioner", "resizer"].into_iter().chain(self.attacher.then_some("attacher")).collect()
    }

    /// The name of one of its objects, derived from that of the first driver's object.
    fn named(&self, of_first: &str) -> String {
        let short = self.name.split('.').next().unwrap_or(self.name);
        format!("{of_first}-{short}")
    }
}

/// The objects of an additional driver: its node plugin, and a Deployment of its sidecars with a lease of their own. One
/// replica needs it too: while a lost node still runs the pod, the ReplicaSet creates another.
pub fn additional_driver_objects(options: &Options, driver: AdditionalDriver) -> Vec<DynamicObject> {
    let options = Options { driver_name: driver.name.to_owned(), driver_args: Vec::new(), ..options.clone() };
    let mut objects = resolve::resolve(&options.overlay());
    objects.retain(|object| {
        let expected = match object["kind"].as_str() {
            Some("DaemonSet") => NODE,
            Some("Deployment") => CONTROLLERS,
            Some("Role" | "RoleBinding") if options.sidecars == Sidecars::Builtin => ELECTION,
            _ => return false,
        };
        object["metadata"]["name"] == expected
    });
    for object in &mut objects {
        substitute::substitute(object, &options);
        rename(object, &driver);
        match object["kind"].as_str() {
            Some("DaemonSet") => node_plugin(&mut object["spec"]["template"], &driver),
            Some("Deployment") => controllers(&mut object["spec"]["template"]["spec"], &driver),
            Some("Role") => lease(&mut object["rules"], &driver),
            _ => object["roleRef"]["name"] = driver.named(ELECTION).into(),
        }
    }
    typed(objects)
}

/// The object's name, and the label by which its pods are found.
fn rename(object: &mut Value, driver: &AdditionalDriver) {
    let places = ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"];
    for place in places {
        if let Some(labels) = object.pointer_mut(place)
            && let Some(component) = labels[COMPONENT].as_str()
        {
            labels[COMPONENT] = driver.named(component).into();
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    object["metadata"]["name"] = driver.named(name).into();
}

/// A dozen drivers together request more than a node of two cores has: then one driver's node plugin, which is critical,
/// preempts the sidecars of another.
fn request_no_cpu(pod: &mut Value) {
    for container in list(&mut pod["containers"]) {
        if let Some(requests) = container.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
            requests.remove("cpu");
        }
    }
}

/// The container of the driver has another name: disruptions find the first driver by its container name.
fn node_plugin(template: &mut Value, driver: &AdditionalDriver) {
    request_no_cpu(&mut template["spec"]);
    let name = driver.named(DRIVER);
    if template["metadata"]["labels"][TAP] == DRIVER {
        template["metadata"]["labels"][TAP] = name.clone().into();
    }
    for container in list(&mut template["spec"]["containers"]) {
        if container["name"] != DRIVER {
            continue;
        }
        container["name"] = name.clone().into();
        let args = list(&mut container["args"]);
        for arg in args.iter_mut().filter(|arg| **arg == STATE_DIR) {
            *arg = format!("{STATE_DIR}/{name}").into();
        }
        args.extend(driver.args.iter().map(|arg| arg.replace("{node_id}", "$(NODE_NAME)").into()));
    }
}

/// The rules of leader election, for the lease of this driver's sidecars.
fn lease(rules: &mut Value, driver: &AdditionalDriver) {
    for name in list(rules).iter_mut().filter_map(|rule| rule.get_mut("resourceNames")) {
        *name = json!([driver.named(CONTROLLERS)]);
    }
}

fn controllers(pod: &mut Value, driver: &AdditionalDriver) {
    request_no_cpu(pod);
    let expected = driver.controllers();
    let containers = list(&mut pod["containers"]);
    containers.retain_mut(|container| match container["name"].as_str() {
        Some("controllers") => {
            let args = list(&mut container["args"]);
            // The containers that remain with upstream sidecars belong to the cluster, not to a driver.
            let has_builtin_provisioner = args.iter().any(|arg| arg == "provisioner");
            let options = |arg: &Value| arg.as_str().is_some_and(|arg| arg.starts_with("--"));
            args.retain(options);
            args.splice(0..0, ["controller"].iter().chain(&expected).map(|&word| word.into()));
            args.push(format!("--leader-election-name={}", driver.named(CONTROLLERS)).into());
            has_builtin_provisioner
        }
        Some(name) => name.strip_prefix("csi-").is_some_and(|name| expected.contains(&name)),
        None => false,
    });
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it has just been made one")
}
