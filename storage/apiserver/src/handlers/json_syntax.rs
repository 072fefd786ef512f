//! Errors in the syntax of JSON, in the words of Go's encoding/json (scanner.go).

use crate::quote::quote;

/// The largest number of nested objects and arrays (`maxNestingDepth`).
const MAX_DEPTH: usize = 10_000;

/// What may follow.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Value,
    FirstValue,
    FirstKey,
    Key,
    Colon,
    AfterPair,
    AfterItem,
    End,
}

impl Next {
    /// Go's description of the place.
    fn place(self) -> &'static str {
        match self {
            Self::Value | Self::FirstValue => "looking for beginning of value",
            Self::FirstKey | Self::Key => "looking for beginning of object key string",
            Self::Colon => "after object key",
            Self::AfterPair => "after object key:value pair",
            Self::AfterItem => "after array element",
            Self::End => "after top-level value",
        }
    }
}

/// The first error of `text`, if there is one.
pub fn error(text: &str) -> Option<String> {
    Scanner { text, at: 0, open: Vec::new() }.scan().err()
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// The enclosing containers: whether each is an object.
    open: Vec<bool>,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Result<(), String> {
        let mut next = Next::Value;
        loop {
            while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let Some(byte) = self.peek() else {
                return if next == Next::End { Ok(()) } else { Err(ended()) };
            };
            next = match (next, byte) {
                (Next::Value | Next::FirstValue, b'{') => self.enter(true)?,
                (Next::Value | Next::FirstValue, b'[') => self.enter(false)?,
                (Next::FirstKey | Next::AfterPair, b'}') | (Next::FirstValue | Next::AfterItem, b']') => {
                    self.at += 1;
                    self.open.pop();
                    self.after_value()
                }
                (Next::FirstKey | Next::Key, b'"') => {
                    self.string()?;
                    Next::Colon
                }
                (Next::Colon, b':') => self.skip(Next::Value),
                (Next::AfterPair, b',') => self.skip(Next::Key),
                (Next::AfterItem, b',') => self.skip(Next::Value),
                (Next::Value | Next::FirstValue, b'"') => {
                    self.string()?;
                    self.after_value()
                }
                (Next::Value | Next::FirstValue, b'-' | b'0'..=b'9') => {
                    self.number()?;
                    self.after_value()
                }
                (Next::Value | Next::FirstValue, b't') => self.literal("true")?,
                (Next::Value | Next::FirstValue, b'f') => self.literal("false")?,
                (Next::Value | Next::FirstValue, b'n') => self.literal("null")?,
                (next, _) => return Err(self.unexpected(next.place())),
            };
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, next: Next) -> Next {
        self.at += 1;
        next
    }

    fn enter(&mut self, object: bool) -> Result<Next, String> {
        self.at += 1;
        self.open.push(object);
        match self.open.len() > MAX_DEPTH {
            true => Err("exceeded max depth".to_owned()),
            false if object => Ok(Next::FirstKey),
            false => Ok(Next::FirstValue),
        }
    }

    fn after_value(&self) -> Next {
        match self.open.last() {
            Some(true) => Next::AfterPair,
            Some(false) => Next::AfterItem,
            None => Next::End,
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek().ok_or_else(ended)? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    match self.peek().ok_or_else(ended)? {
                        b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
                        b'u' => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().ok_or_else(ended)?.is_ascii_hexdigit() {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                0..0x20 => return Err(self.unexpected("in string literal")),
                _ => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self, place: &str) -> Result<(), String> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            None => Err(ended()),
            Some(_) => Err(self.unexpected(place)),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<Next, String> {
        for expected in literal.bytes() {
            if self.peek().ok_or_else(ended)? != expected {
                let place = format!("in literal {literal} (expecting '{}')", char::from(expected));
                return Err(self.unexpected(&place));
            }
            self.at += 1;
        }
        Ok(self.after_value())
    }

    /// The error about the present character.
    fn unexpected(&self, place: &str) -> String {
        let found = self.text.get(self.at..).and_then(|rest| rest.chars().next()).unwrap_or_default();
        let shown = match found {
            '\'' => "\\'".to_owned(),
            '"' => "\"".to_owned(),
            other => quote(&other.to_string()).trim_matches('"').to_owned(),
        };
        format!("invalid character '{shown}' {place}")
    }
}

fn ended() -> String {
    "unexpected end of JSON input".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_go() {
        let table = [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("text", "invalid character 'e' in literal true (expecting 'r')"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\u{feff}{}", "invalid character '\\ufeff' looking for beginning of value"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
        ];
        for (text, expected) in table {
            assert_eq!(error(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["{}", " [1, -0.5e+3, \"\\u00e4\\n\", null, {\"a\": {\"b\": []}}] ", "0", "true"] {
            assert_eq!(error(text), None, "{text}");
        }
        assert_eq!(error(&"[".repeat(MAX_DEPTH + 1)).as_deref(), Some("exceeded max depth"));
    }
}
