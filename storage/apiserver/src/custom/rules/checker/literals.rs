//! Checks of literals, once the types of an expression are known.
//!
//! Mirrors cel-go cel/validator.go.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::super::library::time::{Duration, Timestamp};
use super::super::parts::parts;
use super::expression::Checker;
use super::format;
use super::types::Type;
use crate::custom::pattern;

/// Adds the errors of the literals in `part`; `is_formatted`: it is part of the arguments of `format`.
pub fn check(checker: &mut Checker<'_>, part: &IdedExpr, is_formatted: bool) {
    let mut is_below = is_formatted;
    match &part.expr {
        Expr::Call(call) => {
            if let Some(argument) = call.args.first().filter(|argument| is_wrong(call, argument)) {
                checker.errors.push((argument.id, format!("invalid {} argument", call.func_name)));
            }
            format::check(checker, part.id, call);
            is_below |= call.func_name == "format";
        }
        Expr::List(list) if !is_formatted => {
            let items = list.elements.iter().enumerate();
            let items = items.map(|(index, item)| (item.id, list.optional_indices.contains(&index)));
            check_same(checker, items.collect(), true);
        }
        Expr::Map(map) if !is_formatted => {
            let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some(entry),
                EntryExpr::StructField(_) => None,
            });
            check_same(checker, entries.clone().map(|entry| (entry.key.id, false)).collect(), false);
            check_same(checker, entries.map(|entry| (entry.value.id, entry.optional)).collect(), false);
        }
        _ => {}
    }
    parts(&part.expr).into_iter().for_each(|part| check(checker, part, is_below));
}

/// Whether a function surely fails for its first argument.
fn is_wrong(call: &CallExpr, argument: &IdedExpr) -> bool {
    let Expr::Literal(literal) = &argument.expr else { return false };
    match (call.func_name.as_str(), literal) {
        ("duration", LiteralValue::String(text)) => Duration::read(text.inner()).is_none(),
        ("timestamp", LiteralValue::String(text)) => !is_timestamp(text.inner()),
        // No number is a duration.
        ("duration", LiteralValue::Int(_)) => true,
        ("timestamp", LiteralValue::Int(seconds)) => Timestamp::of_seconds(*seconds.inner()).is_none(),
        // Also of the function, of which the first argument is no pattern.
        ("matches", LiteralValue::String(text)) => pattern::compile(text.inner()).is_err(),
        _ => false,
    }
}

/// Whether Go reads the text as a timestamp. The last two days of the year 9999 are unknown here.
pub fn is_timestamp(text: &str) -> bool {
    let is_last = ["9999-12-30T", "9999-12-31T"].iter().any(|day| text.starts_with(day));
    is_last || (!text.contains(['t', 'z']) && Timestamp::read(text).is_some())
}

/// Checks that elements have one type. Some are optional.
fn check_same(checker: &mut Checker<'_>, elements: Vec<(u64, bool)>, is_first_enough: bool) {
    let mut common: Option<Type<'_>> = None;
    for (id, is_optional) in elements {
        let found = checker.decided(id);
        let found = if is_optional { found.unwrap_optional().0.clone() } else { found };
        match &common {
            None => common = Some(found),
            Some(common) if *common == found => {}
            Some(common) => {
                checker.errors.push((id, format!("expected type '{common}' but found '{found}'")));
                if is_first_enough {
                    return;
                }
            }
        }
    }
}
