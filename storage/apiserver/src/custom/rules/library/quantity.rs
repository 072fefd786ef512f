//! Quantities such as `10Gi`.
//!
//! Mirrors apiserver pkg/cel/library/quantity.go.

use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use crate::custom::rules::opaque::opaque;
use crate::quantity::Quantity;

const NANO: i128 = 1_000_000_000;

/// A quantity in billionths.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Amount(i128);

opaque!(Amount, "kubernetes.Quantity");

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn parse: (CelString) -> Result<Amount>, name = "quantity")?;
    cel::add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    cel::add_overload!(env, fn sign_of: (Amount) -> CelInt, name = "sign")?;
    cel::add_member_overload!(env, fn sign_of: (Amount) -> CelInt, name = "sign")?;
    cel::add_member_overload!(env, fn is_greater_than: (Amount, Amount) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (Amount, Amount) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (Amount, Amount) -> CelInt)?;
    cel::add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    cel::add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn as_approximate_float: (Amount) -> CelDouble)?;
    cel::add_member_overload!(env, fn add: (Amount, Amount) -> Result<Amount>)?;
    cel::add_member_overload!(env, fn add_int: (Amount, CelInt) -> Result<Amount>, name = "add")?;
    cel::add_member_overload!(env, fn sub: (Amount, Amount) -> Result<Amount>)?;
    cel::add_member_overload!(env, fn sub_int: (Amount, CelInt) -> Result<Amount>, name = "sub")
}

fn parse(text: &CelString<'_>) -> Result<Amount, ExecutionError> {
    match text.inner().parse::<Quantity>() {
        Ok(quantity) => Ok(Amount(quantity.nanos())),
        Err(_) => Err(ExecutionError::function_error("quantity", crate::quantity::SYNTAX)),
    }
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(parse(text).is_ok())
}

fn sign_of(amount: &Amount) -> CelInt {
    CelInt::from(i64::from(amount.0.signum() as i8))
}

fn is_greater_than(amount: &Amount, other: &Amount) -> CelBool {
    CelBool::from(amount.0 > other.0)
}

fn is_less_than(amount: &Amount, other: &Amount) -> CelBool {
    CelBool::from(amount.0 < other.0)
}

fn compare_to(amount: &Amount, other: &Amount) -> CelInt {
    CelInt::from(amount.0.cmp(&other.0) as i64)
}

fn whole(amount: &Amount) -> Option<i64> {
    (amount.0 % NANO == 0).then(|| i64::try_from(amount.0 / NANO).ok()).flatten()
}

fn is_integer(amount: &Amount) -> CelBool {
    CelBool::from(whole(amount).is_some())
}

fn as_integer(amount: &Amount) -> Result<CelInt, ExecutionError> {
    let error = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
    whole(amount).map(CelInt::from).ok_or_else(error)
}

fn as_approximate_float(amount: &Amount) -> CelDouble {
    CelDouble::from(amount.0 as f64 / NANO as f64)
}

fn checked(sum: Option<i128>) -> Result<Amount, ExecutionError> {
    sum.map(Amount).ok_or_else(|| ExecutionError::function_error("quantity", "the quantity is too large"))
}

fn from_int(number: &CelInt) -> i128 {
    i128::from(*number.inner()) * NANO
}

fn add(amount: &Amount, other: &Amount) -> Result<Amount, ExecutionError> {
    checked(amount.0.checked_add(other.0))
}

fn add_int(amount: &Amount, other: &CelInt) -> Result<Amount, ExecutionError> {
    checked(amount.0.checked_add(from_int(other)))
}

fn sub(amount: &Amount, other: &Amount) -> Result<Amount, ExecutionError> {
    checked(amount.0.checked_sub(other.0))
}

fn sub_int(amount: &Amount, other: &CelInt) -> Result<Amount, ExecutionError> {
    checked(amount.0.checked_sub(from_int(other)))
}
