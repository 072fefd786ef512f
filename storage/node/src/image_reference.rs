//! References to images, and options that name an image: by its whole reference, without tag and digest, or by its last
//! component. Pure.

/// How closely an option matches an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    LastComponent,
    WithoutVersion,
    Exact,
}

/// Of options with the image that each names, the one that matches `image` most closely.
pub fn closest<'a, T>(options: impl IntoIterator<Item = (&'a str, T)>, image: &str) -> Option<T> {
    let matching = options.into_iter().filter_map(|(named, option)| Some((closeness(named, image)?, option)));
    matching.max_by_key(|(closeness, _)| *closeness).map(|(_, option)| option)
}

/// The last component of a reference, without tag and digest: `csi-provisioner`.
pub fn last_component(reference: &str) -> &str {
    without_version(reference).rsplit('/').next().unwrap_or_default()
}

/// A reference without tag and digest; a port of the registry is not a tag.
fn without_version(reference: &str) -> &str {
    let reference = reference.split('@').next().unwrap_or_default();
    let name = reference.rfind('/').map_or(0, |slash| slash + 1);
    reference[name..].find(':').map_or(reference, |colon| &reference[..name + colon])
}

fn closeness(named: &str, image: &str) -> Option<Closeness> {
    let forms = [
        (Closeness::Exact, image),
        (Closeness::WithoutVersion, without_version(image)),
        (Closeness::LastComponent, last_component(image)),
    ];
    forms.into_iter().find(|(_, form)| *form == named).map(|(closeness, _)| closeness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lose_their_version() {
        let table = [
            ("registry.k8s.io/sig-storage/csi-provisioner:v6.3.0", "csi-provisioner"),
            ("localhost:5000/driver", "driver"),
            ("localhost:5000/a/driver@sha256:00", "driver"),
            ("driver:v1@sha256:00", "driver"),
        ];
        for (reference, expected) in table {
            assert_eq!(last_component(reference), expected, "{reference}");
        }
    }
}
