//! The catalogue: a case is a row
