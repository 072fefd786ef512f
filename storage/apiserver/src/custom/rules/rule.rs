//! A rule of `x-kubernetes-validations`.

use std::sync::OnceLock;

use serde_json::Value;

use super::program::{Program, compile};

/// A rule. Its expressions are compiled when they are first needed: at the start of a server, none is.
#[derive(Debug)]
pub struct Rule {
    /// The expression.
    pub text: String,
    /// The message, which may be empty.
    pub message: String,
    /// The expression of the message; may be empty.
    pub message_text: String,
    /// The field that the error names, relative to the schema's value, e.g. `.a.b`; may be empty.
    pub field: String,
    /// The reason of the error.
    pub reason: Reason,
    /// Whether `oldSelf` is an optional value, so that the rule applies to new values, too. None if not declared.
    pub optional_old: Option<bool>,
    program: OnceLock<Compiled>,
    message_program: OnceLock<Compiled>,
}

/// A compiled expression; none if it is empty.
type Compiled = Option<Result<Program, String>>;

/// The type of the error of a rule (`FieldValueErrorReason`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The value is invalid; the default.
    Invalid,
    /// The field must not be set.
    Forbidden,
    /// The field is required.
    Required,
    /// The value exists already.
    Duplicate,
}

impl Rule {
    /// The rule in `value`, an element of `x-kubernetes-validations`.
    pub fn read(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Self {
            text: text("rule"),
            message: text("message"),
            message_text: text("messageExpression"),
            field: text("fieldPath"),
            reason: match value["reason"].as_str() {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            optional_old: value["optionalOldSelf"].as_bool(),
            program: OnceLock::new(),
            message_program: OnceLock::new(),
        }
    }

    /// The compiled expression; none if it is empty or cannot be evaluated.
    pub fn program(&self) -> Option<&Program> {
        ready(&self.program, &self.text)
    }

    /// The compiled expression of the message; see [`Self::program`].
    pub fn message_program(&self) -> Option<&Program> {
        ready(&self.message_program, &self.message_text)
    }

    /// Its name in messages (`ruleErrorString`).
    pub fn name(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { self.message.trim() }
    }

    /// The message of its error, if no expression makes one (`ruleMessageOrDefault`).
    pub fn default_message(&self) -> String {
        match self.message.is_empty() {
            true => format!("failed rule: {}", self.name()),
            false => self.name().to_owned(),
        }
    }
}

fn ready<'a>(program: &'a OnceLock<Compiled>, text: &str) -> Option<&'a Program> {
    let compiled = || (!text.trim().is_empty()).then(|| compile(text));
    program.get_or_init(compiled).as_ref()?.as_ref().ok()
}
