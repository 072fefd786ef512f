//! The names of a scenario's objects in the cluster: each has its own namespace, and a prefix for the rest.

/// What the name of a second namespace of a scenario ends with.
const OTHER: &str = "-other";

/// The namespace of a scenario, and what joins it with the names of objects that have none.
#[derive(Clone, Debug)]
pub struct Names {
    /// The namespace.
    pub scenario: String,
    joint: char,
}

impl Names {
    /// Names as `scenario.name`.
    pub fn with_dots(scenario: impl Into<String>) -> Self {
        Self { scenario: scenario.into(), joint: '.' }
    }

    /// Names as `scenario-name`.
    pub fn with_dashes(scenario: impl Into<String>) -> Self {
        Self { scenario: scenario.into(), joint: '-' }
    }

    /// The namespace and name of an object: those of `other/data` are in a second namespace.
    pub fn namespaced(&self, name: &str) -> (String, String) {
        match name.strip_prefix("other/") {
            Some(name) => (format!("{}{OTHER}", self.scenario), name.to_owned()),
            None => (self.scenario.clone(), name.to_owned()),
        }
    }

    /// The name of an object without a namespace. A leading `=` stands for a name that is used as it is.
    pub fn cluster(&self, name: &str) -> String {
        match name.trim_start_matches('=') {
            shared if shared != name => shared.to_owned(),
            _ => format!("{}{}{name}", self.scenario, self.joint),
        }
    }
}

/// The scenario of a namespace.
pub fn scenario_of(namespace: &str) -> &str {
    namespace.strip_suffix(OTHER).unwrap_or(namespace)
}
