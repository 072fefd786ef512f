//! The types of the parts of an expression, and what is wrong with them.
//!
//! Mirrors cel-go checker/checker.go and errors.go.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};

use super::super::convert::{RESERVED, escape};
use super::super::program::{DEEPEST, is_declared};
use super::shape::{Fields, Shape};
use super::signatures::{Overload, named_type, overloads};
use super::types::Type;
use super::unify::{Substitutions, most_general};

/// Types that are unknown here, and that upstream knows, as it knows some with names that start with `google.`.
const FOREIGN: [&str; 2] = ["net.CIDR", "net.IP"];

/// Finds the types of an expression.
#[derive(Debug, Default)]
pub struct Checker<'a> {
    /// Variables; a later one hides an earlier one of the same name.
    scope: Vec<(String, Type<'a>)>,
    /// The types of the parts by their identifiers. Type parameters are not replaced.
    pub types: HashMap<u64, Type<'a>>,
    /// The overloads that each call may be of.
    pub overloads: HashMap<u64, Vec<&'static str>>,
    /// What is wrong with the part with the identifier.
    pub errors: Vec<(u64, String)>,
    /// Something that upstream knows and that does not exist here, e.g. `the function x`.
    pub unsupported: Option<String>,
    /// Whether the expression reads `oldSelf`.
    pub uses_old: bool,
    /// What is known about type parameters.
    pub known: Substitutions<'a>,
    depth: usize,
}

impl<'a> Checker<'a> {
    /// One of expressions that can read these variables.
    pub fn new(variables: [(&str, Type<'a>); 2]) -> Self {
        let scope = variables.map(|(name, found)| (name.to_owned(), found)).to_vec();
        Self { scope, ..Self::default() }
    }

    /// Finds the type of `part`.
    pub fn visit(&mut self, part: &IdedExpr) -> Type<'a> {
        if self.depth > DEEPEST {
            self.unsupport(format!("more than {DEEPEST} nested expressions"));
            return Type::Dyn;
        }
        self.depth += 1;
        let found = match &part.expr {
            Expr::Unspecified => self.foreign("this syntax".to_owned()),
            Expr::Literal(literal) => type_of(literal),
            Expr::Ident(name) => self.visit_name(part.id, name),
            Expr::Select(select) => self.visit_select(part, select),
            Expr::Call(call) => self.visit_call(part.id, call),
            Expr::List(list) => self.visit_list(list),
            Expr::Map(map) => self.visit_map(map),
            Expr::Struct(message) => self.visit_struct(part.id, &message.type_name),
            Expr::Comprehension(comprehension) => self.visit_loop(comprehension),
        };
        self.depth -= 1;
        self.types.insert(part.id, found.clone());
        found
    }

    /// The type of a part that was visited, with type parameters replaced.
    pub fn decided(&self, id: u64) -> Type<'a> {
        self.types.get(&id).map_or(Type::Dyn, |found| self.known.decide(found))
    }

    /// Remembers the first reason.
    fn unsupport(&mut self, reason: String) {
        self.unsupported.get_or_insert(reason);
    }

    fn foreign(&mut self, reason: String) -> Type<'a> {
        self.unsupport(reason);
        Type::Dyn
    }

    fn fault(&mut self, id: u64, message: String) -> Type<'a> {
        self.errors.push((id, message));
        Type::Error
    }

    fn undeclared(&mut self, id: u64, name: &str) -> Type<'a> {
        self.fault(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&mut self, id: u64, expected: &Type<'a>, found: &Type<'a>) -> Type<'a> {
        self.fault(id, format!("expected type '{expected}' but found '{found}'"))
    }

    fn variable(&self, name: &str) -> Option<Type<'a>> {
        self.scope.iter().rev().find(|(variable, _)| variable == name).map(|(_, found)| found.clone())
    }

    fn visit_name(&mut self, id: u64, name: &str) -> Type<'a> {
        if let Some(found) = self.variable(name) {
            self.uses_old |= name == "oldSelf";
            return found;
        }
        if name.starts_with('.') {
            return self.foreign("names with a dot before them".to_owned());
        }
        named_type(name).unwrap_or_else(|| self.undeclared(id, name))
    }

    fn visit_struct(&mut self, id: u64, name: &str) -> Type<'a> {
        let root = name.split('.').next().unwrap_or_default();
        let is_known = named_type(name).is_some() || FOREIGN.contains(&name) || name.starts_with("google.");
        match is_known || self.variable(root).is_some() {
            true => self.foreign(format!("the type {name}")),
            false => self.undeclared(id, name),
        }
    }

    fn visit_select(&mut self, part: &IdedExpr, select: &SelectExpr) -> Type<'a> {
        let name = qualified(&part.expr).unwrap_or_default();
        let root = name.split('.').next().unwrap_or_default();
        let is_foreign = root == "google" || FOREIGN.contains(&name.as_str());
        if is_foreign && self.variable(root).is_none() {
            return self.foreign(format!("the type {name}"));
        }
        let found = self.field(part.id, &select.operand, &select.field, false);
        match select.test {
            true => Type::Bool,
            false => self.known.apply(&found),
        }
    }

    /// The type of a field; `is_optional`: of `operand.?name`.
    fn field(&mut self, id: u64, operand: &IdedExpr, name: &str, is_optional: bool) -> Type<'a> {
        let operand = self.visit(operand);
        let operand = self.known.apply(&operand);
        let (target, was_optional) = operand.unwrap_optional();
        let found = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match field_of(object.fields, name) {
                Some(shape) => shape.type_named(&format!("{}.{name}", object.name)),
                None => self.fault(id, format!("undefined field '{name}'")),
            },
            Type::Library(library) => self.fault(id, format!("unexpected failed resolution of '{library}'")),
            Type::Parameter(_) => {
                self.known.is_assignable(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.fault(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if was_optional || is_optional { Type::optional(found) } else { found }
    }

    fn visit_call(&mut self, id: u64, call: &CallExpr) -> Type<'a> {
        let name = &call.func_name;
        if name == operators::OPT_SELECT {
            let [operand, field] = &call.args[..] else { return self.foreign("this syntax".to_owned()) };
            let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
                return self.foreign("this syntax".to_owned());
            };
            let found = self.field(id, operand, field.inner(), true);
            self.overloads.insert(id, vec!["select_optional_field"]);
            return self.known.apply(&found);
        }
        let mut types: Vec<Type<'a>> = call.args.iter().map(|arg| self.visit(arg)).collect();
        let (name, target) = callee(call);
        if let Some(target) = target {
            types.insert(0, self.visit(target));
        }
        let Some(function) = overloads(&name) else { return self.undeclared(id, &name) };
        self.support(&name, target.is_some());
        match name.as_str() {
            operators::LOGICAL_AND | operators::LOGICAL_OR => self.resolve_logic(id, call, function, &types),
            _ => self.resolve(id, &name, target.is_some(), function, &types),
        }
    }

    /// Checks that the interpreter has the function.
    fn support(&mut self, name: &str, is_method: bool) {
        // The interpreter has other expansions of macros.
        let is_own = name == "cel.@mapInsert" || !name.starts_with(char::is_alphabetic);
        if !is_own && !is_declared(name, is_method) {
            self.unsupport(format!("the function {name}"));
        }
    }

    /// The type of the result of a call, of which `types` are those of the target and the arguments.
    fn resolve(
        &mut self,
        id: u64,
        name: &str,
        is_method: bool,
        function: &'static [Overload],
        types: &[Type<'a>],
    ) -> Type<'a> {
        let mut result: Option<Type<'a>> = None;
        let mut found = Vec::new();
        for overload in function.iter().filter(|overload| overload.is_method == is_method) {
            let mut letters = Vec::new();
            let expected: Vec<Type<'a>> =
                overload.arguments.iter().map(|kind| self.instantiate(kind, &mut letters)).collect();
            let returned = self.instantiate(&overload.result, &mut letters);
            if !self.known.are_assignable(types, &expected) {
                continue;
            }
            found.push(overload.id);
            let returned = self.known.apply(&returned);
            result = Some(match result {
                None => returned,
                Some(first) if first == Type::Dyn || first == returned => first,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<String> = types.iter().map(|found| self.known.decide(found).to_string()).collect();
            let applied = match (is_method, types.split_first()) {
                (true, Some((target, arguments))) => format!("{target}.({})", arguments.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            return self.fault(id, format!("found no matching overload for '{name}' applied to '{applied}'"));
        };
        self.overloads.insert(id, found);
        result
    }

    fn resolve_logic(
        &mut self,
        id: u64,
        call: &CallExpr,
        function: &'static [Overload],
        types: &[Type<'a>],
    ) -> Type<'a> {
        self.overloads.insert(id, function.iter().map(|overload| overload.id).collect());
        let mut result = Type::Bool;
        for (argument, found) in call.args.iter().zip(types) {
            if !self.known.is_assignable(found, &Type::Bool) {
                result = self.mismatch(argument.id, &Type::Bool, found);
            }
        }
        result
    }

    /// A type of a signature, with a new variable for each of its letters.
    fn instantiate(&mut self, kind: &Type<'a>, letters: &mut Vec<(Type<'a>, Type<'a>)>) -> Type<'a> {
        if !matches!(kind, Type::Parameter(_)) {
            return kind.map_parameters(|inner| self.instantiate(inner, letters));
        }
        if let Some((_, variable)) = letters.iter().find(|(letter, _)| letter == kind) {
            return variable.clone();
        }
        let variable = self.known.variable();
        letters.push((kind.clone(), variable.clone()));
        variable
    }

    fn visit_list(&mut self, list: &ListExpr) -> Type<'a> {
        let mut item: Option<Type<'a>> = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut found = self.visit(element);
            if list.optional_indices.contains(&index) {
                found = self.unwrap(element.id, found);
            }
            item = Some(self.join(item, found));
        }
        Type::list(item.unwrap_or_else(|| self.known.variable()))
    }

    fn visit_map(&mut self, map: &MapExpr) -> Type<'a> {
        let (mut key, mut value): (Option<Type<'a>>, Option<Type<'a>>) = (None, None);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let found = self.visit(&entry.key);
            key = Some(self.join(key, found));
            let mut found = self.visit(&entry.value);
            if entry.optional {
                found = self.unwrap(entry.value.id, found);
            }
            value = Some(self.join(value, found));
        }
        match (key, value) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => Type::map(self.known.variable(), self.known.variable()),
        }
    }

    /// The type of the value of an optional element.
    fn unwrap(&mut self, id: u64, found: Type<'a>) -> Type<'a> {
        let (value, is_optional) = found.unwrap_optional();
        if !is_optional && *value != Type::Dyn {
            self.mismatch(id, &Type::optional(value.clone()), value);
        }
        value.clone()
    }

    /// The common type of the elements so far and the next one.
    fn join(&mut self, previous: Option<Type<'a>>, found: Type<'a>) -> Type<'a> {
        match previous {
            None => found,
            Some(previous) if self.known.is_assignable(&previous, &found) => {
                most_general(&previous, &found).clone()
            }
            // Most of these are refused once all types are known.
            Some(_) => Type::Dyn,
        }
    }

    fn visit_loop(&mut self, comprehension: &ComprehensionExpr) -> Type<'a> {
        let range = self.visit(&comprehension.iter_range);
        let result = self.visit(&comprehension.accu_init);
        let range = self.known.apply(&range);
        let has_two = comprehension.iter_var2.is_some();
        let (first, second) = match &range {
            Type::List(item) if has_two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Parameter(_) => {
                self.known.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.fault(comprehension.iter_range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let outer = self.scope.len();
        self.scope.push((comprehension.accu_var.clone(), result.clone()));
        self.scope.push((comprehension.iter_var.clone(), first));
        self.scope.extend(comprehension.iter_var2.clone().map(|name| (name, second)));
        for (part, expected) in [(&comprehension.loop_cond, Type::Bool), (&comprehension.loop_step, result)] {
            let found = self.visit(part);
            if !self.known.is_assignable(&expected, &found) {
                self.mismatch(part.id, &expected, &found);
            }
        }
        self.scope.truncate(outer + 1);
        let found = self.visit(&comprehension.result);
        self.scope.truncate(outer);
        self.known.apply(&found)
    }
}

/// A field, of which the name may be a reserved word (`FindStructFieldType` in apiserver pkg/cel/types.go).
fn field_of<'a>(fields: &'a Fields, name: &str) -> Option<&'a Shape> {
    fields.get(name).or_else(|| fields.get(&escape(name).filter(|_| RESERVED.contains(&name))?))
}

fn type_of<'a>(literal: &LiteralValue) -> Type<'a> {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// The name of the function that is called, and on what. A call of `b` on `a` is a call of the function `a.b`, if that
/// exists.
pub fn callee(call: &CallExpr) -> (String, Option<&IdedExpr>) {
    let target = call.target.as_deref();
    let prefix = target.and_then(|target| qualified(&target.expr));
    let whole = prefix.map(|prefix| format!("{prefix}.{}", call.func_name));
    match whole.filter(|whole| overloads(whole).is_some()) {
        Some(whole) => (whole, None),
        None => (call.func_name.clone(), target),
    }
}

/// The name that an identifier with its selected fields spells, e.g. `a.b`.
fn qualified(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand.expr)?, select.field))
        }
        _ => None,
    }
}
