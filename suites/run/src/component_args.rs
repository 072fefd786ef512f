//! Arguments about our components on real nodes: where a run installs them.

use std::path::Path;

use claimcheck_cluster::Image;
use claimcheck_deploy::install::{self, Sidecars, Variant};
use clap::{Args, ValueEnum};

/// The image of our components, as the manifests name it.
const IMAGE: &str = "claimcheck:dev";

/// Arguments of `--cluster kind`, and of `--cluster existing --install`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Our components on real nodes")]
pub struct ComponentArgs {
    /// The image of our components: on kind what the engine calls it, or an archive of `claimcheck image`
    /// [default: claimcheck:dev, which is built around this program]; on an existing cluster one that its nodes
    /// have or can pull
    #[arg(long, value_name = "NAME|FILE.tar", env = "CLAIMCHECK_IMAGE")]
    image: Option<String>,
    /// Whose sidecars stand beside our driver [default: ours]
    #[arg(long, value_enum, env = "CLAIMCHECK_SIDECARS")]
    sidecars: Option<Whose>,
    /// Leave what was brought up at the end: the cluster on kind, our components on an existing one
    #[arg(long)]
    pub keep: bool,
}

/// Whose sidecars stand beside our driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whose {
    /// Our provisioner, attacher, registrar and liveness probe
    Ours,
    /// Those of kubernetes-csi from registry.k8s.io, with a tap between them and the driver
    Upstream,
}

impl ComponentArgs {
    /// The first that was given, for places that take none.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--image", self.image.is_some()),
            ("--sidecars", self.sidecars.is_some()),
            ("--keep", self.keep),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// The image as nodes know it.
    pub fn image_name(&self) -> &str {
        match &self.image {
            Some(image) if !is_archive(image) => image,
            Some(_) | None => IMAGE,
        }
    }

    /// Where the image comes from, where we bring it to the nodes; `base` is below it, if it is built.
    pub fn image(&self, base: Option<String>) -> Image {
        match &self.image {
            Some(image) => given(image),
            None => Image::Built { name: IMAGE.to_owned(), base },
        }
    }

    /// Whether nodes are told an image that they may have or can pull.
    pub fn names_image(&self) -> bool {
        self.image.as_ref().is_some_and(|image| !is_archive(image))
    }

    /// Whether the sidecars are those of kubernetes-csi.
    pub fn has_upstream_sidecars(&self) -> bool {
        self.sidecars == Some(Whose::Upstream)
    }

    /// What is installed.
    pub fn components(&self, variant: Variant) -> install::Options {
        let sidecars = match self.sidecars {
            Some(Whose::Upstream) => Sidecars::Upstream,
            Some(Whose::Ours) | None => Sidecars::Ours,
        };
        install::Options { sidecars, image: self.image_name().to_owned(), ..install::Options::new(variant) }
    }
}

/// An image that is brought to nodes, as people name it.
pub fn given(image: &str) -> Image {
    if is_archive(image) { Image::Archive(image.into()) } else { Image::Named(image.to_owned()) }
}

/// Whether it is a file, not the name of an image: those have no such ending.
fn is_archive(image: &str) -> bool {
    Path::new(image).extension().is_some_and(|extension| extension == "tar")
}
