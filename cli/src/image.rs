//! `claimcheck image`: the image of the components, without a container engine.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_deploy::image::{self, Platform};

/// What `image` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root file system: a folder, or a tar archive that is not compressed; with e2fsprogs and xfsprogs
    #[arg(long, value_name = "DIR|TAR")]
    rootfs: PathBuf,
    /// The archive to write: `kind load image-archive`, `docker load` and `ctr images import` take it
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The binary of claimcheck, built for the platform [default: this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The name of the image
    #[arg(long, default_value = "claimcheck:dev")]
    tag: String,
    /// For which machines: linux/amd64 or linux/arm64 [default: this one's]
    #[arg(long)]
    platform: Option<Platform>,
}

impl Args {
    /// Builds the image and says its digest.
    pub fn run(self) -> Result<ExitCode> {
        let ours =
            Platform::ours().context("no images are made for this machine: give --platform and --binary");
        let binary = match self.binary {
            Some(binary) => binary,
            None => {
                std::env::current_exe().context("this program does not know where it lies: give --binary")?
            }
        };
        let platform = match self.platform {
            Some(platform) => platform,
            None => ours?,
        };
        let options = image::Options { rootfs: self.rootfs, binary, tag: self.tag, platform, out: self.out };
        let image = image::build(&options)?;
        for note in &image.notes {
            eprintln!("claimcheck: {note}");
        }
        println!("{} {} {}", options.out.display(), options.tag, image.digest);
        Ok(ExitCode::SUCCESS)
    }
}
