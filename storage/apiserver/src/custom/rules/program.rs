//! Compiled expressions.
//!
//! Mirrors compileRule in pkg/apiserver/schema/cel/compilation.go, without types: the interpreter (the crate `cel`)
//! has no checker. Unknown variables are found, while unknown fields, and functions for other types, fail when the
//! expression is evaluated.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators,
};
use cel::{Context, DeclarationError, Env, ExecutionError, ParseErrors, Value, extensions};

use super::{budget, library};

type Library = fn(&mut Env) -> Result<(), DeclarationError>;

/// The functions that expressions can call.
pub static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // As cel-go, where the last value of a repeated key wins.
    env.set_error_on_duplicate_map_keys(false);
    let libraries: [Library; 4] = [extensions::strings, extensions::lists, library::declare, budget::declare];
    for declare in libraries {
        env.add_extension(declare).expect("the tests declare these functions");
    }
    Arc::new(env)
});

/// The size of the stack of the parser, in bytes, which is recursive.
const PARSER_STACK: usize = 64 << 20;

/// The nesting of an expression that is evaluated, which is recursive, too.
const DEEPEST: usize = 240;

/// First parts of the names of types that are unknown here, and that upstream knows.
const FOREIGN: [&str; 3] = ["google", "kubernetes", "net"];

/// The purpose of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Purpose {
    /// `rule`: is the value valid?
    Rule,
    /// `messageExpression`: why is it not?
    Message,
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct Program {
    /// The expression, which spends its budget.
    pub expression: IdedExpr,
    /// Whether it reads `oldSelf`.
    pub uses_old: bool,
}

/// Why an expression cannot be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It is wrong; with upstream's message.
    Invalid(String),
    /// It uses something that does not exist here, e.g. `the function duration`.
    Unsupported(String),
}

/// Compiles `text`.
pub fn compile(text: &str, purpose: Purpose) -> Result<Program, Fault> {
    stacker::grow(PARSER_STACK, || parse(text, purpose))
}

fn parse(text: &str, purpose: Purpose) -> Result<Program, Fault> {
    let (prefix, kind, noun) = match purpose {
        Purpose::Rule => ("compilation failed", Kind::Bool, "cel expression must evaluate to a bool"),
        Purpose::Message => (
            "messageExpression compilation failed",
            Kind::Text,
            "messageExpression must evaluate to a string",
        ),
    };
    let parsed = ENVIRONMENT.parser().parse_with_source_info(text);
    let (mut expression, source) =
        parsed.map_err(|errors| Fault::Invalid(format!("{prefix}: {}", syntax_errors(text, &errors))))?;
    let mut names = Names {
        text,
        source: &source,
        scope: Vec::new(),
        errors: Vec::new(),
        unsupported: None,
        uses_old: false,
    };
    names.visit(&expression, 0);
    let Names { errors, unsupported, uses_old, .. } = names;
    if !errors.is_empty() {
        return Err(Fault::Invalid(format!("{prefix}: {}", errors.join("\n"))));
    }
    if let Some(unsupported) = unsupported {
        return Err(Fault::Unsupported(unsupported));
    }
    if kind_of(&expression.expr).is_some_and(|found| found != kind) {
        return Err(Fault::Invalid(noun.to_owned()));
    }
    budget::bound(&mut expression);
    Ok(Program { expression, uses_old })
}

/// An error as cel-go prints it; line and column count from 1.
fn located(text: &str, (line, column): (usize, usize), message: &str) -> String {
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let dots = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {message}\n | {shown}\n | {dots}^")
}

fn syntax_errors(text: &str, errors: &ParseErrors) -> String {
    let number = |number: isize| usize::try_from(number).unwrap_or_default();
    let errors = errors.errors.iter();
    let texts: Vec<String> =
        errors.map(|error| located(text, (number(error.pos.0), number(error.pos.1)), &error.msg)).collect();
    texts.join("\n")
}

/// The result of an expression, as far as its outermost part decides it.
#[derive(PartialEq)]
enum Kind {
    Bool,
    Text,
    Other,
}

fn kind_of(expression: &Expr) -> Option<Kind> {
    match expression {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Kind::Bool),
        Expr::Literal(LiteralValue::String(_)) => Some(Kind::Text),
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => Some(Kind::Other),
        Expr::Select(select) if select.test => Some(Kind::Bool),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::IN => Some(Kind::Bool),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | "size" => {
                Some(Kind::Other)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Finds out what an expression needs.
struct Names<'a> {
    text: &'a str,
    source: &'a SourceInfo,
    /// The variables of the loops around the visited part.
    scope: Vec<String>,
    errors: Vec<String>,
    unsupported: Option<String>,
    uses_old: bool,
}

impl Names<'_> {
    fn visit(&mut self, part: &IdedExpr, depth: usize) {
        if depth > DEEPEST {
            self.unsupport(format!("more than {DEEPEST} nested expressions"));
            return;
        }
        let below = depth + 1;
        match &part.expr {
            Expr::Unspecified => self.unsupport("this syntax".to_owned()),
            Expr::Literal(_) => {}
            Expr::Ident(name) => self.visit_name(name, part.id),
            Expr::Select(select) => self.visit(&select.operand, below),
            Expr::Call(call) => self.visit_call(call, below),
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element, below)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.visit(&entry.key, below);
                        self.visit(&entry.value, below);
                    }
                }
            }
            Expr::Struct(message) => self.unsupport(format!("the type {}", message.type_name)),
            Expr::Comprehension(comprehension) => self.visit_loop(comprehension, below),
        }
    }

    fn visit_loop(&mut self, comprehension: &ComprehensionExpr, depth: usize) {
        self.visit(&comprehension.iter_range, depth);
        self.visit(&comprehension.accu_init, depth);
        let outer = self.scope.len();
        self.scope.extend([comprehension.iter_var.clone(), comprehension.accu_var.clone()]);
        self.scope.extend(comprehension.iter_var2.clone());
        for part in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
            self.visit(part, depth);
        }
        self.scope.truncate(outer);
    }

    fn visit_call(&mut self, call: &CallExpr, depth: usize) {
        let name = &call.func_name;
        let target = call.target.as_deref();
        // A call of `b` on `a` is a call of the function `a.b`, if that exists.
        let whole =
            target.and_then(|target| qualified(&target.expr)).map(|prefix| format!("{prefix}.{name}"));
        let is_named = whole.as_ref().is_some_and(|whole| is_declared(whole, false));
        let is_known =
            is_named || !name.starts_with(char::is_alphabetic) || is_declared(name, target.is_some());
        if is_known {
            call.args.iter().for_each(|arg| self.visit(arg, depth));
        }
        let library = whole.filter(|_| target.is_some_and(|target| self.is_library(&target.expr)));
        match (is_known, library) {
            (true, _) => {}
            // The arguments may be the variables of an unknown macro, and the target may be no variable.
            (false, Some(whole)) => {
                self.unsupport(format!("the function {whole}"));
                return;
            }
            (false, None) => self.unsupport(format!("the function {name}")),
        }
        if let Some(target) = target.filter(|_| !is_named) {
            self.visit(target, depth);
        }
    }

    /// Whether it is the first part of the name of a function, and no variable.
    fn is_library(&self, target: &Expr) -> bool {
        qualified(target).is_some_and(|name| !self.is_variable(name.split('.').next().unwrap_or_default()))
    }

    fn is_variable(&self, name: &str) -> bool {
        matches!(name, "self" | "oldSelf") || self.scope.iter().any(|variable| variable == name)
    }

    fn visit_name(&mut self, name: &str, id: u64) {
        if self.scope.iter().any(|variable| variable == name) || name.starts_with('@') {
            return;
        }
        self.uses_old |= name == "oldSelf";
        if self.is_variable(name) || ENVIRONMENT.types().find_type(name).is_some() {
            return;
        }
        if FOREIGN.contains(&name) {
            self.unsupport(format!("the type {name}"));
            return;
        }
        let message = format!("undeclared reference to '{name}' (in container '')");
        let offset = self.source.offset_for(id).map_or(0, |(start, _)| start);
        let before: String = self.text.chars().take(usize::try_from(offset).unwrap_or_default()).collect();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.errors.push(located(self.text, (line, column), &message));
    }

    /// Remembers the first reason.
    fn unsupport(&mut self, reason: String) {
        self.unsupported.get_or_insert(reason);
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

/// Whether a function exists, or a method. The environment does not list them, but a call shows it.
fn is_declared(function: &str, is_method: bool) -> bool {
    let null = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Null) };
    let call = CallExpr {
        func_name: function.to_owned(),
        target: is_method.then(|| Box::new(null)),
        args: Vec::new(),
    };
    let context = Context::with_env(Arc::clone(&ENVIRONMENT));
    let result = Value::resolve(&IdedExpr { id: 0, expr: Expr::Call(call) }, &context);
    !matches!(result, Err(ExecutionError::UndeclaredReference(_)))
}
