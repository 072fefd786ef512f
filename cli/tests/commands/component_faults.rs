//! Missing rights that stop a run: of a built-in component, which fail it, and of a vendor's program, which end the case
//! that depends on them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_claimcheck");

/// Runs the cases with this name, after the roles have been applied.
fn run(filter: &str, sidecar: &str, roles: &str, folder: &Path) -> (Output, Value) {
    let (out, path) = (folder.join("run"), folder.join("roles.yaml"));
    fs::write(&path, roles).expect("a file");
    let output = Command::new(PROGRAM)
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["run", filter, "--sidecar", sidecar, "--sidecar-rbac"])
        .arg(&path)
        .arg("--out")
        .arg(&out)
        .output()
        .expect("the binary runs");
    let text = fs::read_to_string(out.join("summary.json")).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (output, serde_json::from_str(&text).expect("JSON"))
}

/// The text of an output, in one line.
fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The role of the built-in resizer, without a rule.
#[test]
fn a_right_that_a_built_in_role_lacks_fails_the_run_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let roles = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sleeper, namespace: vendor}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {name: claimcheck-virtual-resizer}\nrules: []\n";
    let filter = "volume_expand::a PVC resized twice in a row";
    let (output, summary) = run(filter, "x=exec:sleep 600", roles, folder.path());
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let right = "ServiceAccount claimcheck-system/claimcheck-resizer may not patch persistentvolume";
    for text in [format!("403 Forbidden: {right}"), "faults of built-in components".to_owned()] {
        assert!(printed.contains(&text), "{text:?} is not in {printed}");
    }
    let faults = summary["component_faults"].as_array().expect("faults");
    let users = faults.iter().all(|fault| {
        fault["fault"] == "denied"
            && fault["user"] == "system:serviceaccount:claimcheck-system:claimcheck-resizer"
    });
    assert!(users, "{faults:?}");
    assert_eq!(summary["denials"], Value::Null, "they are not those of a vendor");
    // The case does not wait for what cannot happen, and has the right as its cause.
    let failed: Vec<&Value> = summary["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter(|it| it["result"] == "failed")
        .collect();
    assert!(!failed.is_empty(), "{summary}");
    for case in failed {
        let cause = case["cause"].as_str().unwrap_or_default();
        assert!(cause.contains(right), "{case}");
        assert!(case["reason"].as_str().is_some_and(|reason| reason.contains("can never succeed")), "{case}");
    }
    let junit = fs::read_to_string(folder.path().join("run/junit.xml")).expect("JUnit");
    assert!(junit.contains("<testsuite name=\"built-in components\""), "{junit}");
}

/// The provisioner removes the finalizer of a volume with it, so that nothing that waits for the volume's deletion ends.
#[test]
fn a_case_ends_when_a_vendors_program_lacks_a_right_that_it_depends_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let role = include_str!("../../../manifests/rbac/sidecars/provisioner.yaml")
        .replace("claimcheck-system", "vendor")
        .replace(
            "resources: [persistentvolumes]\n    verbs: [create, delete, get, list, patch, watch]",
            "resources: [persistentvolumes]\n    verbs: [create, delete, get, list, watch]",
        );
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: claimcheck-controllers, namespace: vendor}\n---\n";
    let sidecar = format!(
        "provisioner=exec:{PROGRAM} controller provisioner --csi-address {{socket}} --kubeconfig {{kubeconfig}}"
    );
    let (output, summary) = run("reclaim::", &sidecar, &format!("{account}{role}"), folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let right =
        "ServiceAccount vendor/claimcheck-controllers may not patch persistentvolumes at the cluster scope";
    let causes = summary["causes"].as_array().cloned().unwrap_or_default();
    let cause = causes.iter().find(|cause| cause["cause"].as_str().is_some_and(|text| text.contains(right)));
    let remedy = "verbs: [patch]} to ClusterRole claimcheck-provisioner";
    assert!(cause.is_some_and(|it| it["cause"].as_str().unwrap_or_default().contains(remedy)), "{causes:?}");
    assert_eq!(summary["component_faults"], json!(null), "{summary}");
}
