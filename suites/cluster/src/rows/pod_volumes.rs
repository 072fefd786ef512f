//! Volumes that are part of a pod: directories that live as long as it, objects as files, paths of the node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{case, row};
use crate::{
    case::{Case, Needs, Pattern, Run},
    fixture::{Fixture, Script},
};

const SUITE: &str = "pod_volumes";

const fn kind(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::IN_POD, Needs::NOTHING, run)
}

const fn of_host(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::IN_POD, Needs::HOST_PATHS, run)
}

pub(super) const ROWS: &[Case] = &[
    kind("an emptyDir is empty, and shared by the containers of a pod", "EmptyDir volumes", case!(empty_dir)),
    kind(
        "an emptyDir in memory is a tmpfs of its size limit",
        "EmptyDir volumes",
        case!(empty_dir_in_memory),
    ),
    kind("a ConfigMap becomes files, with the modes that are asked for", "ConfigMap", case!(config_map)),
    kind("a ConfigMap's change reaches a running pod", "ConfigMap", case!(config_map_changes)),
    kind("a pod waits for its ConfigMap, and says so", "ConfigMap", case!(config_map_comes_later)),
    kind("an optional ConfigMap need not be there", "ConfigMap", case!(optional_config_map)),
    kind("a Secret becomes files that others cannot write", "Secrets", case!(secret)),
    kind("a pod reads its own name, labels and namespace", "Downward API volume", case!(downward_api)),
    kind("a projected volume joins objects in one directory", "Projected combined", case!(projected)),
    of_host("a path of the node is there", "HostPath", case!(host_path)),
    of_host(
        "a path of the node of another type is refused, and the pod says why",
        "HostPathType",
        case!(host_path_type),
    ),
];

async fn equal(t: &Fixture, wanted: &Script<'_>, expected: &str) -> Result<()> {
    let said = t.said(wanted).await?;
    ensure!(said == expected, "the pod said {said:?} instead of {expected:?}");
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
    // `staying` puts the script into an init container; the main one reads what it left.
    let wanted = Script::staying("pod", script)
        .volume("dir", json!({ "emptyDir": {} }))
        .spec(json!({ "containers": main, "restartPolicy": "Never" }));
    equal(&t, &wanted, "from-init").await
}

async fn empty_dir_in_memory(t: Arc<Fixture>) -> Result<()> {
    let script = "awk '$2 == \"/v/dir\" { print $3 }' /proc/mounts\n\
                  head -c 500000 /dev/zero > /v/dir/fits && echo fits\n\
                  head -c 2000000 /dev/zero > /v/dir/large 2> /dev/null || echo refused\n\
                  test \"$(wc -c < /v/dir/large)\" -lt 600000 && echo full";
    let memory = json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } });
    equal(&t, &Script::ending("pod", script).volume("dir", memory), "tmpfs\nfits\nrefused\nfull").await
}

async fn config_map(t: Arc<Fixture>) -> Result<()> {
    t.config_map("map", json!({ "plain": "one", "secretive": "two", "unwanted": "three" })).await?;
    // A group that may read, since files are opened to the group of a pod that has one.
    let items = json!([
        { "key": "plain", "path": "plain" },
        { "key": "secretive", "path": "below/secretive", "mode": 0o440 },
    ]);
    let source = json!({ "configMap": { "name": "map", "items": items, "defaultMode": 0o644 } });
    let script = "cd /v/map; ls; cat plain; echo; cat below/secretive; echo\n\
                  stat -L -c %a plain below/secretive";
    equal(&t, &Script::ending("pod", script).volume("map", source), "below\nplain\none\ntwo\n644\n440").await
}

async fn config_map_changes(t: Arc<Fixture>) -> Result<()> {
    t.config_map("map", json!({ "key": "old" })).await?;
    let source = json!({ "configMap": { "name": "map" } });
    // The init container has read the old value when the main one runs, which waits for the new.
    let script = "until grep -q new /v/map/key; do sleep 0.02; done\n\
                  cat /v/dir/seen /v/map/key > /dev/termination-log";
    let main = json!([{
        "name": "main",
        "image": "busybox:stable",
        "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "dir", "mountPath": "/v/dir" }, { "name": "map", "mountPath": "/v/map" }],
    }]);
    let wanted = Script::staying("pod", "cat /v/map/key > /v/dir/seen; echo >> /v/dir/seen")
        .volume("map", source)
        .volume("dir", json!({ "emptyDir": {} }))
        .spec(json!({ "containers": main, "restartPolicy": "Never" }));
    let pod = t.script(&wanted).await?;
    t.running(&pod).await?;
    t.update_config_map("map", json!({ "key": "new" })).await?;
    let said = t.ended(&pod).await?;
    ensure!(said == "old\nnew", "the pod said {said:?}");
    Ok(())
}

async fn config_map_comes_later(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "configMap": { "name": "map" } });
    let pod = t.script(&Script::ending("pod", "cat /v/map/key").volume("map", source)).await?;
    t.event_saying("pod", &["FailedMount"], "configmap \"map\" not found").await?;
    t.config_map("map", json!({ "key": "late" })).await?;
    let said = t.ended(&pod).await?;
    ensure!(said == "late", "the pod said {said:?}");
    Ok(())
}

async fn optional_config_map(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "configMap": { "name": "absent", "optional": true } });
    equal(&t, &Script::ending("pod", "ls /v/map | wc -l").volume("map", source), "0").await
}

async fn secret(t: Arc<Fixture>) -> Result<()> {
    t.secret("secret", json!({ "password": "hunter2" })).await?;
    let source = json!({ "secret": { "secretName": "secret", "defaultMode": 0o440 } });
    let script = "cat /v/secret/password; echo; stat -L -c %a /v/secret/password\n\
                  touch /v/secret/other 2> /dev/null && echo written || echo refused\n\
                  awk '$2 == \"/v/secret\" { print $3 }' /proc/mounts";
    equal(&t, &Script::ending("pod", script).volume("secret", source), "hunter2\n440\nrefused\ntmpfs").await
}

async fn downward_api(t: Arc<Fixture>) -> Result<()> {
    let field = |path: &str, field: &str| json!({ "path": path, "fieldRef": { "fieldPath": field } });
    let items = json!([
        field("name", "metadata.name"),
        field("namespace", "metadata.namespace"),
        field("labels", "metadata.labels"),
    ]);
    let wanted = Script::ending("pod", "cd /v/me; cat name; echo; cat namespace; echo; cat labels")
        .volume("me", json!({ "downwardAPI": { "items": items } }));
    equal(&t, &wanted, &format!("pod\n{}\napp=\"pod\"", t.namespace())).await
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
    let wanted = Script::ending("pod", "cd /v/all; for f in *; do echo $f $(cat $f); done")
        .volume("all", json!({ "projected": { "sources": sources } }));
    equal(&t, &wanted, "name pod\nprivate two\npublic one").await
}

async fn host_path(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "hostPath": { "path": "/etc", "type": "Directory" } });
    let wanted = Script::ending("pod", "test -s /v/host/passwd && echo there").mounted(
        "host",
        source,
        json!({ "readOnly": true }),
    );
    equal(&t, &wanted, "there").await
}

async fn host_path_type(t: Arc<Fixture>) -> Result<()> {
    let source = json!({ "hostPath": { "path": "/etc", "type": "File" } });
    t.script(&Script::ending("pod", "true").volume("host", source)).await?;
    t.event_saying("pod", &["FailedMount"], "is not a file").await?;
    Ok(())
}
