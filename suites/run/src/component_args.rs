//! Arguments for the built-in components on real nodes, where a run installs them.

use std::path::Path;

use claimcheck_cluster::Image;
use claimcheck_deploy::install::{self, Sidecars, Variant};
use clap::{Args, ValueEnum};

/// The image of the built-in components, as the manifests name it.
const IMAGE: &str = "claimcheck:dev";

/// Arguments of `--cluster kind`, and of `--cluster existing --install`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Built-in components on real nodes")]
pub struct ComponentArgs {
    /// Image of the built-in components: on kind its name in the container engine, or an archive of
    /// `docker save` [default: claimcheck:dev, built from this binary]; on an existing cluster one that its nodes
    /// have or can pull
    #[arg(long, value_name = "NAME|FILE.tar", env = "CLAIMCHECK_IMAGE")]
    image: Option<String>,
    /// Sidecars of the built-in driver [default: ours]
    #[arg(long, value_enum, env = "CLAIMCHECK_SIDECARS")]
    sidecars: Option<SidecarSource>,
    /// Keep the kind cluster, or the components installed on an existing cluster, at the end of the run
    #[arg(long)]
    pub keep: bool,
}

/// The sidecars of the built-in driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SidecarSource {
    /// The built-in provisioner, attacher, registrar and liveness probe
    Ours,
    /// The upstream sidecars of kubernetes-csi from registry.k8s.io, with a tap between them and the driver
    Upstream,
}

impl ComponentArgs {
    /// The first of these arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--image", self.image.is_some()),
            ("--sidecars", self.sidecars.is_some()),
            ("--keep", self.keep),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// The image name on the nodes.
    pub fn image_name(&self) -> &str {
        match &self.image {
            Some(image) if !is_archive(image) => image,
            Some(_) | None => IMAGE,
        }
    }

    /// The source of the image, if the run loads it onto the nodes; `base` is its base image, if it is built.
    pub fn image(&self, base: Option<String>) -> Image {
        match &self.image {
            Some(image) => given(image),
            None => Image::Built { name: IMAGE.to_owned(), base },
        }
    }

    /// Whether the image is a name that nodes have or can pull, not an archive.
    pub fn names_image(&self) -> bool {
        self.image.as_ref().is_some_and(|image| !is_archive(image))
    }

    /// Whether the sidecars are those of kubernetes-csi.
    pub fn has_upstream_sidecars(&self) -> bool {
        self.sidecars == Some(SidecarSource::Upstream)
    }

    /// The components to install.
    pub fn components(&self, variant: Variant) -> install::Options {
        let sidecars = match self.sidecars {
            Some(SidecarSource::Upstream) => Sidecars::Upstream,
            Some(SidecarSource::Ours) | None => Sidecars::Builtin,
        };
        install::Options { sidecars, image: self.image_name().to_owned(), ..install::Options::new(variant) }
    }
}

/// An image to load onto the nodes, from its argument.
pub fn given(image: &str) -> Image {
    if is_archive(image) { Image::Archive(image.into()) } else { Image::Named(image.to_owned()) }
}

/// Whether it is a file and not an image name, by its extension.
fn is_archive(image: &str) -> bool {
    Path::new(image).extension().is_some_and(|extension| extension == "tar")
}
