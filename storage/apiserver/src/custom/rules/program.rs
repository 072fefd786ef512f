//! Compiled expressions.
//!
//! The interpreter (the crate `cel`) has no types: an operation on values of wrong types fails when it is evaluated.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::{Context, DeclarationError, Env, ExecutionError, Value, extensions};

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

/// The nesting that the parser accepts (`maxRecursionDepth` in cel-go parser/parser.go).
const DEEPEST_SYNTAX: u16 = 250;

/// The names of types.
const TYPES: [&str; 12] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// An expression that can be evaluated.
#[derive(Debug)]
pub struct Program {
    /// The expression, which spends its budget.
    pub expression: IdedExpr,
    /// Whether it reads `oldSelf`.
    pub uses_old: bool,
}

/// Compiles `text`. The error says what cannot be evaluated.
pub fn compile(text: &str) -> Result<Program, String> {
    stacker::grow(PARSER_STACK, || {
        let parser = ENVIRONMENT.parser().max_recursion_depth(DEEPEST_SYNTAX);
        let mut expression = parser.parse(text).map_err(|errors| {
            let messages: Vec<&str> = errors.errors.iter().map(|error| error.msg.as_str()).collect();
            format!("it is not valid CEL: {}", messages.join("; "))
        })?;
        let mut names = Names { loops: Vec::new(), uses_old: false };
        names.check(&expression, DEEPEST)?;
        let uses_old = names.uses_old;
        budget::bound(&mut expression);
        Ok(Program { expression, uses_old })
    })
}

/// What expressions read: which names they can, and whether they read `oldSelf`.
struct Names<'a> {
    /// The variables of the loops around a part.
    loops: Vec<&'a str>,
    uses_old: bool,
}

impl<'a> Names<'a> {
    /// Checks that the nesting is at most `depth`, and that all names and functions exist.
    fn check(&mut self, expression: &'a IdedExpr, depth: usize) -> Result<(), String> {
        if depth == 0 {
            return Err(format!("more than {DEEPEST} nested expressions"));
        }
        let outside = self.loops.len();
        match &expression.expr {
            Expr::Ident(name) => self.read(name)?,
            Expr::Call(call) if is_qualified(call) => {
                return call.args.iter().try_for_each(|argument| self.check(argument, depth - 1));
            }
            Expr::Call(call) => check_function(call)?,
            Expr::Struct(message) => {
                return Err(format!("the type {} does not exist there", message.type_name));
            }
            Expr::Comprehension(inner) => {
                self.check(&inner.iter_range, depth - 1)?;
                let second = inner.iter_var2.as_deref();
                self.loops
                    .extend([inner.iter_var.as_str(), inner.accu_var.as_str()].into_iter().chain(second));
            }
            _ => {}
        }
        parts(&expression.expr).into_iter().try_for_each(|part| self.check(part, depth - 1))?;
        self.loops.truncate(outside);
        Ok(())
    }

    fn read(&mut self, name: &str) -> Result<(), String> {
        self.uses_old |= name == "oldSelf";
        let exists =
            ["self", "oldSelf"].contains(&name) || TYPES.contains(&name) || self.loops.contains(&name);
        exists.then_some(()).ok_or_else(|| format!("the name {name} does not exist there"))
    }
}

/// Whether a call of `b` on `a` is a call of the function `a.b`.
fn is_qualified(call: &CallExpr) -> bool {
    match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(library)) => is_declared(&format!("{library}.{}", call.func_name), false),
        _ => false,
    }
}

fn check_function(call: &CallExpr) -> Result<(), String> {
    let name = &call.func_name;
    // Operators, and what macros become.
    if !name.starts_with(char::is_alphabetic) || name.starts_with("cel.@") {
        return Ok(());
    }
    match is_declared(name, call.target.is_some()) {
        true => Ok(()),
        false => Err(format!("the function {name} does not exist there")),
    }
}

/// The direct parts of an expression, without the range of a loop.
fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
        match entry {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        }
    }
    match expression {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|it| entry(&it.expr)).collect(),
        Expr::Struct(message) => message.entries.iter().flat_map(|it| entry(&it.expr)).collect(),
        Expr::Comprehension(it) => {
            vec![&it.accu_init, &it.loop_cond, &it.loop_step, &it.result]
        }
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
