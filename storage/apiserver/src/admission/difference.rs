//! The text that upstream appends to "is immutable": a unified diff of the two specs, printed in Go's format of
//! its internal structs as JSON. The order and the null fields are those of the structs.

use serde_json::{Map, Value, json};

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// The difference between two specs of claims.
pub fn claim(old: &Value, new: &Value) -> String {
    unified(&print(&internal_claim(old)), &print(&internal_claim(new)))
}

/// The difference between the sources of two volumes.
pub fn volume_source(old: &Value, new: &Value) -> String {
    unified(&print(&internal_source(old)), &print(&internal_source(new)))
}

fn internal_claim(spec: &Value) -> Value {
    json!({
        "AccessModes": spec["accessModes"],
        "Selector": spec["selector"],
        "Resources": { "Limits": spec["resources"]["limits"], "Requests": spec["resources"]["requests"] },
        "VolumeName": text(&spec["volumeName"]),
        "StorageClassName": spec["storageClassName"],
        "VolumeMode": spec["volumeMode"],
        "DataSource": spec["dataSource"],
        "DataSourceRef": spec["dataSourceRef"],
        "VolumeAttributesClassName": spec["volumeAttributesClassName"],
    })
}

/// The volume sources in the order of `core.PersistentVolumeSource`, each with its field in the API.
const SOURCES: [(&str, &str); 22] = [
    ("GCEPersistentDisk", "gcePersistentDisk"),
    ("AWSElasticBlockStore", "awsElasticBlockStore"),
    ("HostPath", "hostPath"),
    ("Glusterfs", "glusterfs"),
    ("NFS", "nfs"),
    ("RBD", "rbd"),
    ("Quobyte", "quobyte"),
    ("ISCSI", "iscsi"),
    ("FlexVolume", "flexVolume"),
    ("Cinder", "cinder"),
    ("CephFS", "cephfs"),
    ("FC", "fc"),
    ("Flocker", "flocker"),
    ("AzureFile", "azureFile"),
    ("VsphereVolume", "vsphereVolume"),
    ("AzureDisk", "azureDisk"),
    ("PhotonPersistentDisk", "photonPersistentDisk"),
    ("PortworxVolume", "portworxVolume"),
    ("ScaleIO", "scaleIO"),
    ("Local", "local"),
    ("StorageOS", "storageos"),
    ("CSI", "csi"),
];

/// The fields of a volume's spec that name its source.
pub fn sources() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(_, field)| *field)
}

fn internal_source(spec: &Value) -> Value {
    let source = |field: &str| match (field, &spec[field]) {
        ("csi", csi) if csi.is_object() => json!({
            "Driver": text(&csi["driver"]),
            "VolumeHandle": text(&csi["volumeHandle"]),
            "ReadOnly": csi["readOnly"].as_bool().unwrap_or_default(),
            "FSType": text(&csi["fsType"]),
            "VolumeAttributes": csi["volumeAttributes"],
            "ControllerPublishSecretRef": csi["controllerPublishSecretRef"],
            "NodeStageSecretRef": csi["nodeStageSecretRef"],
            "NodePublishSecretRef": csi["nodePublishSecretRef"],
            "ControllerExpandSecretRef": csi["controllerExpandSecretRef"],
            "NodeExpandSecretRef": csi["nodeExpandSecretRef"],
        }),
        (_, other) => other.clone(),
    };
    Value::Object(
        SOURCES.iter().map(|(name, field)| ((*name).to_owned(), source(field))).collect::<Map<_, _>>(),
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// JSON with an indentation of one blank per level, one value per line.
fn print(value: &Value) -> Vec<String> {
    fn write(value: &Value, depth: usize, head: String, tail: &str, lines: &mut Vec<String>) {
        let indent = " ".repeat(depth);
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                lines.push(format!("{head}{{"));
                for (index, (name, value)) in fields.iter().enumerate() {
                    let tail = if index + 1 < fields.len() { "," } else { "" };
                    write(value, depth + 1, format!("{indent} \"{name}\": "), tail, lines);
                }
                lines.push(format!("{indent}}}{tail}"));
            }
            Value::Array(items) if !items.is_empty() => {
                lines.push(format!("{head}["));
                for (index, item) in items.iter().enumerate() {
                    let tail = if index + 1 < items.len() { "," } else { "" };
                    write(item, depth + 1, format!("{indent} "), tail, lines);
                }
                lines.push(format!("{indent}]{tail}"));
            }
            leaf => lines.push(format!("{head}{leaf}{tail}")),
        }
    }
    let mut lines = Vec::new();
    write(value, 0, String::new(), "", &mut lines);
    lines
}

/// One hunk from the first to the last line that differs, with context.
fn unified(old: &[String], new: &[String]) -> String {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(CONTEXT);
    let (old_end, new_end) = (old.len() - same_end, new.len() - same_end);
    let after = same_end.min(CONTEXT);
    let hunk = [old_end + after - start, new_end + after - start];
    let mut text = format!("@@ -{0},{1} +{0},{2} @@\n", start + 1, hunk[0], hunk[1]);
    let parts = [(' ', &old[start..same]), ('-', &old[same..old_end]), ('+', &new[same..new_end])];
    for (mark, lines) in parts.into_iter().chain([(' ', &old[old_end..old_end + after])]) {
        for line in lines {
            text.push(mark);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_class_reads_as_upstream() {
        let spec = |class: &str| {
            json!({
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "64Mi" } },
                "storageClassName": class, "volumeMode": "Filesystem",
            })
        };
        assert_eq!(
            claim(&spec("none"), &spec("other")),
            "@@ -10,7 +10,7 @@\n   }\n  },\n  \"VolumeName\": \"\",\n- \"StorageClassName\": \"none\",\n\
             + \"StorageClassName\": \"other\",\n  \"VolumeMode\": \"Filesystem\",\n  \"DataSource\": null,\n  \
             \"DataSourceRef\": null,\n"
        );
    }
}
