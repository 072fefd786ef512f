//! Ranges of sizes and costs, and the paths of values in `self`.
//!
//! Mirrors SizeEstimate and CostEstimate in cel-go checker/cost.go.

use std::cell::RefCell;
use std::rc::Rc;

/// The least and the most that a size or cost can be; `u64::MAX` is any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    /// The range of an unknown size.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// The start of a union.
    pub const NONE: Self = Self { min: u64::MAX, max: 0 };

    pub fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The product, rounded up. As upstream, the floating-point error of the product can increase it by 1.
    pub fn by(self, factor: f64) -> Self {
        // A conversion of a number that is too large saturates.
        let scale = |value: u64| (value as f64 * factor).ceil() as u64;
        Self { min: scale(self.min), max: scale(self.max) }
    }

    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The path of a value: a variable, and names of fields or `@items`, `@keys` or `@values`. Empty if it has none.
///
/// Paths are slices of Go: two that continue the same path can share memory, so that the later one changes the earlier
/// one. Estimates of upstream depend on that.
#[derive(Clone, Debug, Default)]
pub struct Path {
    memory: Rc<RefCell<Vec<String>>>,
    length: usize,
}

impl Path {
    pub fn root(name: &str) -> Self {
        Self::default().then(name)
    }

    /// The path continued by `name` (`append`).
    pub fn then(&self, name: &str) -> Self {
        let mut memory = self.memory.borrow_mut();
        let length = self.length + 1;
        if let Some(free) = memory.get_mut(self.length) {
            name.clone_into(free);
            drop(memory);
            return Self { memory: Rc::clone(&self.memory), length };
        }
        let mut copy = memory[..self.length].to_vec();
        copy.push(name.to_owned());
        // Go doubles the capacity of a slice.
        copy.resize(length.max(2 * self.length), String::new());
        Self { memory: Rc::new(RefCell::new(copy)), length }
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The names after the variable.
    pub fn names(&self) -> Vec<String> {
        self.memory.borrow()[1..self.length].to_vec()
    }

    /// The same path in memory of its own.
    pub fn copied(&self) -> Self {
        let memory = self.memory.borrow()[..self.length].to_vec();
        Self { memory: Rc::new(RefCell::new(memory)), length: self.length }
    }
}
