//! Functions of lists, and of lists that are used as sets.
//!
//! Mirrors apiserver pkg/cel/library/lists.go, and of cel-go ext/sets.go and the functions for lists with optional
//! values in cel/library.go that the interpreter lacks.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelList, CelOptional, DYN_TYPE, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::{items, take};

type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list.isSorted()", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list.sum()", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("max", "list.max()", LIST_TYPE, vec![], max)?;
    env.add_member_overload("min", "list.min()", LIST_TYPE, vec![], min)?;
    env.add_member_overload("indexOf", "list.indexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload(
        "lastIndexOf",
        "list.lastIndexOf(dyn)",
        LIST_TYPE,
        vec![DYN_TYPE],
        last_index_of,
    )?;
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], first)?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], last)?;
    env.add_overload("optional.unwrap", "optional_unwrap", vec![LIST_TYPE], unwrap)?;
    env.add_member_overload("unwrapOpt", "optional_unwrapOpt", LIST_TYPE, vec![], unwrap)?;
    let two = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "list_sets_contains_list", two(), contains)?;
    env.add_overload("sets.equivalent", "list_sets_equivalent_list", two(), equivalent)?;
    env.add_overload("sets.intersects", "list_sets_intersects_list", two(), intersects)
}

fn truth<'b, 'v>(truth: bool) -> CowVal<'b, 'v> {
    CowVal::owned(CelBool::from(truth))
}

fn compare(left: &dyn Val, right: &dyn Val) -> Result<Ordering, ExecutionError> {
    let name = |value: &dyn Val| value.get_type().name().to_owned();
    let comparer = left
        .as_comparer()
        .ok_or_else(|| ExecutionError::no_such_overload("compare", vec![name(left), name(right)]))?;
    comparer.compare(right)
}

fn is_sorted<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    for pair in items(list.as_ref())?.windows(2) {
        if compare(pair[0], pair[1])? == Ordering::Greater {
            return Ok(truth(false));
        }
    }
    Ok(truth(true))
}

fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    let mut total: Option<Box<dyn Val + 'v>> = None;
    for item in items(list.as_ref())? {
        let next = match &total {
            None => item.clone_as_boxed(),
            Some(total) => match total.as_adder() {
                Some(adder) => adder.add(item)?.into_owned(),
                None => {
                    let kind = item.get_type().name().to_owned();
                    return Err(ExecutionError::no_such_overload("sum", vec![kind]));
                }
            },
        };
        total = Some(next);
    }
    Ok(total.map_or_else(|| CowVal::owned(CelInt::from(0)), CowVal::Owned))
}

fn max<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    extreme(args, "max", Ordering::Greater)
}

fn min<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    extreme(args, "min", Ordering::Less)
}

/// The first item that is greater, or less, than all before.
fn extreme<'b, 'v>(args: Vec<CowVal<'b, 'v>>, name: &str, order: Ordering) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    let mut found: Option<&(dyn Val + 'v)> = None;
    for item in items(list.as_ref())? {
        let is_better = match found {
            None => true,
            Some(best) => compare(item, best)? == order,
        };
        if is_better {
            found = Some(item);
        }
    }
    let empty = || ExecutionError::function_error(name, format!("{name} called on empty list"));
    Ok(CowVal::Owned(found.ok_or_else(empty)?.clone_as_boxed()))
}

fn index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list, value] = take(args)?;
    Ok(index(items(list.as_ref())?.iter().position(|item| item.equals(value.as_ref()))))
}

fn last_index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list, value] = take(args)?;
    Ok(index(items(list.as_ref())?.iter().rposition(|item| item.equals(value.as_ref()))))
}

fn index<'b, 'v>(position: Option<usize>) -> CowVal<'b, 'v> {
    let position = position.and_then(|position| i64::try_from(position).ok());
    CowVal::owned(CelInt::from(position.unwrap_or(-1)))
}

fn first<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    Ok(optional(items(list.as_ref())?.first().copied()))
}

fn last<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    Ok(optional(items(list.as_ref())?.last().copied()))
}

fn optional<'b, 'v>(item: Option<&(dyn Val + 'v)>) -> CowVal<'b, 'v> {
    let found = item.map_or_else(CelOptional::none, |item| CelOptional::of(item.clone_as_boxed()));
    CowVal::Owned(Box::new(found))
}

/// The values of the optionals that have one.
fn unwrap<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [list] = take(args)?;
    let mut values: Vec<Box<dyn Val + 'v>> = Vec::new();
    for item in items(list.as_ref())? {
        let Some(item) = item.downcast_ref::<CelOptional>() else {
            let kind = item.get_type().name().to_owned();
            return Err(ExecutionError::no_such_overload("unwrap", vec![kind]));
        };
        values.extend(item.option().map(Val::clone_as_boxed));
    }
    Ok(CowVal::Owned(Box::new(CelList::from(values))))
}

fn has(list: &[&dyn Val], value: &dyn Val) -> bool {
    list.iter().any(|item| item.equals(value))
}

fn contains<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [left, right] = take(args)?;
    let (left, right) = (items(left.as_ref())?, items(right.as_ref())?);
    Ok(truth(right.iter().all(|item| has(&left, *item))))
}

fn equivalent<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [left, right] = take(args)?;
    let (left, right) = (items(left.as_ref())?, items(right.as_ref())?);
    let is_within = |part: &[&dyn Val], whole: &[&dyn Val]| part.iter().all(|item| has(whole, *item));
    Ok(truth(is_within(&left, &right) && is_within(&right, &left)))
}

fn intersects<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Answer<'b, 'v> {
    let [left, right] = take(args)?;
    let (left, right) = (items(left.as_ref())?, items(right.as_ref())?);
    Ok(truth(right.iter().any(|item| has(&left, *item))))
}
