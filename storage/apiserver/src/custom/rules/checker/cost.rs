//! The estimated cost of an expression.
//!
//! ```text
//! this file: the parts of an expression; calls: of functions
//!     range: sizes, costs, and the paths of values
//! ```
//!
//! Mirrors cel-go checker/cost.go, and sizeEstimator in apiextensions-apiserver
//! pkg/apiserver/schema/cel/compilation.go.

mod calls;
mod range;

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::expression::{Checker, callee};
use super::shape::{Kind, Shape};
use super::types::Type;
use calls::Estimate;
use range::{Path, Range};

/// The costs of parts (cel-go common/cost.go).
const NAME: u64 = 1;
const LIST: u64 = 10;
const MAP: u64 = 30;
/// The factors for the traversal of a text, and for the length of a pattern.
const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;

/// The most that the checked expression can cost. `shape` is that of `self`.
pub fn estimate(checker: &Checker<'_>, expression: &IdedExpr, shape: &Shape) -> u64 {
    let mut estimator = Estimator {
        checker,
        shape,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        variables: Vec::new(),
    };
    estimator.cost(expression).max
}

/// The sizes of the keys, or indexes, and the values of a container.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

/// A variable of a loop.
struct Variable {
    name: String,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// A part of an expression, when its size was estimated.
struct Node<'e, 'a> {
    part: &'e IdedExpr,
    path: Path,
    kind: Type<'a>,
    size: Option<Range>,
}

struct Estimator<'c, 'a> {
    checker: &'c Checker<'a>,
    shape: &'c Shape,
    paths: HashMap<u64, Path>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entries>,
    /// Later ones hide earlier ones.
    variables: Vec<Variable>,
}

impl<'a> Estimator<'_, 'a> {
    fn cost(&mut self, part: &IdedExpr) -> Range {
        match &part.expr {
            Expr::Ident(name) => {
                let path = self.variable(name).map_or_else(|| Path::root(name), |found| found.path.clone());
                self.paths.insert(part.id, path);
                Range::exactly(NAME)
            }
            Expr::Select(select) => {
                let cost = self.cost(&select.operand);
                if select.test {
                    return cost;
                }
                let path = self.path(&select.operand).then(&select.field);
                self.paths.insert(part.id, path);
                match self.checker.decided(select.operand.id) {
                    Type::Map(..) | Type::Object(_) | Type::Library(_) => cost.plus(Range::exactly(NAME)),
                    _ => cost,
                }
            }
            Expr::Call(call) => self.cost_of_call(part, call),
            Expr::List(list) => {
                let value = if list.elements.is_empty() { Range::default() } else { Range::NONE };
                let (cost, value) = self.cost_of_elements(list.elements.iter(), value);
                self.entries.insert(part.id, Entries { is_list: true, key: Range::exactly(1), value });
                cost.plus(Range::exactly(LIST))
            }
            Expr::Map(map) => {
                let none = if map.entries.is_empty() { Range::default() } else { Range::NONE };
                let (mut cost, mut key, mut value) = (Range::exactly(MAP), none, none);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(part.id, Entries { is_list: false, key, value });
                cost
            }
            Expr::Comprehension(comprehension) if is_binding(comprehension) => {
                self.cost_of_binding(part, comprehension)
            }
            Expr::Comprehension(comprehension) => self.cost_of_loop(part, comprehension),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Range::default(),
        }
    }

    /// The cost of elements, and the union of their sizes.
    fn cost_of_elements<'e>(
        &mut self,
        elements: impl Iterator<Item = &'e IdedExpr>,
        sizes: Range,
    ) -> (Range, Range) {
        elements.fold((Range::default(), sizes), |(cost, sizes), element| {
            let cost = cost.plus(self.cost(element));
            (cost, sizes.union(self.size_or_unknown(element)))
        })
    }

    fn cost_of_call(&mut self, part: &IdedExpr, call: &CallExpr) -> Range {
        if let ("dyn", Some(argument)) = (call.func_name.as_str(), call.args.first()) {
            let cost = self.cost(argument);
            self.copy_sizes(part, argument);
            return cost.plus(Range::exactly(1));
        }
        let (mut costs, mut arguments) = (Vec::new(), Vec::new());
        for argument in &call.args {
            costs.push(self.cost(argument));
            arguments.push(self.node(argument));
        }
        let (function, target) = callee(call);
        let (mut cost, mut receiver) = (Range::default(), None);
        if let Some(target) = target {
            cost = self.cost(target);
            receiver = Some(self.node(target));
        }
        let checker = self.checker;
        let mut of_function = Range::NONE;
        let mut size: Option<Range> = None;
        for overload in checker.overloads.get(&part.id).into_iter().flatten() {
            let call = calls::Call {
                function: &function,
                overload,
                target: receiver.as_ref(),
                arguments: &arguments,
                costs: &costs,
            };
            let Estimate { cost, size: found } = self.estimate(part, &call);
            of_function = of_function.union(cost);
            size = match (size, found) {
                (Some(size), Some(found)) => Some(size.union(found)),
                (size, found) => size.or(found),
            };
            let below = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(below), Some(container)) = (below, call.arguments.first()) {
                size = self.entries(container.part).map(|entries| entries.value);
                let path = self.path(container.part).then(below);
                self.paths.insert(part.id, path);
            }
            size = size.or_else(|| self.size(part));
        }
        self.set_size(part, size);
        cost.plus(of_function)
    }

    fn cost_of_loop(&mut self, part: &IdedExpr, comprehension: &ComprehensionExpr) -> Range {
        let range = &comprehension.iter_range;
        let mut cost = self.cost(range).plus(self.cost(&comprehension.accu_init));
        self.push(&comprehension.accu_var, &comprehension.accu_init);
        let entries = self.entries(range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checker.decided(range.id), Type::List(_)),
        };
        let (key, value) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        let (of_key, of_value) = match is_list {
            true => (("@indices", key), ("@items", value)),
            false => (("@keys", key), ("@values", value)),
        };
        let variables = match &comprehension.iter_var2 {
            Some(second) => vec![(&comprehension.iter_var, of_key), (second, of_value)],
            None => vec![(&comprehension.iter_var, if is_list { of_value } else { of_key })],
        };
        for (name, (below, size)) in &variables {
            let path = self.path(range).then(below);
            self.variables.push(Variable { name: (*name).clone(), path, size: *size, entries: None });
        }
        let condition = self.cost(&comprehension.loop_cond);
        let step = self.cost(&comprehension.loop_step);
        self.variables.truncate(self.variables.len() - variables.len());
        cost = cost.plus(self.cost(&comprehension.result));
        self.variables.pop();
        let count = self.size_or_unknown(range);
        cost = cost.plus(count.times(step.plus(condition)));
        match &comprehension.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&comprehension.accu_init);
                self.set_size(part, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(part, Some(count));
                if let Some(entries) = self.entries(&comprehension.loop_step) {
                    self.entries.insert(part.id, entries);
                }
            }
            _ => {}
        }
        cost
    }

    fn cost_of_binding(&mut self, part: &IdedExpr, comprehension: &ComprehensionExpr) -> Range {
        let cost = self.cost(&comprehension.iter_range).plus(self.cost(&comprehension.accu_init));
        self.push(&comprehension.accu_var, &comprehension.accu_init);
        let cost = cost.plus(self.cost(&comprehension.result));
        self.variables.pop();
        self.copy_sizes(part, &comprehension.result);
        cost
    }

    /// Adds a variable with a value.
    fn push(&mut self, name: &str, value: &IdedExpr) {
        let (path, entries) = (self.path(value), self.entries(value));
        let size = self.size(value);
        self.variables.push(Variable { name: name.to_owned(), path, size, entries });
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().rev().find(|variable| variable.name == name)
    }

    fn variable_of(&self, part: &IdedExpr) -> Option<&Variable> {
        match &part.expr {
            Expr::Ident(name) => self.variable(name),
            _ => None,
        }
    }

    fn path(&self, part: &IdedExpr) -> Path {
        let variable = self.variable_of(part).map(|variable| &variable.path);
        variable.or_else(|| self.paths.get(&part.id)).cloned().unwrap_or_default()
    }

    fn node<'e>(&mut self, part: &'e IdedExpr) -> Node<'e, 'a> {
        let size = self.size(part);
        Node { part, path: self.path(part), kind: self.checker.decided(part.id), size }
    }

    fn set_size(&mut self, part: &IdedExpr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(part.id, size);
        }
    }

    fn copy_sizes(&mut self, part: &IdedExpr, from: &IdedExpr) {
        let size = self.size(from);
        self.set_size(part, size);
        if let Some(entries) = self.entries(from) {
            self.entries.insert(part.id, entries);
        }
    }

    fn entries(&self, part: &IdedExpr) -> Option<Entries> {
        let variable = self.variable_of(part).and_then(|variable| variable.entries);
        self.entries.get(&part.id).copied().or(variable)
    }

    fn size_or_unknown(&mut self, part: &IdedExpr) -> Range {
        self.size(part).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, part: &IdedExpr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&part.id) {
            return Some(*size);
        }
        if let Some(size) = size_of_literal(&part.expr) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = self.declared_size(&self.path(part)) {
            self.sizes.insert(part.id, size);
            return Some(size);
        }
        let kind = self.checker.decided(part.id);
        if is_scalar(&kind) {
            return Some(Range::exactly(1));
        }
        self.variable_of(part).and_then(|variable| variable.size)
    }

    /// The size that the schema declares.
    fn declared_size(&self, path: &Path) -> Option<Range> {
        if path.is_empty() {
            return None;
        }
        let mut shape = self.shape;
        let mut names = path.names().into_iter();
        while let Some(name) = names.next() {
            shape = match (name.as_str(), &shape.kind) {
                ("@items" | "@values", _) => shape.inner()?,
                // Keys have no limit of their own, and no parts.
                ("@keys", Kind::Map(_)) => return names.next().is_none().then_some(Range::default()),
                (name, Kind::Object(fields)) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(Range { min: 0, max: shape.most })
    }
}

/// Whether it is a loop that only defines a variable.
fn is_binding(comprehension: &ComprehensionExpr) -> bool {
    let is_empty = matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let condition = &comprehension.loop_cond.expr;
    is_empty && matches!(condition, Expr::Literal(LiteralValue::Boolean(truth)) if !truth.inner())
}

fn size_of_literal(expression: &Expr) -> Option<u64> {
    let size = match expression {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len(),
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len(),
        Expr::Map(map) => map.entries.len(),
        _ => return None,
    };
    Some(size as u64)
}

fn is_scalar(kind: &Type<'_>) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
