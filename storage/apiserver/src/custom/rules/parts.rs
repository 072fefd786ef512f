//! The parts of an expression.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Defines a function that lists the direct parts of an expression, in the order of their evaluation.
macro_rules! parts {
    ($name:ident, $parts_of_entry:ident, $iter:ident, $as_deref:ident $(, $mutable:tt)?) => {
        /// The direct parts of an expression.
        pub fn $name(expression: & $($mutable)? Expr) -> Vec<& $($mutable)? IdedExpr> {
            match expression {
                Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
                Expr::Select(select) => vec![& $($mutable)? *select.operand],
                Expr::Call(call) => call.target.$as_deref().into_iter().chain(call.args.$iter()).collect(),
                Expr::List(list) => list.elements.$iter().collect(),
                Expr::Map(map) => {
                    map.entries.$iter().flat_map(|entry| $parts_of_entry(& $($mutable)? entry.expr)).collect()
                }
                Expr::Struct(message) => {
                    message.entries.$iter().flat_map(|entry| $parts_of_entry(& $($mutable)? entry.expr)).collect()
                }
                Expr::Comprehension(inner) => {
                    let inner = & $($mutable)? **inner;
                    vec![
                        & $($mutable)? inner.iter_range,
                        & $($mutable)? inner.accu_init,
                        & $($mutable)? inner.loop_cond,
                        & $($mutable)? inner.loop_step,
                        & $($mutable)? inner.result,
                    ]
                }
            }
        }

        fn $parts_of_entry(entry: & $($mutable)? EntryExpr) -> Vec<& $($mutable)? IdedExpr> {
            match entry {
                EntryExpr::StructField(field) => vec![& $($mutable)? field.value],
                EntryExpr::MapEntry(entry) => vec![& $($mutable)? entry.key, & $($mutable)? entry.value],
            }
        }
    };
}

parts!(parts, parts_of_entry, iter, as_deref);
parts!(parts_mut, parts_of_entry_mut, iter_mut, as_deref_mut, mut);
