//! The macros of expressions, as they are checked. The interpreter has some other expansions.
//!
//! Mirrors cel-go parser/macro.go, ext/comprehensions.go, `sortByMacro` in ext/lists.go, and `optMap` and `optFlatMap`
//! in cel/library.go.

use std::sync::LazyLock;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Env, ParseError};

/// The result of a loop; no variable can have the name.
const RESULT: &str = "@result";
const UNUSED: &str = "#unused";
const SORT_INPUT: &str = "@__sortBy_input__";

type Expanded = Result<IdedExpr, ParseError>;
type Expand = fn(&mut Maker<'_, '_>, IdedExpr, Vec<IdedExpr>) -> Expanded;

/// The macros that are called on a value, with the numbers of their arguments.
const METHODS: [(&str, usize, Expand); 18] = [
    ("all", 2, all),
    ("all", 3, all),
    ("exists", 2, exists),
    ("exists", 3, exists),
    ("exists_one", 2, exists_one),
    ("exists_one", 3, exists_one),
    ("existsOne", 3, exists_one),
    ("map", 2, map),
    ("map", 3, map),
    ("filter", 2, filter),
    ("transformList", 3, transform_list),
    ("transformList", 4, transform_list),
    ("transformMap", 3, transform_map),
    ("transformMap", 4, transform_map),
    ("transformMapEntry", 3, transform_map_entry),
    ("transformMapEntry", 4, transform_map_entry),
    ("optMap", 2, |make, target, args| make.optional(target, args, "optMap")),
    ("optFlatMap", 2, |make, target, args| make.optional(target, args, "optFlatMap")),
];

/// Parses expressions that are checked.
pub static SYNTAX: LazyLock<Env> = LazyLock::new(|| {
    let mut env = Env::default();
    let mut add = |found| env.add_macro(found).expect("each macro is declared once");
    add(Macro::global(operators::HAS, 1, |helper, _, args| {
        let Some(arg) = args.pop() else { return Ok(None) };
        match arg.expr {
            Expr::Select(mut select) => {
                select.test = true;
                Ok(Some(helper.next_expr(Expr::Select(select))))
            }
            _ => Err(helper.new_error(arg.id, "invalid argument to has() macro")),
        }
    }));
    for (name, arguments, expand) in METHODS.into_iter().chain([("sortBy", 2, sort_by as Expand)]) {
        add(Macro::receiver(name, arguments, move |helper, target, args| {
            let Some(target) = target.take() else { return Ok(None) };
            expand(&mut Maker(helper), target, std::mem::take(args)).map(Some)
        }));
    }
    env
});

/// Makes the parts of an expansion.
struct Maker<'a, 'h>(&'a mut MacroExprHelper<'h>);

/// The parts of a loop.
struct Loop {
    range: IdedExpr,
    variables: Vec<String>,
    init: IdedExpr,
    condition: IdedExpr,
    step: IdedExpr,
}

impl Maker<'_, '_> {
    fn part(&mut self, expr: Expr) -> IdedExpr {
        self.0.next_expr(expr)
    }

    fn ident(&mut self, name: &str) -> IdedExpr {
        self.part(Expr::Ident(name.to_owned()))
    }

    fn result(&mut self) -> IdedExpr {
        self.ident(RESULT)
    }

    fn truth(&mut self, value: bool) -> IdedExpr {
        self.part(Expr::Literal(LiteralValue::Boolean(value.into())))
    }

    fn number(&mut self, value: i64) -> IdedExpr {
        self.part(Expr::Literal(LiteralValue::Int(value.into())))
    }

    fn list(&mut self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.part(Expr::List(ListExpr::new(elements)))
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.part(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    fn method(&mut self, target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        let target = Some(Box::new(target));
        self.part(Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
    }

    fn repeat(&mut self, parts: Loop, result: IdedExpr) -> IdedExpr {
        let mut variables = parts.variables.into_iter();
        self.part(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: parts.range,
            iter_var: variables.next().unwrap_or_default(),
            iter_var2: variables.next(),
            accu_var: RESULT.to_owned(),
            accu_init: parts.init,
            loop_cond: parts.condition,
            loop_step: parts.step,
            result,
        })))
    }

    /// `body` with a variable: a loop that never runs.
    fn bind(&mut self, name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
        let (range, condition, step) = (self.list(Vec::new()), self.truth(false), self.ident(name));
        self.part(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: range,
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: name.to_owned(),
            accu_init: value,
            loop_cond: condition,
            loop_step: step,
            result: body,
        })))
    }

    /// The names of the variables of a loop.
    fn names(&self, args: &[IdedExpr], fault: &str) -> Result<Vec<String>, ParseError> {
        let mut names: Vec<String> = Vec::new();
        for arg in args {
            let Expr::Ident(name) = &arg.expr else { return Err(self.0.new_error(arg.id, fault)) };
            if names.contains(name) {
                return Err(self.0.new_error(arg.id, format!("duplicate variable name: {name}")));
            }
            names.push(name.clone());
        }
        for (name, arg) in names.iter().zip(args) {
            if matches!(name.as_str(), RESULT | "__result__") {
                let fault = "iteration variable overwrites accumulator variable";
                return Err(self.0.new_error(arg.id, fault));
            }
        }
        Ok(names)
    }

    /// `step` in the iterations for which the filter holds.
    fn filtered(&mut self, filter: Option<IdedExpr>, step: IdedExpr) -> IdedExpr {
        match filter {
            None => step,
            Some(filter) => {
                let result = self.result();
                self.call(operators::CONDITIONAL, vec![filter, step, result])
            }
        }
    }

    /// `@result + [item]`
    fn append(&mut self, item: IdedExpr) -> IdedExpr {
        let (result, list) = (self.result(), self.list(vec![item]));
        self.call(operators::ADD, vec![result, list])
    }

    /// A loop that collects its result in a list.
    fn collect(&mut self, range: IdedExpr, variables: Vec<String>, step: IdedExpr) -> IdedExpr {
        let (init, condition, result) = (self.list(Vec::new()), self.truth(true), self.result());
        self.repeat(Loop { range, variables, init, condition, step }, result)
    }

    /// A loop that collects its result in a map.
    fn collect_map(&mut self, range: IdedExpr, variables: Vec<String>, step: IdedExpr) -> IdedExpr {
        let init = self.part(Expr::Map(MapExpr { entries: Vec::new() }));
        let (condition, result) = (self.truth(true), self.result());
        self.repeat(Loop { range, variables, init, condition, step }, result)
    }

    fn optional(&mut self, target: IdedExpr, mut args: Vec<IdedExpr>, name: &str) -> Expanded {
        let body = args.pop().unwrap_or_default();
        let variable = args.pop().unwrap_or_default();
        let Expr::Ident(variable) = variable.expr else {
            let fault = format!("{name}() variable name must be a simple identifier");
            return Err(self.0.new_error(variable.id, fault));
        };
        let value = self.method(target.clone(), "value", Vec::new());
        let has_value = self.method(target, "hasValue", Vec::new());
        let mut mapped = self.bind(&variable, value, body);
        if name == "optMap" {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call(operators::CONDITIONAL, vec![has_value, mapped, none]))
    }
}

const SIMPLE_NAME: &str = "argument must be a simple name";
const NO_IDENTIFIER: &str = "argument is not an identifier";

/// The body of a loop, which is its last argument.
fn body(args: &mut Vec<IdedExpr>) -> IdedExpr {
    args.pop().unwrap_or_default()
}

fn all(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let body = body(&mut args);
    let variables = make.names(&args, SIMPLE_NAME)?;
    let (init, result) = (make.truth(true), make.result());
    let condition = make.call(operators::NOT_STRICTLY_FALSE, vec![result]);
    let result = make.result();
    let step = make.call(operators::LOGICAL_AND, vec![result, body]);
    let result = make.result();
    Ok(make.repeat(Loop { range, variables, init, condition, step }, result))
}

fn exists(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let body = body(&mut args);
    let variables = make.names(&args, SIMPLE_NAME)?;
    let (init, result) = (make.truth(false), make.result());
    let negated = make.call(operators::LOGICAL_NOT, vec![result]);
    let condition = make.call(operators::NOT_STRICTLY_FALSE, vec![negated]);
    let result = make.result();
    let step = make.call(operators::LOGICAL_OR, vec![result, body]);
    let result = make.result();
    Ok(make.repeat(Loop { range, variables, init, condition, step }, result))
}

fn exists_one(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let body = body(&mut args);
    let variables = make.names(&args, SIMPLE_NAME)?;
    let (init, condition) = (make.number(0), make.truth(true));
    let (result, one) = (make.result(), make.number(1));
    let more = make.call(operators::ADD, vec![result, one]);
    let step = make.filtered(Some(body), more);
    let (result, one) = (make.result(), make.number(1));
    let is_one = make.call(operators::EQUALS, vec![result, one]);
    Ok(make.repeat(Loop { range, variables, init, condition, step }, is_one))
}

fn map(make: &mut Maker<'_, '_>, range: IdedExpr, args: Vec<IdedExpr>) -> Expanded {
    list(make, range, args, 1, NO_IDENTIFIER)
}

fn filter(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let filter = body(&mut args);
    let variables = make.names(&args, NO_IDENTIFIER)?;
    let step = make.append(body(&mut args));
    let step = make.filtered(Some(filter), step);
    Ok(make.collect(range, variables, step))
}

fn transform_list(make: &mut Maker<'_, '_>, range: IdedExpr, args: Vec<IdedExpr>) -> Expanded {
    list(make, range, args, 2, SIMPLE_NAME)
}

/// A list of the last argument for the items that the one before it accepts, if there is one. The first `count` arguments
/// are variables; `fault` is the error about one that is no name.
fn list(
    make: &mut Maker<'_, '_>,
    range: IdedExpr,
    mut args: Vec<IdedExpr>,
    count: usize,
    fault: &str,
) -> Expanded {
    let body = body(&mut args);
    let filter = args.drain(count..).next();
    let variables = make.names(&args, fault)?;
    let step = make.append(body);
    let step = make.filtered(filter, step);
    Ok(make.collect(range, variables, step))
}

fn transform_map(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let body = body(&mut args);
    let filter = args.drain(2..).next();
    let variables = make.names(&args, SIMPLE_NAME)?;
    let (result, key) = (make.result(), make.ident(&variables[0]));
    let step = make.call("cel.@mapInsert", vec![result, key, body]);
    let step = make.filtered(filter, step);
    Ok(make.collect_map(range, variables, step))
}

fn transform_map_entry(make: &mut Maker<'_, '_>, range: IdedExpr, mut args: Vec<IdedExpr>) -> Expanded {
    let body = body(&mut args);
    let filter = args.drain(2..).next();
    let variables = make.names(&args, SIMPLE_NAME)?;
    let result = make.result();
    let step = make.call("cel.@mapInsert", vec![result, body]);
    let step = make.filtered(filter, step);
    Ok(make.collect_map(range, variables, step))
}

fn sort_by(make: &mut Maker<'_, '_>, range: IdedExpr, args: Vec<IdedExpr>) -> Expanded {
    if matches!(range.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
        let fault =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(make.0.new_error(range.id, fault));
    }
    let input = make.ident(SORT_INPUT);
    let keys = map(make, input, args)?;
    let input = make.ident(SORT_INPUT);
    let sorted = make.method(input, "@sortByAssociatedKeys", vec![keys]);
    Ok(make.bind(SORT_INPUT, range, sorted))
}
