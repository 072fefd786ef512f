//! The field that a rule's error names.
//!
//! Mirrors ValidFieldPath in pkg/apiserver/schema/cel/validation.go.

use crate::custom::schema::{Additional, Schema};

/// The path in the form of errors, relative to the value with `schema`: `.a['b.c']` is `a.b.c`. None if it is not the
/// path of a field.
pub fn normalize(path: &str, schema: &Schema) -> Option<String> {
    let mut normal = String::new();
    let (mut rest, mut schema) = (path, schema);
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        if schema.properties.is_empty() {
            let Additional::Schema(below) = &schema.additional else { return None };
            normal.push_str(&format!("[{name}]"));
            schema = below;
        } else {
            schema = schema.properties.get(&name)?;
            if !normal.is_empty() {
                normal.push('.');
            }
            normal.push_str(&name);
        }
        rest = after;
    }
    Some(normal)
}

/// The name of the first step, and what follows.
fn step(path: &str) -> Option<(String, &str)> {
    if let Some(name) = path.strip_prefix('.') {
        let end = name.find(['.', '[', ']']).unwrap_or(name.len());
        return (end > 0).then(|| (name[..end].to_owned(), &name[end..]));
    }
    let quoted = path.strip_prefix("['")?;
    let mut name = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, character)) = chars.next() {
        match character {
            '\'' => return Some((name, quoted[at + 1..].strip_prefix(']')?)),
            '\\' => name.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            }),
            other => name.push(other),
        }
    }
    None
}
