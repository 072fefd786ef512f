//! Names of objects: validation, and `generateName`.
//!
//! Mirrors apimachinery pkg/util/validation and apiserver pkg/storage/names.

/// Upstream's message for an invalid DNS subdomain.
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
    '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Upstream's message for an invalid DNS label.
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What the names of a kind's objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomains.
    Subdomain,
    /// DNS labels, which have no dots.
    Label,
    /// Segments of a path.
    Segment,
}

impl NameRule {
    /// Why `name` is no such name.
    pub fn faults(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain | Self::Label => Vec::from_iter(fault(name, self == Self::Label)),
            Self::Segment => path_segment_faults(name),
        }
    }

    /// Why `base` cannot be the start of a generated name.
    pub fn base_faults(self, base: &str) -> Vec<String> {
        match self {
            Self::Subdomain | Self::Label => Vec::from_iter(base_fault(base, self == Self::Label)),
            Self::Segment => forbidden_marks(base),
        }
    }
}

/// Why `name` is not a DNS label (`label`) or subdomain, if so.
pub fn fault(name: &str, label: bool) -> Option<String> {
    let (limit, message) = if label { (63, LABEL) } else { (253, SUBDOMAIN) };
    if name.len() > limit {
        return Some(format!("must be no more than {limit} characters"));
    }
    let parts = |name: &str| if label { is_label(name) } else { name.split('.').all(is_label) };
    (!parts(name)).then(|| message.to_owned())
}

/// Why the subdomain `name` is no DNS label, if so: a list in Go's format, for warnings.
pub fn faults_as_label(name: &str) -> Option<String> {
    fault(name, true)?;
    let too_long = (name.len() > 63).then_some("must be no more than 63 characters");
    let faults: Vec<&str> =
        too_long.into_iter().chain(name.contains('.').then_some("must not contain dots")).collect();
    Some(format!("[{}]", faults.join(" ")))
}

/// Why `name` cannot be a segment of a path, as names of objects without other rules must be.
///
/// Mirrors `IsValidPathSegmentName` in apimachinery pkg/api/validation/path.
pub fn path_segment_faults(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        name => forbidden_marks(name),
    }
}

fn forbidden_marks(name: &str) -> Vec<String> {
    let contained = ['/', '%'].into_iter().filter(|mark| name.contains(*mark));
    contained.map(|mark| format!("may not contain '{mark}'")).collect()
}

fn is_label(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !part.is_empty()
        && part.bytes().all(|byte| plain(byte) || byte == b'-')
        && part.bytes().next().is_some_and(plain)
        && part.bytes().last().is_some_and(plain)
}

/// Why `base` cannot be the start of a generated name: upstream (`maskTrailingDash`) accepts a dash at its end, which the
/// generated characters follow.
pub fn base_fault(base: &str, label: bool) -> Option<String> {
    match base.strip_suffix('-').and_then(|start| start.char_indices().next_back()) {
        Some((last, _)) => fault(&format!("{}a", &base[..last]), label),
        None => fault(base, label),
    }
}

/// `base` with five random characters, chosen so that they cannot form a word.
pub fn generate(base: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const SUFFIX: usize = 5;
    // Upstream cuts the base so that the whole fits into a label.
    let mut end = base.len().min(63 - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let random = uuid::Uuid::new_v4();
    let suffix = random.as_bytes()[..SUFFIX]
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_names() {
        for name in ["a", "a-b.c", "1", &"x".repeat(253)] {
            assert_eq!(fault(name, false), None, "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", ".a", &"x".repeat(254)] {
            assert!(fault(name, false).is_some(), "{name}");
        }
        assert!(fault("a.b", true).is_some());
    }

    #[test]
    fn bases_of_generated_names() {
        for base in ["pvc-", "a", "a.b-"] {
            assert_eq!(base_fault(base, false), None, "{base}");
        }
        for base in ["Bad_", "-", "a--.", &"g".repeat(300)] {
            assert!(base_fault(base, false).is_some(), "{base}");
        }
    }

    #[test]
    fn segments_of_paths() {
        assert!(["a", "A b", "..."].iter().all(|name| path_segment_faults(name).is_empty()));
        assert_eq!(path_segment_faults(".."), ["may not be '..'"]);
        assert_eq!(path_segment_faults("%/"), ["may not contain '/'", "may not contain '%'"]);
        assert!(NameRule::Segment.faults("system:a").is_empty());
        assert!(NameRule::Segment.base_faults("..").is_empty(), "more characters follow");
        assert_eq!(NameRule::Label.faults("a.b").len(), 1);
    }

    #[test]
    fn generated_names_are_valid_and_differ() {
        let names = [generate("pvc-"), generate("pvc-"), generate(&"x".repeat(80))];
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| fault(name, true).is_none()), "{names:?}");
    }
}
