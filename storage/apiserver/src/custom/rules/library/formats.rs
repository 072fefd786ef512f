//! Formats with a name.
//!
//! Mirrors apiserver pkg/cel/library/format.go.

use cel::common::types::{CelOptional, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env};

use crate::admission::labels;
use crate::custom::rules::opaque::opaque;
use crate::custom::{definition, format};
use crate::names;

/// A format by its name in expressions, and what is wrong with a text that has another.
#[derive(Clone, Copy, Debug)]
struct Format(&'static str, fn(&str) -> Vec<String>);

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

opaque!(Format, "kubernetes.NamedFormat");

/// Declares all formats, each with a function that returns it.
macro_rules! formats {
    ($($function:ident, $name:literal: $faults:expr;)*) => {
        const FORMATS: &[Format] = &[$(Format($name, $faults)),*];

        $(fn $function() -> Format {
            Format($name, $faults)
        })*

        pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
            $(cel::add_overload!(env, fn $function: () -> Format, name = concat!("format.", $name))?;)*
            cel::add_overload!(env, fn named: (CelString) -> CelOptional, name = "format.named")?;
            cel::add_member_overload!(env, fn validate: (Format, CelString) -> CelOptional)
        }
    };
}

formats! {
    dns1123_label, "dns1123Label": |text| Vec::from_iter(names::fault(text, true));
    dns1123_subdomain, "dns1123Subdomain": |text| Vec::from_iter(names::fault(text, false));
    dns1035_label, "dns1035Label": |text| definition::label_fault(text).map(str::to_owned).into_iter().collect();
    qualified_name, "qualifiedName": labels::key_faults;
    dns1123_label_prefix, "dns1123LabelPrefix": |text| Vec::from_iter(names::base_fault(text, true));
    dns1123_subdomain_prefix, "dns1123SubdomainPrefix": |text| Vec::from_iter(names::base_fault(text, false));
    dns1035_label_prefix, "dns1035LabelPrefix": |text| {
        let start = text.strip_suffix('-').map(|start| format!("{start}a"));
        definition::label_fault(start.as_deref().unwrap_or(text)).map(str::to_owned).into_iter().collect()
    };
    label_value, "labelValue": labels::value_faults;
    uri, "uri": |text| kind_errors("uri", text, "invalid URI for request");
    uuid, "uuid": |text| kind_errors("uuid", text, "does not match the UUID format");
    byte, "byte": |text| kind_errors("byte", text, "invalid base64");
    date, "date": |text| kind_errors("date", text, "invalid date");
    datetime, "datetime": |text| kind_errors("datetime", text, "invalid datetime");
}

/// What is wrong with a text that does not have the format of a schema.
fn kind_errors(kind: &str, text: &str, message: &str) -> Vec<String> {
    if format::is_valid(kind, text) { Vec::new() } else { vec![message.to_owned()] }
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    let found = FORMATS.iter().find(|format| format.0 == name.inner());
    found.map_or_else(CelOptional::none, |format| CelOptional::of(Box::new(*format)))
}

fn validate(format: &Format, text: &CelString<'_>) -> CelOptional<'static> {
    let faults = (format.1)(text.inner());
    if faults.is_empty() {
        return CelOptional::none();
    }
    let faults = faults.into_iter().map(|fault| Box::new(CelString::from(fault)) as Box<dyn Val>);
    CelOptional::of(Box::new(super::owned_list(faults.collect())))
}
