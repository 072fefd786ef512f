//! Storage classes as label values: the cardinality of a label must not grow with the number of cases.

/// The label value for all classes that were created for one case.
pub(super) const PER_CASE: &str = "per-case";

/// The prefix that fixtures give to the names of all their objects: `cc-<suite>-<number>`.
const MADE: &str = "cc-";

/// The label value for a class.
///
/// A class of the cluster keeps its name: there are few, and they are compared. One that a fixture created
/// (`cc-<suite>-<number>`) becomes [`PER_CASE`], or a run of a thousand cases would create a thousand series
/// per phase. A claim without a class keeps the empty value.
pub(super) fn label(class: &str) -> &str {
    let number = class.strip_prefix(MADE).and_then(|rest| rest.rsplit_once('-')).map(|(_, number)| number);
    match number {
        Some(number) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => PER_CASE,
        Some(_) | None => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_made_classes_lose_their_names() {
        for made in ["cc-volumes-1", "cc-multi-volume-1042"] {
            assert_eq!(label(made), PER_CASE, "{made}");
        }
        for kept in ["", "standard", "cc-fast", "cc-gold-tier", "cc-gold-", "rook-ceph-block-2"] {
            assert_eq!(label(kept), kept);
        }
    }
}
