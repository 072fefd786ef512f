//! The JSON Schemas of the book are made of the types of the outputs; `cli/tests/commands/schemas.rs` validates outputs.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::{page::check, workspace};

/// The schema of a type as it is written. Fields that are always written are required.
fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[test]
fn schemas_are_those_of_the_types() {
    type Cases = claimcheck_engine::CaseList<claimcheck_suites::Details>;
    type CsiCases = claimcheck_engine::CaseList<claimcheck_conformance::Details>;
    let schemas = [
        ("summary", schema::<claimcheck_report::Summary>()),
        ("event", schema::<claimcheck_model::LoggedEvent>()),
        ("comparison", schema::<claimcheck_report::compare::Comparison>()),
        ("history", schema::<claimcheck_report::history::Document>()),
        ("cases", schema::<Cases>()),
        ("csi-cases", schema::<CsiCases>()),
        ("monitor-status", schema::<claimcheck_monitor::stuck::Status>()),
    ];
    for (name, schema) in schemas {
        let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
        check(workspace(), &format!("docs/reference/schemas/{name}.json"), &text);
    }
}
