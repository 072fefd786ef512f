//! Loops over the keys and values of maps, and the indexes and items of lists.
//!
//! Mirrors cel-go ext/comprehensions.go. The interpreter knows loops with one variable, so
//! that a loop over `i` and `v` becomes one over pairs, and `i` and `v` become the parts of a pair.

use std::collections::HashMap;
use std::sync::LazyLock;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelInt, CelList, CelMap, CelMapKey, CelString, DYN_TYPE};
use cel::common::value::{BuiltinRef, CowVal, Val};
use cel::parser::{Macro, MacroExprHelper};
use cel::{DeclarationError, Env, ExecutionError, ParseError};

use super::super::parts::parts_mut;

/// The functions that make pairs of a list or map, and a map of pairs or of maps; CEL cannot call these names.
const PAIRS: &str = "@pairs";
const MAP: &str = "@map";
const MERGE: &str = "@merge";

/// The loops, each with what it becomes. A call with one more argument has a filter before the last.
const LOOPS: [(&str, usize, &str); 10] = [
    ("all", 3, "range.all(pair, body)"),
    ("exists", 3, "range.exists(pair, body)"),
    ("exists_one", 3, "range.exists_one(pair, body)"),
    ("existsOne", 3, "range.exists_one(pair, body)"),
    ("transformList", 3, "range.map(pair, body)"),
    ("transformList", 4, "range.map(pair, filter, body)"),
    ("transformMap", 3, "range.map(pair, [pair[0], body])"),
    ("transformMap", 4, "range.map(pair, filter, [pair[0], body])"),
    ("transformMapEntry", 3, "range.map(pair, body)"),
    ("transformMapEntry", 4, "range.map(pair, filter, body)"),
];

static STANDARD: LazyLock<Env> = LazyLock::new(Env::stdlib);

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(PAIRS, "pairs_dyn", vec![DYN_TYPE], pairs)?;
    env.add_overload(MAP, "map_dyn", vec![DYN_TYPE], map)?;
    env.add_overload(MERGE, "merge_dyn", vec![DYN_TYPE], merge)?;
    for (name, arguments, template) in LOOPS {
        let expand = move |helper: &mut MacroExprHelper<'_>,
                           target: &mut Option<IdedExpr>,
                           args: &mut Vec<IdedExpr>| {
            let collect = match name {
                "transformMap" => Some(MAP),
                "transformMapEntry" => Some(MERGE),
                _ => None,
            };
            expand(helper, target, args, template, collect)
        };
        env.add_macro(Macro::receiver(name, arguments, expand))?;
    }
    Ok(())
}

fn expand(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    template: &str,
    collect: Option<&str>,
) -> Result<Option<IdedExpr>, ParseError> {
    let Some(range) = target.take() else { return Ok(None) };
    let mut rest = args.split_off(2);
    let mut names = Vec::new();
    for arg in args.drain(..) {
        match arg.expr {
            Expr::Ident(name) => names.push(name),
            _ => return Err(helper.new_error(arg.id, "argument must be a simple name")),
        }
    }
    // Loops may be nested.
    let pair = format!("@pair{}", helper.next_expr(Expr::Unspecified).id);
    for part in &mut rest {
        for (index, name) in (0..).zip(&names) {
            replace(part, name, &part_of(&pair, index));
        }
    }
    let called = |name: &str, arg: IdedExpr| {
        Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args: vec![arg] })
    };
    let mut values = HashMap::from([("range", helper.next_expr(called(PAIRS, range)))]);
    values.extend(rest.pop().map(|body| ("body", body)));
    values.extend(rest.pop().map(|filter| ("filter", filter)));
    let parsed = STANDARD.parser().parse_with_source_info(template);
    let (mut whole, _) = parsed.expect("a test compiles each of these loops");
    fill(&mut whole, &values, &pair);
    Ok(Some(match collect {
        Some(function) => helper.next_expr(called(function, whole)),
        None => whole,
    }))
}

/// `pair[index]`
fn part_of(pair: &str, index: i64) -> Expr {
    let ided = |expr| IdedExpr { id: 0, expr };
    Expr::Call(CallExpr {
        func_name: operators::INDEX.to_owned(),
        target: None,
        args: vec![ided(Expr::Ident(pair.to_owned())), ided(Expr::Literal(LiteralValue::Int(index.into())))],
    })
}

/// Replaces a variable, unless a loop in the expression has one of the same name.
fn replace(expression: &mut IdedExpr, name: &str, by: &Expr) {
    match &mut expression.expr {
        Expr::Ident(found) if found == name => expression.expr = by.clone(),
        Expr::Comprehension(inner) if inner.iter_var == name => replace(&mut inner.iter_range, name, by),
        other => parts_mut(other).into_iter().for_each(|part| replace(part, name, by)),
    }
}

/// Fills a template.
fn fill(expression: &mut IdedExpr, values: &HashMap<&str, IdedExpr>, pair: &str) {
    match &mut expression.expr {
        Expr::Ident(name) if name == "pair" => pair.clone_into(name),
        Expr::Ident(name) => {
            if let Some(value) = values.get(name.as_str()) {
                *expression = value.clone();
            }
        }
        other => {
            if let Expr::Comprehension(inner) = other {
                pair.clone_into(&mut inner.iter_var);
            }
            parts_mut(other).into_iter().for_each(|part| fill(part, values, pair));
        }
    }
}

fn pairs<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [value] = super::take(args)?;
    let value = value.as_ref();
    let items = super::items(value)?;
    let is_map = matches!(value.as_builtin(), BuiltinRef::Map(_));
    let values = value.as_indexer().filter(|_| is_map);
    let mut found: Vec<Box<dyn Val + 'v>> = Vec::with_capacity(items.len());
    for (index, item) in (0_i64..).zip(items) {
        let pair = match values {
            Some(values) => vec![item.clone_as_boxed(), values.get(item)?.into_owned()],
            None => vec![Box::new(CelInt::from(index)) as Box<dyn Val + 'v>, item.clone_as_boxed()],
        };
        found.push(Box::new(CelList::from(pair)));
    }
    Ok(CowVal::Owned(Box::new(CelList::from(found))))
}

fn map<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = super::take(args)?;
    let mut entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    for pair in super::items(list.as_ref())? {
        let [key, value] = super::items(pair)?[..] else {
            return Err(ExecutionError::no_such_overload("transformMap", vec![]));
        };
        entries.insert(key_of(key)?, value.clone_as_boxed());
    }
    Ok(CowVal::Owned(Box::new(CelMap::from(entries))))
}

/// The entries of all maps in a list. No key may occur twice.
fn merge<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = super::take(args)?;
    let mut entries: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    for item in super::items(list.as_ref())? {
        let Some(values) = item.as_indexer() else {
            let kind = item.get_type().name().to_owned();
            return Err(ExecutionError::no_such_overload("transformMapEntry", vec![kind]));
        };
        for key in super::items(item)? {
            let key_of_entry = key_of(key)?;
            if entries.contains_key(&key_of_entry) {
                let message = format!("insert failed: key {} already exists", shown(key));
                return Err(ExecutionError::function_error("transformMapEntry", message));
            }
            entries.insert(key_of_entry, values.get(key)?.into_owned());
        }
    }
    Ok(CowVal::Owned(Box::new(CelMap::from(entries))))
}

fn shown(key: &dyn Val) -> String {
    let number = key.downcast_ref::<CelInt>().map(|number| number.inner().to_string());
    let text = || key.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
    number.or_else(text).unwrap_or_default()
}

fn key_of<'v>(key: &(dyn Val + 'v)) -> Result<CelMapKey<'v>, ExecutionError> {
    if let Some(text) = key.downcast_ref::<CelString>() {
        Ok(CelMapKey::from(text.inner().to_owned()))
    } else if let Some(number) = key.downcast_ref::<CelInt>() {
        Ok(CelMapKey::from(*number.inner()))
    } else {
        Err(ExecutionError::no_such_overload("transformMap", vec![key.get_type().name().to_owned()]))
    }
}
