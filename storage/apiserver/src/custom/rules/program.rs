//! Compiled expressions.
//!
//! The interpreter (the crate `cel`) has no types; `checker` has refused wrong expressions before.

use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SourceInfo};
use cel::{Context, DeclarationError, Env, ExecutionError, ParseErrors, Value, extensions};

use super::parts::parts;
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
pub const DEEPEST: usize = 240;

/// The nesting that the parser accepts (`maxRecursionDepth` in cel-go parser/parser.go).
const DEEPEST_SYNTAX: u16 = 250;

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

/// Compiles `text`, which was checked.
pub fn compile(text: &str) -> Result<Program, Fault> {
    on_parser_stack(|| {
        let (mut expression, _) = parse(&ENVIRONMENT, text).map_err(Fault::Invalid)?;
        let mut uses_old = false;
        if !is_shallow(&expression, DEEPEST, &mut uses_old) {
            return Err(Fault::Unsupported(format!("more than {DEEPEST} nested expressions")));
        }
        budget::bound(&mut expression);
        Ok(Program { expression, uses_old })
    })
}

/// Runs `parse` on a stack of its own.
pub fn on_parser_stack<T>(parse: impl FnOnce() -> T) -> T {
    stacker::grow(PARSER_STACK, parse)
}

/// The expression in `text` with the macros of `env`, or the errors as cel-go prints them.
pub fn parse(env: &Env, text: &str) -> Result<(IdedExpr, SourceInfo), String> {
    let parser = env.parser().max_recursion_depth(DEEPEST_SYNTAX);
    parser.parse_with_source_info(text).map_err(|errors| syntax_errors(text, &errors))
}

/// Whether the nesting is at most `depth`. Finds out whether an expression reads `oldSelf`, too.
fn is_shallow(expression: &IdedExpr, depth: usize, uses_old: &mut bool) -> bool {
    *uses_old |= matches!(&expression.expr, Expr::Ident(name) if name == "oldSelf");
    depth > 0 && parts(&expression.expr).into_iter().all(|part| is_shallow(part, depth - 1, uses_old))
}

/// An error as cel-go prints it; line and column count from 1.
fn located(text: &str, (line, column): (usize, usize), message: &str) -> String {
    let shown = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default().replace('\t', " ");
    let mut characters = shown.chars();
    // Characters that are not ASCII are wide.
    let before = characters.by_ref().take(column.saturating_sub(1));
    let dots: String = before.map(|before| if before.is_ascii() { '.' } else { '\u{ff0e}' }).collect();
    let mark = if characters.next().is_none_or(|at| at.is_ascii()) { '^' } else { '\u{ff3e}' };
    format!("ERROR: <input>:{line}:{column}: {message}\n | {shown}\n | {dots}{mark}")
}

/// An error at the byte with the index `offset`.
pub fn located_at(text: &str, offset: usize, message: &str) -> String {
    let (mut line, mut column) = (1, 1);
    for before in text.get(..offset).unwrap_or_default().chars() {
        (line, column) = if before == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    located(text, (line, column), message)
}

fn syntax_errors(text: &str, errors: &ParseErrors) -> String {
    let number = |number: isize| usize::try_from(number).unwrap_or_default();
    // After an error of syntax, the parser may find parts incomplete, which cel-go does not report.
    let is_consequence = |message: &str| message.starts_with("Incomplete `") || message.starts_with("No `");
    let errors = errors.errors.iter().filter(|error| !is_consequence(&error.msg));
    let texts: Vec<String> = errors
        .map(|error| {
            let place = (number(error.pos.0), number(error.pos.1));
            located(text, place, &expecting(text, place, &error.msg))
        })
        .collect();
    texts.join("\n")
}

/// The message of an error of syntax. After a whole operand, the parser lists the operators, too, that could follow;
/// cel-go only what ends the expression.
fn expecting(text: &str, (line, column): (usize, usize), message: &str) -> String {
    let Some((start, expected)) = message.split_once(" expecting {") else { return message.to_owned() };
    if !expected.contains("'=='") {
        return message.to_owned();
    }
    let lines = text.split_inclusive('\n').enumerate();
    let before = lines.take(line).flat_map(|(index, content)| {
        content.chars().take(if index + 1 == line { column.saturating_sub(1) } else { usize::MAX })
    });
    let (mut open, mut quote) = (Vec::new(), None);
    for character in before {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(end), _) if end == character => quote = None,
            (None, '(' | '[' | '{') => open.push(character),
            (None, ')' | ']' | '}') => drop(open.pop()),
            _ => {}
        }
    }
    match open.last() {
        None if expected.contains("':'") && !expected.contains("<EOF>") => format!("{start} expecting ':'"),
        None => format!("{start} expecting <EOF>"),
        Some('(') => format!("{start} expecting ')'"),
        Some(_) => message.to_owned(),
    }
}

/// Whether a function exists, or a method. The environment does not list them, but a call shows it.
pub fn is_declared(function: &str, is_method: bool) -> bool {
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
