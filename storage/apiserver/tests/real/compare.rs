//! Compares two normalised responses.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::side::Answer;

/// One difference, at a path of the response.
#[derive(Clone, Debug)]
pub struct Difference {
    /// E.g. `body.spec.containers[c].image`; items of lists have their name, or else their position.
    pub path: String,
    pub sort: Sort,
    /// What each server returned; null if it is missing.
    pub stock: Value,
    pub built_in: Value,
}

/// The sort of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// The codes differ; nothing else is compared then.
    Status,
    /// Missing from the embedded server's response.
    Missing,
    /// Missing from the stock response.
    Additional,
    /// Both have a value.
    Value,
    /// The same items in another order.
    Order,
}

impl Sort {
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Missing => "missing",
            Self::Additional => "additional",
            Self::Value => "value",
            Self::Order => "order",
        }
    }
}

impl Difference {
    /// The difference without what varies between its occurrences: the cause by which reports group.
    pub fn cause(&self) -> String {
        let path = pattern(&self.path);
        match self.sort {
            Sort::Status => {
                format!("{path}: stock {}, built-in {}", shape(&self.stock), shape(&self.built_in))
            }
            // Of messages, what the stock one is about; and of codes and headers the values.
            Sort::Value
                if path.ends_with("message") || path.ends_with("warning") || path.ends_with("cells[]") =>
            {
                format!("{path}: value, stock {}", shape(&self.stock))
            }
            Sort::Value if path.starts_with("headers.") || path.ends_with("reason") => {
                format!("{path}: stock {}, built-in {}", shape(&self.stock), shape(&self.built_in))
            }
            sort => format!("{path}: {}", sort.name()),
        }
    }
}

/// All differences. A missing response of both servers is one as well, since it compares nothing.
pub fn compare(stock: &Answer, built_in: &Answer) -> Vec<Difference> {
    if stock.status != built_in.status || stock.status == 0 {
        let of = |answer: &Answer| -> Value {
            let detail = answer.body["message"].as_str().or(answer.body["noResponse"].as_str());
            format!("{} {}", answer.status, detail.unwrap_or_default()).trim_end().into()
        };
        let difference = Difference {
            path: "status".to_owned(),
            sort: Sort::Status,
            stock: of(stock),
            built_in: of(built_in),
        };
        return vec![difference];
    }
    let mut found = Vec::new();
    let names: BTreeSet<_> = stock.headers.keys().chain(built_in.headers.keys()).copied().collect();
    for name in names {
        let of = |answer: &Answer| answer.headers.get(name).map_or(Value::Null, |text| text.as_str().into());
        differ(&format!("headers.{name}"), &of(stock), &of(built_in), &mut found);
    }
    match is_unread(stock) {
        true => differ("body.reason", &stock.body["reason"], &built_in.body["reason"], &mut found),
        false => differ("body", &stock.body, &built_in.body, &mut found),
    }
    found
}

/// Whether a request could not be read, or a patch has a result that cannot: these errors are not in Go's words, except
/// those about unknown and duplicate fields.
fn is_unread(stock: &Answer) -> bool {
    let message = stock.body["message"].as_str().unwrap_or_default();
    let of_patch = stock.status == 422 && stock.body["details"]["causes"][0]["field"] == "patch";
    of_patch || stock.status == 406 || (stock.status == 400 && !message.contains("strict decoding error"))
}

fn differ(path: &str, stock: &Value, built_in: &Value, found: &mut Vec<Difference>) {
    let mut push = |sort| {
        let (stock, built_in) = (stock.clone(), built_in.clone());
        found.push(Difference { path: path.to_owned(), sort, stock, built_in });
    };
    match (stock, built_in) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                differ_optional(&format!("{path}.{name}"), a.get(name), b.get(name), found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            let (keys_of_a, keys_of_b) = (keys(path, a), keys(path, b));
            let sorted = |keys: &[String]| keys.iter().cloned().collect::<BTreeSet<_>>();
            if keys_of_a != keys_of_b && sorted(&keys_of_a) == sorted(&keys_of_b) {
                found.push(Difference {
                    path: path.to_owned(),
                    sort: Sort::Order,
                    stock: keys_of_a.join(" ").into(),
                    built_in: keys_of_b.join(" ").into(),
                });
            }
            let at = |items: &[Value], keys: &[String], key: &String| {
                keys.iter().position(|other| other == key).map(|index| items[index].clone())
            };
            let additional = keys_of_b.iter().filter(|key| !keys_of_a.contains(key));
            for key in keys_of_a.iter().chain(additional) {
                let (one, other) = (at(a, &keys_of_a, key), at(b, &keys_of_b, key));
                differ_optional(&format!("{path}[{key}]"), one.as_ref(), other.as_ref(), found);
            }
        }
        _ if stock == built_in => {}
        (Value::Null, _) => push(Sort::Additional),
        (_, Value::Null) => push(Sort::Missing),
        _ => push(Sort::Value),
    }
}

/// A field that is null is not the same as one that is missing.
fn differ_optional(path: &str, stock: Option<&Value>, built_in: Option<&Value>, found: &mut Vec<Difference>) {
    let of = |value: Option<&Value>| value.cloned().unwrap_or_default();
    match (stock, built_in) {
        (Some(stock), Some(built_in)) => differ(path, stock, built_in, found),
        (None, None) => {}
        (stock, built_in) => {
            let sort = if stock.is_some() { Sort::Missing } else { Sort::Additional };
            found.push(Difference { path: path.to_owned(), sort, stock: of(stock), built_in: of(built_in) });
        }
    }
}

/// The identities of the items of a list, which are unique.
fn keys(path: &str, items: &[Value]) -> Vec<String> {
    let key = |item: &Value| {
        // The events of a watch, in which an object may occur several times, and cells are compared by
        // position.
        if path == "body" || path.ends_with(".cells") || path.ends_with(".rows") {
            return None;
        }
        if item["manager"].is_string() {
            let words =
                ["operation", "manager", "subresource"].map(|field| item[field].as_str().unwrap_or_default());
            return Some(words.join(" ").trim_end().to_owned());
        }
        if let Some(paths) = item["nonResourceURLs"].as_array() {
            return Some(paths.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
        }
        let fields = ["name", "resource", "subresource", "groupVersion", "version", "type", "key", "field"];
        let name = item["metadata"]["name"].as_str();
        let name = name.or_else(|| fields.iter().find_map(|field| item[*field].as_str()));
        name.map(str::to_owned).or_else(|| item.as_str().filter(|text| text.len() < 60).map(str::to_owned))
    };
    let mut keys: Vec<String> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let key = key(item).unwrap_or_else(|| index.to_string());
        keys.push(if keys.contains(&key) { format!("{key} {index}") } else { key });
    }
    keys
}

/// A path without the identities of items.
fn pattern(path: &str) -> String {
    let (mut pattern, mut depth) = (String::new(), 0_usize);
    for c in path.chars() {
        depth = if c == ']' { depth.saturating_sub(1) } else { depth };
        if depth == 0 {
            pattern.push(c);
        }
        depth += usize::from(c == '[');
    }
    pattern
}

/// A value without quoted parts, names and numbers, so that messages about different objects are equal.
fn shape(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut shape = String::new();
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => {
                quote = Some(c);
                shape.push('*');
            }
            None if c.is_ascii_digit() && shape.len() > 3 => {
                if !shape.ends_with('#') {
                    shape.push('#');
                }
            }
            None => shape.push(c),
        }
    }
    shape.replace('\n', " ").chars().take(140).collect()
}
