//! The estimated costs of functions.
//!
//! Mirrors functionCost in cel-go checker/cost.go, EstimateCallCost in apiserver pkg/cel/library/cost.go, and the
//! estimates in cel-go ext/lists.go and ext/sets.go.

use cel::common::ast::{Expr, IdedExpr, LiteralValue};

use super::range::Range;
use super::{Entries, Estimator, LIST, Node, PATTERN, TRAVERSAL};
use crate::custom::rules::checker::types::Type;

/// The size of the pattern of a format, at most (`MaxNameFormatRegexSize`), and of its name (`MaxFormatSize`).
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT_NAME: u64 = 64;

/// The bytes of an IP address.
const ADDRESS: Range = Range { min: 4, max: 16 };

const ONE: Range = Range { min: 1, max: 1 };

/// A call with one of its overloads.
pub struct Call<'c, 'e, 'a> {
    pub function: &'c str,
    pub overload: &'static str,
    pub target: Option<&'c Node<'e, 'a>>,
    pub arguments: &'c [Node<'e, 'a>],
    /// The costs of the arguments.
    pub costs: &'c [Range],
}

/// An estimate of a call, and of the size of its result.
pub struct Estimate {
    pub cost: Range,
    pub size: Option<Range>,
}

impl Estimate {
    fn of(cost: Range) -> Option<Self> {
        Some(Self { cost, size: None })
    }

    fn sized(cost: Range, size: Range) -> Option<Self> {
        Some(Self { cost, size: Some(size) })
    }

    /// One of a function that makes a list.
    fn list(factor: f64, size: Range) -> Option<Self> {
        Self::sized(size.by(factor).plus(ONE).plus(Range::exactly(LIST)), size)
    }
}

impl<'a> Estimator<'_, 'a> {
    pub fn estimate(&mut self, part: &IdedExpr, call: &Call<'_, '_, 'a>) -> Estimate {
        let arguments = call.costs.iter().fold(Range::default(), |sum, cost| sum.plus(*cost));
        let of_library = self.of_cel_library(call).or_else(|| self.of_kubernetes(call));
        if let Some(Estimate { cost, size }) = of_library.or_else(|| of_standard(call)) {
            return Estimate { cost: cost.plus(arguments), size };
        }
        match (call.overload, call.arguments) {
            ("logical_or" | "logical_and", [_, _]) => {
                let cost = Range { min: call.costs[0].min, max: call.costs[0].plus(call.costs[1]).max };
                Estimate { cost, size: None }
            }
            ("conditional", [_, yes, no]) => {
                self.set_entries(part, yes.part, no.part);
                let cost = call.costs[0].plus(call.costs[1].union(call.costs[2]));
                Estimate { cost, size: Some(computed(yes).union(computed(no))) }
            }
            ("add_string" | "add_bytes" | "add_list", [left, right]) => {
                self.set_entries(part, left.part, right.part);
                let size = computed(left).plus(computed(right));
                let cost = if call.overload == "add_list" { ONE } else { size.by(TRAVERSAL) };
                Estimate { cost: cost.plus(arguments), size: Some(size) }
            }
            _ => Estimate { cost: ONE.plus(arguments), size: None },
        }
    }

    /// The entries of a value that is one of two, or has those of both.
    fn set_entries(&mut self, part: &IdedExpr, first: &IdedExpr, second: &IdedExpr) {
        if let (Some(first), Some(second)) = (self.entries(first), self.entries(second)) {
            let (key, value) = (first.key.union(second.key), first.value.union(second.value));
            self.entries.insert(part.id, Entries { is_list: first.is_list, key, value });
        }
    }

    fn size_of(&self, node: &Node<'_, 'a>) -> Range {
        node.size.or_else(|| self.declared_size(&node.path)).unwrap_or(Range::UNKNOWN)
    }

    /// The type and the size of the items of a list; none if it is a text.
    fn items(&self, list: &Node<'_, 'a>) -> Option<(Type<'a>, Range)> {
        let item = (*list.kind.parameters().first()?).clone();
        let size = match list.path.is_empty() {
            true => None,
            false => self.declared_size(&list.path.copied().then("@items")),
        };
        Some((item, size.unwrap_or(Range::UNKNOWN)))
    }

    fn of_cel_library(&self, call: &Call<'_, '_, 'a>) -> Option<Estimate> {
        match (call.overload, call.target, call.arguments) {
            ("list_sets_contains_list" | "list_sets_intersects_list", None, [first, second]) => {
                Estimate::of(self.size_of(first).times(self.size_of(second)).by(1.0).plus(ONE))
            }
            ("list_sets_equivalent_list", None, [first, second]) => {
                Estimate::of(self.size_of(first).times(self.size_of(second)).by(2.0).plus(ONE))
            }
            ("list_slice", Some(list), [start, end]) => {
                let end = number(end, self.size_of(list).max);
                Estimate::list(1.0, Range::exactly(end.wrapping_sub(number(start, 0))))
            }
            ("list_flatten" | "list_flatten_int", Some(list), [] | [_]) => {
                let depth = call.arguments.first().map_or(1, |depth| number(depth, u64::MAX));
                Estimate::list(depth as f64, self.size_of(list))
            }
            ("lists_range", None, [count]) => Estimate::list(1.0, Range::exactly(number(count, u64::MAX))),
            ("list_reverse", Some(list), []) => Estimate::list(1.0, self.size_of(list)),
            ("list_distinct", Some(list), []) => {
                Estimate::list(2.0, self.size_of(list).times(self.size_of(list)))
            }
            (overload, Some(list), []) if overload.ends_with("_sort") => self.of_sort(overload, list),
            (overload, Some(_), [keys]) if overload.ends_with("_sortByAssociatedKeys") => {
                self.of_sort(overload, keys)
            }
            _ => None,
        }
    }

    fn of_sort(&self, overload: &str, keys: &Node<'_, 'a>) -> Option<Estimate> {
        let is_text = ["list_string_", "list_bytes_"].iter().any(|start| overload.starts_with(start));
        let size = self.size_of(keys);
        Estimate::list(if is_text { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
    }

    fn of_kubernetes(&self, call: &Call<'_, '_, 'a>) -> Option<Estimate> {
        let traversal = |node: &Node<'_, 'a>| self.size_of(node).by(TRAVERSAL);
        match (call.function, call.target, call.arguments) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let Some((item, size)) = self.items(target) else { return Estimate::of(traversal(target)) };
                let is_text = matches!(item, Type::String | Type::Bytes);
                let of_item = if is_text { ONE.plus(size.by(TRAVERSAL)) } else { ONE };
                Estimate::of(self.size_of(target).times(of_item))
            }
            ("url", _, [text]) => Estimate::sized(traversal(text), self.size_of(text)),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
                Estimate::sized(traversal(text), self.size_of(text))
            }
            ("replace", Some(text), [old, new, ..]) => {
                let text = self.size_of(text);
                let size = replaced(text, self.size_of(old), self.size_of(new));
                Estimate::sized(text.by(2.0 * TRAVERSAL), size)
            }
            ("split", Some(text), arguments) => {
                let size = self.size_of(text);
                let limit = arguments.get(1).and_then(|limit| match &limit.part.expr {
                    Expr::Literal(LiteralValue::Int(limit)) => Some(limit.inner().cast_unsigned()),
                    _ => None,
                });
                let max = limit.unwrap_or(size.max);
                Estimate::sized(size.by(2.0 * TRAVERSAL), Range { min: 0, max })
            }
            ("join", Some(list), arguments) => {
                let count = self.size_of(list);
                let items = self.items(list).map(|(_, size)| count.times(size)).unwrap_or_default();
                let between = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                let separators = arguments.first().map(|separator| self.size_of(separator).times(between));
                let size = items.plus(separators.unwrap_or_default());
                Estimate::sized(size.by(TRAVERSAL), size)
            }
            ("find" | "findAll", Some(text), [pattern, ..]) => {
                let text = self.size_of(text);
                let cost = text.plus(ONE).by(TRAVERSAL).times(self.size_of(pattern).by(PATTERN));
                Estimate::sized(cost, Range { min: 0, max: text.max })
            }
            ("ip", _, _) if call.overload == "cidr_ip" => Estimate::of(ONE),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [text, ..],
            ) => Estimate::of(traversal(text)),
            ("ip.isCanonical", _, [text, ..]) => Estimate::of(self.size_of(text).by(2.0 * TRAVERSAL)),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                let mut cost = ADDRESS.plus(ADDRESS).by(TRAVERSAL);
                if call.function == "containsCIDR" {
                    cost = cost.plus(ADDRESS.by(TRAVERSAL)).plus(ONE);
                }
                let is_text =
                    matches!(call.overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string");
                Estimate::of(if is_text { cost.plus(traversal(other)) } else { cost })
            }
            ("validate", _, [text, ..]) => Estimate::of(traversal(text).by(FORMAT_PATTERN * PATTERN)),
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                _,
                _,
            ) => Estimate::of(ONE),
            ("_==_", _, [left, right]) if left.kind.name() == right.kind.name() => {
                let most = match &left.kind {
                    Type::Opaque(_) | Type::Library("kubernetes.Quantity" | "kubernetes.Semver") => {
                        return Estimate::of(ONE);
                    }
                    Type::Library("kubernetes.NamedFormat") => FORMAT_NAME,
                    Type::Library("kubernetes.URL") => right.size.map_or(1, |size| size.max),
                    _ => return None,
                };
                Estimate::of(Range { min: 1, max: most }.by(TRAVERSAL))
            }
            _ => None,
        }
    }
}

/// The costs of functions of the standard library that depend on the sizes of the arguments.
fn of_standard(call: &Call<'_, '_, '_>) -> Option<Estimate> {
    let traversal = |node: &Node<'_, '_>| computed(node).by(TRAVERSAL);
    match (call.overload, call.target, call.arguments) {
        ("string_format", Some(target), _) => Estimate::of(traversal(target)),
        ("string_to_bytes", _, [text]) => {
            let size = computed(text);
            Estimate::sized(traversal(text), Range { min: size.min, max: size.max.wrapping_mul(4) })
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = computed(bytes);
            Estimate::sized(traversal(bytes), Range { min: size.min / 4, max: size.max })
        }
        ("strings_quote", _, [text]) => {
            let size = computed(text);
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            Estimate::sized(traversal(text), Range { min: size.min.wrapping_add(2), max })
        }
        ("starts_with_string" | "ends_with_string", _, [part]) => Estimate::of(traversal(part)),
        ("in_list", _, [_, list]) => Estimate::of(computed(list).by(1.0)),
        ("matches_string", Some(text), [pattern]) => {
            let text = computed(text).plus(ONE).by(TRAVERSAL);
            Estimate::of(text.times(computed(pattern).by(PATTERN)))
        }
        ("contains_string", Some(text), [part]) => Estimate::of(traversal(text).times(traversal(part))),
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [left, right],
        ) => {
            let max = computed(left).max.min(computed(right).max);
            Estimate::of(Range { min: max.min(1), max }.by(TRAVERSAL))
        }
        _ => None,
    }
}

fn computed(node: &Node<'_, '_>) -> Range {
    node.size.unwrap_or(Range::UNKNOWN)
}

/// The value of a literal, at least 0.
fn number(node: &Node<'_, '_>, otherwise: u64) -> u64 {
    match &node.part.expr {
        Expr::Literal(LiteralValue::Int(number)) => u64::try_from(*number.inner()).unwrap_or_default(),
        _ => otherwise,
    }
}

/// The size of a text after replacements.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let parts = |text: u64, old: u64| (text as f64 / old as f64).ceil() as u64;
    // The longest result; replacements of an empty text surround all characters.
    let (most, most_kept) = match old.min {
        0 => (text.max.saturating_add(1), text.max),
        _ if new.max <= old.min => (0, text.max),
        _ => (parts(text.max, old.min), 0),
    };
    // The shortest one.
    let (least, least_kept) = match old.max {
        0 => (text.min.saturating_add(1), text.min),
        _ if old.max <= new.min => (0, text.min),
        _ => (parts(text.min, old.max), 0),
    };
    Range { min: least, max: most }.times(new).plus(Range { min: least_kept, max: most_kept })
}
