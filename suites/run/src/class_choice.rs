//! The storage class under test that a driver file names.

use claimcheck_cluster::ClassChoice;
use claimcheck_suites::testdriver::{Class, TestDriver};
use k8s_openapi::api::storage::v1::StorageClass;

/// The storage class that a driver file names.
pub(crate) fn choice(config: &TestDriver) -> ClassChoice {
    match config.class() {
        Class::Existing(name) => ClassChoice::Named(name.clone()),
        Class::Object(class) => ClassChoice::Given(class.clone()),
        Class::Name | Class::None => ClassChoice::Given(Box::new(StorageClass {
            provisioner: config.name().to_owned(),
            ..StorageClass::default()
        })),
    }
}
