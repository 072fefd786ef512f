//! The limit of the work of one expression.
//!
//! The interpreter has no limit of its own. Upstream counts a cost for each operation and stops at PerCallLimit and
//! RuntimeCELCostBudget (apiserver pkg/apis/cel/config.go). Here an expression is rewritten when it is compiled: each
//! iteration of a loop, and each operand that an operation reads as a whole, passes through [`SPEND`], which takes
//! its cost from the budget of the thread and fails once that is spent. The numbers differ from upstream's, since an
//! operation has another cost there; both stop loops over loops of large lists, and neither stops a usual rule.

use std::cell::Cell;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators};
use cel::common::types::{CelString, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

/// The cost that one expression may have, about the iterations of its loops.
pub const PER_RULE: u64 = 200_000;

/// The cost that all rules of one request may have.
pub const PER_REQUEST: u64 = 2_000_000;

/// The function that takes from the budget and returns its argument; CEL cannot call this name.
pub const SPEND: &str = "@spend";

/// Characters of a string, or items of a list, of which reading costs as much as an iteration.
const CHEAP: usize = 16;

/// The first parts of the names of functions.
const LIBRARIES: [&str; 6] = ["format", "ip", "lists", "optional", "sets", "strings"];

thread_local! {
    /// What remains for the expression that the thread evaluates.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Runs `evaluate` with at most [`PER_RULE`] of `left`, from which it takes the cost. None if that was too little.
pub fn limited<T>(left: &mut u64, evaluate: impl FnOnce() -> T) -> Option<T> {
    let granted = (*left).min(PER_RULE);
    LEFT.set(granted);
    let result = evaluate();
    let rest = LEFT.replace(0);
    *left -= granted - rest;
    (rest > 0).then_some(result)
}

/// Declares [`SPEND`].
pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(SPEND, "spend_dyn", vec![DYN_TYPE], spend)
}

fn spend<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let rest = LEFT.get().saturating_sub(cost(value.as_ref()));
    LEFT.set(rest);
    match rest {
        0 => Err(ExecutionError::function_error(SPEND, "the budget is spent")),
        _ => Ok(value),
    }
}

fn cost(value: &dyn Val) -> u64 {
    let size = match (value.downcast_ref::<CelString>(), value.as_sizer()) {
        (Some(text), _) => text.inner().len(),
        (None, Some(sizer)) => usize::try_from(*sizer.size().inner()).unwrap_or_default(),
        (None, None) => 0,
    };
    1 + u64::try_from(size / CHEAP).unwrap_or(u64::MAX - 1)
}

/// Rewrites an expression so that its loops and operations spend the budget.
pub fn bound(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Select(select) => bound(&mut select.operand),
        Expr::Call(call) => bound_call(call),
        Expr::List(list) => list.elements.iter_mut().for_each(bound),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| bound_entry(&mut entry.expr)),
        Expr::Struct(message) => message.entries.iter_mut().for_each(|entry| bound_entry(&mut entry.expr)),
        Expr::Comprehension(comprehension) => {
            bound(&mut comprehension.iter_range);
            bound(&mut comprehension.accu_init);
            bound(&mut comprehension.loop_cond);
            bound(&mut comprehension.loop_step);
            bound(&mut comprehension.result);
            // The interpreter appends in place only if the condition is a literal and the step has the form that
            // the macros `map` and `filter` give it. An error of the condition ends a loop at once, while that of a
            // step of `all` or `exists` waits for the end.
            match comprehension.loop_cond.expr {
                Expr::Literal(_) => spend_in_step(&mut comprehension.loop_step),
                _ => wrap(&mut comprehension.loop_cond),
            }
        }
    }
}

fn bound_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => bound(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            bound(&mut entry.key);
            bound(&mut entry.value);
        }
    }
}

fn bound_call(call: &mut CallExpr) {
    if let Some(target) = &mut call.target {
        bound(target);
        if !is_library(&target.expr) {
            wrap(target);
        }
    }
    call.args.iter_mut().for_each(bound);
    match call.func_name.as_str() {
        operators::IN | operators::EQUALS | operators::NOT_EQUALS | operators::ADD => {
            // The first operand of `+` in a loop is its result, which the interpreter has to recognize.
            if let Some(last) = call.args.last_mut().filter(|last| !matches!(last.expr, Expr::List(_))) {
                wrap(last);
            }
        }
        name if name.starts_with(char::is_alphabetic) => call.args.iter_mut().for_each(wrap),
        _ => {}
    }
}

/// Whether it may be the first part of the name of a function, as in `sets.contains`.
fn is_library(expression: &Expr) -> bool {
    matches!(expression, Expr::Ident(name) if LIBRARIES.contains(&name.as_str()))
}

/// Spends in the part of the step that is evaluated in each iteration.
fn spend_in_step(step: &mut IdedExpr) {
    let Expr::Call(call) = &mut step.expr else { return };
    match (call.func_name.as_str(), &mut call.args[..]) {
        (operators::CONDITIONAL, [guard, _, _]) => pass(guard),
        (operators::ADD, [_, added]) => {
            if let Expr::List(list) = &mut added.expr {
                list.elements.iter_mut().for_each(pass);
            }
        }
        _ => {}
    }
}

/// Passes the value of an expression through [`SPEND`], unless it is a literal.
fn wrap(expression: &mut IdedExpr) {
    if !matches!(expression.expr, Expr::Literal(_)) {
        pass(expression);
    }
}

/// Passes the value of an expression through [`SPEND`].
fn pass(expression: &mut IdedExpr) {
    let id = expression.id;
    let inner = std::mem::take(expression);
    let call = CallExpr { func_name: SPEND.to_owned(), target: None, args: vec![inner] };
    *expression = IdedExpr { id, expr: Expr::Call(call) };
}
