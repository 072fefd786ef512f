//! Checks of the arguments of `format`.
//!
//! Mirrors stringFormatValidator in cel-go ext/formatting.go.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::expression::Checker;
use super::types::Type;

/// Adds the errors of a call, if it is one of `format` with literals.
pub fn check(checker: &mut Checker<'_>, id: u64, call: &CallExpr) {
    let target = call.target.as_deref().map(|target| &target.expr);
    let (Some(Expr::Literal(LiteralValue::String(text))), "format", [list]) =
        (target, call.func_name.as_str(), &call.args[..])
    else {
        return;
    };
    let Expr::List(list) = &list.expr else { return };
    match check_clauses(checker, text.inner().as_bytes(), &list.elements) {
        Err((part, message)) => checker.errors.push((part.unwrap_or(id), message)),
        Ok(used) if used < list.elements.len() => {
            let given = list.elements.len();
            let message =
                format!("too many arguments supplied to string.format (expected {used}, got {given})");
            checker.errors.push((id, message));
        }
        Ok(_) => {}
    }
}

/// What is wrong, and with which part; none if with the whole.
type Fault = (Option<u64>, String);

/// The number of arguments that the clauses use.
fn check_clauses(checker: &Checker<'_>, text: &[u8], arguments: &[IdedExpr]) -> Result<usize, Fault> {
    let whole = |message: String| (None, message);
    let (mut at, mut used) = (0, 0);
    while let Some(byte) = text.get(at) {
        match (byte, text.get(at + 1)) {
            (b'%', Some(b'%')) => at += 2,
            (b'%', None) => return Err(whole("unexpected end of string".to_owned())),
            (b'%', Some(_)) => {
                let Some(argument) = arguments.get(used) else {
                    return Err(whole(format!("index {used} out of range")));
                };
                let length = precision(&text[at + 1..]).map_err(|fault| {
                    whole(format!(
                        "could not parse formatting clause: error while parsing precision: {fault}"
                    ))
                })?;
                let clause = text.get(at + 1 + length).copied().unwrap_or_default();
                check_clause(checker, clause, argument)?;
                at += length + 2;
                used += 1;
            }
            _ => at += 1,
        }
    }
    Ok(used)
}

/// The length of a precision, e.g. `.3`.
fn precision(text: &[u8]) -> Result<usize, String> {
    let Some(digits) = text.strip_prefix(b".") else { return Ok(0) };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit());
    let end = end.ok_or("could not find end of precision specifier")?;
    let digits = String::from_utf8_lossy(&digits[..end]);
    let number = digits.parse::<i64>().map_err(|_| {
        let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("error while converting precision to integer: strconv.Atoi: parsing \"{digits}\": {reason}")
    });
    number.map(|_| end + 1)
}

fn check_clause(checker: &Checker<'_>, clause: u8, argument: &IdedExpr) -> Result<(), Fault> {
    let found = checker.decided(argument.id);
    let (is_valid, expected) = match clause {
        b's' => {
            return match wrong_part(checker, argument) {
                None => Ok(()),
                Some(part) => Err(mismatch(
                    part,
                    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                     durations, and timestamps",
                    &checker.decided(part),
                )),
            };
        }
        b'd' => (matches!(found, Type::Int | Type::Uint), "decimal clause can only be used on integers"),
        b'f' => {
            (matches!(found, Type::Double | Type::String), "fixed-point clause can only be used on doubles")
        }
        b'e' => {
            (matches!(found, Type::Double | Type::String), "scientific clause can only be used on doubles")
        }
        b'b' => (
            matches!(found, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        b'x' | b'X' => (
            matches!(found, Type::Int | Type::Uint | Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        b'o' => (matches!(found, Type::Int | Type::Uint), "octal clause can only be used on integers"),
        other => {
            let other = char::from(other);
            let message =
                format!("could not parse formatting clause: unrecognized formatting clause \"{other}\"");
            return Err((None, message));
        }
    };
    match is_valid || found == Type::Dyn {
        true => Ok(()),
        false => Err(mismatch(argument.id, expected, &found)),
    }
}

fn mismatch(part: u64, expected: &str, found: &Type<'_>) -> Fault {
    (Some(part), format!("error during formatting: {expected}, was given {}", found.name()))
}

/// The part of an argument that cannot be shown as text.
fn wrong_part(checker: &Checker<'_>, argument: &IdedExpr) -> Option<u64> {
    let found = checker.decided(argument.id);
    let is_wrong = matches!(
        found,
        Type::Error
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Library(_)
            | Type::Object(_)
            | Type::Parameter(_)
    );
    if is_wrong {
        return Some(argument.id);
    }
    match &argument.expr {
        Expr::List(list) => list.elements.iter().find_map(|element| wrong_part(checker, element)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                wrong_part(checker, &entry.key).or_else(|| wrong_part(checker, &entry.value))
            }
            EntryExpr::StructField(_) => None,
        }),
        _ => None,
    }
}
