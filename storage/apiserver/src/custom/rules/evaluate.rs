//! Evaluates expressions.

use std::sync::Arc;

use cel::common::types::{CelBool, CelOptional, CelString};
use cel::common::value::Val;
use cel::{Context, ExecutionError};
use serde_json::Value;

use super::budget;
use super::convert::convert;
use super::program::{ENVIRONMENT, Program};
use crate::custom::schema::Schema;

/// The size of the stack of an evaluation, in bytes. A quarter suffices for the deepest expression in a debug build.
const STACK: usize = 32 << 20;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The expression costs more than its budget.
    Exhausted,
    /// An error, with the text of cel-go where that is known.
    Error(String),
}

/// What expressions can read.
pub struct Variables(Context<'static, 'static>);

impl Variables {
    /// A value with the schema, and its old value. If `is_optional`, `oldSelf` is an optional value, which has none if
    /// there is no old value.
    pub fn new(new: &Value, old: Option<&Value>, schema: &Schema, is_root: bool, is_optional: bool) -> Self {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_as_val("self", convert(new, schema, is_root));
        let old = old.map(|old| convert(old, schema, is_root));
        if is_optional {
            let old = old.map_or_else(CelOptional::none, CelOptional::of);
            context.add_variable_as_val("oldSelf", Box::new(old));
        } else if let Some(old) = old {
            context.add_variable_as_val("oldSelf", old);
        }
        Self(context)
    }

    /// Whether a rule is satisfied. Takes the cost from `left`.
    pub fn is_satisfied(&self, program: &Program, left: &mut u64) -> Result<bool, Failure> {
        let truth = |value: &dyn Val| value.downcast_ref::<CelBool>().map(|truth| *truth.inner());
        self.resolve(program, left, truth, "cel expression must evaluate to a bool")
    }

    /// The message that an expression makes. Takes the cost from `left`.
    pub fn message(&self, program: &Program, left: &mut u64) -> Result<String, Failure> {
        let text = |value: &dyn Val| value.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
        self.resolve(program, left, text, "messageExpression must evaluate to a string")
    }

    fn resolve<T>(
        &self,
        program: &Program,
        left: &mut u64,
        read: impl Fn(&dyn Val) -> Option<T>,
        mismatch: &str,
    ) -> Result<T, Failure> {
        let result = budget::limited(left, || {
            let resolve = || cel::Value::resolve_val(&program.expression, &self.0);
            let value = stacker::maybe_grow(STACK / 4, STACK, resolve).map_err(|error| describe(&error))?;
            read(value.as_ref()).ok_or_else(|| mismatch.to_owned())
        });
        result.ok_or(Failure::Exhausted)?.map_err(Failure::Error)
    }
}

/// The text of an error, which is that of cel-go for the usual ones.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload(_) => "no such overload".to_owned(),
        ExecutionError::IndexOutOfBounds(cel::Value::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
