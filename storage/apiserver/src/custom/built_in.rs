//! Definitions of the kinds that are built in although a CRD brings them elsewhere: those of snapshots.
//!
//! Their objects are read and written as any definition, so that clients which look for the definition, or apply
//! their own copy of it, find what they expect. The kinds are served by their rows in `resources`, always.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{definition, names};
use crate::resources::{self, Storage};
use crate::store::{Key, Store};
use crate::time;

static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../../manifests/snapshots/crds/volumegroupsnapshotclasses.yaml"),
        include_str!("../../../../manifests/snapshots/crds/volumegroupsnapshotcontents.yaml"),
        include_str!("../../../../manifests/snapshots/crds/volumegroupsnapshots.yaml"),
        include_str!("../../../../manifests/snapshots/crds/volumesnapshotclasses.yaml"),
        include_str!("../../../../manifests/snapshots/crds/volumesnapshotcontents.yaml"),
        include_str!("../../../../manifests/snapshots/crds/volumesnapshots.yaml"),
    ];
    texts.iter().map(|text| read(text)).collect()
});

fn read(text: &str) -> Value {
    let mut value: Value = serde_saphyr::from_str(text).expect("a test reads the manifests");
    if let Value::Object(fields) = &mut value {
        fields.shift_remove("kind");
        fields.shift_remove("apiVersion");
    }
    // By its labels, the installer recognizes what it has created.
    if let Value::Object(metadata) = &mut value["metadata"] {
        metadata.shift_remove("labels");
    }
    definition::complete(&mut value);
    definition::begin(&mut value);
    value
}

/// Creates the definitions in an empty store.
pub fn create_definitions(store: &Store) {
    for definition in DEFINITIONS.iter() {
        let mut definition = definition.clone();
        let metadata = &mut definition["metadata"];
        metadata["uid"] = uuid::Uuid::new_v4().to_string().into();
        metadata["creationTimestamp"] = time::now().into();
        metadata["generation"] = json!(1);
        let key = Key::cluster(definition["metadata"]["name"].as_str().unwrap_or_default());
        definition["status"] = names::plan(&definition, &names::Taken::default());
        store.create(Storage::Definitions, key, definition).expect("the store is empty");
    }
}

/// Whether a definition is that of a built-in kind, `name` being its plural and its group.
pub fn is_built_in(name: &str) -> bool {
    resources::all().iter().any(|row| !row.group.is_empty() && row.qualified_plural() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_valid_and_agree_with_their_rows() {
        let row = resources::stored(Storage::Definitions);
        for definition in DEFINITIONS.iter() {
            let name = definition["metadata"]["name"].as_str().unwrap();
            let errors: Vec<String> =
                definition::validate(definition).iter().map(ToString::to_string).collect();
            assert_eq!(errors, Vec::<String>::new(), "{name}");
            let decoded = (row.decode)(row, definition.clone()).unwrap();
            assert_eq!(decoded.faults, Vec::<String>::new(), "{name}");
            assert!(is_built_in(name), "{name}");
            let served = resources::all().iter().find(|row| row.qualified_plural() == name).unwrap();
            let names = &definition["spec"]["names"];
            assert_eq!(
                (served.kind, served.singular),
                (names["kind"].as_str().unwrap(), names["singular"].as_str().unwrap())
            );
            assert_eq!(json!(served.short_names), names["shortNames"], "{name}");
            assert_eq!(served.namespaced, definition["spec"]["scope"] == "Namespaced", "{name}");
        }
        assert!(!is_built_in("things.example.com") && !is_built_in("pods"));
    }
}
