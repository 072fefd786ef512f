//! The check of an expression when a definition is written: the types of all its parts.
//!
//! ```text
//! macros: the syntax of expressions
//! shape: what a schema declares about `self`; types: of expressions; signatures: of functions
//! expression: the types of the parts; unify: type parameters
//!     literals, format, constants: what surely fails when it is evaluated
//!     cost: its estimated cost
//! ```
//!
//! Mirrors compileRule in apiextensions-apiserver pkg/apiserver/schema/cel/compilation.go, and cel-go checker and
//! cel/env.go.

mod constants;
mod cost;
mod expression;
mod format;
mod literals;
mod macros;
pub mod shape;
mod signatures;
#[cfg(test)]
mod tests;
mod types;
mod unify;

use cel::common::ast::SourceInfo;

use super::program::{Fault, Purpose, located_at, on_parser_stack, parse};
use expression::Checker;
use shape::Shape;
use types::Type;

/// The most errors that are shown.
const MOST_ERRORS: usize = 100;

/// What is known about an expression.
#[derive(Debug, PartialEq)]
pub struct Checked {
    /// Whether it reads `oldSelf`.
    pub uses_old: bool,
    /// Why it cannot be evaluated, although its types are right.
    pub fault: Option<String>,
    /// The most that it can cost.
    pub cost: u64,
}

/// Checks `text`. `shape` is that of `self`; `is_optional`: `oldSelf` is an optional value.
pub fn check(text: &str, purpose: Purpose, shape: &Shape, is_optional: bool) -> Result<Checked, Fault> {
    on_parser_stack(|| check_here(text, purpose, shape, is_optional))
}

fn check_here(text: &str, purpose: Purpose, shape: &Shape, is_optional: bool) -> Result<Checked, Fault> {
    let (prefix, expected, noun, instantiation) = match purpose {
        Purpose::Rule => (
            "compilation failed",
            Type::Bool,
            "cel expression must evaluate to a bool",
            "program instantiation failed",
        ),
        Purpose::Message => (
            "messageExpression compilation failed",
            Type::String,
            "messageExpression must evaluate to a string",
            "messageExpression instantiation failed",
        ),
    };
    let (expression, source) =
        parse(&macros::SYNTAX, text).map_err(|errors| Fault::Invalid(format!("{prefix}: {errors}")))?;
    let value = shape.type_named(&self_type());
    let old = if is_optional { Type::optional(value.clone()) } else { value.clone() };
    let mut checker = Checker::new([("self", value), ("oldSelf", old)]);
    checker.visit(&expression);
    if checker.errors.is_empty() && checker.unsupported.is_none() {
        literals::check(&mut checker, &expression, false);
    }
    if !checker.errors.is_empty() {
        return Err(Fault::Invalid(format!("{prefix}: {}", shown(text, &source, checker.errors))));
    }
    // An object that upstream rejects would be accepted here.
    if let Some(unsupported) = checker.unsupported {
        return Err(Fault::Unsupported(unsupported));
    }
    if checker.decided(expression.id) != expected {
        return Err(Fault::Invalid(noun.to_owned()));
    }
    let fault = constants::fault(&checker, &expression).map(|fault| format!("{instantiation}: {fault}"));
    let cost = if fault.is_none() { cost::estimate(&checker, &expression, shape) } else { 0 };
    Ok(Checked { uses_old: checker.uses_old, fault, cost })
}

/// The name of the type of `self`, which upstream changes so that no expression can contain it.
fn self_type() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("selfType{}", now.unwrap_or_default().subsec_nanos())
}

/// Errors as upstream prints them, by their places.
fn shown(text: &str, source: &SourceInfo, mut errors: Vec<(u64, String)>) -> String {
    let place = |id: u64| {
        source.offset_for(id).and_then(|(start, _)| usize::try_from(start).ok()).unwrap_or_default()
    };
    let total = errors.len();
    errors.truncate(MOST_ERRORS);
    errors.sort_by_key(|(id, _)| place(*id));
    let mut texts: Vec<String> =
        errors.iter().map(|(id, message)| located_at(text, place(*id), message)).collect();
    if total > MOST_ERRORS {
        texts.push(format!("{} more errors were truncated", total - MOST_ERRORS));
    }
    texts.join("\n")
}
