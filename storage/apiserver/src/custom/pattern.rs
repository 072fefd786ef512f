//! Regular expressions in the syntax of Go.
//!
//! Mirrors Go's regexp/syntax (parse.go, with the flags Perl): the pattern is translated into the syntax of the crate
//! `regex`, which differs in classes (`[`, `&&`, `--` and `~~` have a meaning there), in braces that are no
//! repetition, in escapes, and in `\d`, `\s`, `\w` and `\b`, which know ASCII only in Go. Limits are those of Go, too.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// The largest number of repetitions.
const MOST: u32 = 1000;

/// The size of a compiled pattern, in bytes: 1,000 repetitions of a class of Unicode exceed the default.
const LARGEST: usize = 64 << 20;

const DIGITS: &str = "0-9";
const SPACES: &str = r"\t\n\x0C\r ";
const WORDS: &str = "0-9A-Za-z_";

/// A pattern that strings are searched for.
#[derive(Debug)]
pub struct Pattern {
    /// As it was declared.
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// Go's message, without its start `error parsing regexp: `.
    pub fn new(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), regex: compile(text)? })
    }

    /// Whether it is found in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The compiled pattern.
///
/// # Errors
/// As [`Pattern::new`].
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = Translator::new(pattern).translate()?;
    RegexBuilder::new(&translated).size_limit(LARGEST).build().map_err(|error| {
        // The error of the parser has several lines.
        let error = error.to_string();
        error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

struct Translator<'a> {
    pattern: &'a str,
    rest: Peekable<Chars<'a>>,
    translated: String,
    /// Whether a repetition can follow.
    has_operand: bool,
    /// The last repetition, if nothing follows it.
    repetition: Option<String>,
    depth: usize,
}

impl<'a> Translator<'a> {
    fn new(pattern: &'a str) -> Self {
        Self {
            pattern,
            rest: pattern.chars().peekable(),
            translated: String::new(),
            has_operand: false,
            repetition: None,
            depth: 0,
        }
    }

    /// The rest of the pattern.
    fn remaining(&self) -> &'a str {
        let length: usize = self.rest.clone().map(char::len_utf8).sum();
        &self.pattern[self.pattern.len() - length..]
    }

    /// Skips as many characters as `text` has.
    fn advance(&mut self, text: &str) {
        text.chars().for_each(|_| _ = self.rest.next());
    }

    /// Skips `text` if the rest starts with it.
    fn skip(&mut self, text: &str) -> bool {
        let starts = self.remaining().starts_with(text);
        if starts {
            self.advance(text);
        }
        starts
    }

    fn push(&mut self, operand: &str) {
        self.translated.push_str(operand);
        self.has_operand = true;
        self.repetition = None;
    }

    fn push_literal(&mut self, literal: char) {
        let text = escape(literal);
        self.push(&text);
    }

    fn translate(mut self) -> Result<String, String> {
        while let Some(next) = self.rest.peek().copied() {
            match next {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.open()?,
                ')' => {
                    if self.depth == 0 {
                        return Err(format!("unexpected ): `{}`", self.pattern));
                    }
                    self.rest.next();
                    self.depth -= 1;
                    self.push(")");
                }
                '|' => {
                    self.rest.next();
                    self.push("|");
                    self.has_operand = false;
                }
                '*' | '+' | '?' => {
                    self.rest.next();
                    self.repeat(next.to_string())?;
                }
                '{' => match self.braces()? {
                    Some(repetition) => self.repeat(repetition)?,
                    None => {
                        self.rest.next();
                        self.push_literal('{');
                    }
                },
                '.' | '^' | '$' => {
                    self.rest.next();
                    self.push(&next.to_string());
                }
                _ => {
                    self.rest.next();
                    self.push_literal(next);
                }
            }
        }
        match self.depth {
            0 => Ok(self.translated),
            _ => Err(format!("missing closing ): `{}`", self.pattern)),
        }
    }

    /// A repetition of the last operand.
    fn repeat(&mut self, mut repetition: String) -> Result<(), String> {
        if self.skip("?") {
            repetition.push('?');
        }
        if let Some(last) = &self.repetition {
            return Err(format!("invalid nested repetition operator: `{last}{repetition}`"));
        }
        if !self.has_operand {
            return Err(format!("missing argument to repetition operator: `{repetition}`"));
        }
        self.translated.push_str(&repetition);
        self.repetition = Some(repetition);
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}`; any other brace is a character.
    fn braces(&mut self) -> Result<Option<String>, String> {
        let rest = self.remaining();
        let Some(end) = rest.find('}') else { return Ok(None) };
        let (min, max) = rest[1..end].split_once(',').unwrap_or((&rest[1..end], &rest[1..end]));
        let is_number = |digits: &str| {
            let has_zeros = digits.len() > 1 && digits.starts_with('0');
            !digits.is_empty() && !has_zeros && digits.bytes().all(|digit| digit.is_ascii_digit())
        };
        if !is_number(min) || !(max.is_empty() || is_number(max)) {
            return Ok(None);
        }
        let repetition = &rest[..=end];
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| *number <= MOST);
        let is_valid = match (number(min), max.is_empty()) {
            (Some(_), true) => true,
            (Some(min), false) => number(max).is_some_and(|max| min <= max),
            (None, _) => false,
        };
        if !is_valid {
            return Err(format!("invalid repeat count: `{repetition}`"));
        }
        self.advance(repetition);
        Ok(Some(repetition.to_owned()))
    }

    /// The start of a group, or flags.
    fn open(&mut self) -> Result<(), String> {
        let rest = self.remaining();
        self.rest.next();
        if !self.skip("?") {
            self.depth += 1;
            self.push("(");
            self.has_operand = false;
            return Ok(());
        }
        let unsupported = |end: usize| {
            Err(format!("invalid or unsupported Perl syntax: `{}`", &rest[..end.min(rest.len())]))
        };
        if self.skip("P<") || (!rest.starts_with("(?<=") && !rest.starts_with("(?<!") && self.skip("<")) {
            let Some((name, _)) = self.remaining().split_once('>') else {
                return Err(format!("invalid named capture: `{rest}`"));
            };
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                let whole = &rest[..rest.len() - self.remaining().len() + name.len() + 1];
                return Err(format!("invalid named capture: `{whole}`"));
            }
            self.advance(name);
            self.rest.next();
            // No name is used, and the names of `regex` have another syntax.
            self.depth += 1;
            self.push("(");
            self.has_operand = false;
            return Ok(());
        }
        let mut flags = String::new();
        loop {
            match self.rest.next() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => flags.push(flag),
                Some('-') if !flags.contains('-') => flags.push('-'),
                Some(end @ (':' | ')')) if !flags.ends_with('-') => {
                    if !(flags.is_empty() && end == ')') {
                        self.translated.push_str(&format!("(?{flags}{end}"));
                    }
                    self.repetition = None;
                    if end == ':' {
                        self.depth += 1;
                        self.has_operand = false;
                    }
                    return Ok(());
                }
                _ => return unsupported(rest.len() - self.remaining().len()),
            }
        }
    }

    /// An escape outside of classes.
    fn escape(&mut self) -> Result<(), String> {
        if self.skip(r"\Q") {
            while !self.remaining().is_empty() && !self.skip(r"\E") {
                let next = self.rest.next().unwrap_or_default();
                self.push_literal(next);
            }
            return Ok(());
        }
        for (escape, translated) in
            [(r"\A", r"\A"), (r"\z", r"\z"), (r"\b", r"(?-u:\b)"), (r"\B", r"(?-u:\B)")]
        {
            if self.skip(escape) {
                self.push(translated);
                return Ok(());
            }
        }
        if let Some(class) = self.escaped_class()? {
            self.push(&format!("[{class}]"));
            return Ok(());
        }
        let literal = self.escaped()?;
        self.push_literal(literal);
        Ok(())
    }

    /// The content of a class for `\d`, `\pL` and the like.
    fn escaped_class(&mut self) -> Result<Option<String>, String> {
        let rest = self.remaining();
        for (escape, set, is_negated) in [
            (r"\d", DIGITS, false),
            (r"\s", SPACES, false),
            (r"\w", WORDS, false),
            (r"\D", DIGITS, true),
            (r"\S", SPACES, true),
            (r"\W", WORDS, true),
        ] {
            if self.skip(escape) {
                return Ok(Some(if is_negated { format!("[^{set}]") } else { set.to_owned() }));
            }
        }
        let (mut is_negated, property) = match rest.get(..2) {
            Some(r"\p") => (false, &rest[2..]),
            Some(r"\P") => (true, &rest[2..]),
            _ => return Ok(None),
        };
        let invalid = || format!("invalid character class range: `{rest}`");
        let (mut name, length) = match property.strip_prefix('{') {
            Some(braced) => {
                braced.split_once('}').map(|(name, _)| (name, name.len() + 2)).ok_or_else(invalid)?
            }
            None => {
                let length = property.chars().next().map(char::len_utf8).ok_or_else(invalid)?;
                (&property[..length], length)
            }
        };
        let whole = &rest[..2 + length];
        if let Some(negated) = name.strip_prefix('^') {
            (name, is_negated) = (negated, !is_negated);
        }
        // `regex` ignores case, spaces and hyphens in names.
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        let set = if name == "Any" { r"\p{Any}".to_owned() } else { format!(r"\p{{{name}}}") };
        if !is_name || Regex::new(&set).is_err() {
            return Err(format!("invalid character class range: `{whole}`"));
        }
        self.advance(whole);
        Ok(Some(if is_negated { format!("[^{set}]") } else { set }))
    }

    /// An escaped character (`parseEscape`).
    fn escaped(&mut self) -> Result<char, String> {
        let rest = self.remaining();
        self.rest.next();
        let Some(next) = self.rest.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let found = match next {
            'a' => Some('\u{7}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            'x' if self.skip("{") => {
                let digits: String = self.remaining().chars().take_while(char::is_ascii_hexdigit).collect();
                self.advance(&digits);
                let is_closed = self.skip("}");
                u32::from_str_radix(&digits, 16).ok().filter(|_| is_closed).and_then(char::from_u32)
            }
            'x' => {
                let digits: String = self.remaining().chars().take(2).collect();
                let digits = Some(digits).filter(|digits| digits.len() == 2);
                self.advance("..");
                digits.and_then(|digits| u32::from_str_radix(&digits, 16).ok()).and_then(char::from_u32)
            }
            '0'..='7' => {
                let is_octal = |c: &char| ('0'..='7').contains(c);
                // One digit would be a reference to a group.
                let is_valid = next == '0' || self.rest.peek().is_some_and(is_octal);
                let mut number = next.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.next_if(is_octal) else { break };
                    number = number * 8 + digit.to_digit(8).unwrap_or_default();
                }
                char::from_u32(number).filter(|_| is_valid)
            }
            _ if next.is_ascii() && !next.is_ascii_alphanumeric() => Some(next),
            _ => None,
        };
        let length = rest.len() - self.remaining().len();
        found.ok_or_else(|| format!("invalid escape sequence: `{}`", &rest[..length]))
    }

    /// A class in brackets (`parseClass`).
    fn class(&mut self) -> Result<(), String> {
        let whole = self.remaining();
        let unclosed = || format!("missing closing ]: `{whole}`");
        self.rest.next();
        let mut class = String::from("[");
        if self.skip("^") {
            class.push('^');
        }
        let mut is_first = true;
        while is_first || !self.remaining().starts_with(']') {
            is_first = false;
            let rest = self.remaining();
            if rest.is_empty() {
                return Err(unclosed());
            }
            if let Some((name, _)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
                let set = format!("[:{name}:]");
                if Regex::new(&format!("[{set}]")).is_err() {
                    return Err(format!("invalid character class range: `{set}`"));
                }
                self.advance(&set);
                class.push_str(&set);
                continue;
            }
            if let Some(set) = self.escaped_class()? {
                class.push_str(&set);
                continue;
            }
            let low = self.member().map_err(|error| error.unwrap_or_else(unclosed))?;
            let after = self.remaining();
            let is_range = after.starts_with('-') && after.len() > 1 && !after.starts_with("-]");
            let high = match is_range {
                true => {
                    self.rest.next();
                    self.member().map_err(|error| error.unwrap_or_else(unclosed))?
                }
                false => low,
            };
            if high < low {
                let length = rest.len() - self.remaining().len();
                return Err(format!("invalid character class range: `{}`", &rest[..length]));
            }
            class.push_str(&escape(low));
            if is_range {
                class.push('-');
                class.push_str(&escape(high));
            }
        }
        self.rest.next();
        class.push(']');
        self.push(&class);
        Ok(())
    }

    /// A character of a class; without an error's text if there is none.
    fn member(&mut self) -> Result<char, Option<String>> {
        match self.rest.peek() {
            Some('\\') => self.escaped().map_err(Some),
            Some(_) => self.rest.next().ok_or(None),
            None => Err(None),
        }
    }
}

/// The character, which has no meaning then.
fn escape(literal: char) -> String {
    match literal {
        _ if literal.is_alphanumeric() || literal == '_' => literal.to_string(),
        _ => format!(r"\x{{{:X}}}", u32::from(literal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let table = [
            ("^a{2}$", "aa", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{,2}$", "aa", false),
            ("^{a}$", "{a}", true),
            ("^{{.*}}$", "{{ x }}", true),
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^\s$", "\u{b}", false),
            (r"^\s$", "\u{a0}", false),
            (r"\bé", "é", false),
            ("^[[a]$", "[", true),
            ("^[a&&b]+$", "a&b", true),
            ("^[a-z--]+$", "a-", true),
            ("^[]a]+$", "]a", true),
            ("^[^]a]$", "]", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[\D]$", "a", true),
            ("^[[:alpha:]]$", "a", true),
            (r"^\_\ \/\<$", "_ /<", true),
            (r"^\101\0$", "A\0", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            ("^(?P<1>a)(?<b>b)$", "ab", true),
            ("(?i)^é$", "É", true),
            ("(?i:a)b", "Ab", true),
            (r"^\pL\p{Greek}\P{L}$", "aα1", true),
            (r"^\p{^Greek}$", "a", true),
            ("a b#c", "a b#c", true),
            ("^.{1000}$", "a", false),
            (r"^[^\s]{1,1000}$", "a", true),
            (r"a\Bb", "ab", true),
        ];
        for (pattern, text, expected) in table {
            let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern}: {text}");
            assert_eq!(compiled.to_string(), pattern);
        }
    }

    #[test]
    fn invalid_patterns_have_the_message_of_go() {
        let table = [
            ("a**", "invalid nested repetition operator: `**`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"a\u1234", r"invalid escape sequence: `\u`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, expected) in table {
            assert_eq!(Pattern::new(pattern).unwrap_err(), expected, "{pattern}");
        }
    }
}
