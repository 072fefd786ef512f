//! `--image-rootfs IMAGE=..`: what stands for an image of a manifest, and which image it is for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    str::FromStr,
};

use claimcheck_node::image_reference::{closest, last_component};

use crate::driver_command::split_words;

/// What stands for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StandIn {
    /// The folder of its root file system.
    Folder(PathBuf),
    /// The image itself, which the container engine has.
    Engine,
    /// A program of the host with its first arguments; never empty.
    Program(Vec<String>),
    /// Nothing: its containers are left out.
    Nothing,
}

/// `--image-rootfs IMAGE=DIR`, `IMAGE=docker`, `IMAGE=exec:PROGRAM` or `IMAGE=none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRootfs {
    image: String,
    stand_in: StandIn,
}

/// An invalid `--image-rootfs`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageRootfsError {
    /// It has no image, or nothing stands for it.
    #[error(
        "write IMAGE=DIR, IMAGE=docker, IMAGE=exec:PROGRAM or IMAGE=none, for example \
         csi-provisioner=exec:./csi-provisioner"
    )]
    Form,
    /// An unterminated quote.
    #[error("{image}=exec: has an unterminated {quote}")]
    Quote {
        /// The image.
        image: String,
        /// The quote.
        quote: char,
    },
    /// Nothing after `exec:`.
    #[error("{0}=exec: has no program: add its path")]
    Empty(String),
}

impl FromStr for ImageRootfs {
    type Err = ImageRootfsError;

    fn from_str(text: &str) -> Result<Self, ImageRootfsError> {
        let (image, value) = text.trim().split_once('=').ok_or(ImageRootfsError::Form)?;
        if image.is_empty() || value.is_empty() || image.contains(char::is_whitespace) {
            return Err(ImageRootfsError::Form);
        }
        let image = image.to_owned();
        let stand_in = match value.strip_prefix("exec:") {
            Some(command) => match split_words(command) {
                Ok(words) if words.is_empty() => return Err(ImageRootfsError::Empty(image)),
                Ok(words) => StandIn::Program(words),
                Err(quote) => return Err(ImageRootfsError::Quote { image, quote }),
            },
            None if value == "none" => StandIn::Nothing,
            None if value == "docker" => StandIn::Engine,
            None => StandIn::Folder(value.into()),
        };
        Ok(Self { image, stand_in })
    }
}

/// Options of images that do not fit the manifests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Two options for one image.
    #[error("--image-rootfs {0} is given twice: one folder or program stands for an image")]
    Twice(String),
    /// Nothing stands for these images.
    #[error(
        "--deployment: nothing stands for these images:{}\nadd{}, each with docker if docker has the image, the folder of \
         its root file system, exec:PROGRAM, or none to leave its containers out",
        images.iter().map(ToString::to_string).collect::<String>(),
        options_for(images)
    )]
    Missing {
        /// Those, each once.
        images: Vec<Missing>,
    },
    /// No container has the image.
    #[error("--image-rootfs {image}: no container of the --deployment files uses it; they use {}", images.join(", "))]
    Unused {
        /// The image.
        image: String,
        /// Those of the containers.
        images: Vec<String>,
    },
    /// The short form matches several images.
    #[error("--image-rootfs {image} is ambiguous: write the whole reference, one of {}", images.join(", "))]
    Ambiguous {
        /// The image.
        image: String,
        /// The images that it matches.
        images: Vec<String>,
    },
}

/// An image for which no option stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The shortest form for an option.
    name: String,
    image: String,
    containers: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {}: {}", self.image, self.containers.join(", "))
    }
}

/// Fails with all images of these containers, for which no option stands.
pub(super) fn check_missing<'a>(
    containers: impl Iterator<Item = (&'a str, String)>,
    images: &BTreeSet<&str>,
) -> Result<(), ImageError> {
    let mut missing: Vec<Missing> = Vec::new();
    for (image, container) in containers {
        if let Some(known) = missing.iter_mut().find(|known| known.image == image) {
            known.containers.push(container);
            continue;
        }
        let short = last_component(image);
        let is_unique = images.iter().filter(|other| last_component(other) == short).count() == 1;
        let name = if is_unique { short } else { image }.to_owned();
        missing.push(Missing { name, image: image.to_owned(), containers: vec![container] });
    }
    if missing.is_empty() { Ok(()) } else { Err(ImageError::Missing { images: missing }) }
}

fn options_for(missing: &[Missing]) -> String {
    missing.iter().map(|missing| format!(" --image-rootfs {}=..", missing.name)).collect()
}

/// What stands for each of these images: the option that matches it most closely.
///
/// # Errors
/// An option occurs twice, is not used, or is used for several images.
pub(super) fn choose<'a>(
    options: &'a [ImageRootfs],
    images: &BTreeSet<&'a str>,
) -> Result<BTreeMap<&'a str, &'a StandIn>, ImageError> {
    let mut names = BTreeSet::new();
    if let Some(twice) = options.iter().find(|option| !names.insert(&option.image)) {
        return Err(ImageError::Twice(twice.image.clone()));
    }
    let mut chosen = BTreeMap::new();
    let mut used: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for image in images {
        if let Some(option) = closest(options.iter().map(|option| (&*option.image, option)), image) {
            chosen.insert(*image, &option.stand_in);
            used.entry(&option.image).or_default().push((*image).to_owned());
        }
    }
    for option in options {
        let image = || option.image.clone();
        match used.get(option.image.as_str()) {
            None => {
                let images = images.iter().map(|image| (*image).to_owned()).collect();
                return Err(ImageError::Unused { image: image(), images });
            }
            Some(several) if several.len() > 1 => {
                return Err(ImageError::Ambiguous { image: image(), images: several.clone() });
            }
            Some(_) => {}
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let table = [
            ("a=/rootfs", Ok(StandIn::Folder("/rootfs".into()))),
            ("a=exec:'/b c' -v", Ok(StandIn::Program(vec!["/b c".into(), "-v".into()]))),
            ("a=none", Ok(StandIn::Nothing)),
            ("a=docker", Ok(StandIn::Engine)),
            ("a=./docker", Ok(StandIn::Folder("./docker".into()))),
            ("a", Err(ImageRootfsError::Form)),
            ("=x", Err(ImageRootfsError::Form)),
            ("a=", Err(ImageRootfsError::Form)),
            ("a=exec:", Err(ImageRootfsError::Empty("a".into()))),
            ("a=exec:'b", Err(ImageRootfsError::Quote { image: "a".into(), quote: '\'' })),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<ImageRootfs>().map(|option| option.stand_in), expected, "{text}");
        }
    }

    #[test]
    fn the_closest_option_stands_for_an_image() {
        let chosen = |options: &[&str], images: &[&'static str]| {
            let options: Vec<ImageRootfs> = options.iter().map(|text| text.parse().unwrap()).collect();
            let images = images.iter().copied().collect();
            let chosen = choose(&options, &images).map_err(|error| error.to_string())?;
            let folder = |stand_in: &StandIn| match stand_in {
                StandIn::Folder(folder) => folder.display().to_string(),
                StandIn::Engine | StandIn::Program(_) | StandIn::Nothing => {
                    panic!("only folders are used here")
                }
            };
            Ok::<_, String>(chosen.into_values().map(folder).collect::<Vec<_>>())
        };
        let (one, two, other) = ("r/a/p:v1", "r/a/p:v2", "r/b/p:v1");
        let closest = chosen(&["p=/l", "r/a/p=/w", "r/a/p:v1=/e"], &[one, two, other]);
        assert_eq!(closest, Ok(["/e", "/w", "/l"].map(str::to_owned).to_vec()));
        let table: [(&[&str], &[&'static str], &str); 5] = [
            (
                &["p=/x"],
                &[one, other],
                "p is ambiguous: write the whole reference, one of r/a/p:v1, r/b/p:v1",
            ),
            (&["r/a/p=/x"], &[one, two], "is ambiguous"),
            (&["q=/x"], &[one], "no container of the --deployment files uses it; they use r/a/p:v1"),
            (&["p=/x", "p=/y"], &[one], "--image-rootfs p is given twice"),
            (&["p=/x", "r/a/p=/y"], &[one], "--image-rootfs p: no container"),
        ];
        for (options, images, expected) in table {
            let error = chosen(options, images).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
