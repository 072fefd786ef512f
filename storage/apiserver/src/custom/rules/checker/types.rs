//! The types of expressions.
//!
//! Mirrors cel-go common/types/types.go, and FormatCELType in checker/format.go.

use std::fmt;
use std::sync::Arc;

use super::shape::Fields;

/// A type. Those of objects borrow the fields that a schema declares.
#[derive(Clone, Debug)]
pub enum Type<'a> {
    /// Any; values are only known when an expression is evaluated.
    Dyn,
    /// That of a wrong expression, of which the error is known already.
    Error,
    Bool,
    Bytes,
    Double,
    Duration,
    Int,
    Null,
    String,
    Timestamp,
    Uint,
    List(Arc<Type<'a>>),
    /// A map with the types of its keys and values.
    Map(Arc<Type<'a>>, Arc<Type<'a>>),
    Optional(Arc<Type<'a>>),
    /// A type of a library, e.g. `net.IP`.
    Opaque(&'static str),
    /// A type of a library for which upstream declares an object without fields, e.g. `kubernetes.URL`.
    Library(&'static str),
    Object(Object<'a>),
    /// A type as a value; of which type, unless it is `type` itself.
    Kind(Option<Arc<Type<'a>>>),
    /// A type that its use decides.
    Parameter(Parameter),
}

/// A type that its use decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parameter {
    /// One of a signature, by its letter.
    Letter(char),
    /// One of an expression.
    Variable(usize),
}

/// The type of an object. Its name is its identity.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    /// The name of the type of `self`, and the path from there.
    pub name: Arc<str>,
    /// The fields that an expression can select.
    pub fields: &'a Fields,
}

impl<'a> Type<'a> {
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub fn of(value: Self) -> Self {
        Self::Kind(Some(Arc::new(value)))
    }

    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The type of the value of an optional, and whether it is one.
    pub fn unwrap_optional(&self) -> (&Self, bool) {
        match self {
            Self::Optional(value) => (value, true),
            other => (other, false),
        }
    }

    /// The parameters of a type, e.g. that of the items of a list.
    pub fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(inner) | Self::Optional(inner) | Self::Kind(Some(inner)) => vec![inner],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }

    /// The same type with other parameters.
    pub fn map_parameters(&self, mut change: impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(inner) => Self::list(change(inner)),
            Self::Optional(inner) => Self::optional(change(inner)),
            Self::Kind(Some(inner)) => Self::of(change(inner)),
            Self::Map(key, value) => Self::map(change(key), change(value)),
            other => other.clone(),
        }
    }

    /// The name without parameters, as `type` shows it.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Error => "error",
            Self::Bool => "bool",
            Self::Bytes => "bytes",
            Self::Double => "double",
            Self::Duration => "google.protobuf.Duration",
            Self::Int => "int",
            Self::Null => "null_type",
            Self::String => "string",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Uint => "uint",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Kind(_) => "type",
            Self::Opaque(name) | Self::Library(name) => name,
            Self::Object(object) => &object.name,
            Self::Parameter(Parameter::Letter(letter)) => return letter.to_string(),
            Self::Parameter(Parameter::Variable(number)) => return format!("_var{number}"),
        };
        name.to_owned()
    }
}

impl PartialEq for Type<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && {
            let (own, others) = (self.parameters(), other.parameters());
            let has_name =
                matches!(self, Self::Opaque(_) | Self::Library(_) | Self::Object(_) | Self::Parameter(_));
            own == others && (!has_name || self.name() == other.name())
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => return f.write_str("duration"),
            Self::Timestamp => return f.write_str("timestamp"),
            Self::Error => return f.write_str("!error!"),
            Self::Null => return f.write_str("null"),
            _ => f.write_str(&self.name())?,
        }
        let parameters: Vec<String> = self.parameters().iter().map(ToString::to_string).collect();
        match parameters.is_empty() {
            true => Ok(()),
            false => write!(f, "({})", parameters.join(", ")),
        }
    }
}
