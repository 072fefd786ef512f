//! The label of a container's SELinux options.
//!
//! A node completes them from the defaults of its operating system, which the controller does not have. So a part that
//! is not set stays empty, and is comparable with nothing. Upstream: `ControllerSELinuxTranslator` in
//! `pkg/controller/volume/selinuxwarning/translator/selinux_translator.go`.

use std::fmt;

use k8s_openapi::api::core::v1::SELinuxOptions;

/// How many parts a label has: `user:role:type:level`.
const PARTS: usize = 4;

/// A label; empty if no option is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(String);

impl Label {
    /// The label of these options: `SELinuxOptionsToFileLabel`.
    pub fn of(options: &SELinuxOptions) -> Self {
        let SELinuxOptions { level, role, type_, user } = options;
        let parts = [user, role, type_, level].map(|part| part.as_deref().unwrap_or_default());
        let is_empty = parts.iter().all(|part| part.is_empty());
        Self(if is_empty { String::new() } else { parts.join(":") })
    }

    /// Whether no option is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the labels differ on every node: `ConflictsParsed`. The level has no default, so it must be equal; the
    /// other parts are comparable only if both are set.
    pub fn conflicts(&self, other: &Self) -> bool {
        let (own, others) = (self.parts(), other.parts());
        let mut parts = own.into_iter().zip(others).enumerate();
        parts.any(|(at, (a, b))| a != b && (at == PARTS - 1 || !(a.is_empty() || b.is_empty())))
    }

    /// `ParseSELinuxLabel` in `internal/parse/selinux_label.go`. A level may contain colons.
    fn parts(&self) -> [&str; PARTS] {
        let mut parts = self.0.splitn(PARTS, ':');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn label(options: Value) -> Label {
        Label::of(&serde_json::from_value(options).unwrap())
    }

    /// `TestSELinuxOptionsToFileLabel` in upstream's selinux_translator_test.go.
    #[test]
    fn parts_that_are_not_set_stay_empty() {
        let all = json!({"user": "system_u", "role": "system_r", "type": "container_t", "level": "s0:c1,c2"});
        for (options, expected) in [
            (all, "system_u:system_r:container_t:s0:c1,c2"),
            (json!({"level": "s0:c1,c2"}), ":::s0:c1,c2"),
            (json!({"user": "system_u"}), "system_u:::"),
            (json!({"type": "spc_t", "level": ""}), "::spc_t:"),
            (json!({}), ""),
            (json!({"user": "", "role": "", "type": "", "level": ""}), ""),
        ] {
            assert_eq!(label(options.clone()).to_string(), expected, "{options}");
        }
    }

    /// `TestLabelsConflict` there, and more.
    #[test]
    fn labels_conflict_if_a_part_differs_that_both_have_or_the_level() {
        for (a, b, expected) in [
            ("", "", false),
            ("", "system_u:system_r:container_t", false),
            ("", "system_u:system_r:container_t:s0:c1,c2", true),
            (":::", "system_u:system_r:container_t", false),
            ("system_u:system_r:container_t:", "system_u:system_r", false),
            ("system_u:system_r:conflict_t:", "system_u:system_r:container_t", true),
            ("::conflict_t", "::container_t", true),
            ("system_u::container_t", ":system_r::", false),
            (":::s0:c1,c2", ":::s0:c1,c2", false),
            (":::s0:c1,c2", ":::s0:c98,c99", true),
            (":::s0:c1,c2", "", true),
            ("system_u:system_r:container_t:s0:c1,c2", ":::s0:c1,c2", false),
            ("system_u:system_r:container_t:s0:c1,c2", ":::s0:c98,c99", true),
            ("system_u:system_r:container_t:s0:c1,c2", "system_u:::s0:c1,c2", false),
            ("system_u:system_r:container_t:s0:c1,c2", "other_u:::s0:c1,c2", true),
            ("::container_t:", "::spc_t:", true),
            ("::container_t:", "", false),
            ("system_u:::", ":system_r::", false),
        ] {
            let [a, b] = [a, b].map(|label| Label(label.to_owned()));
            assert_eq!(a.conflicts(&b), expected, "{a} and {b}");
            assert_eq!(b.conflicts(&a), expected, "{b} and {a}");
        }
    }
}
