//! Volume types that Kubernetes provides itself: emptyDir, ConfigMap, Secret, downwardAPI, projected and hostPath.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Fixture, Script},
    need::Need,
};

const SUITE: &str = "pod_volumes";

const fn kind(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::POD_LOCAL, &[], run)
}

const fn host(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::POD_LOCAL, &[Need::HostPaths], run)
}

pub(super) const ROWS: &[Case] = &[
    kind(
        "an emptyDir starts empty and is shared by the containers of its pod",
        "EmptyDir volumes",
        case!(empty_dir),
    ),
    kind(
        "an emptyDir with medium Memory is a tmpfs limited by sizeLimit",
        "EmptyDir volumes",
        case!(empty_dir_in_memory),
    ),
    kind("a ConfigMap volume has the selected keys, paths and file modes", "ConfigMap", case!(config_map)),
    kind("a ConfigMap update appears in the volume of a running pod", "ConfigMap", case!(config_map_changes)),
    kind(
        "a pod waits with event FailedMount until its ConfigMap exists",
        "ConfigMap",
        case!(config_map_comes_later),
    ),
    kind(
        "a pod starts with an empty volume if its optional ConfigMap does not exist",
        "ConfigMap",
        case!(optional_config_map),
    ),
    kind("a Secret volume is a read-only tmpfs with the requested file mode", "Secrets", case!(secret)),
    kind(
        "a downwardAPI volume contains the pod's name, namespace and labels",
        "Downward API volume",
        case!(downward_api),
    ),
    kind(
        "a projected volume combines ConfigMap, Secret and downwardAPI in one directory",
        "Projected combined",
        case!(projected),
    ),
    host("a hostPath volume gives access to a directory of the node", "HostPath", case!(host_path)),
    host(
        "a hostPath volume of the wrong type is rejected with event FailedMount",
        "HostPathType",
        case!(host_path_type),
    ),
];

async fn equal(t: &Fixture, desired: &Script<'_>, expected: &str) -> Result<()> {
    let output = t.script_output(desired).await?;
    ensure!(output == expected, "pod output {output:?} instead of {expected:?}");
    Ok(())
}

async fn empty_dir(t: Arc<Fixture>) -> Result<()> {
    let main = json!([{
        "name": "main",
        "image": "busybox:stable",
        "command": ["sh", "-c", "cat /v/dir/from-init > /dev/termination-log"],
        "volumeMounts": [{ "name": "dir", "mountPath": "/v/dir" }],
    }]);
    let script = "test -z \"$(ls -A /v/dir)\" && echo from-init > /v/dir/from-init";
    // `staying` runs the script in an init container; the main container reads its file.
    let expected = Script::long_running("pod", script)
        .volume("dir", json!({ "emptyDir": {} }))
        .spec(json!({ "containers": main, "restartPolicy": "Never" }));
    equal(&t, &expected, "from-init").await
}

async fn empty_dir_in_memory(t: Arc<Fixture>) -> Result<()> {
    let script = "awk '$2 == \"/v/dir\" { print $3 }' /proc/mounts\n\
                  head -c 500000 /dev/zero > /v/dir/fits && echo fits\n\
                  head -c 2000000 /dev/zero > /v/dir/large 2> /dev/null || echo refused\n\
                  test \"$(wc -c < /v/dir/large)\" -lt 600000 && echo full";
    let memory = json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } });
    equal(&t, &Script::run_to_completion("pod", script).volume("dir", memory), "tmpfs\nfits\nrefused\nfull")
        .await
}

async fn config_map(t: Arc<Fixture>) -> Result<()> {
    t.config_map("map", json!({ "plain": "one", "secretive": "two", "unwanted": "three" })).await?;
    // Readable by the group, since fsGroup adds group permissions to files.
    let items = json!([
        { "key": "plain", "path": "plain" },
        { "key": "secretive", "path": "below/secretive", "mode": 0o440 },
    ]);
    let source = json!({ "configMap": { "name": "map", "items": items, "defaultMode": 0o644 } });
    let script = "cd /v/map; ls; cat plain; echo; cat below/secretive; echo\n\
                  stat -L -c %a plain below/secretive";
    equal(
        &t,
        &Script::run_to_completion("pod", script).volume("map", source),
        "below\nplain\none\ntwo\n644\n440",
    )
    .await
}

async fn config_map_changes(t: Arc<Fixture>) -> Result<()> {
    t.config_map("map", json!({ "key": "old" })).await?;
    let source = json!({ "configMap": { "name": "map" } });
    // The init container has read the old value before the main container runs, which waits for the new value.
    let script = "until grep -q new /v/map/key; do sleep 0.02; done\n\
                  cat /v/dir/seen /v/map/key > /dev/termination-log";
    let main = json!([{
        "name": "main",
        "image": "busybox:stable",
        "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "dir", "mountPath": "/v/dir" }, { "name": "map", "mountPath": "/v/map" }],
    }]);
    let expected = Script::long_running("pod", "cat /v/map/key > /v/dir/seen; echo >> /v/dir/seen")
        .volume("map", source)
        .volume("dir", json!({ "emptyDir": {} }))
        .spec(json!({ "containers": main, "restartPolicy": "Never" }));
    let pod = t.script(&expected).await?;
    t.running(&pod).await?;
    t.update_config_map("map", json!({ "key": "new" })).await?;
    let output = t.ended(&pod).await?;
    ensure!(output == "old\nnew", "unexpected pod output {output:?}");
    Ok(())
}

async fn config_map_comes_later(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "configMap": { "name": "map" } });
    let pod = t.script(&Script::run_to_completion("pod", "cat /v/map/key").volume("map", source)).await?;
    t.event_containing("pod", &["FailedMount"], "configmap \"map\" not found").await?;
    t.config_map("map", json!({ "key": "late" })).await?;
    let output = t.ended(&pod).await?;
    ensure!(output == "late", "unexpected pod output {output:?}");
    Ok(())
}

async fn optional_config_map(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "configMap": { "name": "absent", "optional": true } });
    equal(&t, &Script::run_to_completion("pod", "ls /v/map | wc -l").volume("map", source), "0").await
}

async fn secret(t: Arc<Fixture>) -> Result<()> {
    t.secret("secret", json!({ "password": "hunter2" })).await?;
    let source = json!({ "secret": { "secretName": "secret", "defaultMode": 0o440 } });
    let script = "cat /v/secret/password; echo; stat -L -c %a /v/secret/password\n\
                  touch /v/secret/other 2> /dev/null && echo written || echo refused\n\
                  awk '$2 == \"/v/secret\" { print $3 }' /proc/mounts";
    equal(
        &t,
        &Script::run_to_completion("pod", script).volume("secret", source),
        "hunter2\n440\nrefused\ntmpfs",
    )
    .await
}

async fn downward_api(t: Arc<Fixture>) -> Result<()> {
    let field = |path: &str, field: &str| json!({ "path": path, "fieldRef": { "fieldPath": field } });
    let items = json!([
        field("name", "metadata.name"),
        field("namespace", "metadata.namespace"),
        field("labels", "metadata.labels"),
    ]);
    let expected =
        Script::run_to_completion("pod", "cd /v/me; cat name; echo; cat namespace; echo; cat labels")
            .volume("me", json!({ "downwardAPI": { "items": items } }));
    let pod = t.script(&expected).await?;
    let output = t.ended(&pod).await?;
    // With those that a webhook has added.
    let labels = t.pod_now(&pod).await?.metadata.labels.unwrap_or_default();
    ensure!(labels.get("app").is_some_and(|app| app == "pod"), "the pod has the labels {labels:?}");
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    let expected = format!("pod\n{}\n{}", t.namespace(), labels.join("\n"));
    ensure!(output == expected, "pod output {output:?} instead of {expected:?}");
    Ok(())
}

async fn projected(t: Arc<Fixture>) -> Result<()> {
    t.config_map("map", json!({ "public": "one" })).await?;
    t.secret("secret", json!({ "private": "two" })).await?;
    let name = json!([{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }]);
    let sources = json!([
        { "configMap": { "name": "map" } },
        { "secret": { "name": "secret" } },
        { "downwardAPI": { "items": name } },
    ]);
    let expected = Script::run_to_completion("pod", "cd /v/all; for f in *; do echo $f $(cat $f); done")
        .volume("all", json!({ "projected": { "sources": sources } }));
    equal(&t, &expected, "name pod\nprivate two\npublic one").await
}

async fn host_path(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "hostPath": { "path": "/etc", "type": "Directory" } });
    let expected = Script::run_to_completion("pod", "test -s /v/host/passwd && echo there").mounted(
        "host",
        source,
        json!({ "readOnly": true }),
    );
    equal(&t, &expected, "there").await
}

async fn host_path_type(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "hostPath": { "path": "/etc", "type": "File" } });
    t.script(&Script::run_to_completion("pod", "true").volume("host", source)).await?;
    t.event_containing("pod", &["FailedMount"], "is not a file").await?;
    Ok(())
}
