//! The functions that Kubernetes adds to CEL: for lists, sets, patterns, quantities and formats. A rule
//! that uses those for times, IP addresses, URLs or versions, or a loop with two variables, is not evaluated.
//!
//! Mirrors apiserver pkg/cel/library and pkg/cel/environment/base.go; those for strings come with the interpreter. Not
//! here is the authorizer, which no rule of a definition can use.

mod formats;
mod lists;
mod patterns;
mod quantity;

use cel::common::types::CelList;
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

/// Declares all of them.
pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    lists::declare(env)?;
    patterns::declare(env)?;
    quantity::declare(env)?;
    formats::declare(env)
}

/// The arguments, which are as many as the function was declared with.
fn take<'b, 'v, const N: usize>(args: Vec<CowVal<'b, 'v>>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    args.try_into().map_err(|args: Vec<_>| ExecutionError::invalid_argument_count(N, args.len()))
}

/// The items of a list of any type.
fn items<'b, 'v>(list: &'b (dyn Val + 'v)) -> Result<Vec<&'b (dyn Val + 'v)>, ExecutionError> {
    let Some(iterable) = list.as_iterable() else {
        return Err(ExecutionError::no_such_overload("list", vec![list.get_type().name().to_owned()]));
    };
    let mut items = Vec::new();
    let mut rest = iterable.iter();
    while let Some(item) = rest.next() {
        items.push(item);
    }
    Ok(items)
}

/// A list of values that borrow nothing.
fn owned_list(items: Vec<Box<dyn Val>>) -> CelList<'static> {
    CelList::from(items)
}
