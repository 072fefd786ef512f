//! What tests require of a machine beyond Rust: root, loop devices, programs.
//!
//! ```text
//!   #[ignore = "requires kubectl"]  in a test  --scan.rs-->  all tests of the workspace, with what they require
//!                                                                  |
//!   need.rs: what this machine lacks, and how to get it  ----------+--selection.rs-->  the tests that `ci/test` leaves
//!                                                                                      out, and its list at the end
//! ```
//!
//! A test that requires something is ignored, so that `cargo test` alone does not depend on the machine, and calls
//! [`require`] first, so that it fails without it. `ci/test` runs it where the machine has what it requires. The program
//! (`main.rs`) is what the scripts in `ci/` call.

mod need;
mod scan;
mod selection;

pub use need::{Need, envtest};
pub use scan::{Reason, Test, in_workspace};
pub use selection::{omitted, required, summary};

/// Fails the test if this machine lacks any of `needs`, the words of its `#[ignore = "requires .."]`.
///
/// # Panics
/// If something is missing, with how to get it; or if a word is not the name of a [`Need`].
#[track_caller]
pub fn require(needs: &str) {
    if let Err(missing) = check(needs) {
        panic!("{missing}");
    }
}

/// Whether this machine has all of `needs`, for programs that have their own `main`.
///
/// # Errors
/// What is missing and how to get it, in one line; or the word that is not the name of a [`Need`].
pub fn check(needs: &str) -> Result<(), String> {
    check_with(needs, Need::missing)
}

fn check_with(needs: &str, missing: impl Fn(Need) -> Option<String>) -> Result<(), String> {
    let lacks = |need: &Need| Some(format!("{} ({})", need.name(), missing(*need)?));
    let lacking: Vec<String> = Need::parse(needs)?.iter().filter_map(lacks).collect();
    if lacking.is_empty() { Ok(()) } else { Err(format!("this requires {}", lacking.join(", and "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_how_to_get_it() {
        let missing = |need: Need| match need {
            Need::Kubectl => Some("apt-get install kubernetes-client".to_owned()),
            Need::Xfs => Some("modprobe xfs".to_owned()),
            _ => None,
        };
        for (needs, expected) in [
            ("root, loop", Ok(())),
            ("kubectl", Err("this requires kubectl (apt-get install kubernetes-client)")),
            (
                "root, xfs, kubectl",
                Err("this requires xfs (modprobe xfs), and kubectl (apt-get install kubernetes-client)"),
            ),
        ] {
            assert_eq!(check_with(needs, missing), expected.map_err(str::to_owned), "{needs}");
        }
        assert!(check_with("root, kubctl", missing).unwrap_err().starts_with("\"kubctl\" is not"));
    }

    #[test]
    fn the_words_in_scripts_are_known() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci");
        let mut count = 0;
        for script in ["envtest", "e2e-embedded", "kind", "monitor", "nightly", "test"] {
            let text = std::fs::read_to_string(folder.join(script)).unwrap();
            for before in ["ci/not-run ", "|| missing ", "part_with "] {
                let words = text.lines().filter_map(|line| line.split_once(before)?.1.split(' ').next());
                for word in words.filter(|word| !word.starts_with('"')) {
                    Need::parse(word).unwrap_or_else(|error| panic!("ci/{script}: {error}"));
                    count += 1;
                }
            }
        }
        assert!(count > 12, "{count} words");
    }
}
