//! `claimcheck image`: builds the image of the components without a container engine.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use claimcheck_deploy::image::{self, Platform};

/// Arguments of `image`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Root file system with e2fsprogs and xfsprogs: a directory, or an uncompressed tar archive
    #[arg(long, value_name = "DIR|TAR")]
    rootfs: PathBuf,
    /// Archive to write, for `kind load image-archive`, `docker load` or `ctr images import`
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// claimcheck binary, built for the platform [default: the running one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Name of the image
    #[arg(long, default_value = "claimcheck:dev")]
    tag: String,
    /// Platform of the image: linux/amd64 or linux/arm64 [default: this machine's]
    #[arg(long)]
    platform: Option<Platform>,
}

impl Args {
    /// Builds the image and prints its digest.
    pub fn run(self) -> Result<ExitCode> {
        let native = Platform::native()
            .context("images for this machine's platform are not supported: set --platform and --binary");
        let binary = match self.binary {
            Some(binary) => binary,
            None => std::env::current_exe()
                .context("cannot determine the path of the running binary: set --binary")?,
        };
        let platform = match self.platform {
            Some(platform) => platform,
            None => native?,
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
