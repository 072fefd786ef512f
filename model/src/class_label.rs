//! Storage classes as label values: the cardinality of a label must not grow with the number of cases.

/// The label value for all classes that were created for one case.
pub const PER_CASE: &str = "per-case";

/// The label value for a class.
///
/// A class of the cluster keeps its name: there are few, and they are compared. One that a run created for a case becomes
/// [`PER_CASE`], or a run of a thousand cases would create a thousand series per phase, others in each run. A claim
/// without a class keeps the empty value.
pub fn class_label(class: &str) -> &str {
    if is_of_a_run(class) { PER_CASE } else { class }
}

/// Whether a name is `cc-<run>-<the rest>`, of which a run makes the names of all its objects, with four hexadecimal
/// digits for the run; or `cc-<suite>-<number>`, as earlier versions named them.
fn is_of_a_run(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("cc-") else { return false };
    let is_run =
        |run: &str| run.len() == 4 && run.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    rest.split_once('-').is_some_and(|(run, _)| is_run(run))
        || rest.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_classes_of_cases_lose_their_names() {
        for of_case in [
            "cc-bec5-binding-118-manual",
            "cc-0001-volumes-1",
            "cc-12ef-provisioning-7-zoned-0",
            "cc-beef-load",
            "cc-volumes-1",
            "cc-multi-volume-1042",
        ] {
            assert_eq!(class_label(of_case), PER_CASE, "{of_case}");
        }
        for of_cluster in
            ["", "standard", "cc-fast", "cc-gold-tier", "cc-gold-", "rook-ceph-block-2", "cc-beefy-ssd"]
        {
            assert_eq!(class_label(of_cluster), of_cluster);
        }
    }
}
