//! Node images by Kubernetes version: `--kubernetes 1.34` is the newest `kindest/node:v1.34.x` of the container engine.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    program::ProgramError,
    version::{Version, from_node_image},
};

/// The repository of kind's node images.
pub(crate) const REPOSITORY: &str = "kindest/node";

/// Versions of Kubernetes, as the command line selects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of which the engine has a node image.
    All,
    /// The newest patch of a minor version: `1.34`.
    Minor(u32, u32),
    /// A patch version: `1.34.9`.
    Patch(Version),
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim_start_matches('v');
        let minor = || {
            let (major, minor) = number.split_once('.')?;
            Some(Self::Minor(major.parse().ok()?, minor.parse().ok()?))
        };
        match text {
            "all" => Ok(Self::All),
            _ => minor().or_else(|| number.parse().ok().map(Self::Patch)).ok_or_else(|| {
                "write a version such as 1.34 or 1.34.9, or all for each version with a node image".to_owned()
            }),
        }
    }
}

impl Selection {
    fn includes(self, version: Version) -> bool {
        match self {
            Self::All => true,
            Self::Minor(major, minor) => (version.major, version.minor) == (major, minor),
            Self::Patch(patch) => version == patch,
        }
    }

    fn missing<'a>(self, known: impl Iterator<Item = &'a Version>, engine: &str) -> NodeImageError {
        let engine = engine.to_owned();
        let tag = match self {
            Self::All => return NodeImageError::Any { engine },
            Self::Minor(..) => format!("{self}.x"),
            Self::Patch(_) => self.to_string(),
        };
        let present: Vec<String> = known.map(Version::to_string).collect();
        let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
        NodeImageError::Version { selected: self, engine, present, tag }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "all"),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
            Self::Patch(version) => write!(f, "{version}"),
        }
    }
}

/// The engine has no node image of a version.
#[derive(Debug, thiserror::Error)]
pub enum NodeImageError {
    /// It has others, or none.
    #[error(
        "no node image of Kubernetes {selected}: {engine} has {present}. Get one: {engine} pull {REPOSITORY}:v{tag}"
    )]
    Version {
        /// The version.
        selected: Selection,
        /// The engine's name.
        engine: String,
        /// The images that are there.
        present: String,
        /// A tag to pull.
        tag: String,
    },
    /// `all`, without an image.
    #[error("{engine} has no node images: {engine} pull {REPOSITORY}:v1.36.2, for example")]
    Any {
        /// The engine's name.
        engine: String,
    },
    /// It does not list its images.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// The image of each selected version, of those that the engine has: from the oldest to the newest for `all`, otherwise
/// in the order of the selection, each once.
///
/// # Errors
/// A version has none.
pub fn choose(
    selected: &[Selection],
    images: &[String],
    engine: &str,
) -> Result<Vec<(Version, String)>, NodeImageError> {
    let known: BTreeMap<Version, &String> =
        images.iter().rev().filter_map(|image| Some((from_node_image(image)?, image))).collect();
    let mut chosen: Vec<(Version, String)> = Vec::new();
    for selection in selected {
        // A later version replaces an earlier one of the same minor version.
        let meant = known.keys().filter(|version| selection.includes(**version));
        let newest: BTreeMap<(u32, u32), Version> =
            meant.map(|version| ((version.major, version.minor), *version)).collect();
        if newest.is_empty() {
            return Err(selection.missing(known.keys(), engine));
        }
        for version in newest.into_values() {
            if chosen.iter().all(|(other, _)| *other != version) {
                chosen.push((version, known[&version].clone()));
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGES: [&str; 6] = [
        "kindest/node:v1.36.2",
        "kindest/node:v1.32.13",
        "kindest/node:v1.34.1",
        "kindest/node:v1.34.9",
        "kindest/node:<none>",
        "docker.io/kindest/node:v1.32.9",
    ];

    fn chosen(selected: &str, images: &[&str]) -> Result<Vec<String>, String> {
        let selected = selected.split(',').map(str::parse).collect::<Result<Vec<Selection>, _>>()?;
        let images: Vec<String> = images.iter().map(|&image| image.to_owned()).collect();
        let chosen = choose(&selected, &images, "docker").map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|(_, image)| image).collect())
    }

    #[test]
    fn the_newest_patch_of_each_version_is_chosen_once() {
        for (selected, expected) in [
            ("1.34", &["kindest/node:v1.34.9"][..]),
            ("v1.34.1", &["kindest/node:v1.34.1"]),
            ("1.36,1.32,1.36.2", &["kindest/node:v1.36.2", "kindest/node:v1.32.13"]),
            ("all", &["kindest/node:v1.32.13", "kindest/node:v1.34.9", "kindest/node:v1.36.2"]),
        ] {
            assert_eq!(chosen(selected, &IMAGES).unwrap(), expected, "{selected}");
        }
    }

    #[test]
    fn a_version_without_an_image_is_named_with_what_is_there_and_how_to_get_it() {
        assert_eq!(
            chosen("1.34,1.33", &IMAGES).unwrap_err(),
            "no node image of Kubernetes 1.33: docker has 1.32.9, 1.32.13, 1.34.1, 1.34.9, 1.36.2. Get one: docker \
             pull kindest/node:v1.33.x"
        );
        assert!(
            chosen("1.34.2", &[])
                .unwrap_err()
                .ends_with("docker has none. Get one: docker pull kindest/node:v1.34.2")
        );
        assert!(chosen("all", &[]).unwrap_err().starts_with("docker has no node images"));
        assert!(chosen("newest", &IMAGES).unwrap_err().starts_with("write a version"));
    }
}
