//! Why each variant is legal: the sentence of the CSI specification that permits it. And what the driver lacks with it.
//! Both are data, in `permits.yaml`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use super::Variant;
use crate::capability::Capability;

/// A sentence of the CSI specification.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permit {
    /// Its section.
    pub section: String,
    /// The sentence, without line breaks and comment marks.
    pub sentence: String,
    variants: Vec<Variant>,
}

/// `permits.yaml`, which describes its format.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sentences: Vec<Permit>,
    lacks: BTreeMap<Variant, Vec<Capability>>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    serde_saphyr::from_str(include_str!("permits.yaml")).expect("a test reads permits.yaml")
});

impl Variant {
    /// The sentence that permits it.
    pub fn permit(self) -> &'static Permit {
        let permits = |permit: &&Permit| permit.variants.contains(&self);
        FILE.sentences.iter().find(permits).expect("a test finds the sentence of each variant")
    }

    /// The capabilities that the driver lacks.
    pub(super) fn lacks(self) -> &'static [Capability] {
        FILE.lacks.get(&self).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_variant_has_one_sentence() {
        let named = FILE.sentences.iter().flat_map(|permit| &permit.variants);
        let mut named: Vec<Variant> = named.copied().collect();
        named.sort_unstable();
        assert_eq!(named, Variant::all(), "in the order of the declaration");
        for permit in &FILE.sentences {
            assert!(!permit.variants.is_empty(), "{permit:?}");
            assert!(!permit.section.is_empty() && permit.sentence.len() > 10, "{permit:?}");
            assert!(!permit.sentence.contains("  "), "{permit:?}");
        }
    }

    #[test]
    fn each_capability_has_a_variant_that_lacks_it() {
        for (variant, lacks) in &FILE.lacks {
            assert_eq!(lacks.iter().collect::<BTreeSet<_>>().len(), lacks.len(), "{variant:?}");
            assert!(!lacks.is_empty(), "{variant:?}");
        }
        for capability in Capability::ALL {
            let name = format!("Without{capability:?}");
            let variant = Variant::all().iter().find(|variant| format!("{variant:?}") == name);
            let variant = variant.unwrap_or_else(|| panic!("{name} is no variant"));
            assert!(variant.lacks().contains(&capability), "{name}");
        }
    }
}
