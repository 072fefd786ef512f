//! Parses `types.txt`; its header describes the format.

use std::collections::BTreeMap;

use super::{Field, Identity, Number, Object, Other, Patch, Scalar, Schema, Shape};

/// The types in `text`, which is part of this program: an error in it is a bug in the program.
pub fn read(text: &'static str) -> Schema {
    let mut places = BTreeMap::new();
    for (package, line) in types(text) {
        let place = places.len();
        places.insert((package, first(line)), place);
    }
    let mut objects: Vec<Object> = Vec::new();
    let (mut alias, mut package) = ("", "");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("package ") {
            (alias, package) = rest.split_once(' ').expect("a package has a name and an alias");
        } else if let Some(field) = line.strip_prefix("  ") {
            let field = read_field(field, alias, &places);
            let object = objects.last_mut().expect("fields stand under their type");
            object.fields.insert(field.name, field);
        } else {
            let atomic = line.ends_with(" atomic");
            objects.push(Object {
                package,
                name: first(line),
                atomic,
                fields: BTreeMap::new(),
                others: None,
            });
        }
    }
    let mut kinds: BTreeMap<&str, BTreeMap<&str, Shape>> = BTreeMap::new();
    for ((package, name), place) in places {
        kinds.entry(package).or_default().insert(name, Shape::Object { place, granular: false });
    }
    Schema { objects, kinds }
}

/// The lines of types, each with the alias of its package.
fn types(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut alias = "";
    text.lines().filter_map(move |line| match line.strip_prefix("package ") {
        Some(rest) => {
            alias = first(rest);
            None
        }
        None => (!line.starts_with([' ', '#'])).then_some((alias, line)),
    })
}

fn first(line: &'static str) -> &'static str {
    line.split(' ').next().unwrap_or_default()
}

type Places = BTreeMap<(&'static str, &'static str), usize>;

fn read_field(line: &'static str, package: &'static str, places: &Places) -> Field {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let mut shape = read_shape(words.next().unwrap_or_default(), package, places);
    let (mut patch, mut default, mut number, mut values) = (Patch::Replace, None, None, None);
    for word in words {
        if let Some(place) = word.strip_prefix('#') {
            number = Some(read_number(place));
            continue;
        }
        match (word.split_once('=').unwrap_or((word, "")), &mut shape) {
            (("set", _), Shape::List { identity, .. }) => *identity = Identity::Value,
            (("map", keys), Shape::List { identity, .. }) => {
                *identity = Identity::Keys(keys.split(',').collect());
            }
            (("atomic", _), Shape::Map { atomic, .. }) => *atomic = true,
            (("granular", _), Shape::Object { granular, .. }) => *granular = true,
            (("patch", ""), _) => patch = Patch::Merge,
            (("patch", key), _) => patch = Patch::ByKey { key, union: false },
            (("retain", _), _) => {
                if let Patch::ByKey { union, .. } = &mut patch {
                    *union = true;
                }
            }
            (("default", value), _) => default = Some(value),
            (("enum", text), _) => values = Some(text),
            _ => panic!("{line} has a word that is not understood"),
        }
    }
    let (name, required) = (name.trim_end_matches('!'), name.ends_with('!'));
    Field { name, shape, required, patch, default, values, number }
}

/// A place in protobuf, such as `3`, `3?` or `2.3`.
fn read_number(place: &str) -> Number {
    let digits = place.trim_end_matches('?');
    let (outer, inner) = digits.split_once('.').map_or((digits, None), |(outer, inner)| (outer, Some(inner)));
    let number = |digits: &str| -> u64 { digits.parse().expect("a number is in decimal digits") };
    Number { outer: number(outer), inner: inner.map(number), zero_is_unset: digits != place }
}

fn read_shape(word: &'static str, package: &'static str, places: &Places) -> Shape {
    if let Some(item) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
        let item = Box::new(read_shape(item, package, places));
        return Shape::List { item, identity: Identity::Atomic };
    }
    if let Some(value) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
        return Shape::Map { value: Box::new(read_shape(value, package, places)), atomic: false };
    }
    if let Some((object, other)) = word.split_once('|') {
        let other = match other {
            "bool" => Other::Bool,
            "[]" => Other::Objects,
            "[string]" => Other::Texts,
            _ => panic!("{word} has an alternative that is not understood"),
        };
        return Shape::Either(Box::new(read_shape(object, package, places)), other);
    }
    Shape::Scalar(match word {
        "string" => Scalar::Text,
        "bytes" => Scalar::Bytes,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "double" => Scalar::Double,
        "quantity" => Scalar::Quantity,
        "intstr" => Scalar::IntOrText,
        "any" => return Shape::Any,
        name => {
            let place = places.get(&name.split_once('.').unwrap_or((package, name)));
            let place = *place.expect("every type that a field has is in the table");
            return Shape::Object { place, granular: false };
        }
    })
}
