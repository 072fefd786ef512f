//! The functions that expressions can call upstream: those of cel-go and of Kubernetes' libraries, as
//! `signatures.txt` lists them.
//!
//! Mirrors apiserver pkg/cel/environment/base.go.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::{Parameter, Type};

/// A way to call a function.
#[derive(Debug)]
pub struct Overload {
    /// cel-go's identifier.
    pub id: &'static str,
    /// Whether it is called on its first argument.
    pub is_method: bool,
    /// The types of the arguments, and of the target.
    pub arguments: Vec<Type<'static>>,
    /// The type of the result.
    pub result: Type<'static>,
}

static OVERLOADS: LazyLock<HashMap<&str, Vec<Overload>>> = LazyLock::new(|| {
    let mut overloads: HashMap<&str, Vec<Overload>> = HashMap::new();
    let lines = include_str!("signatures.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, overload) = read(line).expect("the tests read each line");
        overloads.entry(name).or_default().push(overload);
    }
    overloads
});

/// The ways to call a function; none if it does not exist.
pub fn overloads(function: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(function).map(Vec::as_slice)
}

/// A line: `name(arguments) result identifier`.
fn read(line: &'static str) -> Option<(&'static str, Overload)> {
    let (rest, id) = line.rsplit_once(' ')?;
    let (name, types) = rest.split_once('(')?;
    let (name, is_method) = name.strip_prefix('.').map_or((name, false), |name| (name, true));
    let mut types = Reader(types);
    let arguments = types.list()?;
    let result = types.read()?;
    Some((name, Overload { id, is_method, arguments, result }))
}

/// Reads types.
struct Reader(&'static str);

impl Reader {
    fn skip(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Types up to the closing parenthesis.
    fn list(&mut self) -> Option<Vec<Type<'static>>> {
        let mut types = Vec::new();
        while !self.skip(")") {
            types.push(self.read()?);
            self.skip(", ");
        }
        self.skip(" ");
        Some(types)
    }

    fn read(&mut self) -> Option<Type<'static>> {
        let end = self.0.find(['(', ')', ',', ' ']).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        let mut inner = if self.skip("(") { self.list()? } else { Vec::new() };
        Some(match (name, inner.pop(), inner.pop()) {
            ("list", Some(item), None) => Type::list(item),
            ("optional", Some(value), None) => Type::optional(value),
            ("type", Some(value), None) => Type::of(value),
            ("map", Some(value), Some(key)) => Type::map(key, value),
            (name, None, None) => simple(name)?,
            _ => return None,
        })
    }
}

fn simple(name: &'static str) -> Option<Type<'static>> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" => Type::Duration,
        "int" => Type::Int,
        "string" => Type::String,
        "timestamp" => Type::Timestamp,
        "uint" => Type::Uint,
        _ if name.starts_with("net.") => Type::Opaque(name),
        _ if name.starts_with("kubernetes.") => Type::Library(name),
        _ => Type::Parameter(Parameter::Letter(name.chars().next().filter(|_| name.len() == 1)?)),
    })
}

/// The type that an identifier names as a value, e.g. `int`.
pub fn named_type<'a>(name: &str) -> Option<Type<'a>> {
    let letter = |letter| Type::Parameter(Parameter::Letter(letter));
    let named = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" => Type::list(letter('A')),
        "map" => Type::map(letter('A'), letter('B')),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(letter('V')),
        "string" => Type::String,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Kind(None),
        "uint" => Type::Uint,
        _ => return None,
    };
    Some(Type::of(named))
}
