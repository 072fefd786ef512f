//! Tables of manifests and what is started for them.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{
    DriverDeployment,
    error::PlanError,
    files::{Link, ProjectedToken},
    image::ImageRootfs,
    kinds::DeploymentSidecar,
    manifests::{Contents, Manifests},
    plan::{World, plan},
    unpack::Unpacked,
};
use crate::{
    driver_command::DriverCommand,
    sidecars::{
        AbsentSidecars, Account,
        plan::{Placement, Role},
    },
};

/// The plan of these manifests on a machine with the directory `/etc`, and the files below `/opt` and `/rootfs/bin`.
fn planned(yaml: &str, images: &[&str]) -> Result<DriverDeployment, PlanError> {
    planned_with(yaml, images, &[], None)
}

/// The same with containers that are declared to be sidecars, and the name of a storage class.
fn planned_with(
    yaml: &str,
    images: &[&str],
    sidecars: &[&str],
    class: Option<&str>,
) -> Result<DriverDeployment, PlanError> {
    let mut manifests = Manifests::default();
    manifests.add(yaml, Path::new("m.yaml")).unwrap();
    let images: Vec<ImageRootfs> = images.iter().map(|text| text.parse().unwrap()).collect();
    let sidecars: Vec<DeploymentSidecar> = sidecars.iter().map(|text| text.parse().unwrap()).collect();
    let exists = |path: &Path| {
        path == Path::new("/etc")
            || path.starts_with("/opt")
            || path.parent() == Some(Path::new("/rootfs/bin"))
    };
    let amounts = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi")];
    let allocatable = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into();
    plan(World {
        manifests: &manifests,
        images: &images,
        sidecars: &sidecars,
        class,
        unpacked: &images_of_engine(),
        roles: &[],
        allocatable: &allocatable,
        exists: &exists,
    })
}

/// What the container engine has.
fn images_of_engine() -> BTreeMap<String, Unpacked> {
    let image = Unpacked {
        folder: "/rootfs".into(),
        entrypoint: vec!["/bin/start".into(), "--entry".into()],
        arguments: vec!["--default".into()],
        variables: vec![("MODE".into(), "image".into()), ("ZONE".into(), "image".into())],
    };
    [("acme/driver:v1".to_owned(), image)].into()
}

fn words(command: &DriverCommand) -> String {
    match command {
        DriverCommand::Exec(words) => words.join(" "),
        _ => panic!("{command:?} is not the vendor's"),
    }
}

/// A workload of namespace `ns`: kind, name, and the pod's fields in flow style.
fn workload(kind: &str, name: &str, pod: &str) -> String {
    format!(
        "---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}, namespace: ns}}, spec: {{selector: {{}}, \
         template: {{metadata: {{labels: {{app: a}}}}, spec: {{{pod}}}}}}}}}\n"
    )
}

const SIDECARS: [&str; 6] = [
    "csi-node-driver-registrar=exec:/opt/registrar",
    "livenessprobe=exec:/opt/livenessprobe",
    "csi-attacher=exec:/opt/csi-attacher",
    "csi-provisioner=exec:/opt/csi-provisioner",
    "csi-resizer=exec:/opt/csi-resizer",
    "csi-snapshotter=exec:/opt/csi-snapshotter",
];

#[test]
fn the_layout_of_the_hostpath_driver_is_planned() {
    let others =
        ["hostpathplugin=exec:/opt/hostpathplugin", "csi-external-health-monitor-controller=exec:/opt/hm"];
    let images: Vec<&str> = SIDECARS.into_iter().chain(others).collect();
    let plan = planned(include_str!("hostpath.yaml"), &images).unwrap();
    assert_eq!(
        words(plan.driver.as_ref().unwrap()),
        "env CSI_ENDPOINT=unix://{socket} KUBE_NODE_NAME={node_id} /opt/hostpathplugin \
         --drivername=hostpath.csi.k8s.io --v=5 --endpoint=unix://{socket} --nodeid={node_id}"
    );
    assert_eq!(plan.controller, None);
    let expected = [
        "health-monitor-controller (ACCOUNT): env ADDRESS={socket} /opt/hm --v=5 --csi-address={socket} \
         --leader-election",
        "registrar (-): env KUBE_NODE_NAME={node_id} /opt/registrar --v=5 --csi-address={socket} \
         --kubelet-registration-path={socket} --http-endpoint=127.0.0.1:0 \
         --plugin-registration-path={registration_dir}",
        "livenessprobe (-): /opt/livenessprobe --csi-address={socket} --health-port=0",
        "attacher (ACCOUNT): /opt/csi-attacher --v=5 --csi-address={socket}",
        "provisioner (ACCOUNT): /opt/csi-provisioner -v=5 --csi-address={socket} --feature-gates=Topology=true",
        "resizer (ACCOUNT): /opt/csi-resizer -v=5 --csi-address={socket}",
        "snapshotter (ACCOUNT): /opt/csi-snapshotter -v=5 --csi-address={socket}",
    ];
    let expected = expected.map(|line| line.replace("ACCOUNT", "default/csi-hostpathplugin-sa"));
    assert_eq!(plan.sidecars.commands(), expected);
    assert!(plan.sidecars.replace_controllers());
    let name = plan.objects.csi_driver.as_ref().and_then(|object| object.metadata.name.as_deref());
    assert_eq!(name, Some("hostpath.csi.k8s.io"));
    let data = "var-lib-csi-hostpath-data";
    assert_eq!(plan.objects.folders, [data]);
    assert_eq!(plan.objects.links, [Link { at: "/csi-data-dir".into(), to: data.into() }]);
    assert_eq!(
        plan.notice.as_deref(),
        Some(
            "--deployment: these have no effect on virtual nodes: livenessProbe (container hostpath of StatefulSet \
             default/csi-hostpathplugin); other objects (VolumeSnapshotClass csi-hostpath-snapclass)"
        )
    );
}

#[test]
fn a_controller_with_an_empty_dir_is_a_separate_process() {
    let volumes = "volumes: [{name: s, emptyDir: {}}]";
    let proxy = "volumeMounts: [{name: s, mountPath: /var/lib/csi/sockets/pluginproxy/}]";
    let controller = format!(
        "serviceAccountName: a, {volumes}, containers: [\
         {{name: plugin, image: acme/driver:v1, args: [controller, '--endpoint=$(CSI_ENDPOINT)', '--zone=$(ZONE)'], \
         env: [{{name: ZONE, valueFrom: {{configMapKeyRef: {{name: c, key: zone}}}}}}, \
         {{name: CSI_ENDPOINT, value: 'unix:///var/lib/csi/sockets/pluginproxy/csi.sock'}}], {proxy}}}, \
         {{name: csi-provisioner, image: 'k/csi-provisioner:v6', \
         args: ['--csi-address=$(ADDRESS)', --leader-election], \
         env: [{{name: ADDRESS, value: /var/lib/csi/sockets/pluginproxy/csi.sock}}], {proxy}}}, \
         {{name: syncer, image: 'acme/syncer:v1', \
         env: [{{name: PLACE, valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}}}]}}, \
         {{name: liveness, image: 'k/livenessprobe:v2', args: ['--csi-address=/csi/csi.sock'], \
         volumeMounts: [{{name: s, mountPath: /csi}}]}}]"
    );
    let node = "hostNetwork: true, initContainers: [{name: i, image: busybox, command: [modprobe, nfs]}], \
         volumes: [{name: s, hostPath: {path: /var/lib/kubelet/plugins/acme/}}, {name: c, configMap: {name: c}}], \
         containers: [\
         {name: plugin, image: acme/driver:v1, args: [node, '--config=/etc/acme/driver.yaml', '--id=$(POD_IP)', \
         '--endpoint=unix:/csi/csi.sock'], env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}], \
         volumeMounts: [{name: s, mountPath: /csi}, {name: c, mountPath: /etc/acme}]}, \
         {name: registrar, image: 'k/csi-node-driver-registrar:v2', args: ['--csi-address=/csi/csi.sock', \
         '--kubelet-registration-path=/var/lib/kubelet/plugins/acme/csi.sock'], \
         volumeMounts: [{name: s, mountPath: /csi}]}, \
         {name: liveness, image: 'k/livenessprobe:v2', args: ['--csi-address=/csi/csi.sock'], \
         volumeMounts: [{name: s, mountPath: /csi}]}]";
    let yaml = [
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: ns}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: {zone: z1, driver.yaml: 'a: 1'}}\n\
         ---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: s}, provisioner: d, \
         parameters: {tier: fast}}\n",
        &workload("Deployment", "controller", &controller),
        &workload("DaemonSet", "node", node),
    ]
    .concat();
    let images = [
        "acme/driver=exec:/opt/driver",
        "syncer=exec:/opt/syncer",
        "busybox=exec:/opt/modprobe",
        SIDECARS[0],
        SIDECARS[1],
        SIDECARS[3],
    ];
    let plan = planned(&yaml, &images).unwrap();
    assert_eq!(
        words(plan.driver.as_ref().unwrap()),
        "env POD_IP=127.0.0.1 /opt/driver node --config=/etc/acme/driver.yaml --id=127.0.0.1 --endpoint=unix:{socket}"
            .replace("/etc/acme", "{state_dir}/daemonset-ns-node-c")
    );
    assert_eq!(
        plan.controller.as_ref().map(words).as_deref(),
        Some(
            "env ZONE=z1 CSI_ENDPOINT=unix://{socket} /opt/driver controller --endpoint=unix://{socket} --zone=z1"
        )
    );
    let expected = [
        "provisioner (ns/a): env ADDRESS={socket} /opt/csi-provisioner --csi-address={socket} --leader-election",
        "syncer (ns/a): env PLACE=ns /opt/syncer",
        "registrar (-): /opt/registrar --csi-address={socket} --kubelet-registration-path={socket} \
         --plugin-registration-path={registration_dir}",
        "livenessprobe (-): /opt/livenessprobe --csi-address={socket} --health-port=0",
    ];
    assert_eq!(plan.sidecars.commands(), expected);
    assert_eq!(plan.class_parameters, [("tier".to_owned(), "fast".to_owned())].into());
    let files: Vec<_> =
        plan.objects.files.iter().map(|file| (file.path.as_str(), file.contents.clone())).collect();
    let contents = |text: &str| Contents(text.as_bytes().to_vec());
    assert_eq!(
        files,
        [("daemonset-ns-node-c/driver.yaml", contents("a: 1")), ("daemonset-ns-node-c/zone", contents("z1"))]
    );
    assert_eq!(
        plan.notice.as_deref(),
        Some(
            "--deployment: the files have no csi-attacher, csi-resizer, csi-snapshotter, and nothing runs in place of \
             those\n--deployment: the files have no CSIDriver object, so that Kubernetes attaches the driver's volumes\n\
             --deployment: these have no effect on virtual nodes: a second sidecar of a kind (container liveness of \
             Deployment ns/controller)"
        )
    );
    let account = |name: &str| Some(Account { namespace: "ns".into(), name: name.into() });
    assert_eq!(plan.objects.driver_account, account("default"));
    assert_eq!(plan.objects.controller_account, account("a"));
    let [init] = plan.objects.init.as_slice() else { panic!("{:?}", plan.objects.init) };
    assert_eq!(
        (init.sidecar.name(), init.sidecar.role()),
        ("init-i", Role::Additional(Placement::EveryNode))
    );
    assert_eq!(init.sidecar.words(), ["/opt/modprobe", "nfs"]);
}

#[test]
fn projected_volumes_have_files_and_tokens_of_the_account() {
    let sources = "[{configMap: {name: c, items: [{key: a, path: sub/a}]}}, {secret: {name: s}}, \
         {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, \
         {path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}, \
         {serviceAccountToken: {path: token, audience: vault, expirationSeconds: 7200}}, \
         {serviceAccountToken: {path: default-token}}]";
    let pod = format!(
        "serviceAccountName: a, volumes: [{{name: p, projected: {{sources: {sources}}}}}], containers: [\
         {{name: d, image: acme/driver, args: ['--endpoint=unix:///csi/csi.sock', '--token=/var/run/p/token'], \
         volumeMounts: [{{name: p, mountPath: /var/run/p}}]}}]"
    );
    let yaml = [
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: ns}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: {a: '1', b: '2'}}\n---\n\
         {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns}, stringData: {key: hidden}}\n",
        &workload("DaemonSet", "d", &pod),
    ]
    .concat();
    let plan = planned(&yaml, &["driver=exec:/opt/d"]).unwrap();
    let folder = "daemonset-ns-d-p";
    let expected = format!("/opt/d --endpoint=unix://{{socket}} --token={{state_dir}}/{folder}/token");
    assert_eq!(words(plan.driver.as_ref().unwrap()), expected);
    let files: Vec<(String, String)> = plan
        .objects
        .files
        .iter()
        .map(|file| (file.path.clone(), String::from_utf8(file.contents.0.clone()).unwrap()))
        .collect();
    let expected = [("sub/a", "1"), ("key", "hidden"), ("labels", "app=\"a\""), ("namespace", "ns")];
    assert_eq!(files, expected.map(|(path, text)| (format!("{folder}/{path}"), text.to_owned())));
    let token = |path: &str, audience: Option<&str>, lifetime| ProjectedToken {
        path: format!("{folder}/{path}"),
        account: Account { namespace: "ns".into(), name: "a".into() },
        audience: audience.map(str::to_owned),
        lifetime,
    };
    let expected = [token("token", Some("vault"), 7200), token("default-token", None, 3600)];
    assert_eq!(plan.objects.tokens, expected);
}

#[test]
fn resources_are_those_of_the_container_or_of_the_node() {
    let variable = |name: &str, resource: &str, divisor: &str| {
        format!(
            "{{name: {name}, valueFrom: {{resourceFieldRef: {{resource: {resource}, divisor: {divisor}}}}}}}"
        )
    };
    let variables = [
        variable("CPUS", "limits.cpu", "0"),
        variable("MEMORY", "limits.memory", "1Mi"),
        variable("REQUESTED", "requests.memory", "1Mi"),
        variable("DISK", "limits.ephemeral-storage", "1Gi"),
    ];
    let pod = format!(
        "volumes: [{{name: v, downwardAPI: {{items: [{{path: cpu, mode: 0400, resourceFieldRef: {{containerName: c, \
         resource: requests.cpu, divisor: 1m}}}}]}}}}], containers: [{{name: c, image: acme/driver, \
         args: ['--endpoint=unix:///csi/csi.sock'], env: [{}], volumeMounts: [{{name: v, mountPath: /v}}], \
         resources: {{limits: {{memory: 64Mi}}, requests: {{cpu: 250m}}}}}}]",
        variables.join(", ")
    );
    let plan = planned(&workload("DaemonSet", "d", &pod), &["driver=exec:/opt/d"]).unwrap();
    let expected = "env CPUS=4 MEMORY=64 REQUESTED=64 DISK=100 /opt/d --endpoint=unix://{socket}";
    assert_eq!(words(plan.driver.as_ref().unwrap()), expected);
    let [file] = plan.objects.files.as_slice() else { panic!("{:?}", plan.objects.files) };
    assert_eq!((file.contents.0.as_slice(), file.mode), (b"250".as_slice(), 0o400));
}

/// kubectl reads `0755` as an octal number.
#[test]
fn files_of_volumes_have_the_modes_of_their_owner() {
    let pod = "volumes: [{name: a, configMap: {name: m, defaultMode: 0755}}, \
         {name: b, configMap: {name: m, items: [{key: run, path: run, mode: 0440}]}}, \
         {name: c, projected: {defaultMode: 365, sources: [{configMap: {name: m}}]}}, \
         {name: d, configMap: {name: m}}], containers: [{name: c, image: acme/driver, \
         args: ['--endpoint=unix:///csi/csi.sock'], volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}, \
         {name: c, mountPath: /c}, {name: d, mountPath: /d}]}]";
    let map =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: ns}, data: {run: 'exit 0'}}\n";
    let plan =
        planned(&format!("{map}{}", workload("DaemonSet", "d", pod)), &["driver=exec:/opt/d"]).unwrap();
    let modes: Vec<u32> = plan.objects.files.iter().map(|file| file.mode).collect();
    assert_eq!(modes, [0o700, 0o400, 0o500, 0o600]);
}

#[test]
fn pods_without_an_account_have_the_default_one_and_a_node_deployment_remains() {
    let containers = "containers: [{name: c, image: acme/driver, args: ['--endpoint=unix:///csi/csi.sock']}, \
         {name: p, image: k/csi-provisioner, args: ['--csi-address=/csi/csi.sock', --node-deployment]}, \
         {name: agent, image: acme/agent}]";
    let images = ["driver=exec:/opt/d", SIDECARS[3], "agent=exec:/opt/a"];
    let plan = planned(&workload("DaemonSet", "d", containers), &images).unwrap();
    let expected = [
        "provisioner (ns/default): /opt/csi-provisioner --csi-address={socket} --node-deployment",
        "agent (ns/default): /opt/a",
    ];
    assert_eq!(plan.sidecars.commands(), expected);
}

/// As in the manifests of Ceph, where a container of the driver's image probes the driver.
#[test]
fn a_container_that_probes_the_driver_is_not_the_driver() {
    let args = "args: ['--endpoint=unix:///csi/csi.sock'";
    let pod = format!(
        "containers: [{{name: c, image: acme/driver, {args}]}}, {{name: liveness-prometheus, image: acme/driver, {args}, \
         --type=liveness]}}]"
    );
    let plan = planned(&workload("DaemonSet", "d", &pod), &["driver=exec:/opt/d"]).unwrap();
    assert_eq!(words(plan.driver.as_ref().unwrap()), "/opt/d --endpoint=unix://{socket}");
    let probe = "liveness-prometheus (ns/default): /opt/d --endpoint=unix://{socket} --type=liveness";
    assert_eq!(plan.sidecars.commands(), [probe]);
}

/// As in the manifests of Cinder, of which the image has no entrypoint.
#[test]
fn the_first_argument_may_be_the_program_of_the_image() {
    let pod = "containers: [{name: c, image: 'acme/driver:v1', args: [/bin/driver, '--endpoint=unix:///csi/csi.sock']}]";
    for (stand_in, program) in [("driver=exec:/opt/d", "/opt/d"), ("driver=/rootfs", "/rootfs/bin/driver")] {
        let plan = planned(&workload("DaemonSet", "d", pod), &[stand_in]).unwrap();
        assert_eq!(words(plan.driver.as_ref().unwrap()), format!("{program} --endpoint=unix://{{socket}}"));
    }
    let other = pod.replace("/bin/driver,", "/bin/data,");
    let plan = planned(&workload("DaemonSet", "d", &other), &["driver=exec:/opt/d"]).unwrap();
    assert_eq!(words(plan.driver.as_ref().unwrap()), "/opt/d /bin/data --endpoint=unix://{socket}");
}

/// As in the manifests of vSphere, where two webhooks have different certificates at the same path.
#[test]
fn secrets_of_other_pods_are_not_linked_into_the_directory_of_the_driver() {
    let secret = |name: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: ns}}, stringData: {{k: v}}}}\n"
        )
    };
    let pod = |name: &str, image: &str, args: &str| {
        format!(
            "volumes: [{{name: v, secret: {{secretName: {name}}}}}], containers: [{{name: {name}, image: {image}, {args} \
             volumeMounts: [{{name: v, mountPath: /run/secrets/tls}}]}}]"
        )
    };
    let driver = pod("d", "acme/driver", "args: ['--endpoint=unix:///csi/csi.sock'],");
    let yaml = [
        secret("d"),
        secret("a"),
        secret("b"),
        workload("DaemonSet", "d", &driver),
        workload("Deployment", "a", &pod("a", "acme/webhook", "")),
        workload("Deployment", "b", &pod("b", "acme/webhook", "")),
    ];
    let plan = planned(&yaml.concat(), &["driver=exec:/opt/d", "webhook=exec:/opt/w"]).unwrap();
    let links = [Link { at: "tls".into(), to: "daemonset-ns-d-v".into() }];
    assert_eq!(plan.objects.secret_links, links);
    let warning = plan.notice.unwrap();
    assert!(warning.contains("/run/secrets/tls of container a of Deployment ns/a"), "{warning}");
}

#[test]
fn the_program_is_looked_up_in_the_folder_of_the_image() {
    let driver = |command: &str| {
        let args = "args: ['--endpoint=unix:///csi/csi.sock']";
        let pod = format!("containers: [{{name: c, image: 'acme/driver:v1', {command}{args}}}]");
        planned(&workload("DaemonSet", "d", &pod), &["driver=/rootfs"])
            .map(|plan| words(plan.driver.as_ref().unwrap()))
    };
    let table = [
        ("", "/rootfs/bin/driver"),
        ("command: [/bin/other], ", "/rootfs/bin/other"),
        ("command: [other, --a], ", "/rootfs/bin/other --a"),
        ("command: [sh, -c, 'exec d \"$@\"', sh], ", "/rootfs/bin/sh -c exec d \"$@\" sh"),
    ];
    for (command, expected) in table {
        assert_eq!(driver(command), Ok(format!("{expected} --endpoint=unix://{{socket}}")), "{command}");
    }
    let error = driver("command: [/usr/bin/other], ").unwrap_err().to_string();
    assert!(error.contains("container c, command: /rootfs has no /usr/bin/other"), "{error}");
}

/// A container that is the driver.
const DRIVER: &str = "{name: c, image: acme/driver, args: ['--endpoint=unix:///csi/csi.sock'], MORE}";

#[test]
fn what_is_not_supported_is_an_error_with_its_place_and_remedy() {
    let pod = |pod: &str| workload("DaemonSet", "d", pod);
    let with = |more: &str| pod(&format!("containers: [{}]", DRIVER.replace("MORE", more)));
    let volume = |volume: &str| {
        let mounts = "volumeMounts: [{name: v, mountPath: /v}]";
        pod(&format!("volumes: [{{name: v, {volume}}}], containers: [{}]", DRIVER.replace("MORE", mounts)))
    };
    let driver = DRIVER.replace(", MORE", "");
    let provisioner = "{name: p, image: k/csi-provisioner, args: [--csi-address=/csi/csi.sock]}";
    let both = ["driver=exec:/opt/d", "csi-provisioner=exec:/opt/p"];
    let one = ["driver=exec:/opt/d"];
    let place = "DaemonSet ns/d, container c, ";
    let projected = |source: &str| volume(&format!("projected: {{sources: [{source}]}}"));
    let table: [(String, &[&str], String); 27] = [
        (
            pod(&format!("initContainers: [{{name: i, image: busybox}}], containers: [{driver}]")),
            &one,
            "nothing stands for these images:\n  busybox: container i of DaemonSet ns/d\nadd --image-rootfs busybox=..".into(),
        ),
        (projected("{podCertificate: {}}"), &one, format!("{place}volumeMounts v: podCertificate is not supported")),
        (
            projected("{configMap: {name: m}}"),
            &one,
            format!("{place}volumeMounts v: no file has ConfigMap ns/m"),
        ),
        (
            volume("downwardAPI: {items: [{path: cpu, resourceFieldRef: {resource: limits.cpu}}]}"),
            &one,
            format!("{place}volumeMounts v: resourceFieldRef: container  not found"),
        ),
        (
            with("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.pods}}}]"),
            &one,
            format!("{place}env A: resourceFieldRef: Unsupported container resource : limits.pods"),
        ),
        (
            volume("downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}"),
            &one,
            format!("{place}volumeMounts v: fieldRef metadata.name has no value in a file"),
        ),
        (
            volume("emptyDir: {}").replace("mountPath: /v", "mountPath: /v, subPathExpr: $(NODE)"),
            &one,
            format!("{place}volumeMounts v: subPath \"$(NODE)\" is not supported"),
        ),
        (
            pod(&format!("containers: [{driver}, {provisioner}]")),
            &[],
            "nothing stands for these images:\n  acme/driver: container c of DaemonSet ns/d\n  k/csi-provisioner: container \
             p of DaemonSet ns/d\nadd --image-rootfs driver=.. --image-rootfs csi-provisioner=.., each with docker"
                .into(),
        ),
        (with(""), &["driver=none"], "no container listens on a CSI socket".into()),
        (with(""), &["driver=exec:/no/such"], format!("{place}image: --image-rootfs acme/driver=exec:/no/such")),
        (with(""), &["d=exec:/opt/d"], "--image-rootfs d: no container".into()),
        (with("command: [sh, -c, x]"), &one, format!("{place}command: the container starts sh")),
        (
            with("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
            &one,
            format!("{place}env A: no file has Secret ns/s"),
        ),
        (
            with("envFrom: [{configMapRef: {name: m}}]"),
            &one,
            format!("{place}envFrom[0]: no file has ConfigMap ns/m"),
        ),
        (
            with("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]"),
            &one,
            format!("{place}env A: fieldRef metadata.uid has no value on virtual nodes"),
        ),
        (
            with("env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]"),
            &one,
            format!("{place}env A: fileKeyRef has no value before the init containers run"),
        ),
        (volume("secret: {secretName: s}"), &one, format!("{place}volumeMounts v: no file has Secret ns/s")),
        (volume("nfs: {server: s, path: /}"), &one, format!("{place}volumeMounts v: only hostPath")),
        (with("volumeMounts: [{name: w, mountPath: /w}]"), &one, format!("{place}volumeMounts w: the pod has no")),
        (pod("containers: [{name: c}]"), &[], format!("{place}image: the container has no image")),
        (
            pod(&format!("serviceAccountName: a, containers: [{driver}, {{name: x, image: acme/x}}]")),
            &["driver=exec:/opt/d", "x=exec:/opt/x"],
            "DaemonSet ns/d, serviceAccountName: no file has ServiceAccount ns/a".into(),
        ),
        (
            pod(&format!("containers: [{driver}, {}]", driver.replace("name: c", "name: e"))),
            &one,
            "container c of DaemonSet ns/d and container e of DaemonSet ns/d both are the driver of the nodes".into(),
        ),
        (
            pod(&format!("containers: [{driver}, {{name: e, image: acme/driver, command: [x]}}]")),
            &one,
            "container c of DaemonSet ns/d and container e of DaemonSet ns/d start different programs".into(),
        ),
        (
            workload("Deployment", "d", &format!("containers: [{driver}]")),
            &one,
            "container c of Deployment ns/d is the driver's controller, and no workload runs the driver on nodes".into(),
        ),
        (
            pod("containers: [{name: c, image: acme/driver, args: ['--endpoint=tcp://:10000']}]"),
            &one,
            "no container listens on a CSI socket".into(),
        ),
        (
            pod(&format!("containers: [{driver}, {provisioner}, {provisioner}]")),
            &both,
            "both are the provisioner: remove one".into(),
        ),
        (
            format!(
                "{}---\n{{kind: CSIDriver, metadata: {{name: a}}}}\n---\n{{kind: CSIDriver, metadata: {{name: b}}}}\n",
                with("")
            ),
            &one,
            "the files have CSIDriver a and b".into(),
        ),
    ];
    for (yaml, images, expected) in table {
        let error =
            planned(&yaml, images).map(|plan| words(plan.driver.as_ref().unwrap())).unwrap_err().to_string();
        assert!(error.contains(&expected), "{yaml}{error}");
    }
}

#[test]
fn containers_are_recognised_by_how_they_use_the_socket() {
    let client = "{name: x, image: acme/x, args: ['unix-connect:/csi/csi.sock']}";
    let mention = "{name: m, image: acme/m, env: [{name: SOCKET, value: /csi/csi.sock}]}";
    let endpoint = "{name: c, image: acme/driver, args: [--csi-endpoint, /csi/csi.sock]}";
    let probe = "{name: p, image: k/livenessprobe, args: [--csi-address=/csi/csi.sock]}";
    let images = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{name}=exec:/opt/{name}")).collect()
    };
    let address = "{name: a, image: acme/address, args: [--csi-address=/csi/csi.sock]}";
    let table: [(&[&str], &[&str], &str); 5] = [
        (&[probe, address], &["livenessprobe", "address"], "/opt/address --csi-address={socket}"),
        (&[address, endpoint], &["address", "driver"], "/opt/driver --csi-endpoint {socket}"),
        (&[client, mention, endpoint], &["x", "m", "driver"], "/opt/driver --csi-endpoint {socket}"),
        (&[client, mention, probe], &["x", "m", "livenessprobe"], "env SOCKET={socket} /opt/m"),
        (&[probe, endpoint], &["livenessprobe", "driver"], "/opt/driver --csi-endpoint {socket}"),
    ];
    for (containers, names, expected) in table {
        let yaml = workload("DaemonSet", "d", &format!("containers: [{}]", containers.join(", ")));
        let images = images(names);
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let plan = planned(&yaml, &images).unwrap();
        assert_eq!(words(plan.driver.as_ref().unwrap()), expected);
        assert_eq!(plan.sidecars.commands().len(), names.len() - 1);
    }
}

#[test]
fn an_endpoint_that_no_sidecar_calls_is_not_the_csi_socket() {
    let mounts = "volumeMounts: [{name: csi, mountPath: /csi}, {name: own, mountPath: /own}]";
    let volumes =
        "volumes: [{name: csi, hostPath: {path: /var/lib/kubelet/plugins/d}}, {name: own, emptyDir: }]";
    let of = |name: &str, args: &str| format!("{{name: {name}, image: acme/{name}, args: {args}, {mounts}}}");
    let helper = of("helper", "[--endpoint=unix:///own/helper.sock]");
    let driver = of("driver", "[--endpoint=/csi/csi.sock, --helperEndpoint=/own/helper.sock]");
    let registrar = of("csi-node-driver-registrar", "[--csi-address=/csi/csi.sock]");
    let yaml =
        workload("DaemonSet", "d", &format!("containers: [{helper}, {driver}, {registrar}], {volumes}"));
    let images = ["helper=exec:/opt/h", "driver=exec:/opt/d", "csi-node-driver-registrar=exec:/opt/r"];
    let plan = planned(&yaml, &images).unwrap();
    let own = "{state_dir}/daemonset-ns-d-own/helper.sock";
    assert_eq!(
        words(plan.driver.as_ref().unwrap()),
        format!("/opt/d --endpoint={{socket}} --helperEndpoint={own}")
    );
    assert!(
        plan.sidecars
            .commands()
            .iter()
            .any(|line| line.ends_with(&format!("/opt/h --endpoint=unix://{own}"))),
        "{:?}",
        plan.sidecars.commands()
    );
}

#[test]
fn an_image_of_the_container_engine_has_its_own_entrypoint_arguments_and_variables() {
    let volumes = "volumes: [{name: s, hostPath: {path: /var/lib/kubelet/plugins/acme/}}]";
    let driver = |fields: &str| {
        let pod = format!(
            "{volumes}, containers: [{{name: plugin, image: acme/driver:v1, {fields}, \
             env: [{{name: CSI_ENDPOINT, value: 'unix:///csi/csi.sock'}}, {{name: ZONE, value: z1}}], \
             volumeMounts: [{{name: s, mountPath: /csi}}]}}]"
        );
        let plan = planned(&workload("DaemonSet", "node", &pod), &["acme/driver=docker"]).unwrap();
        words(plan.driver.as_ref().unwrap())
    };
    let env = "env MODE=image CSI_ENDPOINT=unix://{socket} ZONE=z1";
    let table = [
        ("tty: false", "/rootfs/bin/start --entry --default"),
        ("args: [node]", "/rootfs/bin/start --entry node"),
        ("command: [/bin/driver, serve]", "/rootfs/bin/driver serve"),
        ("command: [driver], args: [node]", "/rootfs/bin/driver node"),
    ];
    for (fields, expected) in table {
        assert_eq!(driver(fields), format!("{env} {expected}"), "{fields}");
    }
}

/// A DaemonSet with the driver and these containers, and its CSIDriver object.
fn node_with(containers: &[&str]) -> String {
    let driver = DRIVER.replace(", MORE", "");
    let containers = [&[driver.as_str()], containers].concat().join(", ");
    format!(
        "{}---\n{{kind: CSIDriver, metadata: {{name: d}}}}\n",
        workload("DaemonSet", "d", &format!("containers: [{containers}]"))
    )
}

const ALL_ABSENT: AbsentSidecars =
    AbsentSidecars { provisioner: true, attacher: true, resizer: true, snapshotter: true };

#[test]
fn what_a_deployment_lacks_is_not_replaced() {
    let one = ["driver=exec:/opt/d"];
    let plan = planned(&node_with(&[]), &one).unwrap();
    assert_eq!(plan.sidecars.absent(), ALL_ABSENT);
    assert!(plan.sidecars.lacks_registrar());
    let expected = "--deployment: the files have no csi-provisioner, csi-attacher, csi-resizer, csi-snapshotter, \
        csi-node-driver-registrar, and nothing runs in place of those";
    assert_eq!(plan.notice.as_deref(), Some(expected));

    // Only for images that are left out, built-in sidecars run.
    let others = [
        "{name: r, image: k/csi-node-driver-registrar, args: [--csi-address=/csi/csi.sock]}",
        "{name: p, image: k/csi-provisioner, args: [--csi-address=/csi/csi.sock]}",
        "{name: s, image: k/csi-snapshotter, args: [--csi-address=/csi/csi.sock]}",
    ];
    let images = [one[0], SIDECARS[0], "csi-provisioner=none", SIDECARS[5]];
    let plan = planned(&node_with(&others), &images).unwrap();
    let expected = AbsentSidecars { provisioner: false, snapshotter: false, ..ALL_ABSENT };
    assert_eq!((plan.sidecars.absent(), plan.sidecars.lacks_registrar()), (expected, false));
    let notice = plan.notice.unwrap();
    let left_out = "built-in ones run in place of images that are set to none: csi-provisioner";
    assert!(
        notice.contains(left_out) && notice.contains("have no csi-attacher, csi-resizer, and"),
        "{notice}"
    );
    let sidecars = plan.sidecars.description().unwrap();
    assert!(sidecars.ends_with("attacher: absent, resizer: absent"), "{sidecars}");

    // A driver that needs no attacher.
    let yaml =
        node_with(&[]).replace("metadata: {name: d}}", "metadata: {name: d}, spec: {attachRequired: false}}");
    let plan = planned(&yaml, &one).unwrap();
    assert!(!plan.sidecars.absent().attacher && plan.sidecars.absent().provisioner);
    // Without a CSIDriver object, Kubernetes attaches.
    let yaml = node_with(&[]).replace("kind: CSIDriver", "kind: Service");
    let plan = planned(&yaml, &one).unwrap();
    assert!(plan.sidecars.absent().attacher);
    assert!(plan.notice.unwrap().contains("the files have no CSIDriver object"));
}

#[test]
fn containers_that_are_declared_to_be_sidecars_are_not_absent() {
    let maker = "{name: maker, image: acme/maker, args: [--socket=/csi/csi.sock, --all]}";
    let images = ["driver=exec:/opt/d", "maker=exec:/opt/m"];
    let declared = ["maker=provisioner", "maker=csi-attacher", "c=resizer"];
    let plan = planned_with(&node_with(&[maker]), &images, &declared, None).unwrap();
    let expected = AbsentSidecars { snapshotter: true, ..AbsentSidecars::NONE };
    assert_eq!(plan.sidecars.absent(), expected);
    // It has its own flags, and is disrupted together with the controllers.
    assert_eq!(plan.sidecars.commands(), ["provisioner (ns/default): /opt/m --socket={socket} --all"]);
    assert!(plan.sidecars.replace_controllers());
    assert_eq!(words(plan.driver.as_ref().unwrap()), "/opt/d --endpoint=unix://{socket}");

    // A program or a container of upstream's name needs no declaration.
    let renamed = "{name: csi-attacher, image: acme/all, args: [--csi-address=/csi/csi.sock]}";
    let plan = planned(&node_with(&[renamed]), &["driver=exec:/opt/d", "all=exec:/opt/all"]).unwrap();
    assert!(!plan.sidecars.absent().attacher);
    let plan =
        planned(&node_with(&[maker]), &["driver=exec:/opt/d", "maker=exec:/opt/csi-provisioner"]).unwrap();
    assert!(!plan.sidecars.absent().provisioner);

    let error = planned_with(&node_with(&[maker]), &images, &["mker=provisioner"], None).unwrap_err();
    let expected = "--deployment-sidecar mker=..: no workload of the --deployment files has a container of this name; they \
        have c, maker";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_variable_with_the_value_of_a_secret_may_have_any_name() {
    let env = "env: [{name: API_USER, valueFrom: {secretKeyRef: {name: s, key: k}}}]";
    let yaml = format!(
        "{}---\n{{kind: Secret, metadata: {{name: s, namespace: ns}}, stringData: {{k: hidden-value}}}}\n",
        workload("DaemonSet", "d", &format!("containers: [{}]", DRIVER.replace("MORE", env)))
    );
    let plan = planned(&yaml, &["driver=exec:/opt/d"]).unwrap();
    let expected = "env API_USER=hidden-value /opt/d --endpoint=unix://{socket}";
    assert_eq!(words(plan.driver.as_ref().unwrap()), expected);
    assert_eq!(plan.objects.secrets(), ["hidden-value"]);
}

#[test]
fn the_class_that_a_driver_file_names_is_used() {
    let class = |name: &str, more: &str| {
        format!(
            "---\n{{kind: StorageClass, metadata: {{name: {name}{more}}}, provisioner: d, parameters: {{tier: {name}}}, \
             mountOptions: [{name}]}}\n"
        )
    };
    let default = ", annotations: {storageclass.kubernetes.io/is-default-class: 'true'}";
    let yaml = [node_with(&[]), class("slow", ""), class("fast", default)].concat();
    for (desired, expected) in [(None, "fast"), (Some("slow"), "slow"), (Some("fast"), "fast")] {
        let plan = planned_with(&yaml, &["driver=exec:/opt/d"], &[], desired).unwrap();
        assert_eq!(plan.class_parameters["tier"], expected);
        assert_eq!(plan.class_mount_options, [expected]);
    }
    let error = planned_with(&yaml, &["driver=exec:/opt/d"], &[], Some("other")).unwrap_err().to_string();
    let expected = "FromExistingClassName other: the --deployment files have no such class, but slow, fast: add the file";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn files_without_workloads_are_for_a_driver_of_its_own_command() {
    let yaml = "{kind: Secret, apiVersion: v1, metadata: {name: s, namespace: ns}, stringData: {k: hidden-value}}\n---\n\
         {kind: StorageClass, metadata: {name: c}, provisioner: d, parameters: \
         {csi.storage.k8s.io/provisioner-secret-name: s, csi.storage.k8s.io/provisioner-secret-namespace: ns}}\n";
    let plan = planned(yaml, &[]).unwrap();
    assert_eq!((&plan.driver, plan.sidecars.absent()), (&None, AbsentSidecars::NONE));
    assert!(!plan.sidecars.lacks_registrar());
    assert_eq!(plan.objects.check_class(&plan.class_parameters), Ok(()));
    let other = [
        ("csi.storage.k8s.io/provisioner-secret-name", "t"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "ns"),
    ];
    let other = other.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let error = plan.objects.check_class(&other).unwrap_err().to_string();
    assert!(error.contains("no file has Secret ns/t: add it with --deployment FILE"), "{error}");
}

/// As in the manifests of Synology.
#[test]
fn a_sidecar_in_a_pod_with_a_second_process_of_the_driver_calls_the_first_one() {
    let pod = |sidecar: &str, image: &str| {
        format!(
            "volumes: [{{name: s, emptyDir: }}], containers: [{{name: plugin, image: {image}, \
             args: ['--endpoint=unix:///csi/csi.sock'], volumeMounts: [{{name: s, mountPath: /csi}}]}}, \
             {{name: {sidecar}, image: k/{sidecar}, args: [--csi-address=/csi/csi.sock], \
             volumeMounts: [{{name: s, mountPath: /csi}}]}}]"
        )
    };
    let yaml = |image: &str| {
        [
            node_with(&[]),
            workload("StatefulSet", "a", &pod("csi-provisioner", "acme/driver")),
            workload("StatefulSet", "b", &pod("csi-snapshotter", image)),
        ]
        .concat()
    };
    let images = ["driver=exec:/opt/d", SIDECARS[3], SIDECARS[5]];
    let plan = planned(&yaml("acme/driver"), &images).unwrap();
    assert_eq!(plan.sidecars.commands().len(), 2);
    let expected = "a second process of the driver's controller (container plugin of StatefulSet ns/b)";
    assert!(plan.notice.unwrap().contains(expected));
    let images = [&images[..], &["other=exec:/opt/o"]].concat();
    let error = planned(&yaml("acme/other"), &images).unwrap_err().to_string();
    assert!(error.contains("both are the driver of the controller"), "{error}");
}

/// As in the manifests of Hammerspace.
#[test]
fn the_controllers_sidecar_runs_if_there_are_two_of_a_kind() {
    let resizer = |name: &str| {
        format!("{{name: {name}, image: k/csi-resizer, args: [--csi-address=/csi/csi.sock, --of={name}]}}")
    };
    let yaml = [
        workload("StatefulSet", "a", &format!("containers: [{}]", resizer("controller"))),
        node_with(&[&resizer("node")]),
    ];
    for yaml in [yaml.concat(), [yaml[1].as_str(), &yaml[0]].concat()] {
        let plan = planned(&yaml, &["driver=exec:/opt/d", SIDECARS[4]]).unwrap();
        let expected = "resizer (ns/default): /opt/csi-resizer --csi-address={socket} --of=controller";
        assert_eq!(plan.sidecars.commands(), [expected]);
        assert!(
            plan.notice.unwrap().contains("a second sidecar of a kind (container node of DaemonSet ns/d)")
        );
    }
}
