//! What fails when an expression of constants is evaluated, which upstream does once its types are known.
//!
//! Mirrors `decOptimize` in cel-go interpreter/decorators.go, `planCheckedIdent` in planner.go, the conversions of
//! cel-go common/types, and apiserver pkg/cel/library/regex.go.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

use super::super::library::time::Duration;
use super::super::parts::parts;
use super::expression::Checker;
use super::literals::is_timestamp;
use super::types::Type;
use crate::custom::pattern;

/// Types that can be named in an expression.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string", "type", "uint"];

/// The first error in the order of evaluation.
pub fn fault(checker: &Checker<'_>, part: &IdedExpr) -> Option<String> {
    let below = parts(&part.expr).into_iter().find_map(|part| fault(checker, part));
    below.or_else(|| match &part.expr {
        Expr::Call(call) => fault_of_pattern(call).or_else(|| value(part).err()),
        Expr::Ident(name) => {
            let is_type = matches!(checker.decided(part.id), Type::Kind(_));
            // Upstream looks for a type of this name, even if it is a variable of which the value is a type.
            let is_undefined = is_type && !TYPES.contains(&name.as_str());
            is_undefined.then(|| format!("reference to undefined type: {name}"))
        }
        _ => None,
    })
}

fn fault_of_pattern(call: &CallExpr) -> Option<String> {
    let is_search = matches!(call.func_name.as_str(), "find" | "findAll") && call.target.is_some();
    let Expr::Literal(LiteralValue::String(text)) = &call.args.first().filter(|_| is_search)?.expr else {
        return None;
    };
    pattern::compile(text.inner()).err().map(|error| format!("error parsing regexp: {error}"))
}

/// The value of a literal, or of conversions of one, if it is known.
fn value(part: &IdedExpr) -> Result<Option<LiteralValue>, String> {
    match &part.expr {
        Expr::Literal(literal) => Ok(Some(literal.clone())),
        Expr::Call(CallExpr { func_name, target: None, args }) if args.len() == 1 => match value(&args[0])? {
            Some(literal) => convert(func_name, literal),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn convert(function: &str, literal: LiteralValue) -> Result<Option<LiteralValue>, String> {
    use LiteralValue::{Boolean, Bytes, Double, Int, String as Text, UInt};
    let overflow = || "integer overflow".to_owned();
    let unsigned_overflow = || "unsigned integer overflow".to_owned();
    let inconvertible = |to: &str| format!("type conversion error from 'string' to '{to}'");
    Ok(Some(match (function, literal) {
        ("dyn", literal) => literal,
        ("int", literal @ Int(_)) | ("uint", literal @ UInt(_)) | ("string", literal @ Text(_)) => literal,
        ("int", Text(text)) => Int(text.inner().parse::<i64>().map_err(|_| inconvertible("int"))?.into()),
        ("int", Double(number)) if !fits(*number.inner(), -TWO_TO_63, TWO_TO_63) => return Err(overflow()),
        ("int", Double(number)) => Int((*number.inner() as i64).into()),
        ("int", UInt(number)) => Int(i64::try_from(*number.inner()).map_err(|_| overflow())?.into()),
        ("uint", Text(text)) => {
            let number = text.inner().parse::<u64>().ok().filter(|_| !text.inner().starts_with('+'));
            UInt(number.ok_or_else(|| inconvertible("uint"))?.into())
        }
        ("uint", Double(number)) if !fits(*number.inner(), -1.0, 2.0 * TWO_TO_63) => {
            return Err(unsigned_overflow());
        }
        ("uint", Double(number)) => UInt((*number.inner() as u64).into()),
        ("uint", Int(number)) => {
            UInt(u64::try_from(*number.inner()).map_err(|_| unsigned_overflow())?.into())
        }
        ("double", Text(text)) if !is_number(text.inner()) => return Err(inconvertible("double")),
        ("double", Int(number)) => Double((*number.inner() as f64).into()),
        ("double", UInt(number)) => Double((*number.inner() as f64).into()),
        ("bool", Text(text)) if !is_truth(text.inner()) => return Err(inconvertible("bool")),
        ("duration", Text(text)) if Duration::read(text.inner()).is_none() => {
            return Err(inconvertible("google.protobuf.Duration"));
        }
        ("timestamp", Text(text)) if !is_timestamp(text.inner()) => {
            return Err(inconvertible("google.protobuf.Timestamp"));
        }
        ("string", Int(number)) => Text(number.inner().to_string().into()),
        ("string", UInt(number)) => Text(number.inner().to_string().into()),
        ("string", Boolean(truth)) => Text(truth.inner().to_string().into()),
        ("string", Bytes(bytes)) => match std::str::from_utf8(bytes.inner()) {
            Ok(text) => Text(text.to_owned().into()),
            Err(_) => return Err("invalid UTF-8 in bytes, cannot convert to string".to_owned()),
        },
        _ => return Ok(None),
    }))
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
