//! `--pod-image IMAGE=PROGRAM`: the program of the node that stands for an image in pods. Images are not pulled, and
//! most pods name a program that the node has. An image's own program does not exist there: this adds it. Pure.

use std::{path::PathBuf, str::FromStr};

use crate::image_reference::{closest, last_component};

/// An image, and what stands for its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodImage {
    image: String,
    program: PathBuf,
}

/// An invalid `--pod-image`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write IMAGE=PROGRAM with an absolute path, for example agnhost=/usr/local/bin/agnhost")]
pub struct PodImageError;

impl FromStr for PodImage {
    type Err = PodImageError;

    fn from_str(text: &str) -> Result<Self, PodImageError> {
        let (image, program) = text.split_once('=').ok_or(PodImageError)?;
        let program = PathBuf::from(program);
        match image.is_empty() || image.contains(char::is_whitespace) || !program.is_absolute() {
            true => Err(PodImageError),
            false => Ok(Self { image: image.to_owned(), program }),
        }
    }
}

/// The program in a container of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrypoint {
    /// Where the node has it.
    pub source: PathBuf,
    /// Where the container sees it, and the first word of its command line if the container names none: `/agnhost`.
    pub target: String,
}

/// The program for an image: that of the option which matches it most closely.
pub fn entrypoint(options: &[PodImage], image: &str) -> Option<Entrypoint> {
    let option = closest(options.iter().map(|option| (&*option.image, option)), image)?;
    Some(Entrypoint { source: option.program.clone(), target: format!("/{}", last_component(image)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_an_image_and_an_absolute_path() {
        for wrong in ["", "agnhost", "=/bin/a", "a=", "a=bin/a", "a b=/bin/a"] {
            assert_eq!(wrong.parse::<PodImage>(), Err(PodImageError), "{wrong:?}");
        }
        let right = PodImage { image: "r:5000/a:1".into(), program: "/b=c".into() };
        assert_eq!("r:5000/a:1=/b=c".parse(), Ok(right));
    }

    #[test]
    fn the_closest_form_of_an_image_counts() {
        let options = ["agnhost=/last", "r:5000/x/agnhost=/name", "r:5000/x/agnhost:2=/exact"];
        let options = options.map(|option| option.parse::<PodImage>().unwrap());
        for (image, expected) in [
            ("r:5000/x/agnhost:2", Some("/exact")),
            ("r:5000/x/agnhost:3", Some("/name")),
            ("r:5000/x/agnhost@sha256:1", Some("/name")),
            ("other/agnhost:2", Some("/last")),
            ("agnhost", Some("/last")),
            ("agnhost2", None),
            ("agnhost/busybox", None),
        ] {
            let found = entrypoint(&options, image);
            assert_eq!(
                found.as_ref().map(|found| found.source.clone()),
                expected.map(PathBuf::from),
                "{image}"
            );
            assert!(found.is_none_or(|found| found.target == "/agnhost"), "{image}");
        }
    }
}
