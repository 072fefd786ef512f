//! Timestamps and durations.
//!
//! Mirrors cel-go common/types/timestamp.go and duration.go; the interpreter's own types need another crate of times
//! than this program has. Zones with names are unknown here, offsets such as `+02:00` are known.

use std::any::Any;
use std::cmp::Ordering;

use cel::common::traits::{Adder, Comparer, Negator, Subtractor};
use cel::common::types::{CelInt, CelString, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::custom::duration;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// A moment in the years 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timestamp(jiff::Timestamp);

/// Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duration(i64);

pub fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn read_timestamp: (CelString) -> Result<Timestamp>,
        name = "timestamp", id = "string_to_timestamp")?;
    cel::add_overload!(env, fn timestamp_of: (CelInt) -> Result<Timestamp>,
        name = "timestamp", id = "int64_to_timestamp")?;
    cel::add_overload!(env, fn same_timestamp: (Timestamp) -> Timestamp,
        name = "timestamp", id = "timestamp_to_timestamp")?;
    cel::add_overload!(env, fn read_duration: (CelString) -> Result<Duration>,
        name = "duration", id = "string_to_duration")?;
    cel::add_overload!(env, fn same_duration: (Duration) -> Duration,
        name = "duration", id = "duration_to_duration")?;
    cel::add_overload!(env, fn show_timestamp: (Timestamp) -> CelString,
        name = "string", id = "timestamp_to_string")?;
    cel::add_overload!(env, fn show_duration: (Duration) -> CelString,
        name = "string", id = "duration_to_string")?;
    cel::add_overload!(env, fn seconds_of: (Timestamp) -> CelInt, name = "int", id = "timestamp_to_int64")?;
    declare_parts(env)?;
    declare_zoned_parts(env)?;
    cel::add_member_overload!(env, fn hours: (Duration) -> CelInt, name = "getHours", id = "duration_to_hours")?;
    cel::add_member_overload!(env, fn minutes: (Duration) -> CelInt,
        name = "getMinutes", id = "duration_to_minutes")?;
    cel::add_member_overload!(env, fn seconds: (Duration) -> CelInt,
        name = "getSeconds", id = "duration_to_seconds")?;
    cel::add_member_overload!(env, fn milliseconds: (Duration) -> CelInt,
        name = "getMilliseconds", id = "duration_to_milliseconds")
}

/// Declares the parts of a timestamp in UTC and in a zone.
macro_rules! parts {
    ($($name:literal: $function:ident, $zoned:ident = $part:expr;)*) => {
        fn declare_parts(env: &mut Env) -> Result<(), DeclarationError> {
            $(cel::add_member_overload!(env, fn $function: (Timestamp) -> CelInt,
                name = $name, id = concat!("timestamp_", $name))?;)*
            Ok(())
        }

        fn declare_zoned_parts(env: &mut Env) -> Result<(), DeclarationError> {
            $(cel::add_member_overload!(env, fn $zoned: (Timestamp, CelString) -> Result<CelInt>,
                name = $name, id = concat!("timestamp_zoned_", $name))?;)*
            Ok(())
        }

        $(
            fn $function(moment: &Timestamp) -> CelInt {
                let part: fn(DateTime) -> i64 = $part;
                CelInt::from(part(TimeZone::UTC.to_datetime(moment.0)))
            }

            fn $zoned(moment: &Timestamp, zone: &CelString<'_>) -> Result<CelInt, ExecutionError> {
                let part: fn(DateTime) -> i64 = $part;
                Ok(CelInt::from(part(zone_of(zone.inner())?.to_datetime(moment.0))))
            }
        )*
    };
}

parts! {
    "getFullYear": year, zoned_year = |time| time.year().into();
    "getMonth": month, zoned_month = |time| i64::from(time.month()) - 1;
    "getDayOfYear": day_of_year, zoned_day_of_year = |time| i64::from(time.day_of_year()) - 1;
    "getDayOfMonth": day_of_month, zoned_day_of_month = |time| i64::from(time.day()) - 1;
    "getDate": date, zoned_date = |time| time.day().into();
    "getDayOfWeek": day_of_week, zoned_day_of_week = |time| time.weekday().to_sunday_zero_offset().into();
    "getHours": hour, zoned_hour = |time| time.hour().into();
    "getMinutes": minute, zoned_minute = |time| time.minute().into();
    "getSeconds": second, zoned_second = |time| time.second().into();
    "getMilliseconds": millisecond, zoned_millisecond = |time| time.millisecond().into();
}

fn zone_of(name: &str) -> Result<TimeZone, ExecutionError> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let (is_west, digits) = match name.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, name.strip_prefix('+').unwrap_or(name)),
    };
    let offset = digits.split_once(':').and_then(|(hours, minutes)| {
        let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
        Offset::from_seconds(if is_west { -seconds } else { seconds }).ok()
    });
    let error = || ExecutionError::function_error("timestamp", format!("unknown time zone {name}"));
    offset.map(|offset| offset.to_time_zone()).ok_or_else(error)
}

impl Timestamp {
    /// The moment in `text`, if it is one of RFC 3339.
    pub fn read(text: &str) -> Option<Self> {
        // Another syntax that `jiff` knows has spaces or brackets.
        let is_strict =
            text.len() >= 20 && text.as_bytes()[10].eq_ignore_ascii_case(&b't') && !text.contains('[');
        text.parse().ok().filter(|_| is_strict).and_then(Self::checked)
    }

    /// The start of the day in `text`, e.g. `2026-01-31`.
    pub fn read_date(text: &str) -> Option<Self> {
        Self::read(&format!("{text}T00:00:00Z"))
    }

    /// The moment so many seconds after the start of 1970.
    pub fn of_seconds(seconds: i64) -> Option<Self> {
        jiff::Timestamp::from_second(seconds).ok().and_then(Self::checked)
    }

    fn checked(moment: jiff::Timestamp) -> Option<Self> {
        (1..=9999).contains(&TimeZone::UTC.to_datetime(moment).year()).then_some(Self(moment))
    }

    fn plus(self, nanos: i128) -> Result<Self, ExecutionError> {
        let moment = jiff::Timestamp::from_nanosecond(self.0.as_nanosecond() + nanos).ok();
        moment.and_then(Self::checked).ok_or_else(|| overflow("timestamp overflow"))
    }
}

impl Duration {
    /// The duration in `text`, if it is one of Go.
    pub fn read(text: &str) -> Option<Self> {
        duration::parse(text).map(Self)
    }

    fn checked(nanos: i128) -> Result<Self, ExecutionError> {
        i64::try_from(nanos).map(Self).map_err(|_| overflow("duration overflow"))
    }
}

fn overflow(message: &str) -> ExecutionError {
    ExecutionError::function_error("time", message)
}

fn read_timestamp(text: &CelString<'_>) -> Result<Timestamp, ExecutionError> {
    let error = || {
        let message = format!("parsing time {} failed", crate::quote::quote(text.inner()));
        ExecutionError::function_error("timestamp", message)
    };
    Timestamp::read(text.inner()).ok_or_else(error)
}

fn timestamp_of(seconds: &CelInt) -> Result<Timestamp, ExecutionError> {
    Timestamp::of_seconds(*seconds.inner()).ok_or_else(|| overflow("timestamp overflow"))
}

fn same_timestamp(moment: &Timestamp) -> Timestamp {
    *moment
}

fn read_duration(text: &CelString<'_>) -> Result<Duration, ExecutionError> {
    let error = || {
        let message = format!("time: invalid duration {}", crate::quote::quote(text.inner()));
        ExecutionError::function_error("duration", message)
    };
    Duration::read(text.inner()).ok_or_else(error)
}

fn same_duration(duration: &Duration) -> Duration {
    *duration
}

fn show_timestamp(moment: &Timestamp) -> CelString<'static> {
    CelString::from(moment.0.to_string())
}

/// In seconds, without zeros at the end.
fn show_duration(duration: &Duration) -> CelString<'static> {
    let nanos = duration.0.unsigned_abs();
    let second = SECOND.unsigned_abs();
    let sign = if duration.0 < 0 { "-" } else { "" };
    let fraction = format!("{:09}", nanos % second);
    let text = format!("{sign}{}.{fraction}", nanos / second);
    CelString::from(format!("{}s", text.trim_end_matches('0').trim_end_matches('.')))
}

fn seconds_of(moment: &Timestamp) -> CelInt {
    CelInt::from(moment.0.as_second())
}

fn hours(duration: &Duration) -> CelInt {
    CelInt::from(duration.0 / SECOND / 3600)
}

fn minutes(duration: &Duration) -> CelInt {
    CelInt::from(duration.0 / SECOND / 60)
}

fn seconds(duration: &Duration) -> CelInt {
    CelInt::from(duration.0 / SECOND)
}

fn milliseconds(duration: &Duration) -> CelInt {
    CelInt::from(duration.0 / 1_000_000)
}

impl Adder for Timestamp {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match other.downcast_ref::<Duration>() {
            Some(duration) => Ok(CowVal::owned(self.plus(duration.0.into())?)),
            None => Err(ExecutionError::no_such_overload("_+_", vec![])),
        }
    }
}

impl Subtractor for Timestamp {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        if let Some(duration) = other.downcast_ref::<Duration>() {
            return Ok(CowVal::owned(self.plus(-i128::from(duration.0))?));
        }
        match other.downcast_ref::<Self>() {
            Some(other) => {
                let nanos = self.0.as_nanosecond() - other.0.as_nanosecond();
                Ok(CowVal::owned(Duration::checked(nanos)?))
            }
            None => Err(ExecutionError::no_such_overload("_-_", vec![])),
        }
    }
}

impl Adder for Duration {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        if let Some(moment) = other.downcast_ref::<Timestamp>() {
            return Ok(CowVal::owned(moment.plus(self.0.into())?));
        }
        match other.downcast_ref::<Self>() {
            Some(other) => Ok(CowVal::owned(Self::checked(i128::from(self.0) + i128::from(other.0))?)),
            None => Err(ExecutionError::no_such_overload("_+_", vec![])),
        }
    }
}

impl Subtractor for Duration {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match other.downcast_ref::<Self>() {
            Some(other) => Ok(CowVal::owned(Self::checked(i128::from(self.0) - i128::from(other.0))?)),
            None => Err(ExecutionError::no_such_overload("_-_", vec![])),
        }
    }
}

impl Negator for Duration {
    fn negate<'v>(&self) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        Ok(Box::new(Self::checked(-i128::from(self.0))?))
    }
}

impl Comparer for Timestamp {
    fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
        let other = other.downcast_ref::<Self>().map(|other| self.0.cmp(&other.0));
        other.ok_or_else(|| ExecutionError::no_such_overload("compare", vec![]))
    }
}

impl Comparer for Duration {
    fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
        let other = other.downcast_ref::<Self>().map(|other| self.0.cmp(&other.0));
        other.ok_or_else(|| ExecutionError::no_such_overload("compare", vec![]))
    }
}

/// The value of a type, with its operators.
macro_rules! value {
    ($type:ty, $name:literal $(, $negator:item)?) => {
        impl Val for $type {
            fn get_type(&self) -> &Type {
                Self::cel_type()
            }

            fn cel_type() -> &'static Type {
                static TYPE: Type = Type::new_unspecified_type($name);
                &TYPE
            }

            fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn as_subtractor<'b, 'v>(&'b self) -> Option<&'b (dyn Subtractor + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn as_comparer(&self) -> Option<&dyn Comparer> {
                Some(self)
            }

            $($negator)?

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>() == Some(self)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
            where
                Self: 'v,
            {
                Box::new(*self)
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $type {}
    };
}

value!(Timestamp, "google.protobuf.Timestamp");
value!(
    Duration,
    "google.protobuf.Duration",
    fn as_negator<'b, 'v>(&'b self) -> Option<&'b (dyn Negator + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }
);
