//! YAML files as kubectl reads them.

use serde_json::Value;

/// More than any indentation of a manifest.
const DEEP: &str = "                                                            ";

/// The documents of a YAML file: `0755` is octal (YAML 1.1), and lines that continue a quoted text may be indented less
/// than YAML requires, as in the manifests of several vendors.
pub fn documents(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    let parse = |text: &str| {
        serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { legacy_octal_numbers: true })
    };
    parse(text).or_else(|error| parse(&with_deep_continuations(text)).map_err(|_| error))
}

/// Indents the lines that continue a quoted text, which changes nothing of the text. Those of block scalars are left.
fn with_deep_continuations(text: &str) -> String {
    let mut result = String::new();
    let (mut quote, mut block): (Option<char>, Option<usize>) = (None, None);
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let is_in_block = block.is_some_and(|start| line.trim().is_empty() || indent > start);
        if quote.is_some() && !line.trim().is_empty() {
            result += DEEP;
        }
        result += line;
        result.push('\n');
        if let Some(open) = quote {
            quote = (!closes(line, open)).then_some(open);
        } else if !is_in_block {
            let ends_in_block =
                ["|", ">", "|-", ">-", "|+", ">+"].iter().any(|mark| line.ends_with(&format!(" {mark}")));
            block = ends_in_block.then_some(indent);
            quote = opens(line);
        }
    }
    result
}

/// The quote of the line's value, if the line does not close it.
fn opens(line: &str) -> Option<char> {
    let value = line.trim_start().trim_start_matches("- ");
    let value = match value.split_once(": ") {
        Some((key, value)) if !key.contains(['\'', '"', '{', '[', '#']) => value.trim_start(),
        _ => value,
    };
    let open = value.chars().next().filter(|first| ['\'', '"'].contains(first))?;
    (!closes(&value[1..], open)).then_some(open)
}

/// Whether a text with this quote ends in the line.
fn closes(line: &str, quote: char) -> bool {
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quote == '"' => drop(characters.next()),
            '\'' if quote == '\'' && characters.peek() == Some(&'\'') => drop(characters.next()),
            _ if character == quote => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_that_continue_a_quoted_text_may_be_indented_less() {
        let text = "a:\n  b: 'it''s\n  text: more\n\n  of it'\n  c: \"x \\\" y\n  z\"\n  s: |\n    k: 'open\n    end\n  d: 0755\n";
        let expected = json!({ "a": {
            "b": "it's text: more\nof it", "c": "x \" y z", "s": "k: 'open\nend\n", "d": 493,
        } });
        assert_eq!(documents(text).unwrap(), [expected]);
        assert!(documents("a: 'b\n").unwrap_err().to_string().contains("quote"));
    }
}
