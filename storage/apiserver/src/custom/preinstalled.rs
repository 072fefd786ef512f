//! The definitions that exist from the start: those of snapshots, which the built-in sidecars watch always.
//!
//! They are definitions as any other. Only their creation differs: as manifests of drivers create them, too, it
//! updates the existing one.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{definition, names};
use crate::resources::Storage;
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

/// Whether a definition with this name exists from the start.
pub fn is_preinstalled(name: &str) -> bool {
    DEFINITIONS.iter().any(|definition| definition["metadata"]["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{self, Write};

    #[test]
    fn the_definitions_are_valid() {
        let row = resources::stored(Storage::Definitions);
        for definition in DEFINITIONS.iter() {
            let name = definition["metadata"]["name"].as_str().unwrap();
            let errors: Vec<String> =
                definition::validate(definition).iter().map(ToString::to_string).collect();
            assert_eq!(errors, Vec::<String>::new(), "{name}");
            assert_eq!((row.warnings)(definition, Write::Create), Vec::<String>::new(), "{name}");
            let decoded = (row.decode)(row, definition.clone()).unwrap();
            assert_eq!(decoded.faults, Vec::<String>::new(), "{name}");
            assert!(is_preinstalled(name), "{name}");
        }
        assert!(!is_preinstalled("things.example.com"));
    }
}
