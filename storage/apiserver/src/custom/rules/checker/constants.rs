//! What fails when an expression of constants is evaluated, which upstream does once its types are known.
//!
//! Mirrors `decOptimize` in cel-go interpreter/decorators.go, `planCheckedIdent` in planner.go, the conversions of
//! cel-go common/types, and apiserver pkg/cel/library/regex.go.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

use super::super::parts::parts;
use super::expression::Checker;
use super::types::Type;
use crate::custom::pattern;

/// Types that can be named in an expression.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string", "type", "uint"];

/// The first error in the order of evaluation.
pub fn fault(checker: &Checker<'_>, part: &IdedExpr) -> Option<String> {
    let below = parts(&part.expr).into_iter().find_map(|part| fault(checker, part));
    below.or_else(|| match &part.expr {
        Expr::Call(call) => fault_of_call(call),
        Expr::Ident(name) => {
            let is_type = matches!(checker.decided(part.id), Type::Kind(_));
            // Upstream looks for a type of this name, even if it is a variable of which the value is a type.
            let is_undefined = is_type && !TYPES.contains(&name.as_str());
            is_undefined.then(|| format!("reference to undefined type: {name}"))
        }
        _ => None,
    })
}

fn fault_of_call(call: &CallExpr) -> Option<String> {
    let Expr::Literal(literal) = &call.args.first()?.expr else { return None };
    let inconvertible =
        |from: &str| Some(format!("type conversion error from '{from}' to '{}'", call.func_name));
    let overflow = |is_signed: bool| {
        let kind = if is_signed { "integer" } else { "unsigned integer" };
        Some(format!("{kind} overflow"))
    };
    match (call.func_name.as_str(), call.target.is_some(), literal) {
        ("find" | "findAll", true, LiteralValue::String(text)) => {
            let error = pattern::compile(text.inner()).err()?;
            Some(format!("error parsing regexp: {error}"))
        }
        ("int", false, LiteralValue::String(text)) if text.inner().parse::<i64>().is_err() => {
            inconvertible("string")
        }
        ("uint", false, LiteralValue::String(text))
            if text.inner().starts_with('+') || text.inner().parse::<u64>().is_err() =>
        {
            inconvertible("string")
        }
        ("double", false, LiteralValue::String(text)) if !is_number(text.inner()) => inconvertible("string"),
        ("bool", false, LiteralValue::String(text)) if !is_truth(text.inner()) => inconvertible("string"),
        ("uint", false, LiteralValue::Int(number)) if *number.inner() < 0 => overflow(false),
        ("int", false, LiteralValue::Double(number)) if !fits(*number.inner(), -TWO_TO_63, TWO_TO_63) => {
            overflow(true)
        }
        ("uint", false, LiteralValue::Double(number)) if !fits(*number.inner(), -1.0, 2.0 * TWO_TO_63) => {
            overflow(false)
        }
        ("int", false, LiteralValue::UInt(number)) if i64::try_from(*number.inner()).is_err() => {
            overflow(true)
        }
        ("string", false, LiteralValue::Bytes(bytes)) if std::str::from_utf8(bytes.inner()).is_err() => {
            Some("invalid UTF-8 in bytes, cannot convert to string".to_owned())
        }
        _ => None,
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn fits(number: f64, above: f64, below: f64) -> bool {
    above < number && number < below
}

/// Whether Go reads the text as a number. Those in hexadecimal notation or with underscores are not checked.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).to_lowercase();
    let is_finite = |number: f64| number.is_finite() || digits.starts_with("inf") || digits == "nan";
    digits.starts_with("0x") || digits.contains('_') || text.parse().is_ok_and(is_finite)
}

/// Whether Go reads the text as a boolean.
fn is_truth(text: &str) -> bool {
    let texts = ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    texts.contains(&text)
}
